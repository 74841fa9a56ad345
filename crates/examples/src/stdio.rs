//! The loop that serves either era: reads lines, handles requests concurrently, writes lines.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};
use tokio_util::sync::CancellationToken;

use trunkline_core::codec::lines::{LineError, LineReader};

/// The request handling of an era.
pub(super) trait ExampleServer {
    /// Answers a request. Dropped when the client cancels it.
    async fn answer(
        &self,
        method: &str,
        params: &Value,
        call: &ExampleCall,
    ) -> Result<Value, RpcError>;

    /// Returns true if the client may send batches.
    fn takes_batches(&self) -> bool {
        false
    }
}

/// A JSON-RPC error.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RpcError {
    pub(super) code: i32,
    pub(super) message: String,
    pub(super) data: Option<Value>,
}

impl RpcError {
    pub(super) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(super) fn unknown_method(method: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("unknown method `{method}`"))
    }

    pub(super) fn unknown_tool(name: &str) -> Self {
        Self::new(INVALID_PARAMS, format!("unknown tool `{name}`"))
    }

    /// Builds the response; without an `id` if the request's could not be read, as MCP specifies.
    fn response(self, id: Option<&Value>) -> Value {
        let error = json!({ "code": self.code, "message": self.message });
        let data = self.data.map_or(json!({}), |data| json!({ "data": data }));
        let id = id.map_or(json!({}), |id| json!({ "id": id }));
        merged(json!({ "jsonrpc": "2.0" }), merged(id, json!({ "error": merged(error, data) })))
    }
}

/// The context of a request besides its parameters.
pub(super) struct ExampleCall {
    /// The request's id, a string or a number.
    pub(super) id: Value,
    progress_token: Option<Value>,
    outbox: mpsc::Sender<Value>,
    closing: CancellationToken,
}

impl ExampleCall {
    /// Sends progress to the client, if it asked for it.
    pub(super) async fn progress(&self, done: u32, total: u32, message: &str) {
        if let Some(token) = &self.progress_token {
            let params = json!({
                "progressToken": token, "progress": done, "total": total, "message": message,
            });
            self.notify("notifications/progress", params).await;
        }
    }

    pub(super) async fn notify(&self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        let _client_gone = self.outbox.send(message).await;
    }

    /// Resolves when the input has ended: waiting calls should finish.
    pub(super) async fn server_closes(&self) {
        self.closing.cancelled().await;
    }
}

/// Merges two objects; the members of the second win.
pub(super) fn merged(object: Value, more: Value) -> Value {
    match (object, more) {
        (Value::Object(mut fields), Value::Object(more)) => {
            fields.extend(more);
            Value::Object(fields)
        }
        (object, _) => object,
    }
}

/// Serves until `input` ends, then finishes the requests in flight.
pub(super) async fn serve<S: ExampleServer + 'static>(
    server: S,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + 'static,
) -> io::Result<()> {
    let (outbox, messages) = mpsc::channel(MAX_QUEUED_MESSAGES);
    let connection = Rc::new(StdioConnection {
        server,
        outbox,
        in_flight: RefCell::default(),
        closing: CancellationToken::new(),
    });
    let serving = async {
        let writer = tokio::task::spawn_local(write(messages, output));
        connection.read(input).await?;
        // The last sender besides those of calls, which are complete: dropping it ends the writer.
        drop(connection);
        writer.await.map_err(io::Error::other)?
    };
    LocalSet::new().run_until(serving).await
}

struct StdioConnection<S> {
    server: S,
    outbox: mpsc::Sender<Value>,
    /// By id as JSON text: `1` and `"1"` are different requests.
    in_flight: RefCell<HashMap<String, CancellationToken>>,
    closing: CancellationToken,
}

impl<S: ExampleServer + 'static> StdioConnection<S> {
    async fn read(self: &Rc<Self>, input: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut lines = LineReader::new(input, MAX_LINE);
        let mut calls = JoinSet::new();
        loop {
            match lines.next().await {
                Ok(None) => break,
                Ok(Some(line)) => match serde_json::from_slice(&line) {
                    Ok(message) => self.take(message, &mut calls).await,
                    Err(error) => self.reject(PARSE_ERROR, &error.to_string()).await,
                },
                Err(LineError::Io(error)) => return Err(error),
                Err(too_long @ LineError::TooLong { .. }) => {
                    self.reject(PARSE_ERROR, &too_long.to_string()).await;
                }
            }
            while calls.try_join_next().is_some() {}
        }
        self.closing.cancel();
        while calls.join_next().await.is_some() {}
        Ok(())
    }

    async fn take(self: &Rc<Self>, message: Value, calls: &mut JoinSet<()>) {
        match ExampleMessage::of(message) {
            ExampleMessage::Request(request) => {
                // Added to the table before it runs: its cancellation may be the next line.
                let Some(cancelled) = self.begin(&request.id) else {
                    return self
                        .reject(INVALID_REQUEST, "this id is in use, or too many are")
                        .await;
                };
                let this = Rc::clone(self);
                calls.spawn_local(async move {
                    let response = tokio::select! {
                        biased;
                        () = cancelled.cancelled() => None,
                        response = this.respond(&request) => Some(response),
                    };
                    this.in_flight.borrow_mut().remove(&request.id.to_string());
                    if let Some(response) = response {
                        this.send(response).await;
                    }
                });
            }
            ExampleMessage::Notification(method, params) => self.notified(&method, &params),
            ExampleMessage::Batch(messages) if self.server.takes_batches() => {
                let this = Rc::clone(self);
                calls.spawn_local(async move { this.answer_batch(messages).await });
            }
            ExampleMessage::Response => {}
            ExampleMessage::Batch(_) => self.reject(INVALID_REQUEST, "no batches here").await,
            ExampleMessage::Invalid => self.reject(INVALID_REQUEST, "not a JSON-RPC message").await,
        }
    }

    /// Registers request `id`; returns its cancellation signal.
    fn begin(&self, id: &Value) -> Option<CancellationToken> {
        let mut in_flight = self.in_flight.borrow_mut();
        let id = id.to_string();
        if in_flight.len() >= MAX_IN_FLIGHT || in_flight.contains_key(&id) {
            return None;
        }
        let cancelled = CancellationToken::new();
        in_flight.insert(id, cancelled.clone());
        Some(cancelled)
    }

    fn notified(&self, method: &str, params: &Value) {
        if method == "notifications/cancelled" {
            let id = params.get("requestId").unwrap_or(&Value::Null).to_string();
            if let Some(cancelled) = self.in_flight.borrow().get(&id) {
                cancelled.cancel();
            }
        }
    }

    async fn respond(&self, request: &ExampleRequest) -> Value {
        let progress_token = request.params.pointer("/_meta/progressToken");
        let call = ExampleCall {
            id: request.id.clone(),
            progress_token: progress_token.cloned(),
            outbox: self.outbox.clone(),
            closing: self.closing.clone(),
        };
        match self.server.answer(&request.method, &request.params, &call).await {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": call.id, "result": result }),
            Err(error) => error.response(Some(&call.id)),
        }
    }

    /// Answers the messages sequentially: batches need not be fast.
    async fn answer_batch(&self, messages: Vec<Value>) {
        let mut responses = Vec::new();
        for message in messages {
            match ExampleMessage::of(message) {
                ExampleMessage::Request(request) => responses.push(self.respond(&request).await),
                ExampleMessage::Notification(method, params) => self.notified(&method, &params),
                ExampleMessage::Response => {}
                ExampleMessage::Batch(_) | ExampleMessage::Invalid => {
                    let error = RpcError::new(INVALID_REQUEST, "not a JSON-RPC message");
                    responses.push(error.response(None));
                }
            }
        }
        if !responses.is_empty() {
            self.send(Value::Array(responses)).await;
        }
    }

    async fn reject(&self, code: i32, message: &str) {
        self.send(RpcError::new(code, message).response(None)).await;
    }

    async fn send(&self, message: Value) {
        let _client_gone = self.outbox.send(message).await;
    }
}

struct ExampleRequest {
    id: Value,
    method: String,
    params: Value,
}

enum ExampleMessage {
    Request(ExampleRequest),
    Notification(String, Value),
    Response,
    Batch(Vec<Value>),
    Invalid,
}

impl ExampleMessage {
    fn of(message: Value) -> Self {
        let mut fields = match message {
            Value::Object(fields) => fields,
            Value::Array(messages) => return Self::Batch(messages),
            _ => return Self::Invalid,
        };
        let params = fields.remove("params").unwrap_or_else(|| json!({}));
        match (fields.remove("id"), fields.remove("method")) {
            (None, Some(Value::String(method))) => Self::Notification(method, params),
            (Some(id @ (Value::String(_) | Value::Number(_))), Some(Value::String(method))) => {
                Self::Request(ExampleRequest { id, method, params })
            }
            // This server sends no requests, and ignores responses.
            (Some(_), None) => Self::Response,
            _ => Self::Invalid,
        }
    }
}

async fn write(
    mut messages: mpsc::Receiver<Value>,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    while let Some(message) = messages.recv().await {
        let mut line = message.to_string();
        line.push('\n');
        output.write_all(line.as_bytes()).await?;
        if messages.is_empty() {
            output.flush().await?;
        }
    }
    output.flush().await
}

const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
pub(super) const INVALID_PARAMS: i32 = -32602;

/// Maximum bytes of a request line: enough for the longest note.
const MAX_LINE: usize = 1024 * 1024;
const MAX_IN_FLIGHT: usize = 256;
/// Maximum number of queued messages before senders wait.
const MAX_QUEUED_MESSAGES: usize = 64;
