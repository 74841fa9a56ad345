//! Messages, catalogs and policies for the measurements.

use std::path::PathBuf;

use bytes::Bytes;
use serde_json::json;
use trunkline::call::test_support::make_context;
use trunkline::call::{Call, Client, Params, ServerName};
use trunkline::catalog::{
    ByKind, Catalog, HeaderRules, MergeSource as Listed, Naming, Rules, Scope, ServerList,
    ServerRules, UriMode,
};
use trunkline::config::{Config, ConfigSource, SystemEnvironment};
use trunkline::jsonrpc::{self, Frame};
use trunkline::mcp::{Method, ProtocolVersion};
use trunkline::policy::{LimitRegistry, Policy};

/// Returns a request with arguments of slightly more than `size` bytes.
pub fn request(size: usize) -> Bytes {
    let request = json!({
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {
            "name": "files__search",
            "arguments": {
                "path": "src/listen",
                "query": "who closes a connection? ".repeat(size / 25),
                "limit": 20,
                "mode": "deep",
                "tags": ["rust", "http", "proxy"],
                "options": { "case": false, "context": 3 },
            },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    });
    request.to_string().into()
}

pub fn raw_params(size: usize) -> Bytes {
    match jsonrpc::parse(&request(size), 64) {
        Ok(Frame::Request { params: Some(params), .. }) => params.into(),
        other => unreachable!("{other:?}"),
    }
}

pub fn call(size: usize) -> Call {
    let params = Params::parse(Some(raw_params(size))).unwrap();
    let client = Client::new(
        ProtocolVersion::LATEST_MODERN,
        Some(Bytes::from_static(br#"{"name":"bench","version":"1"}"#)),
        Bytes::from_static(b"{}"),
    );
    Call { method: Method::ToolsCall, params, context: make_context(client), input: None }
}

pub fn tools(count: usize) -> ServerList {
    let raws: Vec<Bytes> = (0..count)
        .map(|number| {
            let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
            let tool = json!({
                "name": format!("search_{number}"),
                "description": "Finds what was asked for. ".repeat(20),
                "inputSchema": schema,
            });
            tool.to_string().into()
        })
        .collect();
    let raws = ByKind { tools: Some(raws), ..ByKind::default() };
    ServerList::build(ServerName::new("files").unwrap(), &raws, HeaderRules::Enforce, None).0
}

pub fn catalog(tools: &ServerList) -> Catalog {
    let rules = ServerRules::default();
    let source = Listed { server: &tools.server, rules: &rules, list: Some(tools) };
    let naming = Naming::new(&read_config(String::new()).gateway);
    Catalog::merge(
        &Rules { naming, uris: UriMode::Prefix, own_tools: Vec::new(), has_meta_tools: false },
        &[source],
        &Scope::default(),
    )
    .0
}

/// The policy of a configuration.
pub fn policy_of(config: String) -> Policy {
    Policy::new(LimitRegistry::default().limits(&read_config(config)))
}

fn read_config(text: String) -> Config {
    let bytes = text.into_bytes();
    let source = ConfigSource { name: "bench".into(), folder: PathBuf::from("/"), bytes };
    Config::read(&source, &SystemEnvironment).map_err(|_| "faults").unwrap()
}

pub const SCHEMA: &str = r#"{"type":"object","properties":{
  "path":{"type":"string","minLength":1,"maxLength":256},
  "query":{"type":"string"},
  "limit":{"type":"integer","minimum":1,"maximum":100},
  "mode":{"enum":["fast","deep"]},
  "tags":{"type":"array","items":{"type":"string"},"maxItems":16},
  "options":{"type":"object","properties":{"case":{"type":"boolean"},"context":{"type":"integer"}},"additionalProperties":false}
 },"required":["path","query"],"additionalProperties":false}"#;
