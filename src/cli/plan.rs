//! `trunkline plan` and `trunkline reload`: the consequences of the configuration file for the
//! running gateway, and a reload of exactly these.

pub(super) mod versions;

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::columns::wrap_text;
use super::running::{GatewayOption, GatewayRequest, report_other_version, report_unanswered};
use super::{BareFile, FAILURE_EXIT, json_text, print_error, printable, write_to_stdout};

/// Show the consequences of the configuration file for the running gateway
///
/// Compares the file with the running configuration: servers, the tools of each client, tokens,
/// protections, and the calls in the audit log that would be decided differently. Applies nothing.
///
/// Exit codes: 0 if nothing is lost or refused, 1 for faults, weakened protections, lost tools, calls
/// that would be decided differently and a log that cannot be read, 2 for an invalid command line, 3
/// if no gateway answers.
#[derive(Debug, Args)]
#[command(after_help = PLAN_EXAMPLES)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    gateway: GatewayOption,
    #[command(flatten)]
    file: BareFile,
    /// The past days whose recorded calls are decided again
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    /// Print the whole plan as JSON
    #[arg(long)]
    json: bool,
}

/// Have the running gateway read its configuration file again
///
/// Exit codes: 0 if the file is applied, or has the running configuration, 1 if not, 2 for an invalid
/// command line, 3 if no gateway answers.
#[derive(Debug, Args)]
#[command(after_help = PLAN_EXAMPLES)]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    gateway: GatewayOption,
    #[command(flatten)]
    file: BareFile,
    /// Apply exactly the plan with this digest
    #[arg(long = "if", value_name = "DIGEST")]
    digest: Option<String>,
    /// Wait until each server has listed its tools or failed
    #[arg(long)]
    wait: bool,
    /// Print the gateway's answer as JSON
    #[arg(long)]
    json: bool,
}

const PLAN_EXAMPLES: &str = "\
Examples:
  trunkline plan                             # what would change
  trunkline reload --if 3f2a… --wait         # apply exactly this plan
  trunkline plan --days 7 --json | jq .calls";

/// The part of a plan that is printed.
#[derive(Debug, Deserialize)]
struct PlanText {
    digest: Option<String>,
    faults: Vec<String>,
    is_unchanged: bool,
    consequences: ConsequencesText,
    calls: Option<CallsText>,
}

#[derive(Debug, Deserialize)]
struct ConsequencesText {
    added: Vec<String>,
    restarted: Vec<ServerText>,
    children: Vec<ChildText>,
    removed: Vec<ServerText>,
    clients: Vec<ClientText>,
    users_of: Vec<String>,
    profiles: Vec<TokensText>,
    weakened: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct ChildText {
    server: String,
    instances: String,
}

#[derive(Debug, Deserialize)]
struct ServerText {
    name: String,
    sessions: usize,
    calls: usize,
}

#[derive(Debug, Deserialize)]
struct ClientText {
    client: String,
    profile: String,
    gained: Vec<String>,
    lost: Vec<String>,
    renamed: Vec<RenamedText>,
}

#[derive(Debug, Deserialize)]
struct RenamedText {
    before: String,
    after: String,
}

#[derive(Debug, Deserialize)]
struct TokensText {
    profile: String,
    before: Option<usize>,
    after: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct CallsText {
    unchanged: usize,
    changed: Vec<ChangedText>,
    without_arguments: usize,
    without_token: usize,
    without_tool: usize,
    unreadable_files: Vec<String>,
    unreadable_lines: usize,
}

#[derive(Debug, Deserialize)]
struct ChangedText {
    caller: String,
    tool: String,
    is_allowed: bool,
    rule: String,
    calls: usize,
}

/// The answer to a reload.
#[derive(Debug, Deserialize)]
struct ReloadText {
    outcome: String,
    faults: Vec<String>,
    backup: Option<String>,
}

pub(super) fn show_plan(args: PlanArgs) -> ExitCode {
    let gateway = args.gateway.or_file(args.file);
    let body = Some(json!({ "days": args.days }).to_string());
    let request = GatewayRequest { method: Method::POST, path: "/configuration/plan", body };
    let document = match gateway.request(&request) {
        Ok(document) => document,
        Err(error) => return report_unanswered(&error),
    };
    let Ok(plan) = PlanText::deserialize(&document) else { return report_other_version() };
    let text = if args.json { json_text(&document) } else { plan.describe_file(args.days) };
    write_to_stdout(&text);
    if plan.has_findings() { FAILURE_EXIT.into_code() } else { ExitCode::SUCCESS }
}

pub(super) fn reload(args: ReloadArgs) -> ExitCode {
    let gateway = args.gateway.or_file(args.file);
    let body = Some(json!({ "digest": args.digest, "wait": args.wait }).to_string());
    let request = GatewayRequest { method: Method::POST, path: "/configuration/reload", body };
    let document = match gateway.request(&request) {
        Ok(document) => document,
        Err(error) => return report_unanswered(&error),
    };
    let Ok(answer) = ReloadText::deserialize(&document) else { return report_other_version() };
    if args.json {
        return answer.print_document(&document);
    }
    for fault in &answer.faults {
        print_error(&printable(fault));
    }
    match answer.outcome.as_str() {
        "applied" => write_to_stdout("the configuration is applied\n"),
        "unchanged" => write_to_stdout("the configuration has not changed\n"),
        outcome => {
            let outcome = printable(outcome);
            print_error(&format!("the running configuration is kept: the file is {outcome}"));
            FAILURE_EXIT.into_code()
        }
    }
}

impl ReloadText {
    /// Returns true if the subject of the reload runs now.
    fn is_running(&self) -> bool {
        matches!(self.outcome.as_str(), "applied" | "unchanged")
    }

    /// Prints the whole answer as JSON.
    fn print_document(&self, document: &Value) -> ExitCode {
        let written = write_to_stdout(&json_text(document));
        if self.is_running() { written } else { FAILURE_EXIT.into_code() }
    }
}

impl PlanText {
    fn has_findings(&self) -> bool {
        let lost = self.consequences.clients.iter().any(|client| !client.lost.is_empty());
        let changed = self.calls.as_ref().is_some_and(CallsText::has_findings);
        !self.faults.is_empty() || !self.consequences.weakened.is_empty() || lost || changed
    }

    /// Describes the plan of the file, with the command that applies it.
    fn describe_file(&self, days: u16) -> String {
        let mut text = self.describe("The file", days);
        if let Some(digest) = self.digest.as_ref().filter(|_| !self.is_unchanged) {
            let digest = printable(digest);
            let _ = writeln!(text, "\nApply exactly this:\n  trunkline reload --if {digest}");
        }
        text
    }

    /// Describes the plan for a terminal of 80 columns.
    fn describe(&self, subject: &str, days: u16) -> String {
        let mut text = String::new();
        let mut add = |start: &str, line: &str| text.push_str(&wrap_text(start, &printable(line)));
        if !self.faults.is_empty() {
            for fault in &self.faults {
                add("fault: ", fault);
            }
            return text;
        }
        if self.is_unchanged {
            add("", &format!("{subject} has the running configuration."));
        }
        let consequences = &self.consequences;
        let ConsequencesText { added, restarted, children, removed, clients, .. } = consequences;
        let ConsequencesText { users_of, profiles, weakened, .. } = consequences;
        for name in added {
            add("+ server ", &format!("{name}: its tools are not known before it starts"));
        }
        for server in restarted {
            let server = server.describe();
            add("~ server ", &format!("{server}; its tools are taken as they are now"));
        }
        for ChildText { server, instances } in children {
            let place = match instances.as_str() {
                "one" => "one replica runs its child",
                _ => "each replica runs a child of its own",
            };
            add("  ", &format!("{server}: {place}"));
        }
        for server in removed {
            add("- server ", &server.describe());
        }
        for client in clients {
            let ClientText { client: name, profile, gained, lost, renamed } = client;
            add("", &format!("{name}, profile {profile}:"));
            for (mark, tools) in [("  + tool ", gained), ("  - tool ", lost)] {
                for tool in tools {
                    add(mark, tool);
                }
            }
            for RenamedText { before, after } in renamed {
                add("  ~ tool ", &format!("{before} is {after}"));
            }
        }
        for issuer in users_of {
            add("? ", &format!("users of {issuer}: their tools are not known one by one"));
        }
        for TokensText { profile, before, after } in profiles {
            let count = |tokens: &Option<usize>| tokens.map_or("none".into(), |it| it.to_string());
            add("", &format!("profile {profile}: {} → {} tokens", count(before), count(after)));
        }
        for loss in weakened {
            add("! weaker ", loss);
        }
        match &self.calls {
            Some(calls) => calls.describe(days, &mut add),
            None => add("", "Calls are not recorded: set `file` in [audit]."),
        }
        text
    }
}

impl ServerText {
    fn describe(&self) -> String {
        let Self { name, sessions, calls } = self;
        format!("{name}: {sessions} session(s), {calls} call(s) in flight")
    }
}

impl CallsText {
    /// Returns true if calls would be decided differently, or a part of the log cannot be read.
    fn has_findings(&self) -> bool {
        !self.changed.is_empty() || !self.unreadable_files.is_empty() || self.unreadable_lines > 0
    }

    fn describe(&self, days: u16, add: &mut impl FnMut(&str, &str)) {
        add(
            "",
            &format!("Calls of the last {days} day(s): {} with the same decision.", self.unchanged),
        );
        for ChangedText { caller, tool, is_allowed, rule, calls } in &self.changed {
            let (mark, verb) = if *is_allowed { ("  + ", "allowed") } else { ("  - ", "refused") };
            add(mark, &format!("{calls} call(s) of {tool} by {caller} would be {verb} ({rule})"));
        }
        for (count, reason) in [
            (self.without_arguments, "without recorded arguments"),
            (self.without_token, "of users whose tokens are not recorded"),
            (self.without_tool, "whose tool is not known"),
            (self.unreadable_lines, "line(s) of the log are no records"),
        ] {
            if count > 0 {
                add("  ? ", &format!("{count} {reason}"));
            }
        }
        for file in &self.unreadable_files {
            add("  ? ", &format!("the log cannot be read: {file}"));
        }
    }
}
