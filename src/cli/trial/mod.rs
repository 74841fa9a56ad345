//! `trunkline try`: starts a server in a sandbox, and shows its identity, tools and findings before it
//! is added to a configuration.

mod report;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::add::{AddArgs, add_server};
use super::definitions::listed::with_listed_servers;
use super::{
    ConfigOption, FAILURE_EXIT, WRONG_USE, print_error, print_faults, printable, report_error,
    write_to_stdout,
};
use crate::child::{ChildSpec, probe_sandbox, sandbox_gap, sandbox_remarks};
use crate::config::{Config, ConfigSource, ServerConfig, ServerKind, SystemEnvironment};
use report::TrialReport;

/// Start a server in a sandbox, show its tools and findings, and offer to add it
///
/// The sandbox is that of `sandbox = true`: the server reads the files of programs, and writes only
/// temporary ones; --allow extends it. Nothing of the server stays. Its tokens are an estimate, and its
/// findings those of `trunkline check --scan`.
///
/// Exit codes: 0 for a server without grave findings, 1 for one with them or one that does not start,
/// 2 for an invalid command line.
#[derive(Debug, Args)]
#[command(after_help = TRY_EXAMPLES)]
pub(super) struct TryArgs {
    /// The command that starts the server, and its arguments
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<String>,
    /// An environment variable for the command; ${env:NAME} is a variable of this shell; may be
    /// repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Further permission of the sandbox: read=PATH, write=PATH, execute=PATH, unix, memfd or
    /// metadata; may be repeated
    #[arg(long, value_name = "PERMISSION")]
    allow: Vec<String>,
    /// Add it to the configuration under this name, unless it fails or has grave findings
    #[arg(long, value_name = "NAME")]
    add: Option<String>,
    /// Give the server this number of seconds to start
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    #[command(flatten)]
    config: ConfigOption,
    /// Print the whole report as JSON
    #[arg(long)]
    json: bool,
}

const TRY_EXAMPLES: &str = "\
Examples:
  trunkline try -- trunkline example clock
  trunkline try --allow write=. -- npx -y @modelcontextprotocol/server-filesystem .
  trunkline try --add time -- uvx mcp-server-time";

/// Fault of the options.
#[derive(Debug, thiserror::Error)]
enum TryOptionError {
    #[error("--env: expected NAME=VALUE")]
    Env,
    #[error(
        "--allow {found:?}: expected read=PATH, write=PATH, execute=PATH, unix, memfd or metadata"
    )]
    Permission { found: String },
}

pub(super) fn try_server(args: &TryArgs) -> ExitCode {
    let text = match write_config(args) {
        Ok(text) => text,
        Err(error) => {
            print_error(&error.to_string());
            return WRONG_USE.into_code();
        }
    };
    let folder = std::env::current_dir().unwrap_or_default();
    let source = ConfigSource { name: "options".into(), folder, bytes: text.into_bytes() };
    let config = match Config::read(&source, &SystemEnvironment) {
        Ok(config) => config,
        Err(faults) => {
            print_faults(&faults);
            return WRONG_USE.into_code();
        }
    };
    match examine(config) {
        Ok(report) => conclude(args, &report),
        Err(code) => code,
    }
}

/// Starts the server, and describes it.
fn examine(config: Config) -> Result<TrialReport, ExitCode> {
    let remarks = match config.servers.first() {
        Some(server) => judge_sandbox(server)?,
        None => Vec::new(),
    };
    let secrets = config.servers.first().map(|server| server.secrets.clone()).unwrap_or_default();
    let report = with_listed_servers(config, |snapshot| TrialReport::of(snapshot, remarks));
    let mut report = report.map_err(|error| report_error(&error))?;
    report.hide_secrets(&secrets);
    Ok(report)
}

/// Returns the parts of the sandbox that this system does not enforce, and folders that it hides.
fn judge_sandbox(server: &Arc<ServerConfig>) -> Result<Vec<String>, ExitCode> {
    let ServerKind::Command(command) = &server.target else { return Ok(Vec::new()) };
    let launcher = std::env::current_exe().map_err(|error| report_error(&error))?;
    let spec = ChildSpec::for_server(server, command);
    if let Err(fault) = probe_sandbox(&spec, &launcher) {
        let fault = printable(&server.secrets.hide_in(&fault));
        print_error(&format!("nothing was started, because there is no sandbox: {fault}"));
        return Err(FAILURE_EXIT.into_code());
    }
    let gap = sandbox_gap(server).map(|gap| format!("not enforced on this system: {gap}"));
    Ok(gap.into_iter().chain(sandbox_remarks(&spec)).collect())
}

/// Prints the report, and adds the server if that is asked for.
fn conclude(args: &TryArgs, report: &TrialReport) -> ExitCode {
    let name = args.add.clone().unwrap_or_else(|| suggest_name(&args.command));
    let line = add_line(args, &name);
    let text = match args.json {
        true => format!("{:#}\n", report.to_json()),
        false => report.describe() + &describe_addition(args, report, &line),
    };
    let written = write_to_stdout(&text);
    if !report.is_fine() {
        if args.add.is_some() {
            print_error("the server is not added");
        }
        return FAILURE_EXIT.into_code();
    }
    match &args.add {
        Some(name) => add_server(&AddArgs::of_command(
            name.clone(),
            args.command.clone(),
            args.env.clone(),
            args.config.clone(),
        )),
        None => written,
    }
}

fn describe_addition(args: &TryArgs, report: &TrialReport, line: &str) -> String {
    if args.add.is_some() || !report.has_started() {
        return String::new();
    }
    let table = sandbox_table(&args.allow).unwrap_or_default();
    let sandbox = match table.is_empty() {
        true => "sandbox = true".to_owned(),
        false => format!("sandbox = {}", toml::Value::Table(table)),
    };
    format!("\nAdd it, and for the same sandbox write `{sandbox}` into its table:\n  {line}\n")
}

/// Returns the configuration with the server and its sandbox.
fn write_config(args: &TryArgs) -> Result<String, TryOptionError> {
    let (program, words) = args
        .command
        .split_first()
        .map_or(("", &[][..]), |(program, words)| (program.as_str(), words));
    let text = |text: &str| toml::Value::String(text.to_owned());
    let mut server = toml::Table::new();
    server.insert("command".to_owned(), text(program));
    server
        .insert("args".to_owned(), words.iter().map(|word| text(word)).collect::<Vec<_>>().into());
    server.insert("max_restarts".to_owned(), 0.into());
    let patience = Duration::from_secs(args.timeout).as_secs();
    server.insert("start_timeout".to_owned(), text(&format!("{patience}s")));
    let mut env = toml::Table::new();
    for pair in &args.env {
        // The value may be a secret, so it is not printed.
        let (name, value) = pair.split_once('=').ok_or(TryOptionError::Env)?;
        env.insert(name.to_owned(), text(value));
    }
    server.insert("env".to_owned(), env.into());
    server.insert("sandbox".to_owned(), sandbox_table(&args.allow)?.into());
    let mut servers = toml::Table::new();
    servers.insert(TRIAL_NAME.to_owned(), server.into());
    let mut gateway = toml::Table::new();
    // The server's own names of its tools.
    gateway.insert("naming".to_owned(), text("first"));
    let mut config = toml::Table::new();
    config.insert("gateway".to_owned(), gateway.into());
    config.insert("servers".to_owned(), servers.into());
    Ok(config.to_string())
}

/// Returns the settings of the sandbox.
fn sandbox_table(allowed: &[String]) -> Result<toml::Table, TryOptionError> {
    let mut table = toml::Table::new();
    for permission in allowed {
        match permission.split_once('=') {
            Some((kind @ ("read" | "write" | "execute"), path)) if !path.is_empty() => {
                let paths = table.entry(kind).or_insert_with(|| toml::Value::Array(Vec::new()));
                if let toml::Value::Array(paths) = paths {
                    paths.push(path.into());
                }
            }
            None if matches!(permission.as_str(), "unix" | "memfd" | "metadata") => {
                table.insert(permission.clone(), true.into());
            }
            _ => return Err(TryOptionError::Permission { found: permission.clone() }),
        }
    }
    Ok(table)
}

/// Returns the command line that adds the server. Values of variables may be secrets: they are
/// replaced by references.
fn add_line(args: &TryArgs, name: &str) -> String {
    let mut words = vec!["trunkline".to_owned(), "add".to_owned(), name.to_owned()];
    for pair in &args.env {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value =
            if value.contains("${") { value.to_owned() } else { format!("${{env:{name}}}") };
        words.extend(["--env".to_owned(), format!("{name}={value}")]);
    }
    words.push("--".to_owned());
    words.extend(args.command.iter().cloned());
    words.iter().map(|word| quote_word(word)).collect::<Vec<_>>().join(" ")
}

/// Quotes a word for a shell, if that is needed.
fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", printable(word).replace('\'', "'\\''"))
}

/// Suggests a name for the server: the last part of the last word that has one.
fn suggest_name(command: &[String]) -> String {
    let words = command.iter().rev().filter(|word| !word.starts_with('-'));
    let names = words.map(|word| {
        let last = word.rsplit(['/', '\\']).next().unwrap_or_default();
        let last = last.split(['@', '=', '.']).next().unwrap_or_default();
        last.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).collect::<String>()
    });
    let mut usable = names.filter(|name| crate::call::ServerName::new(name).is_ok());
    usable.next().unwrap_or_else(|| TRIAL_NAME.to_owned())
}

/// Name of the server during the trial.
const TRIAL_NAME: &str = "server";

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_server_is_named_after_its_package_or_program() {
        for (command, name) in [
            ("npx -y @modelcontextprotocol/server-filesystem .", "server-filesystem"),
            ("uvx mcp-server-time", "mcp-server-time"),
            ("trunkline example clock", "clock"),
            ("/usr/bin/python3 server.py", "server"),
            (". -", "server"),
        ] {
            assert_eq!(suggest_name(&words(command)), name, "{command}");
        }
    }

    #[test]
    fn permissions_extend_the_sandbox_and_others_are_refused() {
        let allowed = ["read=/a", "read=/b", "write=.", "unix"].map(str::to_owned);
        let table = sandbox_table(&allowed).unwrap();
        assert_eq!(table["read"].as_array().unwrap().len(), 2);
        assert_eq!(table["unix"].as_bool(), Some(true));
        for wrong in ["read", "read=", "system=false", "network", "syscalls"] {
            assert!(sandbox_table(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quote_word("a/b-c=1"), "a/b-c=1");
        assert_eq!(quote_word("a b"), "'a b'");
        assert_eq!(quote_word("it's"), "'it'\\''s'");
        assert_eq!(quote_word("$(id)"), "'$(id)'");
        assert_eq!(quote_word(""), "''");
    }
}
