//! A client on the Rust SDK, which goes through the same steps as the drivers
//! of the other SDKs and gives the same lines (`tests/peers/README.md`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, JsonObject, ProgressNotificationParam,
    ProtocolVersion, SubscriptionFilter,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RequestHandle, RunningService};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _, RoleClient};
use serde_json::{Value, json};
use tokio::sync::watch;

/// What the client has been told.
#[derive(Clone)]
struct Ears {
    progress: Arc<Mutex<HashMap<String, Vec<f64>>>>,
    heard: watch::Sender<u64>,
    list_changes: watch::Sender<u64>,
}

impl ClientHandler for Ears {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let token = json!(params.progress_token).to_string();
        self.progress.lock().unwrap().entry(token).or_default().push(params.progress);
        self.heard.send_modify(|count| *count += 1);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.list_changes.send_modify(|count| *count += 1);
    }
}

struct Client {
    service: RunningService<RoleClient, Ears>,
    ears: Ears,
}

type Outcome = Result<Value, String>;

/// Goes through the steps; gives a line for connecting, and one for each.
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
        lines.push(line(
            index + 1,
            op,
            outcome.unwrap_or_else(|_| Err("it takes too long".into())),
        ));
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
    let ears = Ears {
        progress: Arc::default(),
        heard: watch::Sender::new(0),
        list_changes: watch::Sender::new(0),
    };
    let lifecycle = match era {
        "modern" => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
        _ => ClientLifecycleMode::Initialize,
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
    if era == "modern" {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let mut subscription = service.listen(filter).await.map_err(told)?;
        let changes = ears.list_changes.clone();
        tokio::spawn(async move {
            while let Ok(Some(_)) = subscription.next().await {
                changes.send_modify(|count| *count += 1);
            }
        });
    }
    let info = json!({ "era": era, "peer": format!("{:?}", service.peer_info()) });
    Ok((Client { service, ears }, info))
}

impl Client {
    async fn step(&self, op: &str, step: &Value) -> Outcome {
        match op {
            "list" => {
                let tools = self.service.list_all_tools().await.map_err(told)?;
                let names: Vec<_> = tools.iter().map(|tool| tool.name.to_string()).collect();
                Ok(json!({ "names": names, "tools": tools }))
            }
            "call" => self.call(step).await,
            "call_cancel" => self.call_cancel(step).await,
            "call_and_wait_list_changed" => {
                let mut changes = self.ears.list_changes.subscribe();
                changes.mark_unchanged();
                let result = self.call(step).await?;
                changes.changed().await.map_err(told)?;
                Ok(json!({ "result": result, "count": 1 }))
            }
            other => Err(format!("no such op: {other}")),
        }
    }

    async fn begin(&self, step: &Value) -> Result<RequestHandle<RoleClient>, String> {
        let name = step["name"].as_str().unwrap().to_owned();
        let arguments: JsonObject = step["arguments"].as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new(name).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::no_options();
        self.service.send_cancellable_request(request, options).await.map_err(told)
    }

    fn progress(&self, handle: &str) -> Vec<Value> {
        let progress = self.ears.progress.lock().unwrap();
        let mut seen = progress.get(handle).cloned().unwrap_or_default();
        seen.sort_by(f64::total_cmp);
        seen.into_iter().map(|progress| json!({ "progress": progress })).collect()
    }

    async fn call(&self, step: &Value) -> Outcome {
        let handle = self.begin(step).await?;
        let token = json!(handle.progress_token).to_string();
        let result = handle.await_response().await.map_err(told)?;
        let result = serde_json::to_value(result).unwrap();
        if step["progress"] == true {
            // The SDK handles each notification in a task of its own, so that
            // they overtake one another, and the result them.
            let mut heard = self.ears.heard.subscribe();
            let expected =
                step["expect"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap();
            while self.progress(&token).len() < expected {
                heard.changed().await.map_err(told)?;
            }
            return Ok(json!({ "result": result, "progress": self.progress(&token) }));
        }
        Ok(result)
    }

    async fn call_cancel(&self, step: &Value) -> Outcome {
        let after = usize::try_from(step["after_progress"].as_u64().unwrap()).unwrap();
        let mut heard = self.ears.heard.subscribe();
        let handle = self.begin(step).await?;
        let token = json!(handle.progress_token).to_string();
        while self.progress(&token).len() < after {
            heard.changed().await.map_err(told)?;
        }
        handle.cancel(None).await.map_err(told)?;
        Ok(json!({ "cancelled": true, "progress": self.progress(&token) }))
    }
}

fn told(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}
