//! A server on the Rust SDK, with the tools of the Python ones, over HTTP in this process.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
    ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The server, for the lifetime of the value.
pub struct RustServer {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    added: Mutex<BTreeSet<String>>,
    changes: watch::Sender<u64>,
    cancelled: Mutex<Vec<String>>,
}

impl RustServer {
    pub async fn start() -> Self {
        let shared = Arc::new(Shared {
            added: Mutex::default(),
            changes: watch::Sender::new(0),
            cancelled: Mutex::default(),
        });
        let tools = Tools(Arc::clone(&shared));
        let service = StreamableHttpService::new(
            move || Ok(tools.clone()),
            Arc::<LocalSessionManager>::default(),
            StreamableHttpServerConfig::default(),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(serve(listener, service));
        Self { address, shared, task }
    }

    /// Returns the labels of its cancelled calls.
    pub fn cancelled(&self) -> Vec<String> {
        self.shared.cancelled.lock().unwrap().clone()
    }
}

impl Drop for RustServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, service: StreamableHttpService<Tools, LocalSessionManager>) {
    while let Ok((socket, _)) = listener.accept().await {
        let service = service.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| {
                let service = service.clone();
                async move { Ok::<_, std::convert::Infallible>(service.handle(request).await) }
            });
            let connection = auto::Builder::new(TokioExecutor::new());
            let _ = connection.serve_connection(TokioIo::new(socket), answer).await;
        });
    }
}

#[derive(Clone)]
struct Tools(Arc<Shared>);

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("rust-peer", "1"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let number = json!({ "type": "number" });
        let mut tools = vec![
            tool("add", &json!({ "a": number, "b": number })),
            tool("slow", &json!({ "label": { "type": "string" } })),
            tool("grow", &json!({ "name": { "type": "string" } })),
        ];
        let added = self.0.added.lock().unwrap();
        tools.extend(added.iter().map(|name| tool(name, &json!({}))));
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let words = match request.name.as_ref() {
            "add" => {
                let sum = arguments["a"].as_f64().unwrap() + arguments["b"].as_f64().unwrap();
                return Ok(CallToolResult::structured(json!({ "sum": sum })).into());
            }
            "slow" => self.slow(&arguments, &context).await,
            "grow" => {
                let name = arguments["name"].as_str().unwrap().to_owned();
                self.0.added.lock().unwrap().insert(name);
                self.0.changes.send_modify(|count| *count += 1);
                "grown".into()
            }
            name if self.0.added.lock().unwrap().contains(name) => {
                format!("{name} was added while the server ran")
            }
            name => return Err(ErrorData::invalid_params(format!("unknown tool: {name}"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(words)]).into())
    }

    fn accepted_subscription_filter(
        &self,
        asked: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(asked.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut list = self.0.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = list.changed() => {
                    if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

impl Tools {
    async fn slow(&self, arguments: &Value, context: &RequestContext<RoleServer>) -> String {
        let steps = arguments["steps"].as_u64().unwrap();
        let delay = Duration::from_millis(arguments["delay_ms"].as_u64().unwrap());
        for step in 1..=steps {
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = context.ct.cancelled() => {
                    let label = arguments["label"].as_str().unwrap_or_default().to_owned();
                    self.0.cancelled.lock().unwrap().push(label);
                    return "given up".into();
                }
            }
            if let Some(token) = context.meta.get_progress_token() {
                #[allow(clippy::cast_precision_loss, reason = "a handful of steps")]
                let told = ProgressNotificationParam::new(token, step as f64);
                let _ = context.peer.notify_progress(told).await;
            }
        }
        format!("done after {steps} steps")
    }
}

fn tool(name: &str, properties: &Value) -> Tool {
    let schema = json!({ "type": "object", "properties": properties });
    let schema = schema.as_object().unwrap().clone();
    Tool::new(name.to_owned(), "A tool of the Rust SDK's.", Arc::new(schema))
}
