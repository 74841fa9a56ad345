//! Calls and their contexts for tests.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a helper of tests")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;

use crate::mcp::{Method, ProtocolVersion};

use super::{Call, Client, Context, Endpoint, Params, Principal, Trace};

/// Returns the context of a request over HTTP/1.1 by an anonymous client on the same machine.
pub fn make_context(client: Client) -> Context {
    Context {
        principal: Principal::Anonymous,
        grants: None,
        tokens: None,
        endpoint: Endpoint::default(),
        session: None,
        sent: None,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        peer: None,
        transport: "http1",
        client: Arc::new(client),
        log: None,
        progress_token: None,
        trace: Trace::default(),
        headers: Arc::default(),
        audit: None,
        by_operator: false,
    }
}

/// Returns a call of a tool without arguments, by an anonymous Legacy client without capabilities.
pub fn make_tool_call(tool: &str) -> Call {
    let params = format!("{{\"name\":\"{tool}\",\"arguments\":{{}}}}");
    let client = Client::new(ProtocolVersion::LATEST_LEGACY, None, Bytes::from_static(b"{}"));
    Call {
        method: Method::ToolsCall,
        params: Params::parse(Some(params.into())).unwrap(),
        context: make_context(client),
        input: None,
    }
}
