//! The meta-tools: the gateway's own tools for finding and calling all others.

/// A meta-tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaTool {
    /// Finds tools by description.
    Find,
    /// Describes tools in full.
    Describe,
    /// Calls any tool, or one of an intent.
    Call(Option<CallIntent>),
    /// Runs code that calls tools.
    RunCode,
}

/// Effect that a call may have, by the hints of its tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallIntent {
    /// It changes nothing.
    Read,
    /// It adds something, and destroys nothing.
    Write,
    /// It may destroy something.
    Destructive,
}

impl MetaTool {
    /// All meta-tools.
    pub const ALL: [Self; 7] = [
        Self::Find,
        Self::Describe,
        Self::Call(None),
        Self::Call(Some(CallIntent::Read)),
        Self::Call(Some(CallIntent::Write)),
        Self::Call(Some(CallIntent::Destructive)),
        Self::RunCode,
    ];

    /// Returns the tool with this name.
    pub fn with_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns its name for clients.
    pub fn name(self) -> &'static str {
        match self {
            Self::Find => "find_tools",
            Self::Describe => "describe_tools",
            Self::Call(None) => "call_tool",
            Self::Call(Some(intent)) => intent.tool_name(),
            Self::RunCode => "run_code",
        }
    }

    /// Returns true if clients with search have it: with one tool for each intent of a call, or one
    /// for all calls.
    pub fn is_for_search(self, by_intent: bool) -> bool {
        match self {
            Self::Find | Self::Describe => true,
            Self::Call(intent) => intent.is_some() == by_intent,
            Self::RunCode => false,
        }
    }
}

impl CallIntent {
    /// Returns the meta-tool for calls of this intent.
    pub fn tool_name(self) -> &'static str {
        match self {
            Self::Read => "call_tool_read",
            Self::Write => "call_tool_write",
            Self::Destructive => "call_tool_destructive",
        }
    }
}
