//! `trunkline report`: unused tools, their cost, and the lines that hide them. It reads the audit
//! log, which records the callers and the lists.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use jiff::{Span, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::listed::{ask_running_gateway, print_unlisted, read_document, with_listed_servers};
use crate::admin::{CountedServer, CountedTool, ToolListing};
use crate::cli::audit::pages::request_pages;
use crate::cli::audit::records::{audit_files, read_records};
use crate::cli::running::{GatewayOption, report_unanswered};
use crate::cli::{
    BareFile, CONFIG_FAULT, CommonArgs, FAILURE_EXIT, json_text, printable, report_error,
    write_to_stdout,
};
use crate::config::Config;

/// Report the tools that were not called for some days, and their cost
///
/// Asks the running gateway for its tools, and for the records of its audit log. If none runs with the
/// configuration, starts its servers to list them, and reads the files of the log. Prints the lines of
/// TOML that hide the tools without calls.
///
/// Exit codes: 0 for a report about all servers, 1 if a server cannot be listed, the gateway has no
/// audit log or the log has no records, 2 for an invalid command line, configuration or file of --log, 3 if a gateway does not
/// answer.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    gateway: GatewayOption,
    #[command(flatten)]
    file: BareFile,
    /// The number of past days
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    /// Files of the audit log, by default that of the gateway
    #[arg(long = "log", value_name = "FILE")]
    logs: Vec<PathBuf>,
    /// Start the servers of the configuration, also if a gateway runs
    #[arg(long, visible_alias = "start", conflicts_with = "url")]
    offline: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Reason that no report is possible.
#[derive(Debug, thiserror::Error)]
enum ReportError {
    #[error(
        "no report is possible, because calls are not recorded in a file: set `file` in [audit] of {}, \
         and wait for the calls of some days; or name the files of a log with --log FILE",
        config.display()
    )]
    NoLog { config: PathBuf },
    #[error(
        "no report is possible, because the audit log has no records{}: wait for the calls of some days",
        describe_unreadable(*unreadable)
    )]
    NoRecords { unreadable: usize },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
}

pub(crate) fn report_unused(args: &ReportArgs) -> ExitCode {
    match find_unused(args) {
        Ok(exit) => exit,
        Err(code) => code,
    }
}

fn find_unused(args: &ReportArgs) -> Result<ExitCode, ExitCode> {
    let gateway = args.gateway.clone().or_file(args.file.clone());
    let since = Timestamp::now() - Span::new().hours(i64::from(args.days) * 24);
    // The file is not loaded beside a running gateway: it may be faulty.
    let (listing, usage) = match ask_running_gateway(&gateway, args.offline.into(), "/tools") {
        Ok(Some(document)) => {
            let listing: ToolListing =
                read_document(&document).map_err(|error| report_unanswered(&error))?;
            let usage = if args.logs.is_empty() {
                request_usage(&gateway, since)?
            } else {
                read_logs(&args.logs, since).map_err(|error| report_log_fault(&error))?
            };
            (listing, usage)
        }
        Ok(None) => {
            let config = CommonArgs::with_config(gateway.config().to_owned()).read_config()?;
            let usage = log_files(args, &config).and_then(|logs| read_logs(&logs, since));
            let usage = usage.map_err(|error| report_log_fault(&error))?;
            let listing = with_listed_servers(config, |it| ToolListing::of(it, None));
            (listing.map_err(|error| report_error(&error))?, usage)
        }
        Err(error) => return Err(report_unanswered(&error)),
    };
    print_unlisted(&listing.unlisted);
    let unused = UnusedTools { listing: &listing, usage: &usage };
    let missing = usage.first.is_none();
    if missing {
        let _ = report_log_fault(&ReportError::NoRecords { unreadable: usage.unreadable });
    }
    let exit = match usage.first {
        _ if args.json => write_to_stdout(&json_text(&unused.to_json(args.days))),
        Some(first) => write_to_stdout(&unused.describe(args.days, first.max(since), since)),
        None => return Err(FAILURE_EXIT.into_code()),
    };
    Ok(if !missing && listing.unlisted.is_empty() { exit } else { FAILURE_EXIT.into_code() })
}

/// Returns the files to read: the given ones, or the configured one and its rotated predecessors.
fn log_files(args: &ReportArgs, config: &Config) -> Result<Vec<PathBuf>, ReportError> {
    if !args.logs.is_empty() {
        return Ok(args.logs.clone());
    }
    let files = audit_files(&config.audit).filter(|files| !files.is_empty());
    let gateway = args.gateway.clone().or_file(args.file.clone());
    files.ok_or_else(|| ReportError::NoLog { config: gateway.config().to_owned() })
}

fn report_log_fault(error: &ReportError) -> ExitCode {
    let _ = report_error(error);
    match error {
        ReportError::NoLog { .. } | ReportError::NoRecords { .. } => FAILURE_EXIT.into_code(),
        ReportError::Read { .. } => CONFIG_FAULT.into_code(),
    }
}

fn describe_unreadable(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!(", and {lines} line(s) that are not records") }
}

/// Counts the calls in the audit log of the running gateway.
fn request_usage(gateway: &GatewayOption, since: Timestamp) -> Result<LoggedUsage, ExitCode> {
    let mut usage = LoggedUsage::default();
    request_pages(gateway, ("since", since.to_string()), |page| {
        for record in &page.records {
            usage.add(serde_json::from_str(record.get()).ok(), since);
        }
        usage.unreadable += page.unreadable_lines;
        usage.first = [usage.first, page.oldest_at].into_iter().flatten().min();
        ControlFlow::Continue(())
    })?;
    Ok(usage)
}

/// Calls and lists in an audit log.
#[derive(Debug, Default)]
struct LoggedUsage {
    /// Calls of tools, by server and native name.
    calls: HashMap<(String, String), usize>,
    /// Number of listings of tools, by profile.
    lists: HashMap<String, usize>,
    /// Time of the first record.
    first: Option<Timestamp>,
    /// Lines that are not records.
    unreadable: usize,
}

/// The relevant fields of a record.
#[derive(Deserialize)]
struct LoggedRecord {
    time: Timestamp,
    event: String,
    /// Empty in records that are not about a request.
    #[serde(default)]
    method: String,
    profile: Option<String>,
    server: Option<String>,
    native_tool: Option<String>,
}

fn read_logs(paths: &[PathBuf], since: Timestamp) -> Result<LoggedUsage, ReportError> {
    let mut usage = LoggedUsage::default();
    for path in paths {
        let read = read_records(path, |record| usage.add(record, since));
        read.map_err(|source| ReportError::Read { path: path.clone(), source })?;
    }
    Ok(usage)
}

impl LoggedUsage {
    fn add(&mut self, record: Option<LoggedRecord>, since: Timestamp) {
        match record {
            Some(record) => self.count(record, since),
            None => self.unreadable += 1,
        }
    }

    fn count(&mut self, record: LoggedRecord, since: Timestamp) {
        self.first = Some(self.first.map_or(record.time, |first| first.min(record.time)));
        if record.time < since {
            return;
        }
        match (record.event.as_str(), record.server, record.native_tool) {
            ("call", Some(server), Some(tool)) => {
                *self.calls.entry((server, tool)).or_default() += 1;
            }
            ("list", ..) if record.method == "tools/list" => {
                *self.lists.entry(record.profile.unwrap_or_default()).or_default() += 1;
            }
            _ => {}
        }
    }

    fn is_called(&self, tool: &CountedTool) -> bool {
        let origin = tool.server.clone().zip(tool.native.clone());
        origin.is_some_and(|origin| self.calls.contains_key(&origin))
    }
}

/// The tools that were not called.
struct UnusedTools<'a> {
    listing: &'a ToolListing,
    usage: &'a LoggedUsage,
}

impl UnusedTools<'_> {
    /// Returns the tools of a server that were not called, in order of descending cost.
    fn of_server(&self, server: &str) -> Vec<&CountedTool> {
        let own = self.listing.tools.iter();
        let own = own.filter(|tool| tool.server.as_deref() == Some(server));
        let mut unused: Vec<_> = own.filter(|tool| !self.usage.is_called(tool)).collect();
        unused.sort_by_key(|tool| std::cmp::Reverse(tool.tokens));
        unused
    }

    /// Describes the time since `since`; the log begins at `begin`, if that is later.
    fn describe(&self, days: u16, begin: Timestamp, since: Timestamp) -> String {
        let mut text = String::new();
        let calls: usize = self.usage.calls.values().sum();
        let lists: usize = self.usage.lists.values().sum();
        let _ = writeln!(
            text,
            "The last {days} day(s): {calls} call(s) of tools, and tools were listed {lists} time(s)."
        );
        if begin > since {
            let _ = writeln!(text, "The log begins later, at {begin:.0}.");
        }
        if self.usage.unreadable > 0 {
            let _ = writeln!(text, "{} line(s) of it are not records.", self.usage.unreadable);
        }
        let unused: Vec<_> = self
            .listing
            .servers
            .iter()
            .map(|server| (server, self.of_server(&server.name)))
            .collect();
        let all: usize = self.listing.servers.iter().map(|server| server.tokens).sum();
        let cost: usize = unused.iter().flat_map(|(_, tools)| tools).map(|tool| tool.tokens).sum();
        let count: usize = unused.iter().map(|(_, tools)| tools.len()).sum();
        let _ = writeln!(
            text,
            "{count} of {} tools were not called. They take up {cost} of {all} tokens, by estimate, \
             in each session that lists all tools.",
            self.listing.tools.iter().filter(|tool| tool.server.is_some()).count()
        );
        for (server, tools) in &unused {
            let tokens: usize = tools.iter().map(|tool| tool.tokens).sum();
            match tools.len() {
                0 => continue,
                some if some == server.tools => {
                    let _ = writeln!(
                        text,
                        "\n{}: none of its {some} tool(s) was called: {tokens} tokens",
                        printable(&server.name)
                    );
                }
                some => {
                    let _ = writeln!(
                        text,
                        "\n{}: {some} of {} tools: {tokens} tokens",
                        printable(&server.name),
                        server.tools
                    );
                }
            }
            for tool in tools {
                let name = printable(&tool.name);
                let _ = writeln!(text, "{:>8}  {name}", tool.tokens);
            }
        }
        if count > 0 {
            text.push_str("\nTo hide them, write into the configuration:\n");
        }
        for (server, tools) in unused.iter().filter(|(_, tools)| !tools.is_empty()) {
            write_toml(server, tools, &mut text);
        }
        text
    }

    /// Returns the report as JSON.
    fn to_json(&self, days: u16) -> Value {
        let servers = self.listing.servers.iter().map(|server| {
            // Without records, nothing is known about calls.
            let unused = self.usage.first.map(|_| self.of_server(&server.name));
            json!({
                "server": server.name, "tools": server.tools, "tokens": server.tokens,
                "unused": unused,
            })
        });
        json!({
            "days": days,
            "calls": self.usage.calls.values().sum::<usize>(),
            "lists": self.usage.lists.values().sum::<usize>(),
            "log_begins_at": self.usage.first,
            "unreadable_lines": self.usage.unreadable,
            "estimate": self.listing.estimate,
            "servers": servers.collect::<Vec<_>>(),
            "unlisted": self.listing.unlisted,
        })
    }
}

fn write_toml(server: &CountedServer, tools: &[&CountedTool], text: &mut String) {
    let name = printable(&server.name);
    let mut deny = toml_edit::Array::new();
    if tools.len() == server.tools {
        deny.push("*");
    } else {
        // The printed lines include the patterns that hide tools already.
        let before = server.denied.iter().map(String::as_str);
        let natives = tools.iter().filter_map(|tool| tool.native.as_deref());
        before.chain(natives).for_each(|name| deny.push(toml_text(name)));
    }
    let _ = write!(text, "\n[servers.{name}.tools]\ndeny = {deny}\n");
}

/// Returns a text as a TOML value, with escapes for the characters that a terminal obeys or hides.
pub(super) fn toml_text(text: &str) -> toml_edit::Value {
    let mut literal = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => literal.extend(['\\', c]),
            c if printable(c.encode_utf8(&mut [0; 4])).chars().eq([c]) => literal.push(c),
            c => {
                let _ = write!(literal, "\\U{:08x}", u32::from(c));
            }
        }
    }
    literal.push('"');
    literal.parse().unwrap_or_else(|_| text.into())
}

#[cfg(test)]
mod tests {
    use super::toml_text;

    #[test]
    fn a_name_is_written_without_characters_that_a_terminal_obeys() {
        let name = "a\u{1b}\u{9b}\u{202e}\u{e0041}\"\\ü\n";
        let value = toml_text(name);
        let text = value.to_string();
        let has_odd = text.chars().any(|c| c.is_control() || "\u{202e}\u{e0041}".contains(c));
        assert!(!has_odd && text.contains('ü'), "{text:?}");
        assert_eq!(value.as_str(), Some(name));
        assert_eq!(toml_text("now").to_string(), "\"now\"");
    }
}
