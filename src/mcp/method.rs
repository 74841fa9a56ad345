//! The table of methods that the gateway knows by name.

/// A request's method.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Method {
    /// Legacy: opens a session.
    Initialize,
    /// Legacy: asks for a sign of life.
    Ping,
    /// Modern: who is there and what can it do.
    Discover,
    /// Modern: opens a stream of change notifications.
    Listen,
    /// Lists tools.
    ToolsList,
    /// Calls a tool.
    ToolsCall,
    /// Anything else, by its own name.
    Other(String),
}

impl Method {
    /// Reads a method's name.
    pub fn parse(name: &str) -> Self {
        match name {
            "initialize" => Self::Initialize,
            "ping" => Self::Ping,
            "server/discover" => Self::Discover,
            "subscriptions/listen" => Self::Listen,
            "tools/list" => Self::ToolsList,
            "tools/call" => Self::ToolsCall,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Initialize => "initialize",
            Self::Ping => "ping",
            Self::Discover => "server/discover",
            Self::Listen => "subscriptions/listen",
            Self::ToolsList => "tools/list",
            Self::ToolsCall => "tools/call",
            Self::Other(name) => name,
        }
    }

    /// Whether only Modern peers know it.
    pub fn is_modern_only(&self) -> bool {
        matches!(self, Self::Discover | Self::Listen)
    }

    /// The member of `params` that `Mcp-Name` mirrors, where it mirrors one
    /// (2026-07-28, Streamable HTTP, "Standard Request Headers").
    pub fn named_by(&self) -> Option<&'static str> {
        match self {
            Self::ToolsCall => Some("name"),
            Self::Other(name) if name == "prompts/get" => Some("name"),
            Self::Other(name) if name == "resources/read" => Some("uri"),
            _ => None,
        }
    }
}

/// Names of notifications.
pub mod notification {
    /// Legacy: the client is ready.
    pub const INITIALIZED: &str = "notifications/initialized";
    /// A request is no longer wanted.
    pub const CANCELLED: &str = "notifications/cancelled";
    /// How far a request has come.
    pub const PROGRESS: &str = "notifications/progress";
    /// The list of tools is another.
    pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
    /// Modern: a subscription stands.
    pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
}
