//! Content of events: plain names and numbers.

use std::time::Duration;

use serde::{Serialize, Serializer};

use trunkline_core::text::clip;

use super::kind::EventType;
use crate::{CallOutcome, CallSubject, MAX_CLIENT_TEXT_BYTES};

/// One lifecycle event. No field may hold arguments, results, headers, URIs, a session id or the
/// text of a server's error.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub enum LifecycleEvent<'a> {
    /// [`EventType::ServerReady`].
    ServerReady {
        /// Its name in the configuration.
        server: &'a str,
        /// Its protocol version.
        protocol_version: Option<&'static str>,
        /// The number of its tools.
        tools: usize,
    },
    /// [`EventType::ServerLost`].
    ServerLost {
        /// Its name in the configuration.
        server: &'a str,
    },
    /// [`EventType::ServerFailed`].
    ServerFailed {
        /// Its name in the configuration.
        server: &'a str,
    },
    /// [`EventType::BreakerOpened`].
    BreakerOpened {
        /// The server's name in the configuration.
        server: &'a str,
    },
    /// [`EventType::BreakerClosed`].
    BreakerClosed {
        /// The server's name in the configuration.
        server: &'a str,
    },
    /// [`EventType::ListChanged`].
    ListChanged {
        /// The kinds of the lists that changed for all clients.
        lists: &'a [&'static str],
        /// The servers with other lists than before; at most [`MAX_EVENT_SERVERS`].
        servers: &'a [&'a str],
    },
    /// [`EventType::DefinitionsFound`].
    DefinitionsFound {
        /// Its name in the configuration.
        server: &'a str,
        /// Number of definitions that are hidden from clients until they are approved.
        held: usize,
        /// Number of definitions that are only reported.
        reported: usize,
    },
    /// [`EventType::CallBegun`].
    CallBegun(CallFacts<'a>),
    /// [`EventType::CallEnded`].
    CallEnded {
        /// The call.
        #[serde(flatten)]
        call: CallFacts<'a>,
        /// The server that the call was routed to.
        #[serde(skip_serializing_if = "Option::is_none")]
        server: Option<&'a str>,
        /// Outcome of the call.
        #[serde(flatten, serialize_with = "write_outcome")]
        outcome: CallOutcome,
        /// From the request's last byte to the reply's last byte.
        #[serde(rename = "duration_ms", serialize_with = "write_milliseconds")]
        duration: Duration,
    },
    /// [`EventType::ClientOpened`].
    ClientOpened(ClientFacts<'a>),
    /// [`EventType::ClientClosed`].
    ClientClosed {
        /// The client.
        #[serde(flatten)]
        client: ClientFacts<'a>,
        /// Duration of the session.
        #[serde(rename = "lasted_ms", serialize_with = "write_milliseconds")]
        lasted: Duration,
    },
    /// [`EventType::ConfigApplied`].
    ConfigApplied {
        /// Servers that continue unchanged.
        kept: usize,
        /// Servers that were restarted.
        replaced: usize,
        /// New servers.
        added: usize,
        /// Removed servers.
        removed: usize,
    },
    /// [`EventType::ConfigRejected`].
    ConfigRejected {
        /// Number of faults; the log contains each.
        faults: usize,
        /// Number of protections that it would remove or weaken; the log contains each.
        losses: usize,
    },
}

/// A call, in both of its events.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CallFacts<'a> {
    /// Id that is shared by both events of a call, and unique otherwise.
    pub call: &'a str,
    /// The caller's name in the configuration, or `anonymous`.
    pub client: &'a str,
    /// The call's profile.
    pub profile: &'a str,
    /// The method, as the client wrote it; truncated when long.
    #[serde(serialize_with = "write_clipped")]
    pub method: &'a str,
    /// The tool or prompt, by its public name.
    #[serde(flatten, serialize_with = "write_subject")]
    pub subject: CallSubject<'a>,
}

/// The client of a session.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ClientFacts<'a> {
    /// Its name in the configuration, or `anonymous`.
    pub client: &'a str,
    /// Name of its software, as reported by the client; truncated when long.
    #[serde(serialize_with = "write_clipped", skip_serializing_if = "str::is_empty")]
    pub name: &'a str,
    /// Version of its software, likewise.
    #[serde(serialize_with = "write_clipped", skip_serializing_if = "str::is_empty")]
    pub version: &'a str,
    /// The protocol version of the session.
    pub protocol_version: &'static str,
}

impl LifecycleEvent<'_> {
    pub(super) fn kind(&self) -> EventType {
        match self {
            Self::ServerReady { .. } => EventType::ServerReady,
            Self::ServerLost { .. } => EventType::ServerLost,
            Self::ServerFailed { .. } => EventType::ServerFailed,
            Self::BreakerOpened { .. } => EventType::BreakerOpened,
            Self::BreakerClosed { .. } => EventType::BreakerClosed,
            Self::ListChanged { .. } => EventType::ListChanged,
            Self::DefinitionsFound { .. } => EventType::DefinitionsFound,
            Self::CallBegun(_) => EventType::CallBegun,
            Self::CallEnded { .. } => EventType::CallEnded,
            Self::ClientOpened(_) => EventType::ClientOpened,
            Self::ClientClosed { .. } => EventType::ClientClosed,
            Self::ConfigApplied { .. } => EventType::ConfigApplied,
            Self::ConfigRejected { .. } => EventType::ConfigRejected,
        }
    }

    /// Returns the server or client of the event, for receivers that filter.
    pub(super) fn subject(&self) -> Option<&str> {
        match self {
            Self::ServerReady { server, .. }
            | Self::ServerLost { server }
            | Self::ServerFailed { server }
            | Self::BreakerOpened { server }
            | Self::BreakerClosed { server }
            | Self::DefinitionsFound { server, .. } => Some(server),
            Self::CallBegun(call) | Self::CallEnded { call, .. } => Some(call.client),
            Self::ClientOpened(client) | Self::ClientClosed { client, .. } => Some(client.client),
            Self::ListChanged { .. } | Self::ConfigApplied { .. } | Self::ConfigRejected { .. } => {
                None
            }
        }
    }
}

fn write_clipped<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(clip(text, MAX_CLIENT_TEXT_BYTES))
}

fn write_milliseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Omits a URI, which may be a secret.
fn write_subject<S: Serializer>(
    subject: &CallSubject<'_>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct SubjectFields<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        prompt: Option<&'a str>,
    }
    SubjectFields { tool: subject.tool(), prompt: subject.prompt() }.serialize(serializer)
}

fn write_outcome<S: Serializer>(outcome: &CallOutcome, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct OutcomeFields {
        outcome: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<i64>,
    }
    let (reason, code) = (outcome.failure_reason(), outcome.code());
    OutcomeFields { outcome: outcome.label(), reason, code }.serialize(serializer)
}

/// Maximum number of servers in one event.
pub const MAX_EVENT_SERVERS: usize = 100;
