//! A server of the Legacy era: a session opened by `initialize`.

use std::cell::Cell;

use serde_json::{Value, json};

use super::stdio::{ExampleCall, ExampleServer, INVALID_PARAMS, INVALID_REQUEST, RpcError};
use super::tool::{Toolbox, call_tool, server_info};

/// Serves tools to Legacy clients. On stdio the session is the process.
pub(super) struct Legacy<T> {
    toolbox: T,
    /// The version that `initialize` negotiated.
    version: Cell<Option<&'static str>>,
}

impl<T: Toolbox> Legacy<T> {
    pub(super) fn new(toolbox: T) -> Self {
        Self { toolbox, version: Cell::new(None) }
    }

    fn initialize(&self, params: &Value) -> Result<Value, RpcError> {
        let Some(asked) = params.get("protocolVersion").and_then(Value::as_str) else {
            return Err(RpcError::new(INVALID_PARAMS, "`protocolVersion` is missing"));
        };
        // An unknown version is answered with the latest known one.
        let version =
            LEGACY_VERSIONS.into_iter().find(|known| *known == asked).unwrap_or(LATEST_VERSION);
        self.version.set(Some(version));
        Ok(json!({
            "protocolVersion": version,
            "capabilities": { "tools": {} },
            "serverInfo": server_info::<T>(),
            "instructions": T::INSTRUCTIONS,
        }))
    }

    async fn call(&self, params: &Value, call: &ExampleCall) -> Result<Value, RpcError> {
        let Some(name) = params.get("name").and_then(Value::as_str) else {
            return Err(RpcError::new(INVALID_PARAMS, "`name` is missing"));
        };
        let arguments = params.get("arguments").cloned().unwrap_or_else(|| json!({}));
        let result = call_tool(&self.toolbox, name, arguments, call).await;
        result.ok_or_else(|| RpcError::unknown_tool(name))
    }
}

impl<T: Toolbox> ExampleServer for Legacy<T> {
    async fn answer(
        &self,
        method: &str,
        params: &Value,
        call: &ExampleCall,
    ) -> Result<Value, RpcError> {
        match method {
            "initialize" => self.initialize(params),
            "ping" => Ok(json!({})),
            "tools/list" | "tools/call" if self.version.get().is_none() => {
                Err(RpcError::new(INVALID_REQUEST, "not initialized: send `initialize` first"))
            }
            "tools/list" => Ok(json!({ "tools": self.toolbox.tools() })),
            "tools/call" => self.call(params, call).await,
            // Including `server/discover`: the error makes a dual-era client use `initialize`.
            _ => Err(RpcError::unknown_method(method)),
        }
    }

    /// Only this version of the protocol has batches.
    fn takes_batches(&self) -> bool {
        self.version.get() == Some("2025-03-26")
    }
}

const LATEST_VERSION: &str = "2025-11-25";
const LEGACY_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", LATEST_VERSION];
