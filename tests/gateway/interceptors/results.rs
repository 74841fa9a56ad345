//! Interceptors that fail after the server has completed its work.

use serde_json::json;

use super::{asked, intercepting, mutation, result};
use crate::support::api::{Page, PlainApi};
use crate::support::{Gateway, Upstream};

/// Returns invalid answers, further settings of the interceptor, and the expected error.
fn failures() -> Vec<(Page, &'static str, &'static str)> {
    let spaces = Page::new(200, "application/json", vec![b' '; 5000]);
    vec![
        (Page::new(500, "text/plain", "x"), "", "it answered with HTTP 500"),
        (Page::new(200, "text/plain", "x"), "", "not a JSON-RPC response"),
        (result(&json!({ "type": "poem" })), "", "neither a validation nor a mutation"),
        (spaces, "max_size = \"2KiB\"", "2048 bytes"),
        (mutation(&json!(7)), "", "is not a valid result"),
    ]
}

#[tokio::test]
async fn without_a_valid_answer_a_result_is_not_shown_unless_it_may_be() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    upstream.offers_everything();
    for (page, lines, says) in failures() {
        for fail in ["closed", "open"] {
            api.sets("/check", page.clone());
            let patient = "breaker = { failures = 100 }";
            let lines = format!("{lines}\nfail = \"{fail}\"\non = [\"result\"]\n{patient}");
            let gateway = intercepting(&upstream, &api, &lines).start().await;
            for (era, client) in gateway.both().await {
                let sent = upstream.calls().len();
                let said = client.call("s__echo", json!({ "a": "hidden" })).await;
                assert_eq!(
                    upstream.calls().len(),
                    sent + 1,
                    "{says}: the server has done its work"
                );
                let read = client.read_resource("mcp://s/file:///a.txt").await;
                let prompt = client.request("prompts/get", json!({ "name": "s__greet" })).await;
                if fail == "open" {
                    assert_eq!(said.text(), r#"{"a":"hidden"}"#, "{says} {era}");
                    assert!(read.result()["contents"].is_array(), "{says} {era}");
                    assert!(prompt.result()["messages"].is_array(), "{says} {era}");
                    continue;
                }
                assert!(said.is_error() && said.text().contains(says), "{says} {era}: {said:?}");
                for said in [&said, &read, &prompt] {
                    let shown = ["hidden", "what file:///a.txt is", "\\\"greet\\\""];
                    let is_shown = shown.iter().any(|text| said.body.contains(text));
                    assert!(!is_shown, "{says} {era}: {said:?}");
                }
                for said in [&read, &prompt] {
                    assert!(said.error()["message"].as_str().unwrap().contains(says), "{said:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_result_of_an_interceptor_that_is_late_or_gone_is_shown_only_where_it_may_be() {
    let upstream = Upstream::modern().await;
    // Accepts connections without answering.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let late = format!("http://{}/", silent.local_addr().unwrap());
    for (url, says) in
        [(&*late, "no answer within 100ms"), ("http://127.0.0.1:9/", "cannot be reached")]
    {
        for fail in ["closed", "open"] {
            let lines = format!(
                "[interceptors.check]\nurl = \"{url}\"\ntimeout = \"100ms\"\nfail = \"{fail}\"\n\
                 on = [\"result\"]"
            );
            let server = upstream.http() + "interceptors = [\"check\"]";
            let gateway = Gateway::with("s", server).toml(&lines).start().await;
            let said = gateway.modern().call("s__echo", json!({ "a": "hidden" })).await;
            match fail {
                "open" => assert_eq!(said.text(), r#"{"a":"hidden"}"#, "{says}"),
                _ => {
                    assert!(said.is_error() && said.text().contains(says), "{says}: {said:?}");
                    assert!(!said.body.contains("hidden"), "{says}: {said:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_call_to_an_interceptor_that_is_left_alone_fails_before_the_server_hears_of_it() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    api.sets("/check", Page::new(500, "text/plain", "x"));
    let lines = "on = [\"request\", \"result\"]\nbreaker = { failures = 1 }";
    let gateway = intercepting(&upstream, &api, lines).start().await;
    for _ in 0..3 {
        let said = gateway.modern().call("s__echo", json!({})).await;
        assert!(said.is_error(), "{said:?}");
    }
    assert_eq!((upstream.calls().len(), asked(&api).len()), (0, 1));
}
