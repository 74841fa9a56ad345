//! `trunkline why`: explains a call of the running gateway, gate by gate, without making it.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::audit::records::{audit_files, read_records};
use super::call::pairs::{PairError, read_pairs};
use super::columns::wrap_text;
use super::running::{GatewayOption, GatewayRequest, report_unanswered};
use super::{
    CommonArgs, FAILURE_EXIT, UNREACHABLE_EXIT, WRONG_USE, json_text, print_error, printable,
    report_error, write_to_stdout,
};

/// Explain which check refuses a call, with the line of the configuration and the change that would
/// allow it
///
/// Evaluates the call against every check of the running gateway without making it: profile, name,
/// held definitions, rules with the failing term of a condition, scopes, circuit breaker, rates,
/// arguments, quotas and the state of the server. Nothing is charged or sent.
///
/// Exit codes: 0 if the call would be made, 1 if not, 2 for an invalid command line, 3 if no gateway
/// answers.
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
    /// Explain the call with this id in the audit log of the configuration
    #[arg(long, value_name = "ID", conflicts_with_all = ["client", "url"])]
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

/// The members of a record of the audit log that identify its call.
#[derive(Debug, Deserialize)]
struct LoggedCall {
    id: String,
    principal: Option<String>,
    profile: Option<String>,
    tool: Option<String>,
    arguments: Option<Map<String, Value>>,
}

/// Reason that no call can be explained.
#[derive(Debug, thiserror::Error)]
enum CallQueryError {
    #[error(transparent)]
    Pair(#[from] PairError),
    #[error("calls are not recorded: set `file` in [audit]")]
    NoLog,
    #[error("the audit log has no call of a known client with the id {id}")]
    UnknownId { id: String },
    #[error("the audit log cannot be read")]
    Read(#[from] std::io::Error),
}

pub(super) fn explain(args: &WhyArgs) -> ExitCode {
    let body = match &args.from_audit {
        None => query_of(args),
        Some(id) => {
            let common = CommonArgs::with_config(args.gateway.config().to_owned());
            match common.read_config() {
                Ok(config) => find_logged(id, &config.audit),
                Err(code) => return code,
            }
        }
    };
    let body = match body {
        Ok(body) => body,
        Err(error @ CallQueryError::Pair(_)) => {
            print_error(&error.to_string());
            return WRONG_USE.into_code();
        }
        Err(error) => return report_error(&error),
    };
    let request =
        GatewayRequest { method: Method::POST, path: "/why", body: Some(body.to_string()) };
    let document = match args.gateway.request(&request) {
        Ok(document) => document,
        Err(error) => return report_unanswered(&error),
    };
    let Ok(explanation) = ExplanationText::deserialize(&document) else {
        print_error("the gateway has another version: its answer cannot be read");
        return UNREACHABLE_EXIT.into_code();
    };
    let text = if args.json { json_text(&document) } else { describe(&explanation) };
    write_to_stdout(&text);
    if explanation.refused_by.is_some() { FAILURE_EXIT.into_code() } else { ExitCode::SUCCESS }
}

fn query_of(args: &WhyArgs) -> Result<Value, CallQueryError> {
    let has_facts = !(args.scopes.is_empty() && args.groups.is_empty() && args.claims.is_empty());
    let token = json!({
        "scopes": args.scopes, "groups": args.groups, "claims": read_pairs(&args.claims)?,
    });
    Ok(json!({
        "client": args.client,
        "tool": args.tool,
        "profile": args.profile,
        "arguments": read_pairs(&args.arguments)?,
        "token": has_facts.then_some(token),
    }))
}

/// Finds a call in the audit log. Arguments that are not recorded are left out.
fn find_logged(id: &str, audit: &crate::config::AuditConfig) -> Result<Value, CallQueryError> {
    let mut found = None;
    let files = audit_files(audit).ok_or(CallQueryError::NoLog)?;
    for file in files.iter().filter(|file| file.exists()) {
        read_records(file, |record: Option<LoggedCall>| {
            found = found.take().or(record.filter(|record| record.id == id));
        })?;
    }
    let unknown = || CallQueryError::UnknownId { id: id.to_owned() };
    let LoggedCall { principal, profile, tool, arguments, .. } = found.ok_or_else(unknown)?;
    let (client, tool) = principal.zip(tool).ok_or_else(unknown)?;
    let arguments = arguments.unwrap_or_default();
    Ok(json!({ "client": client, "tool": tool, "profile": profile, "arguments": arguments }))
}

/// Describes an explanation for a terminal of 80 columns.
fn describe(explanation: &ExplanationText) -> String {
    let ExplanationText { client, profile, tool, server, .. } = explanation;
    let server = server.as_ref().map(|server| format!(" (server {server})")).unwrap_or_default();
    let title = format!("{client} calls {tool}{server} in the profile {profile}");
    let mut text = wrap_text("", &printable(&title)) + "\n";
    for gate in &explanation.gates {
        let is_first = explanation.refused_by.as_deref() == Some(&*gate.gate);
        text.push_str(&describe_gate(gate, if is_first { "→" } else { " " }));
    }
    let outcome = match &explanation.refused_by {
        Some(gate) => format!("The call is refused by: {}.", gate.replace('_', " ")),
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
    let name = gate.gate.replace('_', " ");
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
