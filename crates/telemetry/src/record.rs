//! Outcome of a call, and its record for the access log.

use std::net::IpAddr;
use std::time::Duration;

use super::CallSubject;

/// Outcome of a call. Labels are `&'static str` so that the set of series in the metrics is fixed
/// by the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// The server answered with a result.
    Ok,
    /// The result has `isError`: the tool failed, or its arguments broke the schema.
    ToolError,
    /// The gateway rejected the call.
    Refused {
        /// The check that failed: `rate`, `unknown_tool`, …
        reason: &'static str,
    },
    /// The call ended in a JSON-RPC error.
    Failed {
        /// The JSON-RPC error code.
        code: i64,
        /// The kind of failure: `timeout`, `server_gone`, …
        label: &'static str,
    },
    /// The client cancelled the call.
    Cancelled,
    /// The server asked for input; the client's retry completes the call.
    InputRequired,
}

impl CallOutcome {
    /// The number of labels.
    pub const COUNT: usize = 6;

    /// Every label, at its [`Self::index`].
    pub const LABELS: [&'static str; Self::COUNT] =
        ["ok", "tool_error", "refused", "failed", "cancelled", "input_required"];

    /// The value of the label `outcome`.
    #[inline]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Refused { .. } => "refused",
            Self::Failed { .. } => "failed",
            Self::Cancelled => "cancelled",
            Self::InputRequired => "input_required",
        }
    }

    /// Returns the reason of a refusal or failure.
    #[inline]
    pub fn failure_reason(&self) -> Option<&'static str> {
        match self {
            Self::Refused { reason } => Some(reason),
            Self::Failed { label, .. } => Some(label),
            Self::Ok | Self::ToolError | Self::Cancelled | Self::InputRequired => None,
        }
    }

    /// The JSON-RPC error code, if the call ended in one.
    #[inline]
    pub fn code(&self) -> Option<i64> {
        match self {
            Self::Failed { code, .. } => Some(*code),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn index(&self) -> usize {
        match self {
            Self::Ok => 0,
            Self::ToolError => 1,
            Self::Refused { .. } => 2,
            Self::Failed { .. } => 3,
            Self::Cancelled => 4,
            Self::InputRequired => 5,
        }
    }
}

/// Access log record of one call, list or introduction. No field may hold arguments, results, headers or a session id.
#[derive(Debug, Clone, Copy)]
pub struct CallRecord<'a> {
    /// The caller, once authenticated.
    pub principal: Option<&'a str>,
    /// The client's address; `None` for a client on standard streams.
    pub address: Option<IpAddr>,
    /// The call's profile.
    pub profile: &'a str,
    /// The method, as the client wrote it; truncated when long. Empty for a request that a rate
    /// refused before it was read.
    pub method: &'a str,
    /// The subject by its public name, as the client wrote it.
    pub public: CallSubject<'a>,
    /// The subject by its native name.
    pub native: CallSubject<'a>,
    /// The server the call was routed to.
    pub server: Option<&'a str>,
    /// Number of elements, for a list.
    pub items: Option<u64>,
    /// Outcome of the call.
    pub outcome: CallOutcome,
    /// The limit that refused the call.
    pub limit: Option<&'a str>,
    /// From the request's last byte to the reply's last byte.
    pub duration: Duration,
    /// The part of the duration spent waiting for the server.
    pub upstream: Option<Duration>,
    /// The call's trace, 32 hexadecimal digits.
    pub trace_id: Option<&'a str>,
    /// The client's raw `clientInfo`, if it sent one. Only name and version are written.
    pub client_info: Option<&'a [u8]>,
    /// The client's era: `legacy` or `modern`.
    pub client_era: &'static str,
    /// The client's protocol version.
    pub client_version: &'a str,
    /// The server's protocol version.
    pub server_version: Option<&'a str>,
    /// The client's transport: `http1`, `http2`, `stdio`.
    pub transport: &'static str,
}

impl CallRecord<'_> {
    /// The duration, rounded to microseconds.
    pub(super) fn duration_us(&self) -> u64 {
        whole_microseconds(self.duration)
    }

    /// The part of the duration spent waiting for the server, rounded to microseconds.
    pub(super) fn upstream_us(&self) -> Option<u64> {
        self.upstream.map(whole_microseconds)
    }
}

fn whole_microseconds(duration: Duration) -> u64 {
    let rounded = duration.saturating_add(Duration::from_nanos(500));
    rounded.as_secs().saturating_mul(1_000_000).saturating_add(rounded.subsec_micros().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_stands_at_its_own_index() {
        for outcome in [
            CallOutcome::Ok,
            CallOutcome::ToolError,
            CallOutcome::Refused { reason: "rate" },
            CallOutcome::Failed { code: -32603, label: "timeout" },
            CallOutcome::Cancelled,
            CallOutcome::InputRequired,
        ] {
            assert_eq!(CallOutcome::LABELS[outcome.index()], outcome.label());
        }
    }
}
