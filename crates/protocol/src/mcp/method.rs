//! The methods that the gateway knows by name.

use http::HeaderValue;

use super::encode_value;

/// A request's method.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Method {
    /// Legacy: opens a session.
    Initialize,
    /// Legacy: checks that the peer responds.
    Ping,
    /// Modern: asks for the server's identity and capabilities.
    Discover,
    /// Modern: opens a stream of change notifications.
    Listen,
    /// Lists tools.
    ToolsList,
    /// Calls a tool.
    ToolsCall,
    /// Lists prompts.
    PromptsList,
    /// Gets a prompt with its arguments filled in.
    PromptsGet,
    /// Lists resources.
    ResourcesList,
    /// Lists resource templates.
    TemplatesList,
    /// Reads a resource.
    ResourcesRead,
    /// Extension `io.modelcontextprotocol/skills`: lists the children of a directory.
    DirectoryRead,
    /// Extension `io.modelcontextprotocol/skills`: lists skills.
    SkillsList,
    /// Extension `io.modelcontextprotocol/skills`: gets the entry of one skill.
    SkillsGet,
    /// Legacy: subscribes to changes of a resource.
    ResourcesSubscribe,
    /// Legacy: ends that subscription.
    ResourcesUnsubscribe,
    /// Completes an argument of a prompt or a template.
    Complete,
    /// Legacy: sets the session's minimum severity of log messages.
    SetLevel,
    /// Gets a task's status: Modern with the extension, and 2025-11-25.
    TasksGet,
    /// Modern, with the extension: answers a task's input requests.
    TasksUpdate,
    /// Cancels a task.
    TasksCancel,
    /// 2025-11-25: waits for a task's result.
    TasksResult,
    /// 2025-11-25: lists tasks.
    TasksList,
    /// Any other method, by its name.
    Other(String),
}

impl Method {
    /// Parses a method's name.
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
            "resources/directory/read" => Self::DirectoryRead,
            "skills/list" => Self::SkillsList,
            "skills/get" => Self::SkillsGet,
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
    #[inline]
    pub fn as_str(&self) -> &str {
        self.known_name().unwrap_or_else(|other| other)
    }

    /// The name as a header value.
    pub fn to_header(&self) -> HeaderValue {
        // Nearly all requests are tool calls: the compiler prepares their value.
        if matches!(self, Self::ToolsCall) {
            return const { HeaderValue::from_static("tools/call") };
        }
        match self.known_name() {
            Ok(known) => HeaderValue::from_static(known),
            Err(other) => encode_value(other),
        }
    }

    /// The name of a known method, or `Err` with the name of an unknown one.
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
            Self::DirectoryRead => "resources/directory/read",
            Self::SkillsList => "skills/list",
            Self::SkillsGet => "skills/get",
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

    /// Returns true for the methods that list a server's elements.
    #[inline]
    pub fn is_list(&self) -> bool {
        matches!(
            self,
            Self::ToolsList | Self::PromptsList | Self::ResourcesList | Self::TemplatesList
        )
    }

    /// Returns true if only Modern peers know the method.
    #[inline]
    pub fn is_modern_only(&self) -> bool {
        matches!(self, Self::Discover | Self::Listen)
    }

    /// Returns true if the method is forwarded to a server, rather than answered by the gateway.
    pub fn is_answered_by_servers(&self) -> bool {
        matches!(
            self,
            Self::ToolsCall
                | Self::PromptsGet
                | Self::ResourcesRead
                | Self::DirectoryRead
                | Self::SkillsGet
                | Self::Complete
                | Self::Other(_)
        ) || self.is_task_request()
    }

    /// Returns true if the request is about one task, by its id.
    #[inline]
    pub fn is_task_request(&self) -> bool {
        matches!(self, Self::TasksGet | Self::TasksUpdate | Self::TasksCancel | Self::TasksResult)
    }

    /// The member of `params` that `Mcp-Name` mirrors; `None` if it mirrors
    /// none (2026-07-28, Streamable HTTP, "Standard Request Headers"; for
    /// tasks, SEP-2663, "Streamable HTTP: Routing Headers").
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
    use serde_json::{Map, Value};

    use trunkline_jsonrpc::{self as jsonrpc, Id, object};

    /// Legacy: initialization is complete.
    pub const INITIALIZED: &str = "notifications/initialized";
    /// A request is cancelled.
    pub const CANCELLED: &str = "notifications/cancelled";
    /// A request's progress.
    pub const PROGRESS: &str = "notifications/progress";
    /// The list of tools has changed.
    pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
    /// The list of prompts has changed.
    pub const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
    /// The list of resources or resource templates has changed.
    pub const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
    /// A resource has changed.
    pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";
    /// The user has finished an elicitation that opened a URL.
    pub const ELICITATION_COMPLETE: &str = "notifications/elicitation/complete";
    /// A server's log message.
    pub const MESSAGE: &str = "notifications/message";
    /// Legacy: the client's roots have changed.
    pub const ROOTS_CHANGED: &str = "notifications/roots/list_changed";
    /// Modern, extension `io.modelcontextprotocol/tasks`: a task's status.
    pub const TASK: &str = "notifications/tasks";
    /// 2025-11-25: a task's status.
    pub const TASK_STATUS: &str = "notifications/tasks/status";
    /// Modern: a subscription is active.
    pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

    /// The filter of a `subscriptions/listen`: one member each for the lists of tools, prompts and
    /// resources, the URIs of resources, and the ids of tasks. Members that select nothing are left
    /// out.
    pub fn listen_filter(
        lists: [bool; 3],
        uris: Vec<Value>,
        tasks: Vec<Value>,
    ) -> Map<String, Value> {
        let keys = ["toolsListChanged", "promptsListChanged", "resourcesListChanged"];
        let lists = keys.into_iter().zip(lists).filter(|(_, wanted)| *wanted);
        let lists = lists.map(|(key, _)| (key, Value::Bool(true)));
        let names = [("resourceSubscriptions", uris), ("taskIds", tasks)].into_iter();
        let names = names.filter(|(_, names)| !names.is_empty());
        let names = names.map(|(key, names)| (key, Value::Array(names)));
        lists.chain(names).map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// The notification that cancels a request.
    pub fn cancelled(id: &Id) -> Bytes {
        let params = [b"{\"requestId\":", id.raw(), b"}"].concat();
        jsonrpc::notification(CANCELLED, Some(&params))
    }

    /// The id of the cancelled request, from the params of [`CANCELLED`].
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
