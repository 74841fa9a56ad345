use serde_json::{Value, json};

use super::LoadArgs;
use super::answers::{Answers, LoadAnswer, LoadSession};

fn args() -> LoadArgs {
    LoadArgs {
        listen: None,
        tools: 2,
        bytes: 100,
        tool_bytes: 10,
        latency: 0,
        sse: false,
        challenge: None,
        threads: 1,
        until_eof: false,
    }
}

fn ask(message: &Value, session: LoadSession) -> LoadAnswer {
    Answers::prepare(&args()).answer(message.to_string().as_bytes(), session)
}

fn modern(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
    json!({ "jsonrpc": "2.0", "id": "a\"b", "method": method, "params": params })
}

fn value(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn a_call_is_answered_with_its_id_and_its_number() {
    let params = json!({ "name": "search_2", "arguments": { "x": 1, "number": 17 } });
    let LoadAnswer::Call(answer) = ask(&modern("tools/call", params), LoadSession::None) else {
        panic!()
    };
    let answer = value(&answer);
    assert_eq!(answer["id"], "a\"b");
    assert_eq!(answer["result"]["resultType"], "complete");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("number 17 found it"), "{text}");
    assert_eq!(text.len(), 100 + "number 17 ".len());
}

#[test]
fn a_legacy_call_needs_a_session() {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "search" } });
    assert_eq!(ask(&call, LoadSession::None), LoadAnswer::NoSession);
    let LoadAnswer::Call(answer) = ask(&call, LoadSession::Open) else { panic!() };
    assert_eq!(value(&answer)["result"].get("resultType"), None);
}

#[test]
fn unknown_tools_and_methods_are_errors() {
    for (message, code) in [
        (modern("tools/call", json!({ "name": "search_3" })), -32602),
        (modern("tools/call", json!({})), -32602),
        (modern("jump", json!({})), -32601),
        (modern("initialize", json!({})), -32601),
    ] {
        let LoadAnswer::Now(answer) = ask(&message, LoadSession::None) else { panic!("{message}") };
        assert_eq!(value(&answer)["error"]["code"], code, "{message}");
    }
    let invalid = Answers::prepare(&args()).answer(b"{", LoadSession::None);
    assert!(matches!(invalid, LoadAnswer::Invalid(_)));
}

#[test]
fn the_list_has_as_many_tools_as_asked_for() {
    let LoadAnswer::Now(answer) = ask(&modern("tools/list", json!({})), LoadSession::None) else {
        panic!()
    };
    let answer = value(&answer);
    let tools = answer["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 2);
    assert_eq!(tools[1]["name"], "search_2");
    assert_eq!(tools[0]["inputSchema"]["type"], "object");
}

#[test]
fn a_server_that_wants_a_token_says_where_to_get_one() {
    let metadata = "http://127.0.0.1:9/resource".parse().unwrap();
    let challenge = super::http::challenge(&metadata).unwrap();
    assert_eq!(challenge, "Bearer resource_metadata=\"http://127.0.0.1:9/resource\"");
}
