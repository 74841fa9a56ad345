//! The table of failures: code, status, blame, label.

use crate::mcp::code;

use super::{Blame, Failure, MetaCallError};

/// A failure's representation on the wire and in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireForm {
    /// The JSON-RPC code.
    pub code: i64,
    /// The HTTP status towards a Modern client.
    pub status: u16,
    /// The party that caused the failure.
    pub blame: Blame,
    /// True if the same request can succeed later.
    pub retryable: bool,
    /// The metric label.
    pub label: &'static str,
}

impl Failure {
    /// Returns this failure's row of the table.
    #[expect(clippy::too_many_lines, reason = "one table, a row for each failure")]
    pub fn wire(&self) -> WireForm {
        use Blame::{Client, Gateway, Server};
        match self {
            Self::Parse(_) => row(code::PARSE_ERROR, 400, Client, false, "parse_error"),
            Self::InvalidRequest(_) => {
                row(code::INVALID_REQUEST, 400, Client, false, "invalid_request")
            }
            Self::InvalidParams(_) => {
                row(code::INVALID_PARAMS, 200, Client, false, "invalid_params")
            }
            Self::InvalidMeta(_) => row(code::INVALID_PARAMS, 400, Client, false, "invalid_meta"),
            Self::HeaderMismatch(_) => {
                row(code::HEADER_MISMATCH, 400, Client, false, "header_mismatch")
            }
            Self::UnsupportedVersion { .. } => {
                row(code::UNSUPPORTED_VERSION, 400, Client, false, "unsupported_version")
            }
            Self::MethodNotFound { .. } => {
                row(code::METHOD_NOT_FOUND, 404, Client, false, "method_not_found")
            }
            Self::UnknownTool { .. } | Self::MetaCallRefused(MetaCallError::UnknownTool { .. }) => {
                row(code::INVALID_PARAMS, 200, Client, false, "unknown_tool")
            }
            Self::DepartedTool { .. } => {
                row(code::INVALID_PARAMS, 200, Client, false, "departed_tool")
            }
            Self::MetaCallRefused(
                MetaCallError::OtherIntent { .. } | MetaCallError::CalledDirectly { .. },
            ) => row(code::INVALID_PARAMS, 200, Client, false, "wrong_meta_tool"),
            Self::UnknownPrompt { .. } => {
                row(code::INVALID_PARAMS, 200, Client, false, "unknown_prompt")
            }
            Self::UnknownResource { .. } => {
                row(code::INVALID_PARAMS, 200, Client, false, "unknown_resource")
            }
            Self::UnknownTask { .. } => {
                row(code::INVALID_PARAMS, 200, Client, false, "unknown_task")
            }
            Self::NotConfirmed(_) => row(code::INVALID_PARAMS, 200, Client, false, "not_confirmed"),
            Self::CallDenied => row(code::INVALID_PARAMS, 200, Client, false, "call_denied"),
            Self::InvalidArguments(_) => {
                row(code::INVALID_PARAMS, 200, Client, false, "invalid_arguments")
            }
            Self::SessionRequired => {
                row(code::INVALID_REQUEST, 400, Client, false, "session_required")
            }
            Self::SessionLost => row(code::INVALID_REQUEST, 404, Client, false, "session_lost"),
            Self::TooManySessions { .. } => {
                row(code::OVER_LIMIT, 503, Gateway, true, "too_many_sessions")
            }
            Self::TooManyStreams { .. } => {
                row(code::OVER_LIMIT, 503, Gateway, true, "too_many_streams")
            }
            Self::TooManySubscriptions { .. } => {
                row(code::OVER_LIMIT, 429, Gateway, true, "too_many_subscriptions")
            }
            Self::NoUpdates { .. } => row(code::INVALID_PARAMS, 200, Client, false, "no_updates"),
            Self::KeyMissing
            | Self::KeyUnknown
            | Self::KeyExpired
            | Self::TokenMissing
            | Self::TokenRefused(_) => {
                row(code::UNAUTHENTICATED, 401, Client, false, self.credential_label())
            }
            Self::IssuerUnavailable => {
                row(code::SERVER_UNAVAILABLE, 503, Gateway, true, "issuer_unavailable")
            }
            Self::ScopesNeeded(_) => {
                row(code::INSUFFICIENT_SCOPE, 403, Client, false, "insufficient_scope")
            }
            Self::ClaimNeeded { .. } => {
                row(code::INVALID_PARAMS, 200, Client, false, "claim_needed")
            }
            Self::CredentialsWithheld { .. } => {
                row(code::INVALID_PARAMS, 200, Client, false, "credentials_withheld")
            }
            Self::UnknownEndpoint => {
                row(code::INVALID_REQUEST, 404, Client, false, "unknown_endpoint")
            }
            Self::BodyTooLarge { .. } => {
                row(code::INVALID_REQUEST, 413, Client, false, "body_too_large")
            }
            Self::MediaType => row(code::INVALID_REQUEST, 415, Client, false, "media_type"),
            Self::Intercepted(_) => row(code::INVALID_PARAMS, 200, Client, false, "intercepted"),
            Self::InterceptorDown(_) => {
                row(code::SERVER_UNAVAILABLE, 200, Gateway, true, "interceptor_down")
            }
            Self::OverLimit { .. } => row(code::OVER_LIMIT, 429, Gateway, true, "over_limit"),
            Self::AnswerDropped { .. } => {
                row(code::OVER_LIMIT, 200, Client, false, "answer_dropped")
            }
            Self::AuditUnavailable => {
                row(code::SERVER_UNAVAILABLE, 503, Gateway, true, "audit_unavailable")
            }
            Self::StoreUnavailable => {
                row(code::SERVER_UNAVAILABLE, 503, Gateway, true, "store_unavailable")
            }
            Self::Draining => row(code::SERVER_UNAVAILABLE, 503, Gateway, true, "draining"),
            Self::ReplicaLost => row(code::SERVER_UNAVAILABLE, 502, Gateway, false, "replica_lost"),
            Self::ReplicaUnreachable => {
                row(code::SERVER_UNAVAILABLE, 503, Gateway, true, "replica_unreachable")
            }
            Self::Unreachable(_) => {
                row(code::SERVER_UNAVAILABLE, 502, Gateway, true, "unreachable")
            }
            Self::ServerDown { .. } => {
                row(code::SERVER_UNAVAILABLE, 200, Server, true, "server_down")
            }
            Self::LoginNeeded { .. } => {
                row(code::SERVER_UNAVAILABLE, 200, Client, true, "login_needed")
            }
            Self::BreakerOpen { .. } => {
                row(code::SERVER_UNAVAILABLE, 200, Server, true, "breaker_open")
            }
            Self::ServerBroke { .. } => {
                row(code::SERVER_UNAVAILABLE, 200, Server, true, "server_broke")
            }
            Self::ServerTimeout { .. } => {
                row(code::SERVER_TIMEOUT, 200, Server, true, "server_timeout")
            }
            Self::BadAnswer { .. } => row(code::INTERNAL_ERROR, 200, Server, false, "bad_answer"),
            Self::InputNeeded { .. } => {
                row(code::MISSING_CAPABILITY, 400, Client, false, "input_needed")
            }
            Self::CapabilityNeeded { .. } => {
                row(code::MISSING_CAPABILITY, 400, Client, false, "capability_needed")
            }
            Self::InputRefused(_) => row(code::INTERNAL_ERROR, 200, Client, false, "input_refused"),
            Self::InputTimeout { .. } => {
                row(code::SERVER_TIMEOUT, 200, Client, true, "input_timeout")
            }
            Self::InputEndless { .. } => {
                row(code::INTERNAL_ERROR, 200, Server, false, "input_endless")
            }
            Self::InvalidState(_) => row(code::INVALID_PARAMS, 200, Client, false, "invalid_state"),
            Self::Cancelled => row(code::INTERNAL_ERROR, 200, Client, false, "cancelled"),
            Self::Internal(_) => row(code::INTERNAL_ERROR, 500, Gateway, false, "internal"),
        }
    }
}

fn row(code: i64, status: u16, blame: Blame, retryable: bool, label: &'static str) -> WireForm {
    WireForm { code, status, blame, retryable, label }
}
