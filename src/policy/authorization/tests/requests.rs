//! Conditions about the client's software and about the request.

use std::net::IpAddr;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::call::{Client, ProfileName};
use crate::mcp::ProtocolVersion;

use super::*;

/// A request of a Modern client at the profile `desk`, over HTTP/2.
fn request(info: Option<&Value>, address: &str) -> Context {
    let info = info.map(|info| Bytes::from(info.to_string()));
    let version = ProtocolVersion::LATEST_MODERN;
    let mut context = caller("ann", &[], &[]);
    context.client = Arc::new(Client::new(version, info, Bytes::from_static(b"{}")));
    context.endpoint.profile = ProfileName::new("desk").ok();
    context.address = address.parse::<IpAddr>().unwrap();
    context.transport = "http2";
    context
}

fn software() -> Value {
    json!({ "name": "ide", "version": "1.2" })
}

/// Decides about a call, and a list, by one rule with this condition.
fn judged(when: &str, context: &Context, method: &Method) -> [AccessDecision; 2] {
    let rules = rules(&format!("[policy.rules.only]\nwhen = {when:?}\n"));
    let server = ServerName::new("s").unwrap();
    let (kind, public, native) = (Kind::Tools, "s__t", "t");
    let (tool, basis) = (None, ElementBasis::Itself);
    let element = CatalogElement { kind, server: Some(&server), public, native, tool, basis };
    let rights = rules.rights_of(context);
    let facts = RequestFacts::new(method, None, context);
    [rights.judge_call(&facts, &element).decision, rights.decide_listing(&element)]
}

#[test]
fn conditions_read_the_client_info() {
    let modern = request(Some(&software()), "192.0.2.7");
    let mut legacy = modern.clone();
    let version = ProtocolVersion::LATEST_LEGACY;
    let info = Some(Bytes::from(software().to_string()));
    legacy.client = Arc::new(Client::new(version, info, Bytes::from_static(b"{}")));
    let nameless = request(None, "192.0.2.7");
    let odd = request(Some(&json!({ "name": 7, "version": ["1"] })), "192.0.2.7");
    for (when, context, holds) in [
        ("client.name == 'ide'", &modern, true),
        ("client.name == 'IDE'", &modern, false),
        ("client.name == 'ide' && client.version.startsWith('1.')", &modern, true),
        ("client.version == '1.3'", &modern, false),
        ("client.era == 'modern'", &modern, true),
        ("client.era == 'legacy'", &modern, false),
        ("client.era == 'legacy'", &legacy, true),
        ("client.name == 'ide' && client.era == 'legacy'", &legacy, true),
        // A value that is absent, or not a text, is empty.
        ("client.name == '' && client.version == ''", &nameless, true),
        ("client.name == '' && client.version == ''", &odd, true),
        ("client.name != ''", &odd, false),
    ] {
        let expected = if holds { ALLOWED(0) } else { BY_DEFAULT };
        let judged = judged(when, context, &Method::ToolsCall);
        assert_eq!(judged, [expected; 2], "{when} {:?}", context.client);
    }
}

#[test]
fn conditions_read_the_way_of_a_request() {
    let ipv4 = request(None, "192.0.2.7");
    let mapped = request(None, "::ffff:192.0.2.7");
    let ipv6 = request(None, "2001:db8::7");
    let mut stdio = ipv4.clone();
    (stdio.transport, stdio.endpoint.profile) = ("stdio", None);
    for (when, context, holds) in [
        ("request.profile == 'desk'", &ipv4, true),
        ("request.profile == 'default'", &ipv4, false),
        ("request.profile == 'default'", &stdio, true),
        ("request.transport == 'http2'", &ipv4, true),
        ("request.transport == 'http1'", &ipv4, false),
        ("request.transport == 'stdio'", &stdio, true),
        ("request.address == '192.0.2.7'", &ipv4, true),
        ("request.address == '192.0.2.7'", &mapped, true),
        ("request.address.startsWith('192.0.2.')", &ipv6, false),
        ("request.address == '2001:db8::7'", &ipv6, true),
    ] {
        let expected = if holds { ALLOWED(0) } else { BY_DEFAULT };
        let judged = judged(when, context, &Method::ToolsCall);
        assert_eq!(judged, [expected; 2], "{when} {}", context.address);
    }
}

#[test]
fn the_method_decides_once_there_is_a_request() {
    let context = request(None, "192.0.2.7");
    let when = "request.method == 'tools/call'";
    let [called, listed] = judged(when, &context, &Method::ToolsCall);
    assert_eq!((called, listed), (ALLOWED(0), AccessDecision::Depends));
    let [completed, _] = judged(when, &context, &Method::Complete);
    assert_eq!(completed, BY_DEFAULT);
    let [called, listed] = judged("request.method != 'tools/call'", &context, &Method::ToolsCall);
    assert_eq!((called, listed), (BY_DEFAULT, AccessDecision::Depends));
}

#[test]
fn callers_that_a_condition_tells_apart_share_no_view() {
    let one = request(Some(&software()), "192.0.2.7");
    let other_software = request(Some(&json!({ "name": "cli" })), "192.0.2.7");
    let other_address = request(Some(&software()), "192.0.2.8");
    let mut other_transport = one.clone();
    other_transport.transport = "http1";
    let mut other_profile = one.clone();
    other_profile.endpoint.profile = None;
    let mut other_era = one.clone();
    let info = Some(Bytes::from(software().to_string()));
    let version = ProtocolVersion::LATEST_LEGACY;
    other_era.client = Arc::new(Client::new(version, info, Bytes::from_static(b"{}")));
    // Each condition also reads the tool, so that the caller alone does not decide it.
    for (when, other) in [
        ("client.name == 'ide'", &other_software),
        ("client.version == '1.2'", &other_software),
        ("client.era == 'modern'", &other_era),
        ("request.address == '192.0.2.7'", &other_address),
        ("request.transport == 'http2'", &other_transport),
        ("request.profile == 'desk'", &other_profile),
    ] {
        let text = format!("[policy.rules.only]\nwhen = \"tool.native == 't' && {when}\"\n");
        let rules = rules(&text);
        assert_ne!(rules.rights_of(&one), rules.rights_of(other), "{when}");
        assert_eq!(rules.rights_of(&one), rules.rights_of(&one.clone()), "{when}");
    }
}
