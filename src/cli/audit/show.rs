//! `trunkline audit show` and `trunkline audit tail`: records of the running gateway's audit log.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use url::form_urlencoded::Serializer;

use crate::cli::columns::wrap_text;
use crate::cli::running::{GatewayOption, GatewayRequest, RunningGatewayError, report_unanswered};
use crate::cli::{
    BareFile, UNREACHABLE_EXIT, print_error, printable, report_error, write_to_stdout,
};

/// The gateway, and the records of its log.
#[derive(Debug, Args)]
pub(crate) struct RecordQuery {
    #[command(flatten)]
    gateway: GatewayOption,
    #[command(flatten)]
    file: BareFile,
    /// Records of this principal, or of this operator
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Records about this tool, by its public or native name
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Records about this server
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Records with this decision, such as deny, or this outcome of an operation
    #[arg(long, value_name = "WORD")]
    decision: Option<String>,
    /// Records of this event, such as call, or of this operation, such as reload
    #[arg(long, value_name = "WORD")]
    kind: Option<String>,
    /// The number of records
    #[arg(short = 'n', long = "lines", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    lines: u16,
    /// Print the records as they are in the log, one JSON object in a line
    #[arg(long)]
    json: bool,
}

/// Arguments of `audit show`.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    query: RecordQuery,
    /// The earliest time, such as 2026-11-28T10:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// The latest time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

/// Arguments of `audit tail`.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    query: RecordQuery,
    /// Go on with new records until the command is interrupted
    #[arg(short, long)]
    follow: bool,
}

const SHOW_EXAMPLES: &str = "\
Examples:
  trunkline audit show --client ci --decision deny
  trunkline audit show --kind reload --json | jq .digest_after
  trunkline audit tail -f --server github";

#[derive(Debug, Deserialize)]
struct PageText {
    records: Vec<Value>,
    next: Option<String>,
    newest: Option<u64>,
}

/// Records that match, and the number of the newest of all.
type FoundRecords = (Vec<Value>, Option<u64>);

pub(super) fn show_records(args: &ShowArgs) -> ExitCode {
    let ShowArgs { query, since, until } = args;
    let times = [("since", since.clone()), ("until", until.clone())];
    match query.find_records(&times, query.lines.into()) {
        Ok((records, _)) => write_to_stdout(&query.describe(&records)),
        Err(exit) => exit,
    }
}

pub(super) fn tail_records(args: &TailArgs) -> ExitCode {
    let (mut last, mut since) = (0, None);
    let mut wanted = args.query.lines.into();
    loop {
        let (records, newest) = match args.query.find_records(&[("after", since)], wanted) {
            Ok(found) => found,
            Err(exit) => return exit,
        };
        let text = args.query.describe(&records);
        if !args.follow {
            return write_to_stdout(&text);
        }
        let mut output = io::stdout();
        if let Err(error) = output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
            // A reader that has closed the pipe has seen enough.
            let is_closed = error.kind() == io::ErrorKind::BrokenPipe;
            return if is_closed { ExitCode::SUCCESS } else { report_error(&error) };
        }
        let newest = newest.unwrap_or(last);
        (last, since, wanted) = if newest < last {
            // The numbers have begun again: it is another log.
            (0, None, args.query.lines.into())
        } else {
            (newest, Some(newest.to_string()), MAX_NEW_RECORDS)
        };
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "the command has no runtime here")]
fn pause() {
    std::thread::sleep(POLL_INTERVAL);
}

impl RecordQuery {
    /// Returns the newest records that match, in their order. Goes on with further pages until there
    /// are enough. Returns the number of the newest record, too.
    fn find_records(
        &self,
        more: &[(&str, Option<String>)],
        wanted: usize,
    ) -> Result<FoundRecords, ExitCode> {
        let gateway = self.gateway.clone().or_file(self.file.clone());
        let (mut records, mut cursor, mut newest) = (Vec::new(), None, None);
        loop {
            let path = self.path(more, wanted - records.len(), cursor);
            let document = gateway.request(&GatewayRequest::get(&path));
            let document =
                document.map_err(|error: RunningGatewayError| report_unanswered(&error))?;
            let Ok(page) = PageText::deserialize(&document) else {
                print_error("the gateway has another version: its answer cannot be read");
                return Err(UNREACHABLE_EXIT.into_code());
            };
            records.extend(page.records);
            newest = newest.or(page.newest);
            match page.next {
                Some(next) if records.len() < wanted => cursor = Some(next),
                _ => break,
            }
        }
        records.reverse();
        Ok((records, newest))
    }

    fn path(
        &self,
        more: &[(&str, Option<String>)],
        limit: usize,
        cursor: Option<String>,
    ) -> String {
        let mut query = Serializer::new(String::new());
        let own = [
            ("client", self.client.clone()),
            ("tool", self.tool.clone()),
            ("server", self.server.clone()),
            ("decision", self.decision.clone()),
            ("kind", self.kind.clone()),
            ("limit", Some(limit.to_string())),
            ("cursor", cursor),
        ];
        for (name, value) in own.iter().chain(more) {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        format!("/audit?{}", query.finish())
    }

    fn describe(&self, records: &[Value]) -> String {
        let line = |record: &Value| {
            if self.json { format!("{record}\n") } else { describe_record(record) }
        };
        records.iter().map(line).collect()
    }
}

/// Describes a record for a terminal of 80 columns.
fn describe_record(record: &Value) -> String {
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    let time = text("time").and_then(|time| time.get(..19)).unwrap_or_default();
    let actor = record.get("actor").and_then(|actor| {
        let name = actor.get("name").and_then(Value::as_str);
        name.or_else(|| actor.get("kind").and_then(Value::as_str))
    });
    let subject = ["tool", "prompt", "resource", "path", "method"].into_iter().find_map(text);
    let words = [
        text("operation").or_else(|| text("event")),
        text("principal").or(actor),
        subject,
        text("server").map(|_| "at"),
        text("server"),
        text("decision").or_else(|| text("outcome")),
        text("rule"),
        text("reason"),
    ];
    let words: Vec<_> = words.into_iter().flatten().map(printable).collect();
    wrap_text(&format!("{}Z  ", printable(time)), &words.join(" "))
}

/// Limit of the records that are shown after one look; earlier ones are left out.
const MAX_NEW_RECORDS: usize = 1000;
/// Time between two looks for new records.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_a_line_without_control_characters() {
        let call = json!({
            "seq": 1, "time": "2026-11-28T10:00:00.123456Z", "event": "call", "principal": "ci",
            "tool": "git__push\u{1b}", "server": "git", "decision": "deny", "rule": "never",
            "reason": "denied"
        });
        let line = describe_record(&call);
        assert!(line.starts_with("2026-11-28T10:00:00Z  call ci git__push"), "{line}");
        assert!(
            line.ends_with(" at git deny never denied\n") && !line.contains('\u{1b}'),
            "{line}"
        );
        let change = json!({
            "seq": 2, "time": "2026-11-28T10:00:01.5Z", "event": "operation", "operation": "change",
            "actor": { "kind": "operator", "name": "uid 0" }, "method": "POST",
            "path": "/configuration/reload", "outcome": "ok"
        });
        assert_eq!(
            describe_record(&change),
            "2026-11-28T10:00:01Z  change uid 0 /configuration/reload ok\n"
        );
    }
}
