//! Generates `docs/errors.md` from the table.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use trunkline_jsonrpc::{self as jsonrpc, FrameFault};

use crate::mcp::{header, meta};

use super::{
    ArgumentsError, Blame, CallIntent, ConfirmationError, Failure, GatewayFault, HeaderFault,
    InputError, InterceptorFault, InterceptorOutageError, InterceptorRefusalError, InternalFault,
    MetaCallError, NeededCapability, NeededScopes, OtherViolations, ParamsFault, RequestFault,
    ServerFault, ServerName, StateError, TokenFault,
};

#[test]
fn the_page_on_errors_matches_the_table() {
    let page = page();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
    let written = std::fs::read_to_string(path).unwrap_or_default();
    // The rest of the page is measured with the clients of the SDKs, not generated from the table.
    let (table, measured) = written.split_once(MEASURED).unwrap_or((&written, ""));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{page}\n{MEASURED}{measured}")).unwrap();
        return;
    }
    assert_eq!(
        table.trim_end(),
        page.trim_end(),
        "docs/errors.md is stale: run the tests with UPDATE_DOCS=1"
    );
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut next = Some(Failure::from(frame_fault(r#"{"a"}"#)));
    while let Some(failure) = next {
        let wire = failure.wire();
        let blame = match wire.blame {
            Blame::Client => "client",
            Blame::Server => "server",
            Blame::Gateway => "gateway",
        };
        let seen_as = if failure.to_tool_result().is_some() { "tool result" } else { "error" };
        let again = if wire.retryable { "yes" } else { "no" };
        let text = failure.to_string().replace('\n', " ");
        writeln!(
            page,
            "| `{}` | {} | {} | {blame} | {again} | {seen_as} | {text} |",
            wire.label, wire.code, wire.status
        )
        .unwrap();
        next = after(&failure);
    }
    page
}

/// Returns the failure in the next row. A new variant does not compile until it has a row.
fn after(failure: &Failure) -> Option<Failure> {
    let detail = || DETAIL.to_owned();
    let server = || ServerName::new("NAME").unwrap();
    Some(match failure {
        Failure::Parse(_) => RequestFault::Frame(FrameFault::Version).into(),
        Failure::InvalidRequest(_) => ParamsFault::Missing { member: "name" }.into(),
        Failure::InvalidParams(_) => {
            Failure::InvalidMeta(ParamsFault::MissingMeta { key: meta::PROTOCOL_VERSION })
        }
        Failure::InvalidMeta(_) => {
            HeaderFault::Missing { name: header::METHOD, body: "tools/call".into() }.into()
        }
        Failure::HeaderMismatch(_) => Failure::UnsupportedVersion { requested: detail() },
        Failure::UnsupportedVersion { .. } => Failure::MethodNotFound { method: detail() },
        Failure::MethodNotFound { .. } => Failure::UnknownTool { name: detail() },
        Failure::UnknownTool { .. } => Failure::DepartedTool { name: detail() },
        Failure::DepartedTool { .. } => {
            MetaCallError::UnknownTool { name: detail(), similar: Vec::new() }.into()
        }
        Failure::MetaCallRefused(MetaCallError::UnknownTool { .. }) => {
            let right = CallIntent::Destructive.tool_name();
            MetaCallError::OtherIntent { name: detail(), right }.into()
        }
        Failure::MetaCallRefused(MetaCallError::OtherIntent { .. }) => {
            MetaCallError::CalledDirectly { name: "find_tools" }.into()
        }
        Failure::MetaCallRefused(_) => Failure::UnknownPrompt { name: detail() },
        Failure::UnknownPrompt { .. } => Failure::UnknownResource { uri: detail() },
        Failure::UnknownResource { .. } => Failure::UnknownTask { id: "ID".into() },
        Failure::UnknownTask { .. } => Failure::CallDenied,
        Failure::CallDenied => Failure::NotConfirmed(ConfirmationError::Declined),
        Failure::NotConfirmed(_) => Failure::InvalidArguments(violations()),
        Failure::InvalidArguments(_) => Failure::SessionRequired,
        Failure::SessionRequired => Failure::SessionLost,
        Failure::SessionLost => Failure::TooManySessions { name: "sessions", limit: 10_000 },
        Failure::TooManySessions { .. } => Failure::TooManyStreams { limit: 1024 },
        Failure::TooManyStreams { .. } => Failure::TooManySubscriptions { limit: 1000 },
        Failure::TooManySubscriptions { .. } => Failure::NoUpdates { uri: "URI".into() },
        Failure::NoUpdates { .. } => Failure::KeyMissing,
        Failure::KeyMissing => Failure::KeyUnknown,
        Failure::KeyUnknown => Failure::KeyExpired,
        Failure::KeyExpired => Failure::TokenMissing,
        Failure::TokenMissing => Failure::TokenRefused(TokenFault::Audience),
        Failure::TokenRefused(TokenFault::Expired) => Failure::IssuerUnavailable,
        Failure::TokenRefused(_) => Failure::TokenRefused(TokenFault::Expired),
        Failure::IssuerUnavailable => {
            let scopes = vec!["mcp:read".into(), "mcp:write".into()];
            Failure::ScopesNeeded(Box::new(NeededScopes { scopes, source: None }))
        }
        Failure::ScopesNeeded(_) => Failure::ClaimNeeded { claim: "department".into() },
        Failure::ClaimNeeded { .. } => Failure::CredentialsWithheld { server: server() },
        Failure::CredentialsWithheld { .. } => Failure::UnknownEndpoint,
        Failure::UnknownEndpoint => Failure::BodyTooLarge { limit: 4 << 20 },
        Failure::BodyTooLarge { .. } => Failure::MediaType,
        Failure::MediaType => InterceptorRefusalError {
            interceptor: "NAME".into(),
            reason: "a secret in the arguments".into(),
        }
        .into(),
        Failure::Intercepted(_) => InterceptorOutageError {
            interceptor: "NAME".into(),
            fault: InterceptorFault::Timeout { after: Duration::from_secs(2) },
        }
        .into(),
        Failure::InterceptorDown(_) => Failure::OverLimit {
            limit: "server:NAME".into(),
            retry_after: Duration::from_millis(1500),
        },
        Failure::OverLimit { .. } => Failure::AnswerDropped { limit: "unread_each" },
        Failure::AnswerDropped { .. } => Failure::AuditUnavailable,
        Failure::AuditUnavailable => Failure::StoreUnavailable,
        Failure::StoreUnavailable => Failure::Draining,
        Failure::Draining => Failure::ReplicaLost,
        Failure::ReplicaLost => Failure::ReplicaUnreachable,
        Failure::ReplicaUnreachable => GatewayFault::Transport(ServerFault::Unreachable).into(),
        Failure::Unreachable(_) => Failure::server_down(server(), ServerFault::NotStarted),
        Failure::ServerDown { .. } => Failure::LoginNeeded {
            server: server(),
            link: "https://login.example.com/authorize?…".into(),
        },
        Failure::LoginNeeded { .. } => {
            Failure::BreakerOpen { server: server(), retry_after: Duration::from_millis(12_300) }
        }
        Failure::BreakerOpen { .. } => Failure::server_broke(server(), ServerFault::Exited),
        Failure::ServerBroke { .. } => {
            Failure::ServerTimeout { server: server(), after: Duration::from_secs(30) }
        }
        Failure::ServerTimeout { .. } => Failure::bad_answer(server(), ServerFault::WrongId),
        Failure::BadAnswer { .. } => Failure::InputNeeded { needed: NeededCapability::Roots },
        Failure::InputNeeded { .. } => Failure::tasks_needed(),
        Failure::CapabilityNeeded { .. } => InputError::Declined.into(),
        Failure::InputRefused(_) => Failure::InputTimeout { after: Duration::from_mins(10) },
        Failure::InputTimeout { .. } => Failure::InputEndless { server: server(), limit: 32 },
        Failure::InputEndless { .. } => StateError::Expired.into(),
        Failure::InvalidState(_) => Failure::Cancelled,
        Failure::Cancelled => InternalFault::Random.into(),
        Failure::Internal(_) => return None,
    })
}

fn violations() -> ArgumentsError {
    ArgumentsError {
        lines: vec!["/limit: type: expected integer, got string".into()],
        others: OtherViolations::None,
    }
}

fn frame_fault(text: &'static str) -> FrameFault {
    jsonrpc::parse(&Bytes::from_static(text.as_bytes()), 8).unwrap_err()
}

/// Results that may hold a failure are moved on every call.
#[test]
fn a_failure_is_small() {
    let size = size_of::<Failure>();
    assert!(size <= 48, "{size} bytes");
}

/// Start of the page's part that `tests/frameworks/statuses.py --write` writes.
const MEASURED: &str = "<!-- Below: written by tests/frameworks/statuses.py --write. -->\n";

/// Placeholder for the parts that vary.
const DETAIL: &str = "…";

const HEAD: &str = "\
<!-- Written by `UPDATE_DOCS=1 cargo test -p trunkline-protocol call::`. Do not edit. -->

# Errors

All errors that the gateway itself sends. Errors that a server sends pass through, with public URIs in place of its own.

- **label** is the name of the error in metrics (`trunkline_errors_total{reason=…}`) and in the log.
- **code** is the JSON-RPC code, **HTTP** the status. A tool result always arrives with 200, and so does
  every error that answers a request in a Legacy session, except `insufficient_scope`: Legacy clients take another
  status for the end of their connection. A request that is refused before its session is known (`initialize`, an unknown session or key, a
  body that cannot be read, a GET) has the status of the table.
- **again**: whether the same request can succeed later. Where the gateway knows when, it sends
  `Retry-After`, and `data.retryAfterMs` for a limit.
- **seen as**: a *tool result* carries `isError: true` and the text, so that the model reads it and can
  mend its call or take another way; an *error* is a JSON-RPC error, for the program.
- **text** is an example where a label covers several faults. A text names the found and the expected value,
  and nothing that the client may not know to exist; the log has the whole chain of causes.

| label | code | HTTP | blame | again | seen as | text |
|---|---|---|---|---|---|---|
";

#[test]
fn over_a_limit_says_which_and_how_long() {
    let failure =
        Failure::OverLimit { limit: "server:git".into(), retry_after: Duration::from_millis(1500) };
    let error: Value = serde_json::from_slice(&failure.to_error()).unwrap();
    assert_eq!(error["data"]["retryAfterMs"], 1500);
    assert_eq!(error["data"]["limit"], "server:git");
    assert_eq!(failure.wire().status, 429);
}

#[test]
fn only_a_servers_failure_becomes_a_tool_result() {
    let server = ServerName::new("git").unwrap();
    let down = Failure::server_down(server, ServerFault::Exited);
    assert!(down.to_tool_result().is_some());
    assert!(Failure::Draining.to_tool_result().is_none());
}
