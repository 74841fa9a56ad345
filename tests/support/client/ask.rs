//! A request before it is sent.

use std::io;

use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use super::wire::Wire;
use super::{Client, Kind, Reply};
use crate::support::within;

/// A request that can still be changed.
pub struct Ask<'a> {
    client: &'a Client,
    http_method: String,
    path: String,
    headers: Vec<(String, String)>,
    message: Value,
    body: Option<String>,
}

impl<'a> Ask<'a> {
    pub(super) fn bare(client: &'a Client, http_method: &str, path: &str) -> Self {
        let mut headers = Vec::new();
        if let Some((name, value)) = &client.credential {
            headers.push(((*name).into(), value.clone()));
        }
        Self {
            client,
            http_method: http_method.into(),
            path: path.into(),
            headers,
            message: Value::Null,
            body: None,
        }
    }

    pub(super) fn new(client: &'a Client, method: &str, params: Value, id: u64) -> Self {
        let mut ask = Self::bare(client, "POST", &client.endpoint);
        ask.message = json!({ "jsonrpc": "2.0", "id": id, "method": method });
        if !params.is_null() {
            ask.message["params"] = params;
        }
        ask = ask
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        match &client.kind {
            Kind::Plain => ask,
            Kind::Modern => {
                let params = &ask.message["params"];
                let name = ["name", "uri", "taskId"].iter().find_map(|key| params[key].as_str());
                let name = name.map(str::to_owned);
                ask = ask.header("mcp-protocol-version", "2026-07-28").header("mcp-method", method);
                if let Some(name) = name {
                    ask = ask.header("mcp-name", &name);
                }
                ask.meta("io.modelcontextprotocol/protocolVersion", json!("2026-07-28"))
                    .meta("io.modelcontextprotocol/clientInfo", client.info.clone())
                    .meta("io.modelcontextprotocol/clientCapabilities", client.capabilities.clone())
            }
            Kind::Legacy { .. } => ask.of_session(),
        }
    }

    /// Adds the session's headers.
    pub fn of_session(mut self) -> Self {
        if let Kind::Legacy { session, version } = &self.client.kind {
            if let Some(session) = session {
                self = self.header("mcp-session-id", session);
            }
            self = self.header("mcp-protocol-version", version);
        }
        self
    }

    /// Sets a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a header a second time.
    pub fn again(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self
    }

    pub fn accept(self, media: &str) -> Self {
        self.header("accept", media)
    }

    pub fn at(mut self, path: &str) -> Self {
        self.path = path.into();
        self
    }

    pub fn id(mut self, id: Value) -> Self {
        self.message["id"] = id;
        self
    }

    pub fn notification(mut self) -> Self {
        self.message.as_object_mut().unwrap().remove("id");
        self
    }

    /// Sets a member of `params`.
    pub fn param(mut self, key: &str, value: Value) -> Self {
        self.message["params"][key] = value;
        self
    }

    /// Sets a member of `_meta`; removes it if `value` is null.
    pub fn meta(mut self, key: &str, value: Value) -> Self {
        if value.is_null() {
            if let Some(meta) = self.message["params"]["_meta"].as_object_mut() {
                meta.remove(key);
            }
        } else {
            self.message["params"]["_meta"][key] = value;
        }
        self
    }

    /// Requests progress.
    pub fn token(self, token: Value) -> Self {
        self.meta("progressToken", token)
    }

    /// Sends any text instead of a message.
    pub fn body(mut self, body: impl Into<String>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Returns the message to send.
    pub fn message(&self) -> &Value {
        &self.message
    }

    /// Sends the request, and reads the head of the response.
    #[track_caller]
    pub fn send(self) -> impl Future<Output = Reply> {
        within(async { self.dispatch().await.unwrap() })
    }

    /// Sends the request, and reads the head of the response, if the connection does not break.
    #[track_caller]
    pub fn try_send(self) -> impl Future<Output = io::Result<Reply>> {
        within(self.dispatch())
    }

    async fn dispatch(self) -> io::Result<Reply> {
        let body = match (&self.body, &self.message) {
            (Some(body), _) => body.clone(),
            (None, Value::Null) => String::new(),
            (None, message) => message.to_string(),
        };
        let client = self.client;
        let mut request = Request::builder().method(self.http_method.as_str());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::from(body)).unwrap();
        let connect = async || match &client.socket {
            Some(path) => Wire::connect_socket(path).await,
            None => Wire::connect(client.address, client.protocol, client.trust.clone()).await,
        };
        let Some(kept) = &client.kept else {
            let mut wire = connect().await?;
            let response = wire.send(request, &self.path).await.map_err(io::Error::other)?;
            return Ok(Reply::new(response, Some(wire)));
        };
        let mut kept = kept.lock().await;
        if kept.as_ref().is_none_or(Wire::is_closed) {
            *kept = Some(connect().await?);
        }
        let wire = kept.as_mut().unwrap();
        if wire.is_shared() {
            let mut shared = wire.share();
            drop(kept);
            let response = shared.send(request, &self.path).await;
            return Ok(Reply::new(response.map_err(io::Error::other)?, None));
        }
        let response = wire.send(request, &self.path).await.map_err(io::Error::other)?;
        Ok(Reply::new(response, None))
    }
}
