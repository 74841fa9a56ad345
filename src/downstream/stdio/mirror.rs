//! Tools' parameters in headers, for an endpoint behind a network.
//!
//! Which parameters a tool mirrors stands in its schema, which only the client
//! has asked for: the bridge reads the lists that pass by, and asks itself
//! where the endpoint says that something is missing.

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

/// What is known of tools' mirrored parameters.
pub(super) struct Mirror {
    mirroring: Mirroring,
    /// Tools that mirror any, by name.
    known: Mutex<HashMap<String, Vec<ParamHeader>>>,
}

impl Mirror {
    pub(super) fn new(mirroring: Mirroring) -> Self {
        Self { mirroring, known: Mutex::default() }
    }

    /// Whether the endpoint may miss headers of this request.
    pub(super) fn concerns(&self, asked: &PipedRequest) -> bool {
        self.mirroring == Mirroring::Wanted && asked.method == Method::ToolsCall
    }

    /// Whether the answer to this request tells of tools.
    pub(super) fn learns_from(&self, asked: &PipedRequest) -> bool {
        self.mirroring == Mirroring::Wanted && asked.method == Method::ToolsList
    }

    /// The headers that mirror a call's parameters, as far as it is known.
    pub(super) fn headers(&self, asked: &PipedRequest) -> Vec<(HeaderName, HeaderValue)> {
        let Some(params) = asked.params.as_ref().filter(|_| self.concerns(asked)) else {
            return Vec::new();
        };
        let known = self.known();
        let tool = params.name().and_then(|name| known.get(name));
        tool.map(|tool| headers_for(tool, params.arguments())).unwrap_or_default()
    }

    /// Reads the raw result of `tools/list`; gives the cursor of the next page.
    pub(super) fn learn(&self, raw: &[u8]) -> Option<String> {
        let list: ToolList = jsonrpc::object(raw).ok()?;
        let mut known = self.known();
        for tool in list.tools {
            match find_param_headers(&tool.input_schema) {
                Ok(params) if !params.is_empty() && known.len() < MOST => {
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

/// The most tools with mirrored parameters that are remembered.
const MOST: usize = 10_000;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn what_a_list_says_is_mirrored_until_another_list_says_otherwise() {
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
