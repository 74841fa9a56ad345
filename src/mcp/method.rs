//! The table of methods that the gateway knows by name.

use http::HeaderValue;

use super::encode_value;

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
    /// Lists prompts.
    PromptsList,
    /// Gets a prompt, filled in.
    PromptsGet,
    /// Lists resources.
    ResourcesList,
    /// Lists templates of resources.
    TemplatesList,
    /// Reads a resource.
    ResourcesRead,
    /// Legacy: asks to hear when a resource changes.
    ResourcesSubscribe,
    /// Legacy: takes that back.
    ResourcesUnsubscribe,
    /// Completes an argument of a prompt or a template.
    Complete,
    /// Legacy: the least severe log line that a session wants to see.
    SetLevel,
    /// How a task is: Modern with the extension, and 2025-11-25.
    TasksGet,
    /// Modern, with the extension: answers what a task asks.
    TasksUpdate,
    /// Ends a task.
    TasksCancel,
    /// 2025-11-25: waits for what a task comes to.
    TasksResult,
    /// 2025-11-25: lists tasks.
    TasksList,
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
            "prompts/list" => Self::PromptsList,
            "prompts/get" => Self::PromptsGet,
            "resources/list" => Self::ResourcesList,
            "resources/templates/list" => Self::TemplatesList,
            "resources/read" => Self::ResourcesRead,
            "resources/subscribe" => Self::ResourcesSubscribe,
            "resources/unsubscribe" => Self::ResourcesUnsubscribe,
            "completion/complete" => Self::Complete,
            "logging/setLevel" => Self::SetLevel,
            "tasks/get" => Self::TasksGet,
            "tasks/update" => Self::TasksUpdate,
            "tasks/cancel" => Self::TasksCancel,
            "tasks/result" => Self::TasksResult,
            "tasks/list" => Self::TasksList,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The name on the wire.
    pub fn as_str(&self) -> &str {
        self.known_name().unwrap_or_else(|other| other)
    }

    /// Its name as a header says it.
    pub fn to_header(&self) -> HeaderValue {
        match self.known_name() {
            Ok(known) => HeaderValue::from_static(known),
            Err(other) => encode_value(other),
        }
    }

    /// The name of one that is known here, or else its own.
    fn known_name(&self) -> Result<&'static str, &str> {
        Ok(match self {
            Self::Initialize => "initialize",
            Self::Ping => "ping",
            Self::Discover => "server/discover",
            Self::Listen => "subscriptions/listen",
            Self::ToolsList => "tools/list",
            Self::ToolsCall => "tools/call",
            Self::PromptsList => "prompts/list",
            Self::PromptsGet => "prompts/get",
            Self::ResourcesList => "resources/list",
            Self::TemplatesList => "resources/templates/list",
            Self::ResourcesRead => "resources/read",
            Self::ResourcesSubscribe => "resources/subscribe",
            Self::ResourcesUnsubscribe => "resources/unsubscribe",
            Self::Complete => "completion/complete",
            Self::SetLevel => "logging/setLevel",
            Self::TasksGet => "tasks/get",
            Self::TasksUpdate => "tasks/update",
            Self::TasksCancel => "tasks/cancel",
            Self::TasksResult => "tasks/result",
            Self::TasksList => "tasks/list",
            Self::Other(name) => return Err(name),
        })
    }

    /// Whether only Modern peers know it.
    pub fn is_modern_only(&self) -> bool {
        matches!(self, Self::Discover | Self::Listen)
    }

    /// Whether it is passed on to a server, rather than answered by the gateway.
    pub fn is_answered_by_servers(&self) -> bool {
        matches!(
            self,
            Self::ToolsCall
                | Self::PromptsGet
                | Self::ResourcesRead
                | Self::Complete
                | Self::Other(_)
        ) || self.is_task_request()
    }

    /// Whether it is about one task, by its id.
    pub fn is_task_request(&self) -> bool {
        matches!(self, Self::TasksGet | Self::TasksUpdate | Self::TasksCancel | Self::TasksResult)
    }

    /// The member of `params` that `Mcp-Name` mirrors, where it mirrors one
    /// (2026-07-28, Streamable HTTP, "Standard Request Headers"; of tasks,
    /// SEP-2663, "Streamable HTTP: Routing Headers").
    pub fn name_param(&self) -> Option<&'static str> {
        match self {
            Self::ToolsCall | Self::PromptsGet => Some("name"),
            Self::ResourcesRead => Some("uri"),
            Self::TasksGet | Self::TasksUpdate | Self::TasksCancel => Some("taskId"),
            _ => None,
        }
    }
}

/// Names of notifications.
pub mod notification {
    use bytes::Bytes;
    use serde::Deserialize;
    use serde_json::value::RawValue;

    use crate::jsonrpc::{Id, object};

    /// Legacy: the client is ready.
    pub const INITIALIZED: &str = "notifications/initialized";
    /// A request is no longer wanted.
    pub const CANCELLED: &str = "notifications/cancelled";
    /// How far a request has come.
    pub const PROGRESS: &str = "notifications/progress";
    /// The list of tools is another.
    pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
    /// The list of prompts is another.
    pub const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
    /// The list of resources, or of their templates, is another.
    pub const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
    /// A resource is another.
    pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";
    /// A line of a server's log.
    pub const MESSAGE: &str = "notifications/message";
    /// Legacy: the client's roots are others.
    pub const ROOTS_CHANGED: &str = "notifications/roots/list_changed";
    /// A URL elicitation has been dealt with outside.
    pub const ELICITATION_COMPLETE: &str = "notifications/elicitation/complete";
    /// Modern, extension `io.modelcontextprotocol/tasks`: how a task is.
    pub const TASK: &str = "notifications/tasks";
    /// 2025-11-25: how a task is.
    pub const TASK_STATUS: &str = "notifications/tasks/status";
    /// Modern: a subscription stands.
    pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

    /// The id of the request that the params of a [`CANCELLED`] name.
    pub fn cancelled_request(params: &Bytes) -> Option<Id> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct CancelledParams<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        let cancelled: CancelledParams<'_> = object(params).ok()?;
        Id::read(params, cancelled.request_id)
    }
}
