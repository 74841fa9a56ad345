//! A client on the Rust SDK, which performs the same steps as the drivers of the other SDKs and
//! returns the same lines (`tests/peers/README.md`); and a step of its own, `call_task`, for the
//! extension: those of the SDKs 1.x are for the experimental tasks of 2025-11-25.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, ClientConfig, ClientRequest,
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    GetTaskParams, Implementation, JsonObject, ListRootsResult, LoggingMessageNotificationParam,
    ProgressNotificationParam, ProtocolVersion, ResourceUpdatedNotificationParam,
    ServerNotification, SubscriptionFilter, UpdateTaskParams,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestContext, RequestHandle, RunningService,
    Subscription,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _, ErrorData, RoleClient};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::support::poll_for;

/// Messages and requests that the client received; each change wakes the waiting tasks.
#[derive(Clone)]
struct Ears {
    heard: watch::Sender<Heard>,
}

#[derive(Default)]
struct Heard {
    progress: HashMap<String, Vec<f64>>,
    /// By kind: `tools`, `prompts` or `resources` for a list that changed, or `updated URI`.
    changes: HashMap<String, u64>,
    logs: Vec<Value>,
    asked: Vec<&'static str>,
}

impl Ears {
    fn change(&self, kind: impl Into<String>) {
        self.heard.send_modify(|heard| *heard.changes.entry(kind.into()).or_default() += 1);
    }

    /// Waits until a condition is true.
    async fn until(&self, so: impl FnMut(&Heard) -> bool) {
        let _ = self.heard.subscribe().wait_for(so).await;
    }

    fn note(&self, notification: &ServerNotification) {
        match notification {
            ServerNotification::ToolListChangedNotification(_) => self.change("tools"),
            ServerNotification::PromptListChangedNotification(_) => self.change("prompts"),
            ServerNotification::ResourceListChangedNotification(_) => self.change("resources"),
            ServerNotification::ResourceUpdatedNotification(updated) => {
                self.change(format!("updated {}", updated.params.uri));
            }
            _ => {}
        }
    }
}

impl ClientHandler for Ears {
    fn get_info(&self) -> ClientConfig {
        let capabilities = json!({
            "sampling": {}, "elicitation": { "form": {}, "url": {} }, "roots": { "listChanged": true },
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        });
        let capabilities = serde_json::from_value(capabilities).unwrap();
        ClientConfig::new(capabilities, Implementation::new("trunkline-rmcp", "1.0.0"))
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let params = json!(params);
        let is_url = params["mode"] == "url";
        let what = if is_url { "elicitation/create url" } else { "elicitation/create" };
        self.heard.send_modify(|heard| heard.asked.push(what));
        let answer = if is_url {
            json!({ "action": "accept" })
        } else {
            json!({ "action": "accept", "content": filled(&params["requestedSchema"]) })
        };
        Ok(serde_json::from_value(answer).unwrap())
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.heard.send_modify(|heard| heard.asked.push("sampling/createMessage"));
        let params = json!(params);
        let content = &params["messages"].as_array().unwrap().last().unwrap()["content"];
        let content = content.get(0).unwrap_or(content);
        let words = format!("sampled: {}", content["text"].as_str().unwrap_or_default());
        let answer = json!({
            "role": "assistant", "model": "a-model", "stopReason": "endTurn",
            "content": { "type": "text", "text": words },
        });
        Ok(serde_json::from_value(answer).unwrap())
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        self.heard.send_modify(|heard| heard.asked.push("roots/list"));
        let answer = json!({ "roots": [{ "uri": "file:///a/root", "name": "a root" }] });
        Ok(serde_json::from_value(answer).unwrap())
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let token = json!(params.progress_token).to_string();
        self.heard.send_modify(|heard| {
            heard.progress.entry(token).or_default().push(params.progress);
        });
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.heard.send_modify(|heard| heard.logs.push(json!(params)));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.change("tools");
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.change("prompts");
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.change("resources");
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.change(format!("updated {}", params.uri));
    }
}

/// Fills a form like a user.
fn filled(schema: &Value) -> Value {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fill = |(name, field): (&String, &Value)| {
        let value = match field["type"].as_str() {
            Some("boolean") => json!(true),
            Some("number" | "integer") => json!(1),
            _ => json!(format!("a {name}")),
        };
        (name.clone(), value)
    };
    Value::Object(fields.map(fill).collect())
}

struct Client {
    service: RunningService<RoleClient, Ears>,
    ears: Ears,
    is_modern: bool,
    /// Members for the `_meta` of calls.
    meta: Mutex<JsonObject>,
}

type Outcome = Result<Value, String>;

/// Performs the steps; returns a line for connecting, and one for each step.
pub async fn run(era: &str, url: &str, steps: &[Value]) -> Vec<Value> {
    let mut lines = Vec::new();
    let client = match connect(era, url).await {
        Ok((client, info)) => {
            lines.push(line(0, "connect", Ok(info)));
            client
        }
        Err(error) => return vec![line(0, "connect", Err(error))],
    };
    for (index, step) in steps.iter().enumerate() {
        let op = step["op"].as_str().unwrap();
        let outcome = tokio::time::timeout(Duration::from_secs(20), client.step(op, step)).await;
        let outcome = outcome.unwrap_or_else(|_| Err("it takes too long".into()));
        lines.push(line(index + 1, op, outcome));
    }
    let _ = client.service.cancel().await;
    lines
}

fn line(step: usize, op: &str, outcome: Outcome) -> Value {
    match outcome {
        Ok(result) => json!({ "step": step, "op": op, "ok": true, "result": result }),
        Err(error) => json!({ "step": step, "op": op, "ok": false, "error": { "message": error } }),
    }
}

async fn connect(era: &str, url: &str) -> Result<(Client, Value), String> {
    let ears = Ears { heard: watch::Sender::new(Heard::default()) };
    let is_modern = era == "modern";
    let lifecycle = if is_modern {
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
    } else {
        ClientLifecycleMode::Initialize
    };
    let service = if let Some(command) = url.strip_prefix("stdio:") {
        let words: Vec<String> = serde_json::from_str(command).unwrap();
        let mut command = tokio::process::Command::new(&words[0]);
        command.args(&words[1..]);
        let transport = TokioChildProcess::new(command).map_err(|error| error.to_string())?;
        ears.clone().serve_with_lifecycle(transport, lifecycle).await.map_err(told)?
    } else {
        let config = StreamableHttpClientTransportConfig::with_uri(url.to_owned());
        let transport = StreamableHttpClientTransport::from_config(config);
        ears.clone().serve_with_lifecycle(transport, lifecycle).await.map_err(told)?
    };
    let info = json!({
        "era": era,
        "instructions": service.peer_info().and_then(|info| info.instructions.clone()),
    });
    let client = Client { service, ears, is_modern, meta: Mutex::default() };
    if is_modern {
        let every = SubscriptionFilter::builder()
            .tools_list_changed()
            .prompts_list_changed()
            .resources_list_changed();
        client.listen(every.build()).await?;
    }
    Ok((client, info))
}

impl Client {
    async fn listen(&self, filter: SubscriptionFilter) -> Result<(), String> {
        let mut subscription: Subscription = self.service.listen(filter).await.map_err(told)?;
        let ears = self.ears.clone();
        tokio::spawn(async move {
            while let Ok(Some(notification)) = subscription.next().await {
                ears.note(&notification);
            }
        });
        Ok(())
    }

    async fn step(&self, op: &str, step: &Value) -> Outcome {
        match op {
            "list" => {
                let listed = self.pages("tools/list", "tools").await?;
                let tools = listed["items"].as_array().unwrap();
                let names: Vec<_> = tools.iter().map(|tool| tool["name"].clone()).collect();
                Ok(json!({ "names": names, "tools": tools, "pages": listed["pages"] }))
            }
            "list_prompts" => self.pages("prompts/list", "prompts").await,
            "list_resources" => self.pages("resources/list", "resources").await,
            "list_templates" => self.pages("resources/templates/list", "resourceTemplates").await,
            "get_prompt" => {
                let (name, given) = (&step["name"], &step["arguments"]);
                self.ask("prompts/get", json!({ "name": name, "arguments": given })).await
            }
            "read" => self.ask("resources/read", json!({ "uri": step["uri"] })).await,
            "complete" => {
                let (of, argument) = (&step["ref"], &step["argument"]);
                self.ask("completion/complete", json!({ "ref": of, "argument": argument })).await
            }
            "subscribe" if self.is_modern => {
                let filter = json!({ "resourceSubscriptions": [step["uri"]] });
                self.listen(serde_json::from_value(filter).map_err(told)?).await?;
                Ok(json!({}))
            }
            "subscribe" => self.ask("resources/subscribe", json!({ "uri": step["uri"] })).await,
            "call" => self.call(step).await,
            "call_task" => self.call_task(step).await,
            "call_cancel" => self.call_cancel(step).await,
            "call_and_wait_list_changed" => {
                let kind = step["for"].as_str().unwrap_or("tools");
                self.ears.heard.send_modify(|heard| heard.changes.clear());
                let result = self.call(step).await?;
                let changed = self.ears.until(|heard| heard.changes.contains_key(kind));
                tokio::time::timeout(Duration::from_secs(5), changed)
                    .await
                    .map_err(|_| format!("no {kind} in 5 s"))?;
                Ok(json!({ "result": result, "count": 1 }))
            }
            other => Err(format!("no such op: {other}")),
        }
    }

    /// Sends a request in its wire form: the SDK's own methods would answer some from a cache.
    async fn ask(&self, method: &str, params: Value) -> Outcome {
        let request = json!({ "method": method, "params": params });
        let request: ClientRequest = serde_json::from_value(request).map_err(told)?;
        self.service.send_request(request).await.map(|result| json!(result)).map_err(told)
    }

    /// Lists all pages. Starts again without a cursor if the list has changed since the first page:
    /// replicas learn of a change one after the other.
    async fn pages(&self, method: &str, key: &str) -> Outcome {
        for _ in 0..MAX_STALE_LISTS {
            match self.pages_once(method, key).await {
                Err(error) if error.contains("stale cursor") => sleep(RELIST_PAUSE).await,
                listed => return listed,
            }
        }
        Err(format!("{method}: the list has changed {MAX_STALE_LISTS} times between two pages"))
    }

    async fn pages_once(&self, method: &str, key: &str) -> Outcome {
        let (mut items, mut pages, mut params) = (Vec::new(), 0, json!({}));
        loop {
            let page = self.ask(method, params).await?;
            items.extend(page[key].as_array().cloned().unwrap_or_default());
            pages += 1;
            params = json!({ "cursor": page["nextCursor"] });
            if page["nextCursor"].is_null() {
                return Ok(json!({ "items": items, "pages": pages }));
            }
        }
    }

    fn params(&self, step: &Value) -> Result<CallToolRequestParams, String> {
        let arguments = step["arguments"].as_object().cloned().unwrap_or_default();
        let mut params = json!({ "name": step["name"], "arguments": arguments });
        if let Some(input) = step["input"].as_object() {
            params.as_object_mut().unwrap().extend(input.clone());
        }
        let meta = self.meta.lock().unwrap().clone();
        if !meta.is_empty() {
            params["_meta"] = Value::Object(meta);
        }
        serde_json::from_value(params).map_err(told)
    }

    async fn begin(&self, step: &Value) -> Result<RequestHandle<RoleClient>, String> {
        let call = CallToolRequest::new(self.params(step)?);
        let request = ClientRequest::CallToolRequest(call);
        let options = PeerRequestOptions::no_options();
        self.service.send_cancellable_request(request, options).await.map_err(told)
    }

    fn progress(&self, handle: &str) -> Vec<Value> {
        let heard = self.ears.heard.borrow();
        let mut seen = heard.progress.get(handle).cloned().unwrap_or_default();
        seen.sort_by(f64::total_cmp);
        seen.into_iter().map(|progress| json!({ "progress": progress })).collect()
    }

    async fn call(&self, step: &Value) -> Outcome {
        if step["progress"] == true {
            return self.call_with_progress(step).await;
        }
        self.ears.heard.send_modify(|heard| {
            heard.asked.clear();
            heard.logs.clear();
        });
        if let Some(level) = step["log_level"].as_str() {
            self.log_from(level).await?;
        }
        let result = self.service.call_tool(self.params(step)?).await.map_err(told)?;
        tokio::time::sleep(Duration::from_millis(step["settle_ms"].as_u64().unwrap_or(0))).await;
        let mut told = Map::from_iter([("result".to_owned(), json!(result))]);
        if step["asked"] == true {
            told.insert("asked".into(), json!(self.ears.heard.borrow().asked));
        }
        if step["log_level"].is_string() {
            told.insert("logs".into(), json!(self.ears.heard.borrow().logs));
        }
        Ok(if told.len() == 1 { json!(result) } else { Value::Object(told) })
    }

    async fn log_from(&self, level: &str) -> Result<(), String> {
        if self.is_modern {
            let key = "io.modelcontextprotocol/logLevel".to_owned();
            self.meta.lock().unwrap().insert(key, json!(level));
            return Ok(());
        }
        self.ask("logging/setLevel", json!({ "level": level })).await.map(drop)
    }

    async fn call_with_progress(&self, step: &Value) -> Outcome {
        let expected = usize::try_from(step["expect"].as_u64().unwrap()).unwrap();
        let mut handle = self.begin(step).await?;
        let mut tokens = Vec::new();
        let result = loop {
            tokens.push(json!(handle.progress_token).to_string());
            let result = json!(handle.await_response().await.map_err(told)?);
            // A Legacy server that has just met this client asks for its roots in any call in
            // flight.
            if result["inputRequests"].is_null() {
                break result;
            }
            handle = self.begin(&with_roots(step, &result)?).await?;
        };
        // The SDK handles each notification in a task of its own, so that they overtake one
        // another, and the result overtakes them.
        let heard = |heard: &Heard| -> usize {
            tokens.iter().filter_map(|token| heard.progress.get(token)).map(Vec::len).sum()
        };
        self.ears.until(|all| heard(all) >= expected).await;
        let progress: Vec<Value> = tokens.iter().flat_map(|token| self.progress(token)).collect();
        Ok(json!({ "result": result, "progress": progress }))
    }

    /// Makes the call as a task, and waits for its result.
    async fn call_task(&self, step: &Value) -> Outcome {
        let begun = self.service.call_tool_once(self.params(step)?).await.map_err(told)?;
        let CallToolResponse::Task(begun) = begun else {
            return Err("the call did not become a task".into());
        };
        let id = &begun.task.task_id;
        let ended = poll_for(async || self.ended_task(id.clone()).await.transpose()).await?;
        Ok(json!({ "begun": begun, "ended": ended }))
    }

    /// Returns a task if it has ended. Answers its questions.
    async fn ended_task(&self, id: String) -> Result<Option<Value>, String> {
        let task = self.service.get_task(GetTaskParams::new(id.clone())).await;
        let task = json!(task.map_err(told)?);
        if task["status"] == "input_required" {
            let keys = task["inputRequests"].as_object().ok_or("nothing is asked")?.keys();
            let content = json!({ "interpretation": "technical" });
            let answer = json!({ "action": "accept", "content": content });
            let answers: Map<_, _> = keys.map(|key| (key.clone(), answer.clone())).collect();
            let answers = serde_json::from_value(Value::Object(answers)).unwrap();
            let update = UpdateTaskParams::new(id, answers);
            self.service.update_task(update).await.map_err(told)?;
            return Ok(None);
        }
        Ok(Some(task).filter(|task| task["status"] != "working"))
    }

    async fn call_cancel(&self, step: &Value) -> Outcome {
        let after = usize::try_from(step["after_progress"].as_u64().unwrap()).unwrap();
        let mut handle = self.begin(step).await?;
        loop {
            let token = json!(handle.progress_token).to_string();
            let enough = |heard: &Heard| heard.progress.get(&token).map_or(0, Vec::len) >= after;
            let early = tokio::select! {
                () = self.ears.until(enough) => {
                    handle.cancel(None).await.map_err(told)?;
                    return Ok(json!({ "cancelled": true, "progress": self.progress(&token) }));
                }
                early = &mut handle.rx => early.map_err(told)?.map_err(told)?,
            };
            handle = self.begin(&with_roots(step, &json!(early))?).await?;
        }
    }
}

/// Returns the step again, with the requested roots.
fn with_roots(step: &Value, asked: &Value) -> Outcome {
    let requests = asked["inputRequests"].as_object();
    let requests = requests.filter(|asked| asked.values().all(|it| it["method"] == "roots/list"));
    let requests = requests.ok_or_else(|| format!("it was answered: {asked}"))?;
    let roots = |key: &String| (key.clone(), json!({ "roots": [] }));
    let mut step = step.clone();
    step["input"] = json!({
        "inputResponses": Value::Object(requests.keys().map(roots).collect()),
        "requestState": asked["requestState"],
    });
    Ok(step)
}

fn told(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// Times that a list is begun anew.
const MAX_STALE_LISTS: usize = 20;
/// Time before a list is begun anew.
const RELIST_PAUSE: Duration = Duration::from_millis(100);
