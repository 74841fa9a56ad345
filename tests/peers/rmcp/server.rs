//! The server's handlers, the tools that need code, and the recipients of changes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
    CompleteRequestParams, CompleteResult, ContentBlock, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, GetTaskParams, GetTaskResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, LoggingLevel, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Reference,
    RequestStateCodec, ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::task_manager::TaskManager;
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::Era;
use super::offered::{Offered, complete, fill, page, text};
use super::performing::{Asked, Performed, progress};

/// State shared by all sessions and requests.
pub struct Shared {
    era: Era,
    page_size: usize,
    offered: Mutex<Offered>,
    listeners: Mutex<BTreeMap<u64, SubscriptionSink>>,
    /// Number of acknowledged listeners, and number of those added above.
    acknowledged: AtomicU64,
    added: watch::Sender<u64>,
    sessions: Mutex<Vec<(Weak<Session>, Peer<RoleServer>)>>,
    pub codec: RequestStateCodec,
    pub tasks: TaskManager,
}

/// Level and subscriptions of a Legacy client.
pub struct Session {
    level: Mutex<LoggingLevel>,
    subscribed: Mutex<HashSet<String>>,
}

#[derive(Clone)]
pub struct Everything {
    pub shared: Arc<Shared>,
    pub session: Arc<Session>,
}

pub fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|v| v.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// A change to announce.
#[derive(Clone, Copy)]
enum Change<'a> {
    Tools,
    Prompts,
    Resources,
    Resource(&'a str),
}

impl Session {
    pub fn level(&self) -> LoggingLevel {
        *self.level.lock().unwrap()
    }
}

impl Shared {
    pub fn new(era: Era, page_size: usize) -> Self {
        Self {
            era,
            page_size,
            offered: Mutex::new(Offered::read()),
            listeners: Mutex::default(),
            acknowledged: AtomicU64::new(0),
            added: watch::Sender::new(0),
            sessions: Mutex::default(),
            codec: RequestStateCodec::new_unchecked(*b"a key that only tests ever get to see"),
            tasks: TaskManager::new(),
        }
    }

    pub fn name(&self) -> String {
        text(&self.offered.lock().unwrap().file["server"]["name"])
    }

    /// Adds the caching of `everything.json` to a result.
    fn cached(&self, mut result: Value) -> Value {
        let cache = self.offered.lock().unwrap().file["cache"].clone();
        result.as_object_mut().unwrap().extend(cache.as_object().unwrap().clone());
        result
    }

    /// Waits for the acknowledged listeners: the SDK acknowledges a subscription before it calls
    /// the handler that adds the listener.
    async fn wait_for_listeners(&self) {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        let mut added = self.added.subscribe();
        let all = added.wait_for(|added| *added >= acknowledged);
        // A client that disconnected before its acknowledgement has no listener.
        let _ = timeout(Duration::from_secs(1), all).await;
    }

    async fn tell(&self, change: Change<'_>) {
        self.wait_for_listeners().await;
        let listeners: Vec<_> = self.listeners.lock().unwrap().values().cloned().collect();
        for listener in listeners {
            let _ = match change {
                Change::Tools => listener.notify_tool_list_changed().await,
                Change::Prompts => listener.notify_prompt_list_changed().await,
                Change::Resources => listener.notify_resource_list_changed().await,
                Change::Resource(uri) => listener.notify_resource_updated(uri).await,
            };
        }
        let sessions: Vec<_> = self.sessions.lock().unwrap().clone();
        for (session, peer) in sessions {
            let Some(session) = session.upgrade() else { continue };
            let _ = match change {
                Change::Tools => peer.notify_tool_list_changed().await,
                Change::Prompts => peer.notify_prompt_list_changed().await,
                Change::Resources => peer.notify_resource_list_changed().await,
                Change::Resource(uri) if session.subscribed.lock().unwrap().contains(uri) => {
                    peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await
                }
                Change::Resource(_) => Ok(()),
            };
        }
    }
}

impl Everything {
    pub fn new(shared: Arc<Shared>) -> Self {
        let level = Mutex::new(LoggingLevel::Debug);
        Self { shared, session: Arc::new(Session { level, subscribed: Mutex::default() }) }
    }

    fn page<'a, T: DeserializeOwned>(
        &self,
        asked: Option<PaginatedRequestParams>,
        key: &str,
        offered: impl Iterator<Item = &'a Value>,
    ) -> Result<T, ErrorData> {
        let listed = page(asked, self.shared.page_size, key, offered)?;
        complete(self.shared.cached(listed))
    }

    async fn own(
        &self,
        tool: &str,
        arguments: &Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let words = match tool {
            "add" => {
                let (Some(a), Some(b)) = (arguments["a"].as_f64(), arguments["b"].as_f64()) else {
                    let words = ContentBlock::text("a and b are to be numbers");
                    return Ok(CallToolResult::error(vec![words]));
                };
                return Ok(CallToolResult::structured(json!({ "sum": a + b })));
            }
            "inspect_request" => return Ok(CallToolResult::structured(seen(context))),
            "slow" => slow(arguments, context).await,
            "test_reconnection" => {
                super::streams::leave(context).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
                "You came back.".into()
            }
            "test_trigger_tool_change" => {
                self.shared.offered.lock().unwrap().change_tools(arguments);
                self.shared.tell(Change::Tools).await;
                "said so".into()
            }
            "test_trigger_prompt_change" => {
                self.shared.offered.lock().unwrap().change_prompts();
                self.shared.tell(Change::Prompts).await;
                "said so".into()
            }
            "test_trigger_resource_change" => {
                self.shared.offered.lock().unwrap().change_resources();
                self.shared.tell(Change::Resources).await;
                "said so".into()
            }
            "test_trigger_resource_update" => {
                self.shared.tell(Change::Resource("test://watched-resource")).await;
                "said so".into()
            }
            other => return Err(ErrorData::internal_error(format!("no code for {other}"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(words)]))
    }
}

fn seen(context: &RequestContext<RoleServer>) -> Value {
    let headers = context.extensions.get::<http::request::Parts>().map(|parts| {
        let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let each = parts.headers.iter().map(|(name, value)| (name.to_string(), json!(text(value))));
        Value::Object(each.collect())
    });
    json!({
        "protocolVersion": context.protocol_version(),
        "requestId": context.id,
        "meta": context.meta,
        "clientInfo": context.client_info(),
        "clientCapabilities": context.client_capabilities(),
        "headers": headers,
    })
}

async fn slow(arguments: &Value, context: &RequestContext<RoleServer>) -> String {
    let steps = arguments["steps"].as_u64().unwrap_or(10);
    let delay = Duration::from_millis(arguments["delay_ms"].as_u64().unwrap_or(100));
    for step in 1..=steps {
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = context.ct.cancelled() => {
                note_cancelled(arguments["label"].as_str().unwrap_or_default());
                return "given up".into();
            }
        }
        #[allow(clippy::cast_precision_loss, reason = "a handful of steps")]
        progress(step as f64, steps as f64, context).await;
    }
    format!("done after {steps} steps")
}

fn note_cancelled(label: &str) {
    let Ok(path) = std::env::var("EVERYTHING_CANCEL_LOG") else { return };
    let log = std::fs::OpenOptions::new().append(true).create(true).open(path);
    let _ = writeln!(log.unwrap(), "{}", format!("cancelled slow {label}").trim_end());
}

impl ServerHandler for Everything {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_completions()
            .enable_logging();
        let capabilities = if self.shared.era == Era::Legacy {
            capabilities.build()
        } else {
            capabilities.enable_tasks().build()
        };
        let about = self.shared.offered.lock().unwrap().file["server"].clone();
        ServerConfig::new(capabilities)
            .with_server_info(serde_json::from_value(about.clone()).unwrap())
            .with_instructions(text(&about["instructions"]))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.shared.era {
            Era::Both => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
            Era::Legacy => {
                Cow::Borrowed(ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25))
            }
            Era::Modern => Cow::Owned(vec![ProtocolVersion::V_2026_07_28]),
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut sessions = self.shared.sessions.lock().unwrap();
        sessions.retain(|(session, _)| session.strong_count() > 0);
        sessions.push((Arc::downgrade(&self.session), context.peer));
    }

    fn accepted_subscription_filter(
        &self,
        asked: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.shared.acknowledged.fetch_add(1, Ordering::Relaxed);
        Some(asked.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let sink = context.sink().clone();
        let mut number = 0;
        self.shared.added.send_modify(|added| {
            number = *added;
            self.shared.listeners.lock().unwrap().insert(number, sink);
            *added += 1;
        });
        context.cancelled().await;
        self.shared.listeners.lock().unwrap().remove(&number);
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.session.subscribed.lock().unwrap().insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.session.subscribed.lock().unwrap().remove(&request.uri);
        Ok(())
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        *self.session.level.lock().unwrap() = request.level;
        Ok(())
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let listed = self.shared.offered.lock().unwrap().tools.get(name)?["listed"].clone();
        serde_json::from_value(listed).ok()
    }

    async fn list_tools(
        &self,
        asked: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tasks = if self.shared.era == Era::Legacy { vec![] } else { super::tasks::tools() };
        let tools: Vec<Value> = {
            let offered = self.shared.offered.lock().unwrap();
            offered.tools.values().cloned().chain(tasks).collect()
        };
        self.page(asked, "tools", tools.iter())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        if self.shared.era != Era::Legacy && super::tasks::has(name) {
            return super::tasks::call(&self.shared.tasks, &request, &context).await;
        }
        let does = self.shared.offered.lock().unwrap().tools.get(name).map(|t| t["does"].clone());
        let Some(does) = does else {
            return Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None));
        };
        let arguments = request.arguments.clone().unwrap_or_default();
        if does == "own" {
            return Ok(self.own(name, &Value::Object(arguments), &context).await?.into());
        }
        let asked =
            Asked { arguments, responses: request.input_responses, state: request.request_state };
        match self.perform(asked, &does, &context).await? {
            Performed::Required(required) => Ok(required.into()),
            Performed::Scope(scope) => {
                let is_error = does["isError"] == true;
                let content = fill(&does["answer"], &scope);
                let answer: CallToolResult =
                    complete(json!({ "content": content, "isError": is_error }))?;
                Ok(answer.into())
            }
        }
    }

    async fn list_prompts(
        &self,
        asked: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts: Vec<_> =
            self.shared.offered.lock().unwrap().prompts.values().cloned().collect();
        self.page(asked, "prompts", prompts.iter())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let wanted = self.shared.offered.lock().unwrap().prompts.get(&request.name).cloned();
        let Some(wanted) = wanted else {
            let words = format!("Unknown prompt: {}", request.name);
            return Err(ErrorData::invalid_params(words, None));
        };
        let arguments = json!(request.arguments.unwrap_or_default());
        for needed in wanted["listed"]["arguments"].as_array().into_iter().flatten() {
            if arguments[text(&needed["name"])].is_null() {
                let words = format!("Missing argument: {}", needed["name"]);
                return Err(ErrorData::invalid_params(words, None));
            }
        }
        let asked = Asked {
            arguments: arguments.as_object().unwrap().clone(),
            responses: request.input_responses,
            state: request.request_state,
        };
        match self.perform(asked, &wanted["does"], &context).await? {
            Performed::Required(required) => Ok(required.into()),
            Performed::Scope(scope) => {
                let messages = fill(&wanted["does"]["messages"], &scope);
                let description = &wanted["listed"]["description"];
                let got: GetPromptResult =
                    complete(json!({ "description": description, "messages": messages }))?;
                Ok(got.into())
            }
        }
    }

    async fn list_resources(
        &self,
        asked: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = self.shared.offered.lock().unwrap().resources.clone();
        self.page(asked, "resources", resources.iter())
    }

    async fn list_resource_templates(
        &self,
        asked: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = self.shared.offered.lock().unwrap().file["resourceTemplates"].clone();
        let each = templates.as_array().unwrap().iter();
        self.page(asked, "resourceTemplates", each)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = self.shared.offered.lock().unwrap().contents(&request.uri);
        let Some(contents) = contents else {
            let which = json!({ "uri": request.uri });
            return Err(ErrorData::resource_not_found("Resource not found", Some(which)));
        };
        let read: ReadResourceResult =
            complete(self.shared.cached(json!({ "contents": contents })))?;
        Ok(read.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let of = match &request.r#ref {
            Reference::Prompt(prompt) => &prompt.name,
            Reference::Resource(template) => &template.uri,
            _ => return Err(ErrorData::invalid_params("an unknown reference", None)),
        };
        let asked = &request.argument;
        let values = self.shared.offered.lock().unwrap().completions(of, &asked.name, &asked.value);
        let total = values.len();
        complete(json!({ "completion": { "values": values, "total": total, "hasMore": false } }))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.shared.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.tasks.cancel_task(&request.task_id)
    }
}
