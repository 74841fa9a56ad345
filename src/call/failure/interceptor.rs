//! What interceptors say, and what can be wrong with one.

use std::time::Duration;

use http::StatusCode;

use super::Failure;

/// The refusal of an interceptor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refused by the interceptor {interceptor}: {reason}")]
pub struct InterceptorRefusal {
    /// Its name in the configuration.
    pub interceptor: String,
    /// What it says, truncated.
    pub reason: String,
}

/// An interceptor that did not decide about a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the interceptor {interceptor} has to check this, and does not answer: {fault}")]
pub struct InterceptorOutage {
    /// Its name in the configuration.
    pub interceptor: String,
    /// What is wrong.
    pub fault: InterceptorFault,
}

/// Why an interceptor did not decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterceptorFault {
    /// No connection, or a lost one.
    #[error("it cannot be reached")]
    Unreachable,
    /// Too late.
    #[error("no answer within {after:?}")]
    Timeout {
        /// How long the gateway waited.
        after: Duration,
    },
    /// Too many of its answers have failed, and it is not asked for a while.
    #[error("it has failed too often, and is left alone for a while")]
    BreakerOpen,
    /// An HTTP status other than 200.
    #[error("it answered with HTTP {status}")]
    Status {
        /// The status.
        status: StatusCode,
    },
    /// What it is to see, or its answer, is larger than the configuration allows.
    #[error("the message or its answer is larger than {limit} bytes")]
    TooLarge {
        /// The most bytes.
        limit: usize,
    },
    /// The message has duplicate keys or numbers that readers understand differently.
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
    /// A mutation that changes what it may not, or is not valid.
    #[error("its mutation {0}")]
    Mutation(&'static str),
}

impl From<InterceptorRefusal> for Failure {
    fn from(refusal: InterceptorRefusal) -> Self {
        Self::Intercepted(Box::new(refusal))
    }
}

impl From<InterceptorOutage> for Failure {
    fn from(outage: InterceptorOutage) -> Self {
        Self::InterceptorDown(Box::new(outage))
    }
}
