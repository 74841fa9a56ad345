//! The command line: one file or folder per command, and the parts that several commands share.
//!
//! Exit codes are the same for all commands: 0 for success, 1 for findings or a failure while running,
//! 2 for an invalid command line or a file that cannot be used, 3 for a gateway that cannot be reached
//! ([`FailureExit`]). [`help`] has the groups of commands.

pub mod cert;
pub mod serve;

mod add;
mod audit;
mod bench;
mod call;
mod check;
mod columns;
mod completions;
mod definitions;
mod doctor;
mod edited;
mod export;
mod help;
mod import;
mod json;
mod key;
mod login;
mod logs;
mod plan;
mod policy;
mod preview;
mod programs;
mod running;
mod servers;
mod status;
mod stdio;
mod top;
mod trial;
mod why;

use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use trunkline_examples::Example;

use crate::child::{SandboxCommand, run_guardian, run_launcher};
use crate::code_mode::{Probe, WorkerCommand, run_worker};
use crate::codec::file::FileError;
use crate::config::{Color, Config, ConfigFaults, ConfigSource, SystemEnvironment};
use crate::text::{error_chain, escape_controls, escape_invisible};
use help::{FailureExit, NAME_OR_FILE, NameAndFile, NameOrFile};
use json::{ReportForm, escape_json, json_line, json_text};

/// An MCP gateway: one URL in front of many MCP servers
///
/// Trunkline serves local and remote MCP servers of both protocol eras at one endpoint.
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
    #[command(after_help = help::SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Run the gateway as a stdio server, or connect a stdio client to a running gateway
    #[command(after_help = help::STDIO_EXAMPLES)]
    Stdio(stdio::StdioArgs),
    /// Show the servers of the running gateway, and everything that needs an operator
    #[command(after_help = help::STATUS_EXAMPLES)]
    Status(status::StatusArgs),
    /// Show the log of the running gateway, or its calls, and follow them
    Logs(logs::LogsArgs),
    /// Make a call through the running gateway, with every gate of a client's call
    Call(Box<call::CallArgs>),
    /// Watch the servers of the running gateway: rates, latency, errors, queues and tokens
    Top(top::TopArgs),
    /// Explain which check refuses a call, with the setting and the change that would allow it
    Why(Box<why::WhyArgs>),
    /// Check a configuration without running it, and print every fault with its line and key
    #[command(after_help = help::CHECK_EXAMPLES)]
    Check(check::CheckArgs),
    /// Check the surroundings of the gateway: programs, ports, certificates, providers and others
    Doctor(doctor::DoctorArgs),
    /// Show the consequences of the configuration file for the running gateway
    Plan(plan::PlanArgs),
    /// Have the running gateway read its configuration file again
    Reload(plan::ReloadArgs),
    /// Start a server of the running gateway anew
    Restart(servers::RestartArgs),
    /// Take a server of the running gateway out of use, without a change of the configuration
    Disable(servers::DisableArgs),
    /// Start a server that was disabled
    Enable(servers::EnableArgs),
    /// Start a server of the running gateway a second time, list it, and call a tool if one is named
    Test(servers::TestArgs),
    /// Show the last versions of the configuration file that were applied
    History(plan::versions::HistoryArgs),
    /// Go back to an earlier version of the configuration file
    Rollback(plan::versions::RollbackArgs),
    /// Print the JSON Schema of the configuration, for editors
    #[command(after_help = help::SCHEMA_EXAMPLES)]
    Schema,
    /// Create a development CA and certificates signed by it
    #[command(after_help = help::CERT_EXAMPLES)]
    Cert(cert::CertArgs),
    /// Create an API key for a client, and its hash for the configuration
    Key(key::KeyArgs),
    /// Log in at a server with OAuth, and keep the login in the vault
    #[command(after_help = help::LOGIN_EXAMPLES)]
    Login(login::LoginArgs),
    /// List the logins of the gateway and its users at servers, or revoke one
    Logins(login::list::LoginsArgs),
    /// Take over the servers that other programs have configured
    Import(import::ImportArgs),
    /// Point a client at the gateway
    Export(Box<export::ExportArgs>),
    /// Add a server to the configuration
    Add(add::AddArgs),
    /// Remove a server from the configuration
    #[command(after_help = help::REMOVE_EXAMPLES)]
    Remove(add::RemoveArgs),
    /// Start a server in a sandbox, show its tools and findings, and offer to add it
    Try(Box<trial::TryArgs>),
    /// Show the operations of a plain HTTP API, the tool for each, and the settings to configure
    #[command(name = "openapi", after_help = help::OPENAPI_EXAMPLES)]
    OpenApi(definitions::openapi::OpenApiArgs),
    /// Compare and approve the definitions of servers
    #[command(after_help = help::PIN_EXAMPLES)]
    Pin(definitions::pin::PinArgs),
    /// Try the rules of `[policy]`
    #[command(after_help = help::POLICY_EXAMPLES)]
    Policy(policy::PolicyArgs),
    /// List the tools that clients see, and the tokens that they take up
    #[command(after_help = help::TOOLS_EXAMPLES)]
    Tools(definitions::tools::ToolsArgs),
    /// Report the tools that were not called for some days, and their cost
    #[command(after_help = help::REPORT_EXAMPLES)]
    Report(definitions::report::ReportArgs),
    /// Load-test any MCP server or gateway
    Bench(Box<bench::BenchArgs>),
    /// Show and verify the audit log
    #[command(subcommand, after_help = help::AUDIT_EXAMPLES)]
    Audit(audit::AuditCommand),
    /// Print the version
    #[command(after_help = help::VERSION_EXAMPLES)]
    Version {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run one of the built-in example servers, over standard streams
    #[command(after_help = help::EXAMPLE_EXAMPLES)]
    Example {
        #[command(subcommand)]
        example: Option<Example>,
    },
    /// Print shell completions
    #[command(after_help = help::COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the names that the last word may have; started by completion scripts
    #[command(hide = true)]
    Complete {
        /// The words after the program
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Kill the child processes of a gateway that was killed; started by the gateway itself
    #[command(hide = true)]
    Guardian,
    /// Enter a sandbox and run a program in it; started by the gateway itself
    #[command(hide = true)]
    Sandbox {
        /// Stay as the parent of the program, and end all of its processes
        #[arg(long, requires = "command")]
        keep: bool,
        /// The permissions of the program, as JSON
        #[arg(long)]
        policy: String,
        /// The program and its arguments; without them, only try the sandbox
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Run the JavaScript of a model, confined; started by the gateway itself
    #[command(hide = true)]
    RunCode {
        /// The limits of the script, as JSON
        #[arg(long)]
        limits: String,
        /// Try a forbidden operation instead, to verify the confinement
        #[arg(long)]
        probe: Option<Probe>,
        /// Leave out the filter of system calls, to see the effect of the other layers
        #[arg(long, requires = "probe")]
        unfiltered: bool,
    },
}

/// Option for the configuration file.
#[derive(Debug, Clone, Args)]
struct ConfigOption {
    /// The configuration file
    #[arg(
        id = "config",
        short = 'c',
        long = "config",
        value_name = "FILE",
        env = "TRUNKLINE_CONFIG",
        default_value = "gateway.toml"
    )]
    path: PathBuf,
}

/// The options that `serve` and `check` share.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    #[command(flatten)]
    config: ConfigOption,
    /// Listen on this address instead of `gateway.listen`
    #[arg(short, long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Log at this level instead of `log.level`: a level, or TARGET=LEVEL,…
    #[arg(long, value_name = "LEVELS", env = "TRUNKLINE_LOG")]
    log: Option<String>,
}

/// `trunkline serve`
#[derive(Debug, Clone, Args)]
struct ServeArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    file: BareFile,
}

/// A configuration file without its option, for commands without other arguments.
#[derive(Debug, Clone, Default, Args)]
struct BareFile {
    /// The configuration file, like --config
    #[arg(id = help::BARE_FILE, value_name = "FILE")]
    path: Option<PathBuf>,
}

impl From<Option<PathBuf>> for BareFile {
    fn from(path: Option<PathBuf>) -> Self {
        Self { path }
    }
}

/// A configuration, and the text that it was read from.
pub struct ReadFile {
    /// The text.
    pub source: ConfigSource,
    /// The configuration.
    pub config: Config,
}

/// Runs the command given on the command line.
pub fn run() -> ExitCode {
    match help::parse_command_line().command {
        CliCommand::Serve(args) => serve::run(args.common.or_file(args.file)),
        CliCommand::Stdio(args) => stdio::serve_stdio(args),
        CliCommand::Status(args) => status::show_status(args),
        CliCommand::Logs(args) => logs::show_logs(&args),
        CliCommand::Call(args) => call::call_tool(&args),
        CliCommand::Top(args) => top::run(args),
        CliCommand::Why(args) => why::explain(&args),
        CliCommand::Check(args) => check::check_config(&args),
        CliCommand::Doctor(args) => doctor::run(&args),
        CliCommand::Plan(args) => plan::show_plan(args),
        CliCommand::Reload(args) => plan::reload(args),
        CliCommand::Restart(args) => servers::restart(args),
        CliCommand::Disable(args) => servers::disable(args),
        CliCommand::Enable(args) => servers::enable(args),
        CliCommand::Test(args) => servers::test(&args),
        CliCommand::History(args) => plan::versions::show_history(&args),
        CliCommand::Rollback(args) => plan::versions::roll_back(&args),
        CliCommand::Schema => write_to_stdout(&format!("{:#}\n", crate::config::json_schema())),
        CliCommand::Cert(args) => match cert::write_certificates(&args, &mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report_error(&error),
        },
        CliCommand::Key(args) => key::run(&args),
        CliCommand::Login(args) => login::log_in(&args),
        CliCommand::Logins(args) => login::list::run(args),
        CliCommand::Import(args) => import::run(&args),
        CliCommand::Export(args) => export::run(&args),
        CliCommand::Add(args) => add::add_server(&args),
        CliCommand::Remove(args) => add::remove_server(&args),
        CliCommand::Try(args) => trial::try_server(&args),
        CliCommand::OpenApi(args) => definitions::openapi::show_api(&args),
        CliCommand::Pin(args) => definitions::pin::run(args),
        CliCommand::Policy(args) => policy::run(args),
        CliCommand::Tools(args) => definitions::tools::list_tools(&args),
        CliCommand::Report(args) => definitions::report::report_unused(&args),
        CliCommand::Bench(args) => bench::run(&args),
        CliCommand::Audit(command) => audit::run(&command),
        CliCommand::Version { json: true } => write_to_stdout(&json_text(
            &serde_json::json!({ "version": env!("CARGO_PKG_VERSION") }),
        )),
        CliCommand::Version { json: false } => {
            write_to_stdout(&format!("trunkline {}\n", env!("CARGO_PKG_VERSION")))
        }
        CliCommand::Example { example: Some(example) } => example.serve(),
        CliCommand::Example { example: None } => write_to_stdout(&trunkline_examples::list()),
        CliCommand::Completions { shell } => {
            write_to_stdout(&completions::completion_script(shell))
        }
        CliCommand::Complete { words } => completions::print_names(&words),
        CliCommand::Guardian => run_guardian(std::io::stdin().lock()),
        CliCommand::Sandbox { keep, policy, command } => {
            let mut command = command.into_iter();
            let what = match command.next() {
                Some(program) if keep => SandboxCommand::Keep { program, args: command.collect() },
                Some(program) => SandboxCommand::Run { program, args: command.collect() },
                None => SandboxCommand::Probe,
            };
            run_launcher(&policy, what)
        }
        CliCommand::RunCode { limits, probe, unfiltered } => {
            let probe = probe.map(|probe| WorkerCommand::Probe { probe, unfiltered });
            run_worker(&limits, probe.unwrap_or(WorkerCommand::Run))
        }
    }
}

/// Reason that there is no configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}; use --config FILE for another file", path.display())]
    Unreadable { path: PathBuf, error: FileError },
    /// The file has faults.
    #[error(transparent)]
    Faults(ConfigFaults),
    /// An option that replaces a setting is not valid.
    #[error("{text}")]
    Override { text: String },
}

impl LoadError {
    /// Returns the exit code of a command that needs the file.
    fn exit(&self) -> FailureExit {
        match self {
            Self::Unreadable { .. } | Self::Faults(_) => CONFIG_FAULT,
            Self::Override { .. } => WRONG_USE,
        }
    }

    fn print(&self) {
        match self {
            Self::Faults(faults) => print_faults(faults),
            Self::Unreadable { .. } | Self::Override { .. } => print_error(&self.to_string()),
        }
    }
}

impl ConfigOption {
    /// Uses this file in place of the option, if it is given.
    #[must_use]
    fn or_file(self, file: BareFile) -> Self {
        file.path.map_or(self, |path| Self { path })
    }
}

impl CommonArgs {
    /// Uses this file in place of the option, if it is given.
    #[must_use]
    fn or_file(self, file: BareFile) -> Self {
        Self { config: self.config.or_file(file), ..self }
    }

    /// The options for a configuration file without overrides.
    pub fn with_config(config: PathBuf) -> Self {
        Self { config: ConfigOption { path: config }, listen: None, log: None }
    }

    /// Reads the configuration file and applies the overrides of the command line. Prints all
    /// faults to standard error.
    fn read_config(&self) -> Result<Config, ExitCode> {
        self.read_file().map(|file| file.config)
    }

    /// Like [`read_config`](Self::read_config), and returns the text, too.
    fn read_file(&self) -> Result<ReadFile, ExitCode> {
        self.load_file().map_err(|error| {
            error.print();
            error.exit().into_code()
        })
    }

    /// Like [`read_file`](Self::read_file), and prints nothing.
    ///
    /// # Errors
    /// [`LoadError`].
    fn load_file(&self) -> Result<ReadFile, LoadError> {
        let source = ConfigSource::open(&self.config.path)
            .map_err(|error| LoadError::Unreadable { path: self.config.path.clone(), error })?;
        let mut config = Config::read(&source, &SystemEnvironment).map_err(LoadError::Faults)?;
        self.apply_overrides(&mut config).map_err(|text| LoadError::Override { text })?;
        Ok(ReadFile { source, config })
    }

    /// Replaces settings of the file by those of the command line.
    fn apply_overrides(&self, config: &mut Config) -> Result<(), String> {
        let told = |option: &str, problem: &crate::config::SettingFault| {
            format!("{option}: {problem}; {}", problem.help_text())
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

/// The warning for a gateway that other machines can use without a key.
const OPEN_GATEWAY_WARNING: &str = "other machines can reach the gateway without a key: add a [clients.NAME] \
    (see `trunkline key`), or set gateway.anonymous = \"anyone\" if a proxy in front of the \
    gateway authenticates clients";

/// The warning for admin pages that answer to any host.
const ANY_ADMIN_HOST_WARNING: &str = "admin.allowed_hosts: with \"*\", web pages in a browser that reaches the \
    address can send requests to the admin listener (DNS rebinding): list the host names instead";

/// The warning for an admin listener that other machines can reach.
const PUBLIC_ADMIN_WARNING: &str = "admin.listen: other machines can reach the admin listener, which has no TLS, so \
    the keys of operators can be read on the way: set admin.tls, or let only your own network reach \
    the port, or a proxy with TLS";

const FAILURE_EXIT: FailureExit = FailureExit::Findings;
const WRONG_USE: FailureExit = FailureExit::WrongUse;
const CONFIG_FAULT: FailureExit = FailureExit::UnusableFile;
const UNREACHABLE_EXIT: FailureExit = FailureExit::Unreachable;

fn terminal_color() -> Color {
    use std::io::IsTerminal;
    let wanted = std::env::var_os("NO_COLOR").is_none();
    if wanted && std::io::stderr().is_terminal() { Color::Always } else { Color::Never }
}

fn report_error(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    print_error(&error_chain(error));
    FAILURE_EXIT.into_code()
}

/// Reports the reason that a file was not edited. The faults of a configuration are several lines,
/// below the lines of the file.
fn report_edit_error(error: &(dyn std::error::Error + 'static), exit: FailureExit) -> ExitCode {
    let text = error.to_string();
    print_error(&if text.contains('\n') { text } else { error_chain(error) });
    exit.into_code()
}

/// Prints faults below the lines of their file.
fn print_faults(faults: &ConfigFaults) {
    write_to_stderr(&format!("{}\n", faults.render(terminal_color())));
}

fn print_error(text: &str) {
    write_to_stderr(&format!("trunkline: {text}\n"));
}

/// Returns a foreign text for a terminal, with invisible characters escaped.
fn printable(text: &str) -> String {
    escape_invisible(&escape_controls(text))
}

fn write_to_stderr(text: &str) {
    // If standard error is gone, there is nowhere to report it.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints to standard output. A closed pipe is not an error: the reader has
/// seen enough.
fn write_to_stdout(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => report_error(&error),
        _ => ExitCode::SUCCESS,
    }
}
