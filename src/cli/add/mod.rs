//! `trunkline add` and `trunkline remove`: edit one server of `gateway.toml` without an editor.
//!
//! A gateway that runs with the file applies the change by itself (`gateway.reload`).

mod new_server;

use std::fmt::Write as _;
use std::process::ExitCode;

use serde::Serialize;

use trunkline_import::{
    AddMode, GatewayFile, GatewaySection, ImportError, Notation, PendingFiles, ReferenceContext,
    ReferenceNotation, SandboxPermissions, add_found_server,
};

use crate::call::ServerName;

use super::edited::gateway_file::open_gateway_file;
use super::import::import_exit;
use super::preview::FileChange;
use super::{
    ConfigOption, ReportForm, WRONG_USE, json_text, print_error, report_edit_error, write_to_stdout,
};
use new_server::NewServer;

/// Add a server to the configuration
///
/// Secrets move to files of their own beside the configuration, which only their owner can read.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = ADD_EXAMPLES)]
pub(super) struct AddArgs {
    /// The server's name in the configuration
    #[arg(value_name = "NAME")]
    name: String,
    /// The server's URL
    #[arg(value_name = "URL", required_unless_present = "command", conflicts_with_all = ["command", "env"])]
    url: Option<String>,
    /// The command that starts the server, and its arguments
    #[arg(value_name = "COMMAND", last = true, conflicts_with = "header")]
    command: Vec<String>,
    /// An environment variable for the command; ${env:NAME} is the gateway's own; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// A header for each request to the URL; ${env:NAME} works in it; may be repeated
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// The server at the URL is a plain HTTP API with an OpenAPI document, not an MCP server
    #[arg(long, conflicts_with_all = ["command", "env"])]
    openapi: bool,
    #[command(flatten)]
    config: ConfigOption,
    /// Only print the addition
    #[arg(long)]
    dry_run: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
    /// The sandbox of the command.
    #[arg(skip)]
    sandbox: Option<SandboxPermissions>,
}

impl AddArgs {
    /// Returns the arguments that add a command.
    pub(super) fn of_command(
        name: String,
        command: Vec<String>,
        env: Vec<String>,
        config: ConfigOption,
    ) -> Self {
        let (url, header) = (None, Vec::new());
        let sandbox = None;
        let (openapi, dry_run, json) = (false, false, false);
        Self { name, url, command, env, header, openapi, config, dry_run, json, sandbox }
    }

    /// Confines the command.
    #[must_use]
    pub(super) fn sandboxed(self, permissions: SandboxPermissions) -> Self {
        Self { sandbox: Some(permissions), ..self }
    }
}

const ADD_EXAMPLES: &str = "\
Examples:
  trunkline add files -- npx -y @modelcontextprotocol/server-filesystem .
  trunkline add docs https://mcp.example.com/mcp \\
      --header 'Authorization: Bearer ${env:DOCS_TOKEN}'
  trunkline add crm http://127.0.0.1:8000 --openapi";

/// Remove a server from the configuration
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RemoveArgs {
    /// The server's name in the configuration
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    config: ConfigOption,
    /// Only print the removal
    #[arg(long)]
    dry_run: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// The document of `add` and `remove`.
#[derive(Debug, Serialize)]
struct EditDocument<'a> {
    /// The configuration file.
    file: String,
    /// The name of the server.
    server: &'a str,
    /// False with `--dry-run`.
    is_written: bool,
    /// The lines that are printed without `--json`: the changes, backups and warnings.
    lines: Vec<&'a str>,
}

/// An edit of the configuration that is done, or previewed.
struct DoneEdit<'a> {
    config: &'a ConfigOption,
    server: &'a str,
    is_written: bool,
    form: ReportForm,
}

impl DoneEdit<'_> {
    /// Prints the lines that describe the edit, or its document.
    fn print(&self, text: &str) -> ExitCode {
        if self.form == ReportForm::Text {
            return write_to_stdout(text);
        }
        let (server, is_written) = (self.server, self.is_written);
        let (file, lines) = (self.config.path.display().to_string(), text.lines().collect());
        let document = EditDocument { file, server, is_written, lines };
        write_to_stdout(&json_text(&serde_json::to_value(document).unwrap_or_default()))
    }
}

pub(super) fn add_server(args: &AddArgs) -> ExitCode {
    let AddArgs { config, name: server, .. } = args;
    let (is_written, form) = (!args.dry_run, args.json.into());
    match add_entry(args) {
        Ok(text) => DoneEdit { config, server, is_written, form }.print(&text),
        Err(code) => code,
    }
}

/// Adds the server, and describes the change.
///
/// # Errors
/// The exit code, for a fault that is printed.
pub(super) fn add_entry(args: &AddArgs) -> Result<String, ExitCode> {
    let server = describe_server(args).map_err(|problem| {
        print_error(&problem);
        WRONG_USE.into_code()
    })?;
    let found = server.to_found();
    let found = match &args.sandbox {
        Some(permissions) => found.sandboxed(permissions),
        None => found,
    };
    let mode = if args.dry_run { AddMode::Preview } else { AddMode::Write };
    let gateway = open_gateway_file(&args.config.path).map_err(ImportError::from);
    gateway
        .and_then(|gateway| add_found_server(&args.name, found, gateway, mode))
        .map_err(|error| report_edit_error(&error, import_exit(&error)))
}

/// Reads the description of the server from the command line.
fn describe_server(args: &AddArgs) -> Result<NewServer, String> {
    ServerName::new(&args.name).map_err(|error| error.to_string())?;
    let pairs = |texts: &[String], option: &str, separator: char| -> Result<Vec<_>, String> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for text in texts {
            // The value may be a secret, so it is not printed.
            let (name, value) = text
                .split_once(separator)
                .ok_or_else(|| format!("{option}: expected NAME{separator}VALUE"))?;
            if pairs.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
                return Err(format!("{option}: {name} is given more than once"));
            }
            pairs.push((name.to_owned(), value.to_owned()));
        }
        Ok(pairs)
    };
    let env = pairs(&args.env, "--env", '=')?;
    let mut headers = pairs(&args.header, "--header", ':')?;
    for (name, value) in &mut headers {
        (*name, *value) = (name.trim().to_owned(), value.trim().to_owned());
    }
    let name = args.name.clone();
    match (&args.url, args.command.as_slice()) {
        (None, [command, words @ ..]) => {
            Ok(NewServer::Command { name, command: command.clone(), args: words.to_vec(), env })
        }
        (Some(url), _) if !url.contains(':') => Err(format!(
            "`{url}` is not a URL; a command follows `--`: trunkline add {name} -- {url}"
        )),
        (Some(url), _) if args.openapi => Ok(NewServer::Api { name, url: url.clone(), headers }),
        (Some(url), _) => Ok(NewServer::Http { name, url: url.clone(), headers }),
        (None, []) => Err("expected a URL, or `--` and a command".to_owned()),
    }
}

pub(super) fn remove_server(args: &RemoveArgs) -> ExitCode {
    let RemoveArgs { config, name: server, .. } = args;
    let (is_written, form) = (!args.dry_run, args.json.into());
    match remove_entry(args) {
        Ok(text) => DoneEdit { config, server, is_written, form }.print(&text),
        Err(error) => report_edit_error(&error, import_exit(&error)),
    }
}

fn remove_entry(args: &RemoveArgs) -> Result<String, ImportError> {
    let mut gateway = open_gateway_file(&args.config.path)?;
    if !gateway.remove_entry(GatewaySection::Servers, &args.name)? {
        let (name, config) = (args.name.clone(), args.config.path.clone());
        return Err(ImportError::NoServer { name, config });
    }
    let warnings = gateway.check(&PendingFiles::default())?;
    let mut text = if args.dry_run {
        show_change(&gateway)
    } else {
        let written = gateway.write(&[])?;
        let removed = format!("{}: removed [servers.{}]\n", gateway.label(), args.name);
        removed + &gateway.describe_backup(&written)
    };
    for warning in warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    Ok(text)
}

/// Returns the change of the configuration as a diff.
fn show_change(gateway: &GatewayFile) -> String {
    let change = FileChange {
        name: &gateway.label(),
        notation: Notation::Toml,
        tables: &[vec![GatewaySection::Servers.key().to_owned()]],
        references: &ReferenceContext::without_folders(ReferenceNotation::Own),
        before: gateway.file().text(),
        after: &gateway.text(),
    };
    change.render_diff()
}
