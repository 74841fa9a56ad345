//! `trunkline why`: explains a call of the running gateway, gate by gate, without making it.

mod recorded;

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::call::pairs::{ArgumentPairs, PairError, read_pairs};
use super::columns::wrap_text;
use super::running::{GatewayOption, GatewayRequest, report_other_version, report_unanswered};
use super::{
    FAILURE_EXIT, WRONG_USE, json_text, print_error, printable, report_error, write_to_stdout,
};
use recorded::LoggedRequest;

/// Explain which check refuses a call, with the line of the configuration and the change that would
/// allow it
///
/// Evaluates the call against every check of the running gateway without making it: profile, name,
/// held definitions, rules with the failing term of a condition, scopes, circuit breaker, rates,
/// arguments, quotas and the state of the server. Nothing is charged or sent.
///
/// Exit codes: 0 if the call would be made, 1 if not, or if the recorded one was refused, 2 for an
/// invalid command line, 3 if no gateway answers.
#[derive(Debug, Args)]
#[command(after_help = WHY_EXAMPLES)]
pub(super) struct WhyArgs {
    #[command(flatten)]
    gateway: GatewayOption,
    /// The client: NAME of [clients.NAME], a user as ISSUER:SUBJECT, or `anonymous`
    #[arg(required_unless_present = "from_audit")]
    client: Option<String>,
    /// The tool, by its public name
    #[arg(required_unless_present = "from_audit")]
    tool: Option<String>,
    /// The arguments: a value is JSON if it can be read as such, and a text otherwise
    #[arg(value_name = "KEY=VALUE")]
    arguments: Vec<String>,
    /// The profile; by default the first one that the client may use
    #[arg(short, long, value_name = "NAME")]
    profile: Option<String>,
    /// A scope in the token of a user
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// A group in the token of a user
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// A claim in the token of a user
    #[arg(long = "claim", value_name = "NAME=VALUE")]
    claims: Vec<String>,
    /// Explain the call with this id in the gateway's audit log
    #[arg(long, value_name = "ID", conflicts_with = "client")]
    from_audit: Option<String>,
    /// Print the whole explanation as JSON
    #[arg(long)]
    json: bool,
}

const WHY_EXAMPLES: &str = "\
Examples:
  trunkline why ci git__push branch=main force=true
  trunkline why corp:ann git__push --group builders --claim team='\"web\"'
  trunkline why --from-audit 5f0c2a-17 --json";

/// The part of an explanation that is printed.
#[derive(Debug, Deserialize)]
struct ExplanationText {
    client: String,
    profile: String,
    tool: String,
    server: Option<String>,
    assumptions: Vec<String>,
    refused_by: Option<String>,
    gates: Vec<GateText>,
}

#[derive(Debug, Deserialize)]
struct GateText {
    gate: String,
    verdict: String,
    reason: String,
    setting: Option<String>,
    line: Option<u32>,
    cure: Option<String>,
}

/// The body of the request. Its arguments are as they are written: a tree of values would round long
/// numbers.
#[derive(Debug, Serialize)]
struct QueryBody {
    client: Option<String>,
    tool: Option<String>,
    profile: Option<String>,
    arguments: ArgumentPairs,
    token: Option<Value>,
}

pub(super) fn explain(args: &WhyArgs) -> ExitCode {
    let recorded = match &args.from_audit {
        Some(id) => match LoggedRequest::find(&args.gateway, id) {
            Ok(found) => Some(found),
            Err(code) => return code,
        },
        None => None,
    };
    let body = match &recorded {
        Some(recorded) => match recorded.to_query() {
            Ok(query) => query,
            Err(error) => {
                write_to_stdout(&recorded.describe());
                return report_error(&error);
            }
        },
        None => match query_of(args) {
            Ok(query) => serde_json::to_string(&query).unwrap_or_default(),
            Err(error) => {
                print_error(&error.to_string());
                return WRONG_USE.into_code();
            }
        },
    };
    let request = GatewayRequest { method: Method::POST, path: "/why", body: Some(body) };
    let document = match args.gateway.request(&request) {
        Ok(document) => document,
        Err(error) => return report_unanswered(&error),
    };
    let Ok(explanation) = ExplanationText::deserialize(&document) else {
        return report_other_version();
    };
    let was_refused = recorded.as_ref().is_some_and(LoggedRequest::is_refused);
    let is_refused = was_refused || explanation.refused_by.is_some();
    let text = if args.json {
        recorded.as_ref().map_or_else(|| json_text(&document), |it| it.to_json(&document))
    } else {
        describe(recorded.as_ref(), &explanation)
    };
    write_to_stdout(&text);
    if is_refused { FAILURE_EXIT.into_code() } else { ExitCode::SUCCESS }
}

fn query_of(args: &WhyArgs) -> Result<QueryBody, PairError> {
    let has_facts = !(args.scopes.is_empty() && args.groups.is_empty() && args.claims.is_empty());
    let token = json!({
        "scopes": args.scopes, "groups": args.groups, "claims": read_pairs(&args.claims)?,
    });
    Ok(QueryBody {
        client: args.client.clone(),
        tool: args.tool.clone(),
        profile: args.profile.clone(),
        arguments: read_pairs(&args.arguments)?,
        token: has_facts.then_some(token),
    })
}

/// Describes an explanation, and the recorded decision, for a terminal of 80 columns.
fn describe(recorded: Option<&LoggedRequest>, explanation: &ExplanationText) -> String {
    let ExplanationText { client, profile, tool, server, .. } = explanation;
    let server = server.as_ref().map(|server| format!(" (server {server})")).unwrap_or_default();
    let title = format!("{client} calls {tool}{server} in the profile {profile}");
    let mut text = recorded.map(LoggedRequest::describe).unwrap_or_default();
    let start = if recorded.is_some() { "Now:      " } else { "" };
    text.push_str(&(wrap_text(start, &printable(&title)) + "\n"));
    for gate in &explanation.gates {
        let is_first = explanation.refused_by.as_deref() == Some(&*gate.gate);
        text.push_str(&describe_gate(gate, if is_first { "→" } else { " " }));
    }
    let outcome = match &explanation.refused_by {
        Some(gate) => format!("The call is refused by: {}.", printable(&gate.replace('_', " "))),
        None if recorded.is_some_and(LoggedRequest::is_refused) => {
            "No check refuses the call now.".to_owned()
        }
        None => "No check refuses the call.".to_owned(),
    };
    let _ = writeln!(text, "\n{outcome}");
    for assumption in &explanation.assumptions {
        text.push_str(&wrap_text("Assumed: ", &printable(assumption)));
    }
    text
}

fn describe_gate(gate: &GateText, mark: &str) -> String {
    let verdict = match gate.verdict.as_str() {
        "passes" => "ok",
        "refuses" => "refused",
        "waits" => "waits",
        "asks_user" => "asks",
        _ => "unknown",
    };
    let name = printable(&gate.gate.replace('_', " "));
    let mut body = gate.reason.clone();
    if let Some(setting) = &gate.setting {
        let line = gate.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let _ = write!(body, "\n{line}{setting}");
    }
    if let Some(cure) = &gate.cure {
        let _ = write!(body, "\n{cure}");
    }
    let lines: Vec<_> = body.split('\n').map(printable).collect();
    wrap_text(&format!("{mark} {verdict:<8}{name:<14} "), &lines.join("\n"))
}
