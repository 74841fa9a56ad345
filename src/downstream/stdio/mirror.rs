//! Tools' parameters in headers, for an endpoint behind a network.
//!
//! A tool's schema declares its mirrored parameters, and only the client requests schemas: the
//! bridge reads the lists that pass by. If the endpoint reports a missing header, the bridge
//! requests the list itself.

use std::collections::HashMap;

use http::{HeaderName, HeaderValue};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::catalog::{ParamHeader, find_param_headers, headers_for};
use crate::jsonrpc;
use crate::mcp::Method;

use super::endpoint::Mirroring;
use super::headers::PipedRequest;

/// Known mirrored parameters of tools.
pub(super) struct Mirror {
    mirroring: Mirroring,
    /// Tools with mirrored parameters, by name.
    known: Mutex<HashMap<String, Vec<ParamHeader>>>,
}

impl Mirror {
    pub(super) fn new(mirroring: Mirroring) -> Self {
        Self { mirroring, known: Mutex::default() }
    }

    /// Returns true if this request may need mirrored headers.
    pub(super) fn concerns(&self, asked: &PipedRequest) -> bool {
        self.mirroring == Mirroring::Wanted && asked.method == Method::ToolsCall
    }

    /// Returns true if the answer to this request describes tools.
    pub(super) fn learns_from(&self, asked: &PipedRequest) -> bool {
        self.mirroring == Mirroring::Wanted && asked.method == Method::ToolsList
    }

    /// Returns the headers that mirror a call's parameters, as far as they are known.
    pub(super) fn headers(&self, asked: &PipedRequest) -> Vec<(HeaderName, HeaderValue)> {
        let Some(params) = asked.params.as_ref().filter(|_| self.concerns(asked)) else {
            return Vec::new();
        };
        let known = self.known();
        let tool = params.name().and_then(|name| known.get(name));
        tool.map(|tool| headers_for(tool, params.arguments())).unwrap_or_default()
    }

    /// Reads the raw result of `tools/list`. Returns the cursor of the next page.
    pub(super) fn learn(&self, raw: &[u8]) -> Option<String> {
        let list: ToolList = jsonrpc::object(raw).ok()?;
        let mut known = self.known();
        for tool in list.tools {
            match find_param_headers(&tool.input_schema) {
                Ok(params) if !params.is_empty() && known.len() < MAX_MIRRORED_TOOLS => {
                    known.insert(tool.name, params);
                }
                _ => {
                    known.remove(&tool.name);
                }
            }
        }
        list.next_cursor
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Vec<ParamHeader>>> {
        self.known.lock()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolList {
    tools: Vec<MirroredTool>,
    #[serde(default)]
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MirroredTool {
    name: String,
    #[serde(default)]
    input_schema: Map<String, Value>,
}

/// Limit of the remembered tools with mirrored parameters.
const MAX_MIRRORED_TOOLS: usize = 10_000;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn annotations_of_a_list_are_mirrored_until_another_list_changes_them() {
        let mirror = Mirror::new(Mirroring::Wanted);
        let params = r#"{"name":"t","arguments":{"r":"eu"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
        let call = PipedRequest::new("tools/call", Some(Bytes::from_static(params.as_bytes())));
        assert!(mirror.headers(&call).is_empty());
        let list = r#"{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}],"nextCursor":"2"}"#;
        assert_eq!(mirror.learn(list.as_bytes()).as_deref(), Some("2"));
        let headers = mirror.headers(&call);
        assert_eq!(headers.len(), 1);
        assert_eq!(
            (headers[0].0.as_str(), headers[0].1.as_bytes()),
            ("mcp-param-region", &b"eu"[..])
        );
        mirror.learn(br#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}"#);
        assert!(mirror.headers(&call).is_empty());
    }
}
