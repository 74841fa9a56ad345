//! `trunkline logs`: the last lines of the running gateway's log, or its calls, and new ones as they
//! come.
//!
//! The gateway selects; this command only prints. Texts are those of the log, with invisible
//! characters escaped.

mod calls;
mod lines;

use std::io::{IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::columns::wrap_text;
use super::running::{
    GatewayEvent, GatewayOption, GatewayRequest, report_other_version, report_unanswered,
};
use super::{json_line, json_text, print_error, printable, write_to_stdout};

/// Show the log of the running gateway, or its calls, and follow them
///
/// The gateway keeps the last lines of its log in memory: up to 1000 of its own, and up to 1000 that
/// servers wrote to their standard error. With SERVER, only lines about it are shown. `--calls` shows
/// calls instead, without arguments and results.
///
/// Exit codes: 0 also if there is nothing to show, 1 for an unknown server or call, 2 for an invalid
/// command line, 3 if no gateway answers or the connection is lost.
#[derive(Debug, Args)]
#[command(after_help = LOGS_EXAMPLES)]
pub(super) struct LogsArgs {
    #[command(flatten)]
    gateway: GatewayOption,
    /// Only lines about this server, or its calls
    server: Option<String>,
    /// Continue with new ones as they come
    #[arg(short, long)]
    follow: bool,
    /// Only lines of this level and above
    #[arg(long, value_enum, value_name = "LEVEL", conflicts_with = "calls")]
    level: Option<LineLevel>,
    /// Only those from this time on: a time such as 2026-11-28T12:00:00Z, or an age such as 10m
    #[arg(long, value_name = "TIME", value_parser = read_since)]
    since: Option<Timestamp>,
    /// The number of past ones, at most 1000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u16).range(0..=1000))]
    limit: u16,
    /// Show calls instead of lines
    #[arg(long)]
    calls: bool,
    /// Only calls of this client
    #[arg(long, value_name = "CLIENT", requires = "calls")]
    client: Option<String>,
    /// Only calls with this outcome: ok, tool_error, refused, failed, cancelled or input_required
    #[arg(long, value_name = "OUTCOME", requires = "calls")]
    outcome: Option<String>,
    /// Show the steps of the call with this id
    #[arg(long, value_name = "ID", conflicts_with_all = [
        "server", "follow", "calls", "level", "since", "limit"
    ])]
    call: Option<String>,
    /// Print JSON: the whole document, or one for each line with --follow
    #[arg(long)]
    json: bool,
}

const LOGS_EXAMPLES: &str = "\
Examples:
  trunkline logs -f                        every new line of the log
  trunkline logs github --level warn       faults and warnings about a server
  trunkline logs --since 10m
  trunkline logs --calls -f --client ci    the calls of a client as they end
  trunkline logs --call 5f0c2a-17          one call, with the times of its steps";

/// Levels of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LineLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LineLevel {
    fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Reads a time, or an age.
fn read_since(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let age: Option<SignedDuration> =
        text.parse().ok().filter(|age: &SignedDuration| age.is_positive());
    let since = age.and_then(|age| Timestamp::now().checked_sub(age).ok());
    since.ok_or_else(|| {
        "expected a time such as 2026-11-28T12:00:00Z, or an age such as 10m or 2h".to_owned()
    })
}

/// Records of one kind, and their texts.
#[derive(Clone, Copy)]
struct RecordKind {
    /// The path of the list; that of new records is below it.
    path: &'static str,
    /// The member of the list's document.
    member: &'static str,
    /// The word for several.
    plural: &'static str,
    describe: fn(&Value) -> Option<RecordText>,
}

/// The text of a record.
struct RecordText {
    /// Its time; the lines after the first are indented by it.
    start: String,
    body: String,
}

impl RecordText {
    /// Returns the lines: wrapped on a terminal, and one otherwise.
    fn lines(&self) -> String {
        let (start, body) = (printable(&self.start), printable(&self.body));
        if std::io::stdout().is_terminal() {
            return wrap_text(&start, &body);
        }
        format!("{start}{body}\n")
    }
}

pub(super) fn show_logs(args: &LogsArgs) -> ExitCode {
    if let Some(id) = &args.call {
        return calls::show_call(&args.gateway, id, args.json);
    }
    let kind = if args.calls { calls::CALL_RECORDS } else { lines::LINE_RECORDS };
    if args.follow { follow_records(args, kind) } else { list_records(args, kind) }
}

/// Returns the path of a request, with the query of the arguments.
fn path_of(args: &LogsArgs, path: &str) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("limit", &args.limit.to_string());
    let level = args.level.map(|level| level.as_str().to_owned());
    let since = args.since.map(|since| since.to_string());
    for (name, value) in [
        ("server", &args.server),
        ("level", &level),
        ("since", &since),
        ("client", &args.client),
        ("outcome", &args.outcome),
    ] {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    format!("{path}?{}", query.finish())
}

fn list_records(args: &LogsArgs, kind: RecordKind) -> ExitCode {
    let path = path_of(args, kind.path);
    let document = match args.gateway.request(&GatewayRequest::get(&path)) {
        Ok(document) => document,
        Err(error) => return report_unanswered(&error),
    };
    if args.json {
        return write_to_stdout(&json_text(&document));
    }
    let Some(records) = document.get(kind.member).and_then(Value::as_array) else {
        return report_other_version();
    };
    let mut texts: Vec<_> = match records.iter().map(kind.describe).collect() {
        Some(texts) => texts,
        None => return report_other_version(),
    };
    if args.calls {
        // The newest are at the bottom, above the prompt.
        texts.reverse();
        if texts.is_empty() {
            print_error(calls::NO_CALLS);
        }
    }
    write_to_stdout(&texts.iter().map(RecordText::lines).collect::<String>())
}

/// Prints new records until the gateway ends the stream, or the reader of the output ends.
fn follow_records(args: &LogsArgs, kind: RecordKind) -> ExitCode {
    let path = path_of(args, &format!("{}/live", kind.path));
    let mut is_other_version = false;
    let mut is_read = true;
    let mut print = |event| {
        let text = match event {
            GatewayEvent::Missed(missed) => {
                let kind = kind.plural;
                print_error(&format!("{missed} {kind} are missing: there are too many to read"));
                return ControlFlow::Continue(());
            }
            GatewayEvent::Record(record) if args.json => json_line(&record),
            GatewayEvent::Record(record) => {
                let document = serde_json::from_str(record.get()).unwrap_or_default();
                if let Some(text) = (kind.describe)(&document) {
                    text.lines()
                } else {
                    is_other_version = true;
                    return ControlFlow::Break(());
                }
            }
        };
        is_read = std::io::stdout().write_all(text.as_bytes()).is_ok();
        if is_read { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let followed = args.gateway.follow(&GatewayRequest::get(&path), &mut print);
    match followed {
        Err(error) => report_unanswered(&error),
        Ok(()) if is_other_version => report_other_version(),
        Ok(()) => {
            if is_read {
                print_error("the gateway has ended the stream: it stops, or the role was revoked");
            }
            ExitCode::SUCCESS
        }
    }
}

/// Returns a time in UTC, to the second.
fn time_text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_or_an_age_is_read() {
        let time: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        assert_eq!(read_since("2026-11-28T12:00:00Z"), Ok(time));
        let age = Timestamp::now().duration_since(read_since("10m").unwrap());
        assert!((590..660).contains(&age.as_secs()), "{age}");
        for wrong in ["", "yesterday", "10", "-5m"] {
            assert!(read_since(wrong).unwrap_err().contains("10m"), "{wrong}");
        }
    }
}
