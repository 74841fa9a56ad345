//! Servers over HTTP, and their effects on a gateway.

use http::HeaderMap;
use serde_json::json;

use crate::support::{Gateway, Step, Upstream, upstream::MOMENT};

const SECRET: &str = "Bearer the-clients-own";

#[tokio::test]
async fn a_session_that_the_server_has_lost_is_opened_again_once() {
    let no_id = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32000, "message": "Bad Request: No valid session ID provided" } });
    let not_found = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32001, "message": "Session not found" } });
    for (status, body) in [(404, not_found), (400, no_id)] {
        let upstream = Upstream::legacy().await;
        upstream.refuses_lost_sessions_with(status, body);
        let gateway = Gateway::with("s", upstream.http()).start().await;
        let client = gateway.modern();
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
        upstream.forget_sessions();
        let calls =
            futures_util::future::join_all((0..8).map(|_| client.call("s__echo", json!({}))));
        assert!(calls.await.iter().all(|said| said.text() == "{}"), "{status}");
        assert_eq!(
            upstream.all("initialize").len(),
            3,
            "{status}: the gateway's, the client's, and one new session for all of its calls"
        );
    }
}

#[tokio::test]
async fn a_server_that_loses_every_session_is_not_asked_for_ever() {
    let upstream = Upstream::legacy().await;
    upstream.does("lost", |_| vec![Step::Status(404, vec![], String::new())]);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let said = gateway.modern().call("s__lost", json!({})).await;
    assert!(said.is_error() && said.text().contains("404"), "{said:?}");
    assert_eq!((upstream.all("initialize").len(), upstream.calls().len()), (3, 2));
}

#[tokio::test]
async fn redirects_are_followed_within_the_origin_only() {
    let elsewhere = Upstream::modern().await;
    let upstream = Upstream::modern().await;
    let away = format!("http://{}/mcp", elsewhere.http_address());
    upstream.does("away", move |_| {
        vec![Step::Status(307, vec![("location", away.clone())], String::new())]
    });
    upstream.does("see_other", |_| {
        vec![Step::Status(303, vec![("location", "/mcp".into())], String::new())]
    });
    upstream.does("here", |call| {
        if call.params["arguments"]["n"] == 1 && call.header("x-second").is_none() {
            return vec![Step::Status(307, vec![("location", "/mcp".into())], String::new())];
        }
        vec![Step::text("arrived")]
    });
    let gateway = Gateway::with("s", upstream.http() + "headers = { X-Key = \"k\" }").start().await;
    let client = gateway.modern();
    for tool in ["s__away", "s__see_other"] {
        let said = client.call(tool, json!({})).await;
        assert!(said.is_error() && said.text().contains("redirects"), "{tool}: {said:?}");
    }
    assert!(elsewhere.received().is_empty(), "nothing goes to another origin");
    let said = client.call("s__here", json!({ "n": 1 })).await;
    assert!(said.is_error() && said.text().contains("redirects"), "without end: {said:?}");
    assert_eq!(upstream.calls().iter().filter(|call| call.params["name"] == "here").count(), 4);
}

#[tokio::test]
async fn statuses_are_shown_in_words() {
    let upstream = Upstream::modern().await;
    for status in [401, 403, 500, 503] {
        upstream.does(&format!("s{status}"), move |_| {
            vec![Step::Status(
                status,
                vec![("www-authenticate", "Bearer".into())],
                "secret page".into(),
            )]
        });
    }
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (era, client) in gateway.both().await {
        for (status, words) in
            [(401, "credentials"), (403, "credentials"), (500, "500"), (503, "503")]
        {
            let said = client.call(&format!("s__s{status}"), json!({})).await;
            assert!(said.is_error() && said.text().contains(words), "{era} {status} {said:?}");
            assert!(!format!("{said:?}").contains("secret page"), "{era} {status}");
            assert!(said.header("www-authenticate").is_none());
        }
    }
}

#[tokio::test]
async fn a_server_that_wants_credentials_says_so_in_the_status() {
    for upstream in Upstream::both().await {
        upstream.answers(Some((401, "")));
        let gateway = Gateway::with("s", upstream.http()).start().await;
        let server = gateway.server("s").await;
        let error = server["last_error"]["message"].to_string();
        assert!(error.contains("401") && error.contains("credentials"), "{error}");
    }
}

#[tokio::test]
async fn a_path_that_a_server_does_not_have_is_shown_to_operators() {
    let upstream = Upstream::modern().await;
    upstream.answers(Some((404, "")));
    let address = upstream.http_address();
    let lines = format!("url = \"http://{address}/mpc?key=hunter2\"\n");
    let gateway = Gateway::with("s", lines).start().await;
    let error = gateway.server("s").await["last_error"]["message"].to_string();
    assert!(error.contains("404") && error.contains(&format!("{address}/mpc")), "{error}");
    assert!(!error.contains("hunter"), "{error}");
    let said = gateway.modern().call("s__echo", json!({})).await;
    assert!(!said.body.contains("/mpc"), "{said:?}");
}

fn secrets(headers: &HeaderMap) -> Vec<(&str, &str)> {
    ["authorization", "x-tenant", "x-other", "cookie", "x-api-key"]
        .into_iter()
        .filter_map(|name| Some((name, headers.get(name)?.to_str().unwrap())))
        .collect()
}

#[tokio::test]
async fn nothing_of_the_clients_own_goes_on_unless_configured() {
    let [modern, legacy] = Upstream::both().await;
    let fixed = "headers = { X-Api-Key = \"${env:KEY}\" }\n";
    let gateway = Gateway::with("m", modern.http())
        .server("l", legacy.http() + fixed)
        .server("f", modern.http() + "forward_headers = [\"X-Tenant\", \"Authorization\"]")
        .variable("KEY", "from-the-file")
        .start()
        .await;
    for (era, client) in gateway.both().await {
        let call = async |server: &str| {
            client
                .ask_call(&format!("{server}__echo"), json!({}))
                .header("authorization", SECRET)
                .header("x-tenant", "acme")
                .header("x-other", "1")
                .header("cookie", "a=b")
                .header("x-api-key", "the-clients")
                .send()
                .await
                .said()
                .await
        };
        assert_eq!(call("m").await.text(), "{}", "{era}");
        assert_eq!(secrets(&modern.calls().pop().unwrap().headers), [], "{era}");
        call("l").await.text();
        let sent = legacy.calls().pop().unwrap();
        assert_eq!(secrets(&sent.headers), [("x-api-key", "from-the-file")], "{era}");
        call("f").await.text();
        let sent = modern.calls().pop().unwrap();
        assert_eq!(
            secrets(&sent.headers),
            [("authorization", SECRET), ("x-tenant", "acme")],
            "{era}"
        );
    }
    let of_the_gateway = modern.received().into_iter().chain(legacy.received());
    let own = of_the_gateway.filter(|received| received.method != "tools/call");
    assert!(own.into_iter().all(|it| it.header("authorization").is_none()));
    assert!(!gateway.status().await.to_string().contains("from-the-file"));
}

#[tokio::test]
async fn an_answer_beyond_the_bound_ends_its_own_call_alone() {
    for upstream in Upstream::both().await {
        upstream.does("large", |call| {
            let text = Step::text("x".repeat(40_000));
            if call.arguments()["stream"] == true { vec![Step::Open, text] } else { vec![text] }
        });
        for (way, lines) in upstream.ways() {
            let gateway = Gateway::with("s", lines + "max_response = \"16KiB\"").start().await;
            let client = gateway.modern();
            for stream in [false, true] {
                let said = client.call("s__large", json!({ "stream": stream })).await;
                assert!(said.is_error(), "{way} {stream}: {:?}", said.text().len());
                gateway.ready("s").await;
                assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "{way}");
            }
        }
    }
}

#[tokio::test]
async fn invalid_answers_are_reported_as_such() {
    let upstream = Upstream::modern().await;
    let page =
        |status| Step::Status(status, vec![("content-type", "text/html".into())], "<p>".into());
    let json = |body: &str| {
        Step::Status(200, vec![("content-type", "application/json".into())], body.into())
    };
    upstream.does("page", move |_| vec![page(200)]);
    upstream.does("accepted", |_| vec![Step::Status(202, vec![], String::new())]);
    let cases = [
        ("broken", "{"),
        ("other_id", r#"{"jsonrpc":"2.0","id":987,"result":{}}"#),
        ("text", r#"{"jsonrpc":"2.0","id":1,"result":"text"}"#),
    ];
    for (name, body) in cases {
        let step = json(body);
        upstream.does(name, move |_| vec![step.clone()]);
    }
    upstream.does("silent", |_| vec![Step::Open, Step::Pause(MOMENT), Step::Break]);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (era, client) in gateway.both().await {
        for tool in ["page", "accepted", "broken", "other_id", "text", "silent"] {
            let said = client.call(&format!("s__{tool}"), json!({})).await;
            assert!(said.is_error() && said.text().contains("server s"), "{era} {tool}: {said:?}");
            assert!(!said.text().contains("<p>"), "{era} {tool}: {said:?}");
        }
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "{era}");
    }
}

#[tokio::test]
async fn the_stream_of_a_clients_own_session_stands_before_its_first_call() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for version in ["2025-06-18", "2025-11-25"] {
        let client = gateway.legacy_of(version).await;
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
        let call = upstream.calls().pop().unwrap();
        let session = call.header("mcp-session-id");
        let received = upstream.received();
        let at = |method: &str| {
            received
                .iter()
                .position(|one| one.method == method && one.header("mcp-session-id") == session)
        };
        assert!(at("GET").unwrap() < at("tools/call").unwrap(), "{version}");
    }
}
