//! `trunkline policy test`: tries the rules of a configuration with a table of cases.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    CONFIG_FAULT, CommonArgs, ConfigOption, FAILURE_EXIT, json_text, print_error, write_to_stdout,
};
use crate::call::{ProfileName, ServerName};
use crate::catalog::{Kind, Naming};
use crate::config::Config;
use crate::policy::{Authorization, TrialCall, TrialElement, TrialOutcome, TrialResult};
use crate::text::escape_controls;

/// Try the rules of `[policy]`
#[derive(Debug, Args)]
#[command(mut_arg("config", |option| option.global(true)))]
pub(super) struct PolicyArgs {
    #[command(flatten)]
    config: ConfigOption,
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::doc_link_with_quotes, reason = "the help has an example in TOML")]
enum PolicyCommand {
    /// Try the rules with a table of cases, and print each outcome
    ///
    /// FILE is TOML with one table for each case:
    ///
    ///   [[case]]
    ///   principal = "ci"                 # by default a client without credentials
    ///   groups = ["builders"]            # by default those of its table, like `scopes`
    ///   claims = { team = "web" }        # of its token
    ///   profile = "support"              # by default /mcp
    ///   client = "claude-code"           # the name of its software
    ///   tool = "git__push"               # or prompt = "…", or resource = "mcp://…"
    ///   server = "git"                   # by default from the name, or the configuration
    ///   native = "push"                  # by default the rest of the name
    ///   annotations = { readOnlyHint = true }
    ///   arguments = { branch = "main" }
    ///   expect = "allow"                 # or "deny", for its arguments, or "hidden"
    ///   rule = "builders"                # the rule that decides, if that matters
    ///
    /// Servers are not started: each case contains the annotations of its tool.
    ///
    /// Exit codes: 0 if all cases are as expected, 1 if not, 2 for an invalid command line,
    /// configuration or table.
    #[command(verbatim_doc_comment)]
    Test {
        /// The table of cases
        file: PathBuf,
        /// Print the outcomes as JSON
        #[arg(long)]
        json: bool,
    },
}

/// A table of cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseTable {
    #[serde(rename = "case")]
    cases: Vec<PolicyCase>,
}

/// One case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyCase {
    principal: Option<String>,
    groups: Option<Vec<String>>,
    scopes: Option<Vec<String>>,
    #[serde(default)]
    claims: Map<String, Value>,
    profile: Option<String>,
    client: Option<String>,
    tool: Option<String>,
    prompt: Option<String>,
    resource: Option<String>,
    server: Option<String>,
    native: Option<String>,
    #[serde(default)]
    annotations: Map<String, Value>,
    #[serde(default)]
    arguments: Map<String, Value>,
    expect: ExpectedOutcome,
    rule: Option<String>,
}

/// Expected outcome of a case.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ExpectedOutcome {
    Allow,
    Deny,
    Hidden,
}

/// Fault of a case that cannot be tried.
#[derive(Debug, thiserror::Error)]
enum CaseFault {
    #[error("a case has one of `tool`, `prompt` and `resource`")]
    Subject,
    #[error("there is no server {name:?}")]
    UnknownServer { name: String },
    #[error("the server is not clear from the name: add `server`")]
    NoServer,
    #[error("there is no profile {name:?}")]
    UnknownProfile { name: String },
    #[error("not a tool: {0}")]
    Tool(#[from] crate::catalog::ItemError),
}

pub(super) fn run(args: PolicyArgs) -> ExitCode {
    let PolicyArgs { config, command: PolicyCommand::Test { file, json } } = args;
    let common = CommonArgs { config, listen: None, log: None };
    let config = match common.read_config() {
        Ok(config) => config,
        Err(code) => return code,
    };
    let table = match read_table(&file) {
        Ok(table) => table,
        Err(message) => {
            print_error(&format!("{}: {message}", file.display()));
            return CONFIG_FAULT.into_code();
        }
    };
    let Some(rules) = Authorization::compile(&config) else {
        print_error("the configuration has no [policy.rules]: everything is allowed");
        return CONFIG_FAULT.into_code();
    };
    match try_cases(&config, &rules, &table) {
        Ok(report) => {
            let document = || json_text(&serde_json::to_value(&report).unwrap_or_default());
            write_to_stdout(&if json { document() } else { report.describe() });
            if report.failed == 0 { ExitCode::SUCCESS } else { FAILURE_EXIT.into_code() }
        }
        Err((number, fault)) => {
            print_error(&format!("{}: case {number}: {fault}", file.display()));
            CONFIG_FAULT.into_code()
        }
    }
}

fn read_table(path: &Path) -> Result<CaseTable, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    toml::from_str(&text).map_err(|error| error.to_string())
}

/// The outcomes of all cases.
#[derive(Debug, Serialize)]
struct PolicyReport {
    cases: Vec<CaseReport>,
    /// The number of unexpected outcomes.
    failed: usize,
}

/// The outcome of a case.
#[derive(Debug, Serialize)]
struct CaseReport {
    /// Its place in the table, counted from 1.
    number: usize,
    is_expected: bool,
    principal: String,
    /// The public name or URI.
    subject: String,
    outcome: &'static str,
    rule: Option<String>,
    /// The fault of a condition.
    fault: Option<String>,
    expected_outcome: &'static str,
    expected_rule: Option<String>,
}

/// Tries all cases.
fn try_cases(
    config: &Config,
    rules: &Arc<Authorization>,
    table: &CaseTable,
) -> Result<PolicyReport, (usize, CaseFault)> {
    let mut cases = Vec::new();
    for (number, case) in (1..).zip(&table.cases) {
        let fault = |fault| (number, fault);
        let call = case.to_call(config).map_err(fault)?;
        let tried = rules.try_call(&call).map_err(|it| fault(it.into()))?;
        let TrialResult { outcome, rule, fault } = tried;
        let is_expected = outcome == case.expect.into()
            && case.rule.as_deref().is_none_or(|name| rule.as_deref() == Some(name));
        cases.push(CaseReport {
            number,
            is_expected,
            principal: call.principal.unwrap_or_else(|| "anonymous".to_owned()),
            subject: call.element.public,
            outcome: outcome.as_str(),
            rule: rule.map(|rule| rule.to_string()),
            fault: fault.map(|fault| fault.to_string()),
            expected_outcome: TrialOutcome::from(case.expect).as_str(),
            expected_rule: case.rule.clone(),
        });
    }
    let failed = cases.iter().filter(|case| !case.is_expected).count();
    Ok(PolicyReport { cases, failed })
}

impl PolicyReport {
    /// Describes each outcome in a line.
    fn describe(&self) -> String {
        let mut text: String = self.cases.iter().map(CaseReport::describe).collect();
        let _ = writeln!(text, "{} case(s), {} failed", self.cases.len(), self.failed);
        text
    }
}

impl CaseReport {
    fn describe(&self) -> String {
        let Self { number, principal, subject, outcome, rule, fault, .. } = self;
        let word = if self.is_expected { "ok  " } else { "FAIL" };
        let by = rule.as_deref().map_or("no rule".to_owned(), |rule| format!("rule {rule}"));
        let line = format!("{word} {number:>3}  {principal}  {subject}  {outcome} ({by})");
        let mut text = escape_controls(&line);
        if let Some(fault) = fault {
            let _ = write!(text, ": the condition of {}", escape_controls(fault));
        }
        if !self.is_expected {
            let by = self.expected_rule.as_ref().map(|rule| format!(" ({rule})"));
            let by = by.unwrap_or_default();
            let _ = write!(text, ": expected {}{}", self.expected_outcome, escape_controls(&by));
        }
        text + "\n"
    }
}

impl PolicyCase {
    fn to_call(&self, config: &Config) -> Result<TrialCall, CaseFault> {
        let client = self
            .principal
            .as_ref()
            .and_then(|name| config.clients.iter().find(|client| *client.name == **name));
        let or_configured = |own: &Option<Vec<String>>, configured: Option<&Vec<String>>| {
            own.clone().or_else(|| configured.cloned()).unwrap_or_default()
        };
        Ok(TrialCall {
            principal: self.principal.clone().filter(|name| name != "anonymous"),
            groups: or_configured(&self.groups, client.map(|client| &client.groups)),
            scopes: or_configured(&self.scopes, client.map(|client| &client.scopes)),
            claims: self.claims.clone(),
            profile: self.profile(config)?,
            client: self.client.clone(),
            element: self.element(config)?,
            arguments: self.arguments.clone(),
        })
    }

    fn profile(&self, config: &Config) -> Result<Option<ProfileName>, CaseFault> {
        match self.profile.as_deref() {
            None | Some(ProfileName::DEFAULT) => Ok(None),
            Some(name) => {
                let found = config.profiles.iter().find(|profile| profile.name.as_str() == name);
                let found = found.map(|profile| Some(profile.name.clone()));
                found.ok_or_else(|| CaseFault::UnknownProfile { name: name.to_owned() })
            }
        }
    }

    fn element(&self, config: &Config) -> Result<TrialElement, CaseFault> {
        let (kind, public) = match (&self.tool, &self.prompt, &self.resource) {
            (Some(tool), None, None) => (Kind::Tools, tool),
            (None, Some(prompt), None) => (Kind::Prompts, prompt),
            (None, None, Some(resource)) => (Kind::Resources, resource),
            _ => return Err(CaseFault::Subject),
        };
        let is_own =
            kind == Kind::Tools && config.tools.iter().any(|own| own.name.as_str() == public);
        let own_server = self.server.as_deref();
        let is_meant = |server: &str| own_server.is_none_or(|meant| meant == server);
        let renamed = renamed_tool(config, kind, public).filter(|(server, _)| is_meant(server));
        let split = split_public(config, kind, public).filter(|(server, _)| is_meant(server));
        let (server, rest) = match renamed.or(split) {
            _ if is_own => (None, public.as_str()),
            Some((server, rest)) => (Some(server), rest),
            None => (own_server, public.as_str()),
        };
        let named = |name: &str| {
            let found = config.servers.iter().find(|server| server.name.as_str() == name);
            let found = found.map(|server| server.name.clone());
            found.ok_or_else(|| CaseFault::UnknownServer { name: name.to_owned() })
        };
        let server: Option<ServerName> = match server {
            Some(name) => Some(named(name)?),
            None if is_own => None,
            None => return Err(CaseFault::NoServer),
        };
        let native = self.native.clone().unwrap_or_else(|| rest.to_owned());
        let (public, annotations) = (public.clone(), self.annotations.clone());
        Ok(TrialElement { kind, server, public, native, annotations })
    }
}

/// Finds the tool that has a configured name: its server and native name.
fn renamed_tool<'a>(config: &'a Config, kind: Kind, public: &str) -> Option<(&'a str, &'a str)> {
    let servers = config.servers.iter().filter(|_| kind == Kind::Tools);
    let mut named = servers.flat_map(|server| {
        let overrides = server.tools.overrides.iter();
        let named = overrides
            .filter(|(_, tool)| tool.name.as_ref().is_some_and(|it| it.as_str() == public));
        named.map(move |(native, _)| (server.name.as_str(), native.as_str()))
    });
    named.next()
}

/// Splits a public name or URI into its server and the rest.
fn split_public<'a>(config: &'a Config, kind: Kind, public: &'a str) -> Option<(&'a str, &'a str)> {
    match kind {
        Kind::Tools | Kind::Prompts => {
            let naming = Naming::new(&config.gateway);
            let servers = config.servers.iter().filter_map(|server| {
                let rest = public.strip_prefix(&*naming.prefix_of(&server.name)?)?;
                Some((server.name.as_str(), rest))
            });
            // The longest prefix leaves the shortest rest.
            let longest = servers.min_by_key(|(_, rest)| rest.len());
            longest.or_else(|| public.split_once("__"))
        }
        Kind::Resources | Kind::Templates | Kind::Skills => {
            public.strip_prefix("mcp://")?.split_once('/')
        }
    }
}

impl From<ExpectedOutcome> for TrialOutcome {
    fn from(expected: ExpectedOutcome) -> Self {
        match expected {
            ExpectedOutcome::Allow => Self::Allow,
            ExpectedOutcome::Deny => Self::Deny,
            ExpectedOutcome::Hidden => Self::Hidden,
        }
    }
}
