//! `trunkline logins`: the logins that the running gateway has, and their revocation.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use http::Method;
use jiff::Timestamp;
use serde::Deserialize;

use crate::cli::columns::wrap_text;
use crate::cli::running::{GatewayOption, GatewayRequest, RunningGatewayError, report_unanswered};
use crate::cli::status::describe_age;
use crate::cli::{
    BareFile, FAILURE_EXIT, FailureExit, WRONG_USE, json_text, print_error, printable,
    write_to_stdout,
};

/// List the logins of the gateway and its users at servers, or revoke one
///
/// Exit codes: 0 if it is done, 1 if the gateway refuses it or the provider has not revoked the
/// login, 2 for an invalid command line, 3 if no gateway answers.
#[derive(Debug, Args)]
#[command(after_help = LOGINS_EXAMPLES)]
pub(crate) struct LoginsArgs {
    #[command(flatten)]
    gateway: GatewayOption,
    #[command(flatten)]
    file: BareFile,
    /// Revoke this login, by the digits in the list: at the provider, and in the gateway and its vault
    #[arg(long, value_name = "LOGIN")]
    revoke: Option<String>,
    /// Print the whole document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Deserialize)]
struct LoginsText {
    logins: Vec<LoginText>,
}

#[derive(Debug, Deserialize)]
struct LoginText {
    login: String,
    server: String,
    kind: String,
    owner: Option<String>,
    issuer: Option<String>,
    scopes: Vec<String>,
    since: Option<Timestamp>,
    refreshable: bool,
    renewed_at: Option<Timestamp>,
    ends_at: Option<Timestamp>,
    active: bool,
}

#[derive(Debug, Deserialize)]
struct RevokedText {
    login: LoginText,
    provider: String,
    reason: Option<String>,
}

/// Runs the command.
pub(crate) fn run(args: LoginsArgs) -> ExitCode {
    let gateway = args.gateway.or_file(args.file);
    let path = match &args.revoke {
        None => "/logins".to_owned(),
        Some(login) if !login.is_empty() && login.bytes().all(|it| it.is_ascii_hexdigit()) => {
            format!("/logins/{login}")
        }
        Some(_) => {
            print_error("--revoke: expected the hexadecimal digits of the list");
            return WRONG_USE.into_code();
        }
    };
    let method = if args.revoke.is_some() { Method::DELETE } else { Method::GET };
    let document = match gateway.request(&GatewayRequest { method, path: &path, body: None }) {
        Ok(document) => document,
        Err(error) => return report_unanswered(&error),
    };
    let (text, exit) = match args.revoke {
        None => match LoginsText::deserialize(&document) {
            Ok(page) => (describe_logins(&page, Timestamp::now()), None),
            Err(error) => return report_unanswered(&RunningGatewayError::OtherVersion(error)),
        },
        Some(_) => match RevokedText::deserialize(&document) {
            Ok(revoked) => {
                let exit = (revoked.provider == "refused").then_some(FAILURE_EXIT);
                (describe_revoked(&revoked), exit)
            }
            Err(error) => return report_unanswered(&RunningGatewayError::OtherVersion(error)),
        },
    };
    let text = if args.json { json_text(&document) } else { text };
    let written = write_to_stdout(&text);
    exit.map_or(written, FailureExit::into_code)
}

fn describe_logins(page: &LoginsText, now: Timestamp) -> String {
    if page.logins.is_empty() {
        return "No logins.\n".to_owned();
    }
    let mut text = String::new();
    for login in &page.logins {
        let _ = writeln!(
            text,
            "{}  {}: {}",
            printable(&login.login),
            printable(&login.server),
            describe_owner(login)
        );
        let mut facts = Vec::new();
        facts.extend(login.issuer.as_ref().map(|issuer| format!("at {}", printable(issuer))));
        if !login.scopes.is_empty() {
            facts.push(format!("scopes {}", printable(&login.scopes.join(" "))));
        }
        facts.extend(login.since.map(|at| format!("since {}", ago(now, at))));
        facts.push(match (login.refreshable, login.renewed_at, login.ends_at) {
            (true, _, Some(at)) => format!("renewed until its end {}", until(now, at)),
            (true, _, None) => "renewed without its owner".to_owned(),
            (false, Some(at), _) => format!("ends {}", until(now, at)),
            (false, None, _) => "without an announced end".to_owned(),
        });
        if !login.active {
            facts.push("waits in the vault for its server".to_owned());
        }
        text.push_str(&wrap_text("  ", &facts.join(", ")));
    }
    text
}

fn describe_revoked(revoked: &RevokedText) -> String {
    let RevokedText { login, provider, reason } = revoked;
    let server = printable(&login.server);
    let mut text =
        format!("The gateway has deleted the login of {} at {server}. ", describe_owner(login));
    match provider.as_str() {
        "revoked" => text.push_str("The provider has revoked it."),
        "refused" => {
            let reason = printable(reason.as_deref().unwrap_or_default());
            let _ = write!(text, "The provider has not revoked it ({reason}): end it there.");
        }
        "no_endpoint" => text.push_str("The provider offers no revocation: end it there."),
        _ => text.push_str("The provider was not asked: the server is not configured."),
    }
    wrap_text("", &text)
}

fn describe_owner(login: &LoginText) -> String {
    match &login.owner {
        Some(owner) => format!("{} {}", printable(&login.kind), printable(owner)),
        None => "the gateway".to_owned(),
    }
}

fn ago(now: Timestamp, at: Timestamp) -> String {
    format!("{} ago", describe_age(now.duration_since(at)))
}

fn until(now: Timestamp, at: Timestamp) -> String {
    if at <= now {
        "now".to_owned()
    } else {
        format!("in {}", describe_age(at.duration_since(now)))
    }
}

const LOGINS_EXAMPLES: &str = "Examples:
  trunkline logins
  trunkline logins --revoke 1f2e3d4c5b6a7f80";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn logins_are_described_without_control_characters_in_80_columns() {
        let page = json!({ "logins": [
            {
                "login": "1f2e", "server": "github", "kind": "client", "owner": "ann", "active": true,
                "issuer": "https://login.example.com/\u{1b}[31m", "scopes": vec!["repo:read"; 20],
                "since": "2026-11-28T07:00:00Z", "refreshable": true, "renewed_at": null,
                "ends_at": "2026-12-28T10:00:00Z"
            },
            {
                "login": "3d4c", "server": "crm", "kind": "gateway", "owner": null, "active": false,
                "issuer": null, "scopes": [], "since": null, "refreshable": false,
                "renewed_at": "2026-11-28T09:00:00Z", "ends_at": null
            }
        ] });
        let page = LoginsText::deserialize(&page).unwrap();
        let text = describe_logins(&page, "2026-11-28T10:00:00Z".parse().unwrap());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        for part in ["1f2e  github: client ann", "since 3 h ago", "30 d", "3d4c  crm: the gateway"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("ends now, waits in the vault"), "{text}");
    }
}
