//! Refusals and faults of interceptors.

use std::time::Duration;

use http::StatusCode;

use super::Failure;

/// The refusal of an interceptor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refused by the interceptor {interceptor}: {reason}")]
pub struct InterceptorRefusalError {
    /// Its name in the configuration.
    pub interceptor: String,
    /// Its reason, truncated.
    pub reason: String,
}

/// An interceptor that did not decide about a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the interceptor {interceptor}, which must check this, is not available: {fault}")]
pub struct InterceptorOutageError {
    /// Its name in the configuration.
    pub interceptor: String,
    /// The fault.
    pub fault: InterceptorFault,
}

/// Reasons for an interceptor not to decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterceptorFault {
    /// No connection, or a lost one.
    #[error("it cannot be reached")]
    Unreachable,
    /// Too late.
    #[error("no answer within {after:?}")]
    Timeout {
        /// The time that the gateway waited.
        after: Duration,
    },
    /// Too many of its answers have failed, and it gets no messages for a while.
    #[error("it has failed too often: it is not called for a while")]
    BreakerOpen,
    /// An HTTP status other than 200.
    #[error("it answered with HTTP {status}")]
    Status {
        /// The status.
        status: StatusCode,
    },
    /// The message for it, or its answer, is larger than the configuration allows.
    #[error("the message or its answer is larger than {limit} bytes")]
    TooLarge {
        /// Limit of the bytes.
        limit: usize,
    },
    /// The message has duplicate keys or numbers that readers interpret differently.
    #[error("the message is not unambiguous JSON")]
    Ambiguous,
    /// The answer is not a JSON-RPC response.
    #[error("its answer is not a JSON-RPC response")]
    NotJson,
    /// The answer to another request.
    #[error("its answer has another id than the request, or no `jsonrpc`")]
    OtherId,
    /// A JSON-RPC error.
    #[error("it answered with the error {code}: {message}")]
    Error {
        /// The code.
        code: i64,
        /// The message, truncated.
        message: String,
    },
    /// A result that is neither of the two kinds.
    #[error("its result is neither a validation nor a mutation")]
    Kind,
    /// A mutation that is invalid, or changes immutable parts.
    #[error("its mutation {0}")]
    Mutation(&'static str),
}

impl From<InterceptorRefusalError> for Failure {
    fn from(refusal: InterceptorRefusalError) -> Self {
        Self::Intercepted(Box::new(refusal))
    }
}

impl From<InterceptorOutageError> for Failure {
    fn from(outage: InterceptorOutageError) -> Self {
        Self::InterceptorDown(Box::new(outage))
    }
}
