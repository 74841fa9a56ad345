//! `trunkline add` and `trunkline remove`: one server of `gateway.toml`, without an editor.
//!
//! A gateway that runs with the file takes the change up by itself (`gateway.reload`).

use std::process::ExitCode;

use crate::call::ServerName;

use super::gateway_file::{GatewayFile, GatewaySection, PendingFiles};
use super::import::{AddMode, ImportError, NewServer, add_new_server};
use super::{ConfigOption, WRONG_USE, print_error, report_error, write_to_stdout};

/// Add a server to the configuration
///
/// Secrets move to files of their own beside the configuration, which only their owner can read.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
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
    #[command(flatten)]
    config: ConfigOption,
    /// Only print what would be added
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
Examples:
  trunkline add files -- npx -y @modelcontextprotocol/server-filesystem .
  trunkline add docs https://mcp.example.com/mcp --header 'Authorization: Bearer ${env:DOCS_TOKEN}'";

/// Remove a server from the configuration
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RemoveArgs {
    /// The server's name in the configuration
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    config: ConfigOption,
}

pub(super) fn add_server(args: &AddArgs) -> ExitCode {
    let server = match describe_server(args) {
        Ok(server) => server,
        Err(problem) => {
            print_error(&problem);
            return WRONG_USE.into_code();
        }
    };
    let mode = if args.dry_run { AddMode::Preview } else { AddMode::Write };
    match add_new_server(&server, &args.config.path, mode) {
        Ok(text) => write_to_stdout(&text),
        Err(error) => report_error(&error),
    }
}

/// What the command line says about the server.
fn describe_server(args: &AddArgs) -> Result<NewServer, String> {
    ServerName::new(&args.name).map_err(|error| error.to_string())?;
    let pairs = |texts: &[String], option: &str, separator: char| -> Result<Vec<_>, String> {
        texts
            .iter()
            .map(|text| match text.split_once(separator) {
                Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
                // The value may be a secret: it is not repeated.
                None => Err(format!("{option}: expected NAME{separator}VALUE")),
            })
            .collect()
    };
    let (env, headers) = (pairs(&args.env, "--env", '=')?, pairs(&args.header, "--header", ':')?);
    let name = args.name.clone();
    match (&args.url, args.command.as_slice()) {
        (None, [command, words @ ..]) => {
            Ok(NewServer::Command { name, command: command.clone(), args: words.to_vec(), env })
        }
        (Some(url), _) => Ok(NewServer::Http { name, url: url.clone(), headers }),
        (None, []) => Err("expected a URL, or `--` and a command".to_owned()),
    }
}

pub(super) fn remove_server(args: &RemoveArgs) -> ExitCode {
    match remove_entry(args) {
        Ok(text) => write_to_stdout(&text),
        Err(error) => report_error(&error),
    }
}

fn remove_entry(args: &RemoveArgs) -> Result<String, ImportError> {
    let mut gateway = GatewayFile::open(&args.config.path)?;
    if !gateway.remove_entry(GatewaySection::Servers, &args.name)? {
        let (name, config) = (args.name.clone(), args.config.path.clone());
        return Err(ImportError::NoServer { name, config });
    }
    gateway.check(&PendingFiles::default())?;
    gateway.write()?;
    Ok(format!("{}: removed [servers.{}]\n", args.config.path.display(), args.name))
}
