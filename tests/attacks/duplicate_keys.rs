//! Duplicate keys in a server's messages: the gateway would check one of the values, and the client
//! would act on the other.

use serde_json::{Value, json};

use crate::support::upstream::{Received, tool};
use crate::support::{Gateway, Step, Upstream, every_kind};

/// Capabilities of the clients: forms, but no pages.
fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

#[tokio::test]
async fn a_result_with_a_duplicate_key_that_the_gateway_reads_is_refused() {
    const ASKS: &str = r#""resultType":"input_required""#;
    const FORM: &str = r#"{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object"}}}"#;
    const PAGE: &str = r#"{"method":"elicitation/create","params":{"mode":"url","message":"?","url":"https://x.example/"}}"#;
    let results = [
        r#""content":[],"isError":false,"isError":true"#.to_owned(),
        r#""content":[],"_meta":{},"_meta":{"a":1}"#.to_owned(),
        format!(r#""resultType":"complete","content":[],{ASKS},"inputRequests":{{"a":{FORM}}}"#),
        format!(r#"{ASKS},"inputRequests":{{"a":{FORM}}},"inputRequests":{{"a":{PAGE}}}"#),
        format!(r#"{ASKS},"inputRequests":{{"a":{FORM},"a":{PAGE}}}"#),
        format!(r#"{ASKS},"inputRequests":{{"a":{FORM},"\u0061":{PAGE}}}"#),
        format!(
            r#"{ASKS},"inputRequests":{{"a":{FORM}}},"requestState":"one","requestState":"two""#
        ),
        format!(
            r#"{ASKS},"inputRequests":{{"a":{}}}"#,
            FORM.replace(r#""params":{"#, r#""params":{"mode":"form","mode":"url","#)
        ),
        format!(
            r#"{ASKS},"inputRequests":{{"a":{}}}"#,
            FORM.replace("{\"method\"", "{\"method\":\"roots/list\",\"method\"")
        ),
    ];
    let upstream = Upstream::modern().await;
    for (number, result) in results.iter().enumerate() {
        let raw = format!("{{{result}}}");
        upstream.does(&format!("t{number}"), move |_| vec![Step::Raw(raw.clone())]);
    }
    for (way, lines) in upstream.ways() {
        let gateway = Gateway::with("s", lines).start().await;
        for (era, client) in gateway.both().await {
            let client = client.offering(forms()).await;
            for (number, result) in results.iter().enumerate() {
                let said = client.call(&format!("s__t{number}"), json!({})).await;
                let text = said.answer().to_string();
                assert!(text.contains("duplicate"), "{way} {era} {result}: {text}");
                assert!(!text.contains("https://x.example"), "{way} {era} {result}: {text}");
            }
        }
    }
}

/// Params of an elicitation that is a form for one reader, and a page for another.
const TWO_MODES: &str = r#"{"mode":"form","mode":"url","message":"?","url":"https://x.example/","elicitationId":"1","requestedSchema":{"type":"object"}}"#;

/// Asks for [`TWO_MODES`] under the key `a`.
fn ask_twice(call: &Received) -> Step {
    let id = call.question("a");
    Step::SendText(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create","params":{TWO_MODES}}}"#
    ))
}

#[tokio::test]
async fn a_request_of_a_server_with_two_modes_reaches_no_client() {
    for kind in every_kind().await.into_iter().filter(|kind| kind.name.starts_with("legacy")) {
        kind.upstream
            .does("asks", |call| vec![ask_twice(call), Step::Await("a"), Step::Answers])
            .does("gated", |call| {
            let id = call.id.clone().unwrap();
            let error = format!(
                r#"{{"code":-32042,"message":"Open it.","data":{{"elicitations":[{TWO_MODES}]}}}}"#
            );
            vec![Step::SendText(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))]
        });
        let gateway = Gateway::with("s", &kind.lines).start().await;
        for (era, client) in gateway.both().await {
            let client = client.offering(forms()).await;
            let said = client.call("s__asks", json!({})).await;
            assert!(said.text().contains("duplicate key"), "{} {era} {said:?}", kind.name);
        }
        let client = gateway.modern().offering(json!({ "elicitation": { "url": {} } })).await;
        let said = client.call("s__gated", json!({})).await;
        assert_eq!(said.code(), -32042, "{} {said:?}", kind.name);
    }
}

#[tokio::test]
async fn a_request_with_two_modes_outside_of_calls_reaches_no_client() {
    let upstream = Upstream::legacy().await;
    upstream.does("late", |call| vec![Step::text("done"), ask_twice(call)]);
    let lines = upstream.stdio() + "isolation = \"client\"\n";
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.legacy().await.offering(forms()).await;
    let _listening = client.listen().await;
    client.call("s__late", json!({})).await.text();
    // A line that is not a request is an answer.
    let answer = upstream.heard("", 1).await.text;
    assert!(answer.contains("-32601"), "{answer}");
}

#[tokio::test]
async fn a_tool_or_a_list_with_a_duplicate_key_is_not_shown() {
    for upstream in Upstream::both().await {
        let good = tool("good").to_string();
        upstream.set_tools([
            good.as_str(),
            r#"{"name":"a","name":"good","inputSchema":{"type":"object"}}"#,
            r#"{"name":"b","inputSchema":{"type":"object"},"inputSchema":{"type":"object"}}"#,
            r#"{"name":"c","inputSchema":{"type":"object","required":["x"],"required":[]}}"#,
        ]);
        let gateway = Gateway::with("s", upstream.http()).start().await;
        assert_eq!(gateway.modern().tool_names().await, ["s__good"]);

        for twice in [
            r#""nextCursor":"1","nextCursor":"2""#,
            r#""tools":[]"#,
            r#""ttlMs":1,"ttlMs":100000000"#,
        ] {
            let page = format!(r#"{{"tools":[{good}],"resultType":"complete",{twice}}}"#);
            upstream.when_asked("tools/list", move |_| vec![Step::Raw(page.clone())]);
            let gateway = Gateway::with("s", upstream.http()).start_at_once().await;
            gateway.wait_for(|status| status.to_string().contains("duplicate field")).await;
            let names = gateway.modern().tool_names().await;
            assert_eq!(names, Vec::<String>::new(), "{twice}");
        }
    }
}

#[tokio::test]
async fn a_server_with_a_capability_twice_is_not_ready() {
    for (upstream, method, version) in [
        (Upstream::modern().await, "server/discover", r#""supportedVersions":["2026-07-28"]"#),
        (Upstream::legacy().await, "initialize", r#""protocolVersion":"2025-11-25""#),
    ] {
        for capabilities in [
            r#"{"tools":{},"resources":{"subscribe":true,"subscribe":false}}"#,
            r#"{"tools":{}},"capabilities":{"tools":{},"tasks":{}}"#,
        ] {
            let info = r#""serverInfo":{"name":"s","version":"1"}"#;
            let introduction = format!(r#"{{{version},"capabilities":{capabilities},{info}}}"#);
            upstream.when_asked(method, move |_| vec![Step::Raw(introduction.clone())]);
            let gateway = Gateway::with("s", upstream.http()).start_at_once().await;
            gateway.wait_for(|status| !status["servers"][0]["last_error"].is_null()).await;
            assert_eq!(gateway.modern().tool_names().await, Vec::<String>::new(), "{method}");
        }
    }
}

#[tokio::test]
async fn a_read_with_two_lifetimes_is_not_kept() {
    let upstream = Upstream::modern().await;
    upstream.offers_everything();
    upstream.when_asked("resources/read", |call| {
        let uri = &call.params["uri"];
        let contents = format!(r#""contents":[{{"uri":{uri},"text":"x"}}]"#);
        let caching = r#""ttlMs":0,"ttlMs":100000,"cacheScope":"private","cacheScope":"public""#;
        vec![Step::Raw(format!(r#"{{"resultType":"complete",{contents},{caching}}}"#))]
    });
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern();
    for reads in 1..=2 {
        client.request("resources/read", json!({ "uri": "mcp://s/b://1" })).await;
        assert_eq!(upstream.all("resources/read").len(), reads);
    }
}

#[tokio::test]
async fn arguments_with_two_values_for_a_checked_key_are_refused() {
    for kind in every_kind().await {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "pattern": "^/public/" },
                "more": { "type": "object", "properties": { "n": { "maximum": 5 } } },
            },
        });
        kind.upstream.tool(&json!({ "name": "guarded", "inputSchema": schema }), |call| {
            vec![Step::text(call.text.clone())]
        });
        let gateway = Gateway::with("s", &kind.lines).start().await;
        for (era, client) in gateway.both().await {
            let path = r#""path":"/public/a""#;
            for arguments in [
                format!(r#"{path},"path":"/secret""#),
                format!(r#"{path},"p\u0061th":"/secret""#),
                format!(r#""path":"/secret",{path}"#),
                format!(r#"{path},"more":{{"n":1,"n":9}}"#),
                format!(r#"{path},"more":{{}},"more":{{"n":9}}"#),
                format!(r#"{path},"unknown":1,"unknown":2"#),
            ] {
                let ask = client.ask_call("s__guarded", json!({ "x": "ARGUMENTS" }));
                let body = ask.message().to_string();
                let body = body.replace(r#""x":"ARGUMENTS""#, &arguments);
                let said = ask.body(body).send().await.said().await;
                assert!(said.is_error(), "{} {era} {arguments} {said:?}", kind.name);
                assert!(said.answer().to_string().contains("duplicate key"), "{era} {said:?}");
            }
        }
        assert_eq!(kind.upstream.calls().len(), 0, "{}", kind.name);
    }
}
