//! `trunkline test`: starts a server of the running gateway a second time, lists it, and calls a tool.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use http::Method;
use serde::Deserialize;

use super::{report_refused, server_path};
use crate::cli::call::pairs::{ArgumentPairs, read_pairs};
use crate::cli::columns::wrap_text;
use crate::cli::running::{GatewayOption, GatewayRequest, report_other_version};
use crate::cli::{FAILURE_EXIT, WRONG_USE, json_text, print_error, printable, write_to_stdout};

/// Start a server of the running gateway a second time, list it, and call a tool if one is named
///
/// The second one has the settings, sandbox and account of the gateway, never the login of a user.
/// Clients do not see it, and it ends with the test. A server with OAuth is tested as it runs. A tool
/// is called without the rules of a client, with effect; that needs the role admin.
///
/// Exit codes: 0 if every step has passed, 1 if not, or if the server is unknown, 2 for an invalid
/// command line, 3 if no gateway answers.
#[derive(Debug, Args)]
#[command(after_help = TEST_EXAMPLES)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    gateway: GatewayOption,
    /// The server: NAME of [servers.NAME]
    server: String,
    /// The tool to call, by the server's own name
    tool: Option<String>,
    /// The arguments: a value is JSON if it can be read as such, and a text otherwise
    #[arg(value_name = "KEY=VALUE", requires = "tool")]
    arguments: Vec<String>,
    /// Print the whole report as JSON
    #[arg(long)]
    json: bool,
}

const TEST_EXAMPLES: &str = "\
Examples:
  trunkline test github
  trunkline test clock now zone=UTC";

/// The part of a report that is printed.
#[derive(Debug, Deserialize)]
struct TrialText {
    server: String,
    note: Option<String>,
    has_passed: bool,
    steps: Vec<TrialStepText>,
    result: Option<String>,
    output: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct TrialStepText {
    step: String,
    has_passed: bool,
    millis: u64,
    text: String,
}

pub(crate) fn test(args: &TestArgs) -> ExitCode {
    let arguments = match read_pairs(&args.arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            print_error(&printable(&error.to_string()));
            return WRONG_USE.into_code();
        }
    };
    let mut path = format!("{}/test", server_path(&args.server));
    if let Some(tool) = &args.tool {
        let tool: String = url::form_urlencoded::byte_serialize(tool.as_bytes()).collect();
        let _ = write!(path, "?tool={tool}");
    }
    let body = args.tool.is_some().then(|| describe_body(arguments));
    let request = GatewayRequest { method: Method::POST, path: &path, body };
    let document = match args.gateway.request(&request) {
        Ok(document) => document,
        Err(error) => return report_refused(&error, &args.gateway, &args.server),
    };
    let Ok(report) = TrialText::deserialize(&document) else {
        return report_other_version();
    };
    let text = if args.json { json_text(&document) } else { report.describe() };
    let written = write_to_stdout(&text);
    if report.has_passed { written } else { FAILURE_EXIT.into_code() }
}

/// Returns the body of a request with the arguments as they are written: a tree of values would round
/// long numbers.
fn describe_body(arguments: ArgumentPairs) -> String {
    let body = BTreeMap::from([("arguments", arguments)]);
    serde_json::to_string(&body).unwrap_or_default()
}

impl TrialText {
    /// Describes the report for a terminal of 80 columns.
    fn describe(&self) -> String {
        let mut text = String::new();
        if let Some(note) = &self.note {
            text.push_str(&wrap_text("note: ", &printable(note)));
        }
        for TrialStepText { step, has_passed, millis, text: outcome } in &self.steps {
            let mark = if *has_passed { "ok    " } else { "failed" };
            let start = format!("{mark}  {:5}  {millis:>6} ms  ", printable(step));
            text.push_str(&wrap_text(&start, &printable(outcome)));
        }
        if let Some(result) = &self.result {
            let _ = writeln!(text, "\n{}", printable(result));
        }
        if !self.has_passed && !self.output.is_empty() {
            text.push_str("\nThe last lines of its output:\n");
            for line in &self.output {
                let _ = writeln!(text, "  {}", printable(line));
            }
        }
        let outcome = if self.has_passed { "has passed" } else { "has failed" };
        let _ = writeln!(text, "\nThe test of {} {outcome}.", printable(&self.server));
        text
    }
}
