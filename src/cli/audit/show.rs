//! `trunkline audit show` and `trunkline audit tail`: records of the running gateway's audit log.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::columns::wrap_text;
use crate::cli::running::{GatewayEvent, GatewayOption, GatewayRequest, report_unanswered};
use crate::cli::{BareFile, json_line, print_error, printable, write_to_stdout};

use super::pages::{query_path, request_page};

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

pub(super) fn show_records(args: &ShowArgs) -> ExitCode {
    let ShowArgs { query, since, until } = args;
    let times = [("since", since.clone()), ("until", until.clone())];
    match query.find_records(&times, query.lines.into()) {
        Ok(records) => write_to_stdout(&query.describe(&records)),
        Err(exit) => exit,
    }
}

pub(super) fn tail_records(args: &TailArgs) -> ExitCode {
    if args.follow {
        return args.query.follow_records();
    }
    match args.query.find_records(&[], args.query.lines.into()) {
        Ok(records) => write_to_stdout(&args.query.describe(&records)),
        Err(exit) => exit,
    }
}

impl RecordQuery {
    /// Returns the newest records that match, in their order. Goes on with further pages until there
    /// are enough.
    fn find_records(
        &self,
        more: &[(&str, Option<String>)],
        wanted: usize,
    ) -> Result<Vec<Box<RawValue>>, ExitCode> {
        let gateway = self.gateway.clone().or_file(self.file.clone());
        let (mut records, mut cursor) = (Vec::new(), None);
        loop {
            let page = [("limit", Some((wanted - records.len()).to_string())), ("cursor", cursor)];
            let query: Vec<_> = self.pairs().chain(more.iter().cloned()).chain(page).collect();
            let page = request_page(&gateway, &query)?;
            records.extend(page.records);
            match page.next {
                Some(next) if records.len() < wanted => cursor = Some(next),
                _ => break,
            }
        }
        records.reverse();
        Ok(records)
    }

    /// Prints the last records and new ones until the gateway ends the stream, or the reader of the
    /// output ends.
    fn follow_records(&self) -> ExitCode {
        let gateway = self.gateway.clone().or_file(self.file.clone());
        let limit = [("limit", Some(self.lines.to_string()))];
        let path = query_path("/audit/live", self.pairs().chain(limit));
        let mut is_read = true;
        let mut print = |event| {
            let record = match event {
                GatewayEvent::Missed(missed) => {
                    print_error(&format!(
                        "{missed} records are missing: they are too many or too large"
                    ));
                    return ControlFlow::Continue(());
                }
                GatewayEvent::Record(record) => record,
            };
            let (mut output, text) = (io::stdout(), self.describe(&[record]));
            is_read = output.write_all(text.as_bytes()).and_then(|()| output.flush()).is_ok();
            if is_read { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        if let Err(error) = gateway.follow(&GatewayRequest::get(&path), &mut print) {
            return report_unanswered(&error);
        }
        if is_read {
            print_error("the gateway has ended the stream: it stops, or the role was revoked");
        }
        ExitCode::SUCCESS
    }

    /// Returns the filter as the pairs of a query.
    fn pairs<'a>(&self) -> impl Iterator<Item = (&'a str, Option<String>)> + use<'a> {
        let own = [
            ("client", self.client.clone()),
            ("tool", self.tool.clone()),
            ("server", self.server.clone()),
            ("decision", self.decision.clone()),
            ("kind", self.kind.clone()),
        ];
        own.into_iter()
    }

    fn describe(&self, records: &[Box<RawValue>]) -> String {
        let line = |record: &RawValue| {
            if self.json {
                return json_line(record);
            }
            describe_record(record)
        };
        records.iter().map(|record| line(record)).collect()
    }
}

/// Describes a record for a terminal of 80 columns.
fn describe_record(record: &RawValue) -> String {
    // Not as a tree of values, which has no number like 1E400.
    let members: BTreeMap<String, &RawValue> =
        serde_json::from_str(record.get()).unwrap_or_default();
    let text =
        |name: &str| -> Option<String> { serde_json::from_str(members.get(name)?.get()).ok() };
    let time = text("time").and_then(|time| time.get(..19).map(str::to_owned)).unwrap_or_default();
    let actor = members.get("actor").and_then(|actor| {
        let actor: ActorName = serde_json::from_str(actor.get()).ok()?;
        actor.name.or(actor.kind)
    });
    let subject = ["tool", "prompt", "resource", "path", "method"].into_iter().find_map(text);
    let words = [
        text("operation").or_else(|| text("event")),
        text("principal").or(actor),
        subject,
        text("server").map(|_| "at".to_owned()),
        text("server"),
        text("decision").or_else(|| text("outcome")),
        text("rule"),
        text("reason"),
    ];
    let words: Vec<_> = words.into_iter().flatten().map(|word| printable(&word)).collect();
    wrap_text(&format!("{}Z  ", printable(&time)), &words.join(" "))
}

/// The printed part of the actor of an operation.
#[derive(Deserialize)]
struct ActorName {
    name: Option<String>,
    kind: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    #[test]
    fn a_record_is_a_line_without_control_characters() {
        let call = json!({
            "seq": 1, "time": "2026-11-28T10:00:00.123456Z", "event": "call", "principal": "ci",
            "tool": "git__push\u{1b}", "server": "git", "decision": "deny", "rule": "never",
            "reason": "denied"
        });
        let line = describe_record(&to_raw_value(&call).unwrap());
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
            describe_record(&to_raw_value(&change).unwrap()),
            "2026-11-28T10:00:01Z  change uid 0 /configuration/reload ok\n"
        );
    }
}
