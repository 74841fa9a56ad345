//! `trunkline restart`, `disable`, `enable` and `test`: actions on one server of the running gateway.
//!
//! They differ from `add` and `remove`, which edit the configuration: these change none.

mod server_text;
mod trial;

use std::process::ExitCode;

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::running::{
    GatewayOption, GatewayRequest, RunningGatewayError, report_other_version, report_unanswered,
};
use super::{FAILURE_EXIT, json_text, print_error, printable, write_to_stdout};
use crate::config::nearest_choice;
use server_text::ServerStateText;
pub(super) use trial::{TestArgs, test};

/// Start a server of the running gateway anew
///
/// The new one takes over once it is ready or has failed, and calls in flight finish at the old one.
/// A server that has failed, or waits before its next start, is tried at once.
///
/// Exit codes: 0 if the server is ready, or starts with its first call, 1 if not, or if it is unknown,
/// 2 for an invalid command line, 3 if no gateway answers.
#[derive(Debug, Args)]
#[command(after_help = SERVER_EXAMPLES)]
pub(super) struct RestartArgs {
    #[command(flatten)]
    target: ServerTarget,
    /// Do not wait until the server is ready or has failed
    #[arg(long)]
    no_wait: bool,
}

/// Take a server of the running gateway out of use, without a change of the configuration
///
/// Clients see none of its tools, prompts and resources any more. Calls in flight finish, and the
/// server is not started again before it is enabled: not by a reload and, with gateway.state_dir, not
/// by a restart of the gateway.
///
/// Exit codes: 0 if the server is disabled, 1 if not, or if it is unknown, 2 for an invalid command
/// line, 3 if no gateway answers.
#[derive(Debug, Args)]
#[command(after_help = SERVER_EXAMPLES)]
pub(super) struct DisableArgs {
    #[command(flatten)]
    target: ServerTarget,
}

/// Start a server that was disabled
///
/// Exit codes: 0 if the server is ready, or starts with its first call, 1 if not, or if it is unknown,
/// 2 for an invalid command line, 3 if no gateway answers.
#[derive(Debug, Args)]
#[command(after_help = SERVER_EXAMPLES)]
pub(super) struct EnableArgs {
    #[command(flatten)]
    target: ServerTarget,
    /// Do not wait until the server is ready or has failed
    #[arg(long)]
    no_wait: bool,
}

/// The server of a command.
#[derive(Debug, Args)]
struct ServerTarget {
    #[command(flatten)]
    gateway: GatewayOption,
    /// The server: NAME of [servers.NAME]
    server: String,
    /// Print the state of the server as JSON
    #[arg(long)]
    json: bool,
}

const SERVER_EXAMPLES: &str = "\
Examples:
  trunkline restart github              # waits until it is ready
  trunkline disable github              # its tools disappear, calls finish
  trunkline enable github --no-wait";

/// An action on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerAction {
    Restart,
    Disable,
    Enable,
}

impl ServerAction {
    /// Returns the last segment of the path.
    fn segment(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Disable => "disable",
            Self::Enable => "enable",
        }
    }
}

/// The wait of a command for the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartPatience {
    /// Until it is ready or has failed.
    Verdict,
    /// Not at all.
    None,
}

impl StartPatience {
    fn of_flag(no_wait: bool) -> Self {
        if no_wait { Self::None } else { Self::Verdict }
    }
}

pub(super) fn restart(args: RestartArgs) -> ExitCode {
    act(args.target, ServerAction::Restart, StartPatience::of_flag(args.no_wait))
}

pub(super) fn disable(args: DisableArgs) -> ExitCode {
    act(args.target, ServerAction::Disable, StartPatience::Verdict)
}

pub(super) fn enable(args: EnableArgs) -> ExitCode {
    act(args.target, ServerAction::Enable, StartPatience::of_flag(args.no_wait))
}

fn act(target: ServerTarget, action: ServerAction, patience: StartPatience) -> ExitCode {
    let ServerTarget { gateway, server, json } = target;
    let query = if patience == StartPatience::None { "?wait=false" } else { "" };
    let path = format!("{}/{}{query}", server_path(&server), action.segment());
    let request = GatewayRequest { method: Method::POST, path: &path, body: None };
    let document = match gateway.request(&request) {
        Ok(document) => document,
        Err(error) => return report_refused(&error, &gateway, &server),
    };
    let Ok(state) = ServerStateText::deserialize(&document) else {
        return report_other_version();
    };
    if json {
        write_to_stdout(&json_text(&document));
    }
    let outcome = match action {
        ServerAction::Disable => Ok(state.describe_disabled()),
        ServerAction::Restart | ServerAction::Enable if patience == StartPatience::None => {
            Ok(format!("{} is being started", state.name))
        }
        ServerAction::Restart | ServerAction::Enable => state.describe_start(),
    };
    match outcome {
        Ok(_) if json => ExitCode::SUCCESS,
        Ok(text) => write_to_stdout(&format!("{}\n", printable(&text))),
        Err(text) => {
            print_error(&printable(&text));
            FAILURE_EXIT.into_code()
        }
    }
}

/// Returns the path of a server in the API.
fn server_path(server: &str) -> String {
    let segment: String = url::form_urlencoded::byte_serialize(server.as_bytes()).collect();
    // A space is `+` in a query and `%20` in a path.
    format!("/servers/{}", segment.replace('+', "%20"))
}

/// Reports a refusal. An unknown server is compared with those of the gateway.
fn report_refused(error: &RunningGatewayError, gateway: &GatewayOption, server: &str) -> ExitCode {
    let is_unknown =
        matches!(error, RunningGatewayError::Refused { code, .. } if code == "unknown_server");
    if !is_unknown {
        return report_unanswered(error);
    }
    let page = gateway.request(&GatewayRequest::get("/servers")).unwrap_or_default();
    let names = known_names(&page);
    let meant = match nearest_choice(server, &names) {
        Some(meant) => format!("did you mean {meant}?"),
        None if names.is_empty() => "the gateway has no servers".to_owned(),
        None => format!("expected one of {}", names.join(", ")),
    };
    print_error(&printable(&format!("there is no server {server:?}: {meant}")));
    FAILURE_EXIT.into_code()
}

fn known_names(page: &Value) -> Vec<&str> {
    let servers = page.get("servers").and_then(Value::as_array).into_iter().flatten();
    servers.filter_map(|server| server.get("name")?.as_str()).collect()
}
