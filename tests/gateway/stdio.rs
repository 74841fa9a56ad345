//! Hosts that can only start a process: lines in, lines out, to the gateway in the same process or
//! to one behind a URL.

use serde_json::{Value, json};
use trunkline::downstream::stdio::{BridgeBounds, BridgeEnd};

use crate::support::host::{bounds, there};
use crate::support::{Gateway, Host, Step, Upstream, WAYS, every_kind};

const NEW: &str = r#"{"name":"new","inputSchema":{"type":"object"}}"#;
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

fn call(tool: &str) -> Value {
    json!({ "name": tool, "arguments": { "a": 1 } })
}

#[tokio::test]
async fn either_era_lists_and_calls_every_kind_of_server() {
    let kinds = every_kind().await;
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for way in WAYS {
        let mut host = Host::of(&gateway, way);
        let hello = host.modern("server/discover", json!({})).await;
        assert_eq!(hello["result"]["supportedVersions"], json!(["2026-07-28"]), "{hello}");
        let list = host.modern("tools/list", json!({})).await;
        assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 16, "{list}");
        for kind in &kinds {
            let answer = host.modern("tools/call", call(&format!("{}__echo", kind.name))).await;
            assert_eq!(text(&answer), r#"{"a":1}"#, "{way:?} {}", kind.name);
        }
        let hello = host.initialize().await;
        assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
        for kind in &kinds {
            let answer = host.request("tools/call", call(&format!("{}__echo", kind.name))).await;
            assert_eq!(text(&answer), r#"{"a":1}"#, "{way:?} {}", kind.name);
            assert!(answer["result"].get("resultType").is_none(), "{answer}");
        }
        assert_eq!(host.request("ping", json!({})).await["result"], json!({}));
        let (rest, ended) = host.rest().await;
        assert_eq!((rest, ended), (vec![], BridgeEnd::Input), "{way:?}");
        gateway.wait_for(|status| status["sessions"] == 0).await;
    }
}

#[tokio::test]
async fn answers_come_as_they_are_ready_and_progress_before_them() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    for way in WAYS {
        let mut host = Host::of(&gateway, way);
        host.initialize().await;
        for modern in [true, false] {
            let ask = async |host: &mut Host, params| match modern {
                true => host.ask_modern("tools/call", params).await,
                false => host.ask("tools/call", params).await,
            };
            let held = ask(&mut host, call("s__hold")).await;
            let echoed = ask(&mut host, call("s__echo")).await;
            assert_eq!(host.next().await.unwrap()["id"], echoed);
            upstream.release(1);
            assert_eq!(host.next().await.unwrap()["id"], held);
            let token = json!({ "name": "s__count", "_meta": { "progressToken": "mine" } });
            let counted = ask(&mut host, token).await;
            for progress in 1..=3 {
                let notice = host.next().await.unwrap();
                assert_eq!(notice["method"], "notifications/progress", "{notice}");
                assert_eq!(notice["params"]["progressToken"], "mine");
                assert_eq!(notice["params"]["progress"], progress);
            }
            assert_eq!(host.next().await.unwrap()["id"], counted);
        }
    }
}

#[tokio::test]
async fn a_request_that_is_taken_back_is_not_answered_and_its_server_hears_of_it() {
    for way in WAYS {
        let upstream = Upstream::legacy().await;
        let gateway = Gateway::with("s", upstream.stdio()).start().await;
        let mut host = Host::of(&gateway, way);
        host.initialize().await;
        let mut heard = 0;
        for modern in [true, false] {
            // Once the server has the request, and in the very next line.
            for is_sent in [true, false] {
                let calls = upstream.calls().len();
                let id = match modern {
                    true => host.ask_modern("tools/call", call("s__hold")).await,
                    false => host.ask("tools/call", call("s__hold")).await,
                };
                if is_sent {
                    upstream.heard("tools/call", calls + 1).await;
                }
                host.cancel(&id).await;
                // A call that never reached its server is cancelled without a message to it.
                if is_sent || upstream.calls().len() > heard {
                    heard += 1;
                    upstream.heard("notifications/cancelled", heard).await;
                }
                gateway
                    .wait_for(|status| {
                        status["servers"][0]["in_flight"] == 0 && !status["servers"][0].is_null()
                    })
                    .await;
                heard = upstream.all("notifications/cancelled").len();
            }
        }
        assert_eq!(text(&host.request("tools/call", call("s__echo")).await), r#"{"a":1}"#);
        // An id without a request in flight, and a missing id.
        host.cancel(&json!("nothing")).await;
        host.notify("notifications/cancelled", json!({})).await;
        let (rest, _) = host.rest().await;
        assert_eq!(rest, Vec::<Value>::new(), "{way:?}");
    }
}

#[tokio::test]
async fn changes_of_the_list_come_as_lines() {
    for way in WAYS {
        let upstream = Upstream::legacy().await;
        let gateway = Gateway::with("s", upstream.stdio()).start().await;
        let mut host = Host::of(&gateway, way);
        let filter = json!({ "notifications": { "toolsListChanged": true } });
        let first = host.ask_modern("subscriptions/listen", filter.clone()).await;
        let second = host.ask_modern("subscriptions/listen", filter).await;
        for id in [&first, &second] {
            let acknowledged =
                host.wait_for(|message| message["params"]["_meta"][SUBSCRIPTION] == *id).await;
            assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
        }
        host.cancel(&first).await;
        host.initialize().await;
        gateway.wait_for(|status| status["streams"] == 2).await;
        upstream.set_tools([NEW]).announce().await;
        let mut tagged = Vec::new();
        for _ in 0..2 {
            let change = host.next().await.unwrap();
            assert_eq!(change["method"], "notifications/tools/list_changed", "{change}");
            tagged.push(change["params"]["_meta"][SUBSCRIPTION].clone());
        }
        assert!(tagged.contains(&second) && tagged.contains(&Value::Null), "{tagged:?}");
        let (rest, ended) = host.rest().await;
        assert_eq!((rest, ended), (vec![], BridgeEnd::Input), "subscriptions hold nothing up");
        gateway.wait_for(|status| status["streams"] == 0).await;
    }
}

#[tokio::test]
async fn lines_that_are_no_messages_affect_no_other_client() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for way in WAYS {
        let mut host = Host::of(&gateway, way);
        let long = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "x".repeat(1 << 16));
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":{}}}}}"#,
            "[".repeat(2000)
        );
        for (line, code) in [
            ("hello", -32700),
            ("{}", -32600),
            ("[]", -32600),
            ("[1", -32600),
            ("\u{1}", -32700),
            (r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#, -32600),
            (r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, -32600),
            (&long, -32600),
            (&deep, -32700),
        ] {
            host.line(line).await;
            let answer = host.next().await.unwrap();
            let line: String = line.chars().take(80).collect();
            assert_eq!(answer["error"]["code"], code, "{way:?} {line}: {answer}");
            assert!(answer.get("id").is_none_or(Value::is_null), "{answer}");
        }
        // Invalid requests: without a session, with an unknown method, with params of a wrong type.
        let answer = host.request("tools/list", json!({})).await;
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
        let answer = host.modern("a/b", json!({})).await;
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        let answer = host.modern("tools/call", json!({ "name": 7 })).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        host.line("").await;
        host.send(json!({ "jsonrpc": "2.0", "id": 9, "result": {} })).await;
        host.notify("notifications/unheard-of", json!({})).await;
        assert_eq!(text(&host.modern("tools/call", call("s__echo")).await), r#"{"a":1}"#);
    }
}

#[tokio::test]
async fn a_batch_is_answered_by_a_batch_where_the_session_knows_them() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    for way in WAYS {
        let mut host = Host::of(&gateway, way);
        let hello = json!({ "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": { "name": "h", "version": "1" } });
        host.request("initialize", hello).await;
        host.line(r#"[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":"b","method":"ping"}]"#).await;
        let answer = host.next().await.unwrap();
        assert_eq!(answer.as_array().unwrap().len(), 2, "{answer}");
        host.line(r#"[{"jsonrpc":"2.0","method":"x"}]"#).await;
        assert_eq!(host.request("ping", json!({})).await["result"], json!({}));
    }
}

#[tokio::test]
async fn one_id_names_one_request_and_there_is_room_for_so_many() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let url = format!("http://{}/mcp", gateway.running.address);
    let mut host = Host::start(there(&url), BridgeBounds { in_flight: 2, ..bounds() });
    let held = host.ask_modern("tools/call", call("s__hold")).await;
    upstream.heard("tools/call", 1).await;
    let again = json!({ "jsonrpc": "2.0", "id": held, "method": "tools/list" });
    host.send(again).await;
    let refused = host.next().await.unwrap();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&held, &json!(-32600)));
    let held = host.ask_modern("tools/call", call("s__hold")).await;
    upstream.heard("tools/call", 2).await;
    let refused = host.modern("tools/call", call("s__echo")).await;
    assert_eq!(refused["error"]["code"], 42900, "{refused}");
    // A cancellation makes room.
    host.cancel(&held).await;
    upstream.heard("notifications/cancelled", 1).await;
    assert_eq!(text(&host.modern("tools/call", call("s__echo")).await), r#"{"a":1}"#);
}

#[tokio::test]
async fn the_end_of_the_input_lets_answers_come_and_the_end_of_the_output_does_not() {
    for way in WAYS {
        let upstream = Upstream::legacy().await;
        let gateway = Gateway::with("s", upstream.stdio()).start().await;
        let mut host = Host::of(&gateway, way);
        host.initialize().await;
        let modern = host.ask_modern("tools/call", call("s__hold")).await;
        let legacy = host.ask("tools/call", call("s__hold")).await;
        upstream.heard("tools/call", 2).await;
        host.close();
        upstream.release(2);
        let (rest, ended) = host.rest().await;
        let ids: Vec<_> = rest.iter().map(|message| message["id"].clone()).collect();
        assert!(ids.contains(&modern) && ids.contains(&legacy), "{rest:?}");
        assert_eq!(ended, BridgeEnd::Input);

        let mut host = Host::of(&gateway, way);
        host.ask_modern("tools/call", call("s__hold")).await;
        upstream.heard("tools/call", 3).await;
        assert_eq!(host.vanish().await, BridgeEnd::Output, "{way:?}");
        upstream.heard("notifications/cancelled", 1).await;
    }
}

#[tokio::test]
async fn a_lost_session_is_reopened_and_the_client_is_notified_of_possible_changes() {
    let upstream = Upstream::legacy().await;
    let mut host = Host::at(&format!("http://{}/mcp", upstream.http_address()));
    host.initialize().await;
    upstream.heard("GET", 1).await;
    upstream.forget_sessions();
    let asked = host.ask("tools/call", call("echo")).await;
    assert_eq!(text(&host.answer(&asked).await), r#"{"a":1}"#);
    let told = host.next().await.unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(upstream.all("initialize").len(), 2);
    assert_eq!(upstream.all("notifications/initialized").len(), 2);
    upstream.heard("GET", 2).await;
    upstream.announce().await;
    assert_eq!(host.next().await.unwrap()["method"], "notifications/tools/list_changed");
    host.rest().await;
    upstream.heard("DELETE", 1).await;
}

#[tokio::test]
async fn parameters_are_mirrored_for_a_gateway_behind_a_url_without_a_list_request() {
    let upstream = Upstream::modern().await;
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" },
    } });
    let tool = json!({ "name": "where", "inputSchema": schema });
    upstream.tool(&tool, |call| vec![Step::text(call.header("mcp-param-region").unwrap_or("-"))]);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for way in WAYS {
        let mut host = Host::of(&gateway, way);
        let params = json!({ "name": "s__where", "arguments": { "region": "eu" } });
        assert_eq!(text(&host.modern("tools/call", params.clone()).await), "eu", "{way:?}");
        // From the list on its way to the client, and without a second attempt.
        let mut host = Host::of(&gateway, way);
        host.modern("tools/list", json!({})).await;
        assert_eq!(text(&host.modern("tools/call", params).await), "eu", "{way:?}");
    }
}

#[tokio::test]
async fn an_unreachable_gateway_is_reported_and_used_once_it_is_up() {
    let upstream = Upstream::modern().await;
    let url = format!("http://{}/mcp", upstream.http_address());
    let address = upstream.http_address();
    let mut host = Host::at(&url);
    assert_eq!(text(&host.modern("tools/call", call("echo")).await), r#"{"a":1}"#);
    drop(upstream);
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let refused = host.modern("subscriptions/listen", filter.clone()).await;
    assert_eq!(refused["error"]["code"], 50300, "{refused}");
    let refused = host.request("initialize", json!({})).await;
    assert_eq!(refused["error"]["code"], 50300, "{refused}");
    let upstream = Upstream::at(crate::support::upstream::Era::Modern, address).await;
    assert_eq!(text(&host.modern("tools/call", call("echo")).await), r#"{"a":1}"#);
    // Requests that are interrupted: a subscription, and a call.
    let listen = host.ask_modern("subscriptions/listen", filter).await;
    assert_eq!(host.next().await.unwrap()["method"], "notifications/subscriptions/acknowledged");
    let held = host.ask_modern("tools/call", call("hold")).await;
    upstream.heard("tools/call", 2).await;
    upstream.crash();
    let (mut one, mut two) = (host.next().await.unwrap(), host.next().await.unwrap());
    if one["id"] == held {
        std::mem::swap(&mut one, &mut two);
    }
    assert_eq!(one["method"], "notifications/cancelled", "{one}");
    assert_eq!(one["params"]["requestId"], listen);
    assert_eq!((&two["id"], &two["error"]["code"]), (&held, &json!(50300)), "{two}");
}

#[tokio::test]
async fn responses_of_an_intermediate_proxy_are_no_lines() {
    let upstream = Upstream::modern().await;
    let mut host = Host::at(&format!("http://{}/mcp", upstream.http_address()));
    for (status, body) in [
        (502, "<html>Bad gateway</html>"),
        (200, "{}"),
        (200, "[1]"),
        (202, ""),
        (401, "no"),
        (200, r#"{"jsonrpc":"2.0","id":"other","result":{}}"#),
    ] {
        upstream.answers(Some((status, body)));
        let answer = host.modern("tools/list", json!({})).await;
        assert_eq!(answer["error"]["code"], 50300, "{status} {body}: {answer}");
    }
    upstream
        .answers(Some((403, r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}"#)));
    let answer = host.modern("tools/list", json!({})).await;
    assert_eq!(answer["error"], json!({ "code": 1, "message": "no" }));
    upstream.answers(None);
    assert!(host.modern("tools/list", json!({})).await["result"].is_object());
}
