//! Types of lifecycle events, in one table of their names.

/// The type of a lifecycle event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// A server takes calls.
    ServerReady,
    /// A server that took calls, or is starting, does not take calls.
    ServerLost,
    /// A child process failed too often and is not restarted for a while.
    ServerFailed,
    /// Calls of a server are refused for a while, because calls before them have failed.
    BreakerOpened,
    /// Calls are sent to the server again.
    BreakerClosed,
    /// The lists of clients have changed.
    ListChanged,
    /// Definitions of a server have changed, or a scan has matched them.
    DefinitionsFound,
    /// A call was received.
    CallBegun,
    /// A call was answered, failed or was cancelled.
    CallEnded,
    /// A Legacy client opened a session.
    ClientOpened,
    /// The session of a Legacy client ended.
    ClientClosed,
    /// A reload put a new configuration in force.
    ConfigApplied,
    /// A reload was rejected; the old configuration stays in force.
    ConfigRejected,
}

impl EventType {
    /// All types, in the order of the docs.
    pub const ALL: [Self; 13] = [
        Self::ServerReady,
        Self::ServerLost,
        Self::ServerFailed,
        Self::BreakerOpened,
        Self::BreakerClosed,
        Self::ListChanged,
        Self::DefinitionsFound,
        Self::CallBegun,
        Self::CallEnded,
        Self::ClientOpened,
        Self::ClientClosed,
        Self::ConfigApplied,
        Self::ConfigRejected,
    ];

    /// Returns the name in the setting `events.types`; in an event it follows [`TYPE_PREFIX`].
    pub fn name(self) -> &'static str {
        match self {
            Self::ServerReady => "server.ready",
            Self::ServerLost => "server.lost",
            Self::ServerFailed => "server.failed",
            Self::BreakerOpened => "breaker.opened",
            Self::BreakerClosed => "breaker.closed",
            Self::ListChanged => "list.changed",
            Self::DefinitionsFound => "definitions.found",
            Self::CallBegun => "call.begun",
            Self::CallEnded => "call.ended",
            Self::ClientOpened => "client.opened",
            Self::ClientClosed => "client.closed",
            Self::ConfigApplied => "config.applied",
            Self::ConfigRejected => "config.rejected",
        }
    }

    /// Returns true for the events of each call, which are dropped first when the queue is full.
    pub(super) fn is_of_calls(self) -> bool {
        matches!(self, Self::CallBegun | Self::CallEnded)
    }

    /// Parses the `type` of a written event.
    pub(super) fn parse(written: &str) -> Option<Self> {
        let name = written.strip_prefix(TYPE_PREFIX)?;
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// A set of event types.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventTypes(pub(super) u32);

impl EventTypes {
    pub(super) fn has(self, one: EventType) -> bool {
        self.0 & (1 << one as u32) != 0
    }
}

impl FromIterator<EventType> for EventTypes {
    fn from_iter<I: IntoIterator<Item = EventType>>(types: I) -> Self {
        Self(types.into_iter().fold(0, |bits, one| bits | 1 << one as u32))
    }
}

/// Prefix of the name in the `type` of an event.
pub(super) const TYPE_PREFIX: &str = "trunkline.";
