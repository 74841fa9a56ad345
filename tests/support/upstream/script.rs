//! Responses of a scripted server.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::http::HeaderMap;
use serde_json::{Value, json};

use super::news::{Tell, To};
use super::{Era, Inner};
use crate::support::until;

/// Steps of a call, for its received message.
pub type Behaviour = Arc<dyn Fn(&Received) -> Vec<Step> + Send + Sync>;

/// Next step of a server during a call.
#[derive(Debug, Clone)]
pub enum Step {
    /// Reports progress, if the call requests it.
    Progress(u32),
    /// Sends any message on the call's stream.
    Send(Value),
    /// Sends any text on the call's stream.
    SendText(String),
    /// Sends its client a request, under an id made of the call's and this key (Legacy).
    Ask(&'static str, &'static str, Value),
    /// The same, on the stream of the call's session instead of its own (HTTP).
    AskAside(&'static str, &'static str, Value),
    /// Waits for the answer to the request with this key.
    Await(&'static str),
    /// Cancels the request with this key.
    TakeBack(&'static str),
    /// Answers with a text: the client's answers, by the keys.
    Answers,
    /// Opens the call's stream without a message (HTTP).
    Open,
    /// Answers as without a script (HTTP).
    Usual,
    /// Waits for [`Upstream::release`](super::Upstream::release).
    Hold,
    /// Waits.
    Pause(Duration),
    /// Waits forever.
    Never,
    /// Answers with a result.
    Result(Value),
    /// Answers with a result of this raw text.
    Raw(String),
    /// Answers with an error.
    Error(Value),
    /// Answers with an HTTP status (HTTP).
    Status(u16, Vec<(&'static str, String)>, String),
    /// Closes the connection, with a retry after this many milliseconds; the rest continues on the
    /// connection that resumes it (HTTP).
    Close(u64),
    /// Breaks the call off: ends the response, or the child.
    Break,
}

/// A received message.
#[derive(Debug, Clone)]
pub struct Received {
    pub method: String,
    pub params: Value,
    pub id: Option<Value>,
    /// The original text.
    pub text: String,
    pub headers: HeaderMap,
    /// A number that is unique among the received messages.
    pub number: u64,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Received {
    pub fn read(text: &str, headers: HeaderMap) -> Self {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        Self {
            method: message["method"].as_str().unwrap_or_default().to_owned(),
            params: message["params"].clone(),
            id: message.get("id").cloned(),
            text: text.to_owned(),
            headers,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Returns the id of a call's request with a key.
    pub fn question(&self, key: &str) -> Value {
        json!(format!("{}/{key}", self.number))
    }

    pub fn event(method: &str, params: Value, headers: HeaderMap) -> Self {
        Self { method: method.into(), params, id: None, text: String::new(), headers, number: 0 }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn arguments(&self) -> &Value {
        &self.params["arguments"]
    }

    pub fn meta(&self, key: &str) -> &Value {
        &self.params["_meta"][key]
    }

    pub fn token(&self) -> Option<&Value> {
        self.params["_meta"].get("progressToken")
    }
}

/// Returns a text result.
pub fn text(text: impl Into<String>) -> Value {
    json!({ "content": [{ "type": "text", "text": text.into() }] })
}

impl Step {
    /// Answers with a text.
    pub fn text(said: impl Into<String>) -> Self {
        Self::Result(text(said))
    }

    /// Returns the message that this step writes to a call, if any.
    pub fn message(&self, call: &Received, inner: &Inner) -> Option<String> {
        let era = inner.era;
        let id = call.id.clone().unwrap_or_default();
        match self {
            Self::Ask(key, method, params) => {
                let id = call.question(key);
                let mut message = json!({ "jsonrpc": "2.0", "id": id, "method": method });
                if !params.is_null() {
                    message["params"] = params.clone();
                }
                Some(message.to_string())
            }
            Self::TakeBack(key) => {
                let params = json!({ "requestId": call.question(key) });
                Some(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }).to_string())
            }
            Self::Answers => {
                let all = Self::text(inner.answers_to(call).to_string());
                all.message(call, inner)
            }
            Self::Progress(progress) => {
                let token = call.token()?;
                let params = json!({ "progressToken": token, "progress": progress, "total": 10 });
                Some(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }).to_string())
            }
            Self::Send(message) => Some(message.to_string()),
            Self::SendText(text) => Some(text.clone()),
            Self::Result(result) => {
                let mut result = result.clone();
                if era == Era::Modern && result.get("resultType").is_none() {
                    result["resultType"] = json!("complete");
                }
                Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
            }
            Self::Raw(raw) => Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{raw}}}"#)),
            Self::Error(error) => {
                Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string())
            }
            _ => None,
        }
    }

    pub fn is_wait(&self) -> bool {
        matches!(
            self,
            Self::Hold | Self::Pause(_) | Self::Never | Self::Await(_) | Self::AskAside(..)
        )
    }

    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Result(_) | Self::Raw(_) | Self::Error(_) | Self::Answers)
    }
}

/// Returns the tools of every scripted server: `echo` returns its arguments, `count` reports
/// progress 1, 2 and 3 on the way, `hold` waits to be released, `fail` reports an error to the
/// model.
pub fn first_tools() -> [(&'static str, Behaviour); 4] {
    let one = |step: Step| vec![step];
    [
        ("echo", Arc::new(move |call: &Received| one(Step::text(call.arguments().to_string())))),
        (
            "count",
            Arc::new(|_: &Received| {
                let progress = (1..=3).map(Step::Progress);
                progress.chain([Step::text("counted")]).collect()
            }),
        ),
        ("hold", Arc::new(|_: &Received| vec![Step::Hold, Step::text("held")])),
        (
            "fail",
            Arc::new(move |_: &Received| {
                let mut result = text("it failed");
                result["isError"] = json!(true);
                one(Step::Result(result))
            }),
        ),
    ]
}

impl Inner {
    /// Returns the answers to a call's requests, by their keys.
    pub fn answers_to(&self, call: &Received) -> Value {
        let own = call.question("");
        let own = own.as_str().unwrap();
        let all = self.answers.lock().unwrap();
        let answers = all.range(own.to_owned()..).map_while(|(id, said)| {
            let key = id.strip_prefix(own)?;
            Some((key.to_owned(), said.clone()))
        });
        Value::Object(answers.collect())
    }

    /// Waits for the answer to a call's request.
    async fn answered(&self, call: &Received, key: &str) {
        let mut news = self.news.subscribe();
        let id = call.question(key);
        while !self.answers.lock().unwrap().contains_key(id.as_str().unwrap()) {
            news.changed().await.unwrap();
        }
    }

    /// Performs a step that writes no message.
    pub async fn wait(&self, step: &Step, call: &Received) {
        match step {
            Step::Hold => self.gate.acquire().await.unwrap().forget(),
            Step::Pause(time) => tokio::time::sleep(*time).await,
            Step::Never => std::future::pending().await,
            Step::Await(key) => self.answered(call, key).await,
            Step::AskAside(key, method, params) => {
                let session = call.header("mcp-session-id").unwrap_or_default().to_owned();
                let open =
                    || self.audience.lock().unwrap().values().any(|it| it.session == session);
                until(open).await;
                let asks = Some((call.question(key), session));
                let tell =
                    Tell { method: (*method).into(), params: params.clone(), to: To::Asked, asks };
                self.tells.send(tell).unwrap();
            }
            _ => {}
        }
    }

    /// Returns the answer to a message other than a call; `None` for methods unknown in this era.
    pub fn answer(&self, asked: &Received) -> Result<String, Value> {
        let info = json!({ "name": *self.name.lock().unwrap(), "version": "1.2.3" });
        let capabilities = self.capabilities.lock().unwrap().clone();
        let cursor = asked.params["cursor"].as_str();
        match (self.era, asked.method.as_str()) {
            (Era::Legacy, "initialize") => Ok(json!({
                "protocolVersion": *self.version.lock().unwrap(),
                "capabilities": capabilities, "serverInfo": info,
                "instructions": *self.instructions.lock().unwrap(),
            })
            .to_string()),
            (Era::Legacy, "ping" | "logging/setLevel") => Ok("{}".into()),
            (Era::Modern, "server/discover") => Ok(json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities, "ttlMs": 60_000, "cacheScope": "public",
                "instructions": *self.instructions.lock().unwrap(),
                "_meta": { "io.modelcontextprotocol/serverInfo": info },
            })
            .to_string()),
            (Era::Legacy, "resources/subscribe" | "resources/unsubscribe") => self.subscribe(asked),
            (_, "prompts/list") => Ok(self.other_list("prompts", cursor)),
            (_, "resources/list") => Ok(self.other_list("resources", cursor)),
            (_, "skills/list") => Ok(self.other_list("skills", cursor)),
            (_, "resources/templates/list") => Ok(self.other_list("resourceTemplates", cursor)),
            (_, "tools/list") => Ok(self.list(cursor)),
            (_, method) => {
                Err(json!({ "code": -32601, "message": format!("Method not found: {method}") }))
            }
        }
    }

    fn list(&self, cursor: Option<&str>) -> String {
        let tools = self.tools.lock().unwrap();
        let from: usize = cursor.unwrap_or("0").parse().unwrap();
        let size = self.page.lock().unwrap().unwrap_or(usize::MAX);
        let page: Vec<&str> = tools.iter().skip(from).take(size).map(String::as_str).collect();
        let mut list = format!(r#"{{"tools":[{}]"#, page.join(","));
        if from.saturating_add(size) < tools.len() {
            let _ = write!(list, r#","nextCursor":"{}""#, from + size);
        }
        if self.era == Era::Modern {
            let ttl = self.list_ttl.lock().unwrap().unwrap_or(3_600_000);
            let _ = write!(list, r#","resultType":"complete","ttlMs":{ttl},"cacheScope":"public""#);
        }
        list.push('}');
        list
    }
}
