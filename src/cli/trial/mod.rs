//! `trunkline try`: starts a server in a sandbox, and shows its identity, tools and findings before it
//! is added to a configuration.

mod report;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use trunkline_import::SandboxPermissions;

use super::add::{AddArgs, add_entry};
use super::definitions::listed::with_listed_servers;
use super::{
    ConfigOption, FAILURE_EXIT, WRONG_USE, print_error, print_faults, printable, report_error,
    write_to_stderr, write_to_stdout,
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
  trunkline try --allow write=. -- \\
      npx -y @modelcontextprotocol/server-filesystem .
  trunkline try --add time -- uvx mcp-server-time";

/// Fault of the options.
#[derive(Debug, thiserror::Error)]
enum TryOptionError {
    #[error("--env: expected NAME=VALUE, where a reference is ${{env:NAME}}")]
    Env,
    #[error("{word:?}: the words of COMMAND have no references (`${{`): write the value")]
    Reference { word: String },
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
    report.map(|report| report.hiding(secrets)).map_err(|error| report_error(&error))
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
    // Before the program runs without it.
    if let Some(gap) = &gap {
        print_error(&printable(&format!("sandbox: {gap}")));
    }
    Ok(gap.into_iter().chain(sandbox_remarks(&spec)).collect())
}

/// Prints the report, and adds the server if that is asked for.
fn conclude(args: &TryArgs, report: &TrialReport) -> ExitCode {
    let name = args.add.clone().unwrap_or_else(|| suggest_name(&args.command));
    let line = add_line(args, &name);
    let text = if args.json {
        report.to_json()
    } else {
        report.describe() + &describe_addition(args, report, &line)
    };
    let written = write_to_stdout(&text);
    if !report.is_fine() {
        if args.add.is_some() {
            print_error("the server is not added");
        }
        return FAILURE_EXIT.into_code();
    }
    match &args.add {
        Some(name) => add_tried(args, name),
        None => written,
    }
}

/// Adds the server, with the sandbox of the trial.
fn add_tried(args: &TryArgs, name: &str) -> ExitCode {
    let (command, env) = (args.command.clone(), args.env.clone());
    let entry = AddArgs::of_command(name.to_owned(), command, env, args.config.clone());
    let permissions = sandbox_permissions(&args.allow).unwrap_or_default();
    match add_entry(&entry.sandboxed(permissions)) {
        // Standard output has one document.
        Ok(text) if args.json => {
            write_to_stderr(&text);
            ExitCode::SUCCESS
        }
        Ok(text) => write_to_stdout(&text),
        Err(code) => code,
    }
}

fn describe_addition(args: &TryArgs, report: &TrialReport, line: &str) -> String {
    if args.add.is_some() || !report.has_started() {
        return String::new();
    }
    let sandbox = sandbox_permissions(&args.allow).unwrap_or_default().to_value();
    format!(
        "\nAdd it, and for the same sandbox write `sandbox = {sandbox}` into its table:\n  {line}\n"
    )
}

/// Returns the configuration with the server and its sandbox.
fn write_config(args: &TryArgs) -> Result<String, TryOptionError> {
    let (program, words) = args
        .command
        .split_first()
        .map_or(("", &[][..]), |(program, words)| (program.as_str(), words));
    if let Some(word) = args.command.iter().find(|word| word.contains("${")) {
        return Err(TryOptionError::Reference { word: word.clone() });
    }
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
        // Other references run a program or read a file before there is a sandbox.
        if value.split("${").skip(1).any(|rest| !rest.starts_with("env:")) {
            return Err(TryOptionError::Env);
        }
        env.insert(name.to_owned(), text(value));
    }
    server.insert("env".to_owned(), env.into());
    server.insert("sandbox".to_owned(), sandbox_table(&args.allow)?);
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

/// Returns the setting `sandbox` of the trial.
fn sandbox_table(allowed: &[String]) -> Result<toml::Value, TryOptionError> {
    let SandboxPermissions { paths, grants } = sandbox_permissions(allowed)?;
    let paths = paths.into_iter().map(|(kind, paths)| (kind.to_owned(), paths.into()));
    let grants = grants.into_iter().map(|grant| (grant.to_owned(), true.into()));
    Ok(toml::Value::Table(paths.chain(grants).collect()))
}

/// Reads the permissions of `--allow`.
fn sandbox_permissions(allowed: &[String]) -> Result<SandboxPermissions, TryOptionError> {
    let mut permissions = SandboxPermissions::default();
    for permission in allowed {
        let unknown = || TryOptionError::Permission { found: permission.clone() };
        let known = |names: &[&'static str], name| names.iter().find(|it| **it == name).copied();
        match permission.split_once('=') {
            Some((kind, path)) if !path.is_empty() => {
                let kind = known(&PATH_PERMISSIONS, kind).ok_or_else(unknown)?;
                match permissions.paths.iter_mut().find(|(it, _)| *it == kind) {
                    Some((_, paths)) => paths.push(path.to_owned()),
                    None => permissions.paths.push((kind, vec![path.to_owned()])),
                }
            }
            None => {
                let grant = known(&PLAIN_PERMISSIONS, permission).ok_or_else(unknown)?;
                permissions.grants.retain(|it| *it != grant);
                permissions.grants.push(grant);
            }
            Some(_) => return Err(unknown()),
        }
    }
    Ok(permissions)
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

/// The permissions of `--allow` with a path.
const PATH_PERMISSIONS: [&str; 3] = ["read", "write", "execute"];
/// The permissions of `--allow` without a path.
const PLAIN_PERMISSIONS: [&str; 3] = ["unix", "memfd", "metadata"];
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
        let written = sandbox_permissions(&allowed).unwrap().to_value().to_string();
        assert_eq!(written, "{ read = [\"/a\", \"/b\"], write = [\".\"], unix = true }");
        assert_eq!(sandbox_permissions(&[]).unwrap().to_value().to_string(), "true");
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
