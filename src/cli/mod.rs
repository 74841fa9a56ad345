//! What a human types.
//!
//! Each command is a file. Exit codes are the same everywhere: 0 for done, 1
//! for a failure while running, 2 for a wrong command line, 3 for a faulty
//! configuration.

pub mod cert;
pub mod example;
pub mod serve;

mod bench;
mod check;
mod completions;
mod key;
mod stdio;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{Color, Config, Source, System};
use crate::upstream::child::run_guardian;

/// One URL in front of many MCP servers
///
/// Trunkline merges MCP servers, local and remote, of both protocol eras, behind one endpoint.
#[derive(Debug, Parser)]
#[command(
    name = "trunkline",
    version,
    about,
    propagate_version = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the gateway
    Serve(CommonArgs),
    /// Run the gateway as a stdio server, or lead one to a gateway that runs
    Stdio(stdio::StdioArgs),
    /// Check a configuration without running it: prints every fault, with line and key
    Check(CommonArgs),
    /// Print the JSON Schema of the configuration, for editors
    Schema,
    /// Make a development CA and certificates signed by it
    Cert(cert::CertArgs),
    /// Make a key for a client, and the hash of it that the configuration holds
    Key(key::KeyArgs),
    /// Put a load on any MCP server or gateway, and tell how it bears it
    Bench(Box<bench::BenchArgs>),
    /// Print the version
    Version,
    /// Run one of the example servers that the binary carries, over standard streams
    Example {
        #[command(subcommand)]
        example: Option<example::Example>,
    },
    /// Print a shell's completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Kill the children of a gateway that is gone; started by the gateway itself
    #[command(hide = true)]
    Guardian,
}

/// What `serve` and `check` have in common.
#[derive(Debug, Args)]
pub struct CommonArgs {
    /// The configuration
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "TRUNKLINE_CONFIG",
        default_value = "gateway.toml"
    )]
    config: PathBuf,
    /// Listen here instead of where the configuration says
    #[arg(short, long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Log at this level instead of the configuration's: a level, or TARGET=LEVEL,…
    #[arg(long, value_name = "LEVELS", env = "TRUNKLINE_LOG")]
    log: Option<String>,
}

/// Runs what the command line asks for.
pub fn run() -> ExitCode {
    match Cli::parse().command {
        CliCommand::Serve(common) => serve::run(common),
        CliCommand::Stdio(args) => stdio::serve_stdio(args),
        CliCommand::Check(common) => check::check_config(&common),
        CliCommand::Schema => write_to_stdout(&format!("{:#}\n", crate::config::json_schema())),
        CliCommand::Cert(args) => match cert::write_certificates(&args, &mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report_error(&error),
        },
        CliCommand::Key(args) => match key::make_key(&args) {
            Ok(text) => write_to_stdout(&text),
            Err(error) => report_error(&error),
        },
        CliCommand::Bench(args) => bench::run(&args),
        CliCommand::Version => {
            write_to_stdout(&format!("trunkline {}\n", env!("CARGO_PKG_VERSION")))
        }
        CliCommand::Example { example: Some(example) } => example.serve(),
        CliCommand::Example { example: None } => write_to_stdout(&example::list()),
        CliCommand::Completions { shell } => {
            write_to_stdout(&completions::completion_script(shell))
        }
        CliCommand::Guardian => run_guardian(std::io::stdin().lock()),
    }
}

impl CommonArgs {
    /// A configuration that the command line changes nothing of.
    pub fn with_config(config: PathBuf) -> Self {
        Self { config, listen: None, log: None }
    }

    /// Reads the configuration as the file and the command line together have
    /// it. What is wrong is told on standard error, all of it.
    fn read_config(&self) -> Result<Config, ExitCode> {
        let unreadable = |error: std::io::Error| {
            let file = self.config.display();
            print_error(&format!("cannot read {file}: {error}; --config FILE names another"));
            CONFIG_FAULT
        };
        let source = Source::open(&self.config).map_err(|error| unreadable(error).into_code())?;
        let mut config = Config::read(&source, &System).map_err(|faults| {
            write_to_stderr(&format!("{}\n", faults.render(terminal_color())));
            CONFIG_FAULT.into_code()
        })?;
        self.apply_overrides(&mut config).map_err(|problem| {
            print_error(&problem);
            WRONG_USE.into_code()
        })?;
        Ok(config)
    }

    /// Puts what the command line says in the place of what the file says.
    fn apply_overrides(&self, config: &mut Config) -> Result<(), String> {
        let told = |option: &str, problem: &crate::config::Problem| {
            format!("{option}: {problem}; {}", problem.help())
        };
        if let Some(listen) = self.listen {
            config.listen_on(listen).map_err(|problem| told("--listen", &problem))?;
        }
        if let Some(levels) = &self.log {
            config.log_at(levels).map_err(|problem| told("--log", &problem))?;
        }
        Ok(())
    }
}

/// What an operator of a gateway that is open to anyone should know.
const OPEN: &str = "other machines can reach the gateway, and it asks nobody for a key: add a \
    [clients.NAME] (see `trunkline key`), or write gateway.anonymous = \"anyone\" where something \
    before the gateway knows who is calling";

/// An exit code, before it becomes one.
#[derive(Debug, Clone, Copy)]
struct FailureExit(u8);

impl FailureExit {
    fn into_code(self) -> ExitCode {
        ExitCode::from(self.0)
    }
}

const FAILURE: FailureExit = FailureExit(1);
const WRONG_USE: FailureExit = FailureExit(2);
const CONFIG_FAULT: FailureExit = FailureExit(3);

fn terminal_color() -> Color {
    use std::io::IsTerminal;
    let wanted = std::env::var_os("NO_COLOR").is_none();
    if wanted && std::io::stderr().is_terminal() { Color::Always } else { Color::Never }
}

fn report_error(error: &dyn std::error::Error) -> ExitCode {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.extend([": ", &error.to_string()]);
        cause = error.source();
    }
    print_error(&text);
    FAILURE.into_code()
}

fn print_error(text: &str) {
    write_to_stderr(&format!("trunkline: {text}\n"));
}

fn write_to_stderr(text: &str) {
    // Nothing is left to tell that standard error is gone.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints to standard output; whoever closed it early has seen enough.
fn write_to_stdout(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => report_error(&error),
        _ => ExitCode::SUCCESS,
    }
}
