//! A server of the Modern era: stateless, with complete metadata in each
//! request.

use serde_json::{Value, json};

use super::stdio::{
    ExampleCall, ExampleServer, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, merged,
};
use super::tool::{Toolbox, call_tool, server_info};

/// Serves tools to Modern clients.
pub(super) struct Modern<T> {
    toolbox: T,
}

impl<T: Toolbox> Modern<T> {
    pub(super) fn new(toolbox: T) -> Self {
        Self { toolbox }
    }

    async fn call(&self, params: &Value, call: &ExampleCall) -> Result<Value, RpcError> {
        let Some(name) = params.get("name").and_then(Value::as_str) else {
            return Err(RpcError::new(INVALID_PARAMS, "`name` is missing"));
        };
        let arguments = params.get("arguments").cloned().unwrap_or_else(|| json!({}));
        let result = call_tool(&self.toolbox, name, arguments, call).await;
        result.map(complete::<T>).ok_or_else(|| RpcError::unknown_tool(name))
    }
}

impl<T: Toolbox> ExampleServer for Modern<T> {
    async fn answer(
        &self,
        method: &str,
        params: &Value,
        call: &ExampleCall,
    ) -> Result<Value, RpcError> {
        if method == "initialize" {
            return Err(no_handshake(params.get("protocolVersion")));
        }
        check_meta(params)?;
        match method {
            "server/discover" => Ok(cacheable::<T>(json!({
                "supportedVersions": [MODERN_VERSION],
                "capabilities": { "tools": {} },
                "instructions": T::INSTRUCTIONS,
            }))),
            "tools/list" => Ok(cacheable::<T>(json!({ "tools": self.toolbox.tools() }))),
            "tools/call" => self.call(params, call).await,
            "subscriptions/listen"
                if !params.get("notifications").is_some_and(Value::is_object) =>
            {
                Err(RpcError::new(INVALID_PARAMS, "`notifications` is missing"))
            }
            "subscriptions/listen" => Ok(listen::<T>(call).await),
            _ => Err(RpcError::unknown_method(method)),
        }
    }
}

/// Checks the fields that every request must carry.
fn check_meta(params: &Value) -> Result<(), RpcError> {
    let meta = |key: &str| params.get("_meta").and_then(|meta| meta.get(key));
    match meta(PROTOCOL_VERSION) {
        Some(Value::String(version)) if version == MODERN_VERSION => {}
        version @ Some(Value::String(_)) => return Err(unsupported(version)),
        _ => return Err(lacks(PROTOCOL_VERSION)),
    }
    match meta(CLIENT_CAPABILITIES) {
        Some(Value::Object(_)) => Ok(()),
        _ => Err(lacks(CLIENT_CAPABILITIES)),
    }
}

/// Returns the error for `initialize`. A Legacy client has no other text to show its user: MCP
/// 2026-07-28, Versioning, requires that this error name the versions, independent of its code.
fn no_handshake(requested: Option<&Value>) -> RpcError {
    let error = unsupported(requested);
    if requested.is_some_and(|version| version == MODERN_VERSION) {
        // A Modern version with a Legacy handshake: some clients open the
        // Modern era like this.
        let message = format!("unknown method `initialize`: {MODERN_VERSION} has no handshake");
        return RpcError { code: METHOD_NOT_FOUND, message, ..error };
    }
    error
}

fn lacks(key: &str) -> RpcError {
    RpcError::new(INVALID_PARAMS, format!("`_meta` lacks a valid `{key}`"))
}

fn unsupported(requested: Option<&Value>) -> RpcError {
    RpcError {
        code: UNSUPPORTED_PROTOCOL_VERSION,
        message: format!("unsupported protocol version: this server speaks {MODERN_VERSION} only"),
        data: Some(json!({ "supported": [MODERN_VERSION], "requested": requested })),
    }
}

/// Acknowledges an empty set of subscriptions, because the tools never change, and holds the stream
/// open until one side ends it.
async fn listen<T: Toolbox>(call: &ExampleCall) -> Value {
    let acknowledged = json!({ "_meta": { SUBSCRIPTION_ID: call.id }, "notifications": {} });
    call.notify("notifications/subscriptions/acknowledged", acknowledged).await;
    call.server_closes().await;
    let meta = json!({ SERVER_INFO: server_info::<T>(), SUBSCRIPTION_ID: call.id });
    merged(complete::<T>(json!({})), json!({ "_meta": meta }))
}

fn complete<T: Toolbox>(result: Value) -> Value {
    let meta = json!({ SERVER_INFO: server_info::<T>() });
    merged(result, json!({ "resultType": "complete", "_meta": meta }))
}

/// Returns a result that is the same for all clients as long as the process lives.
fn cacheable<T: Toolbox>(result: Value) -> Value {
    merged(complete::<T>(result), json!({ "ttlMs": 3_600_000, "cacheScope": "public" }))
}

const MODERN_VERSION: &str = "2026-07-28";
const UNSUPPORTED_PROTOCOL_VERSION: i32 = -32022;
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
