//! Pages that a user has to open: URL elicitation, and the Legacy error that requests it.

use serde_json::{Value, json};

use crate::support::{Gateway, Step, Upstream, every_kind};

use super::{Asked, ask, asks, both, dialogue, everything, json_of, retry};

fn url(id: &str) -> Value {
    json!({
        "mode": "url", "message": "Open it", "url": format!("https://example.com/{id}"),
        "elicitationId": id,
    })
}

fn without_id(mut params: Value) -> Value {
    params.as_object_mut().unwrap().remove("elicitationId");
    params
}

#[tokio::test]
async fn a_page_is_opened_whatever_the_two_sides_speak() {
    let kinds = every_kind().await;
    asks(&kinds, "url", || vec![("q", "elicitation/create", url("e-1"))]);
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in both(&gateway).await {
        for kind in &kinds {
            let tool = format!("{}__url", kind.name);
            let said = dialogue(&client, &tool, |asked| {
                // The id belongs to the Legacy revision; a Modern server's is forwarded.
                let lifted = era == "Modern" && kind.name.starts_with("legacy");
                let wanted = if lifted { without_id(url("e-1")) } else { url("e-1") };
                assert_eq!(asked["params"], wanted, "{era} {tool}");
                json!({ "action": "accept" })
            });
            assert_eq!(
                json_of(&said.await),
                json!({ "q": { "action": "accept" } }),
                "{era} {tool}"
            );
        }
    }
}

#[tokio::test]
async fn a_legacy_client_gets_an_id_where_a_modern_server_has_none() {
    let upstream = Upstream::modern().await;
    upstream.does("url", |call| match call.params.get("inputResponses") {
        Some(said) => vec![Step::text(said.to_string())],
        None => {
            let question = ("q", "elicitation/create", without_id(url("x")));
            vec![super::required(&[question], None)]
        }
    });
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.legacy().await.offering(everything()).await;
    let ids = std::cell::RefCell::new(Vec::new());
    for _ in 0..2 {
        dialogue(&client, "s__url", |asked| {
            let id = asked["params"]["elicitationId"].as_str().expect("an id").to_owned();
            ids.borrow_mut().push(id);
            json!({ "action": "accept" })
        })
        .await;
    }
    let ids = ids.into_inner();
    assert!(ids.len() == 2 && ids[0] != ids[1], "{ids:?}");
}

/// Starts a Legacy server with a tool that works once its page was opened.
async fn gated() -> Upstream {
    let upstream = Upstream::legacy().await;
    upstream.does("gated", |call| match call.arguments()["opened"].as_bool() {
        Some(true) => vec![Step::text("in")],
        _ => vec![Step::Error(json!({
            "code": -32042, "message": "Open the page first.",
            "data": { "elicitations": [url("e-1"), url("e-2")] },
        }))],
    });
    upstream
}

#[tokio::test]
async fn the_legacy_error_that_wants_a_page_opened_asks_a_modern_client() {
    let upstream = gated().await;
    let opened = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    upstream.does("later", {
        let opened = opened.clone();
        move |_| {
            if opened.swap(true, std::sync::atomic::Ordering::SeqCst) {
                return vec![Step::text("in")];
            }
            vec![Step::Error(json!({
                "code": -32042, "message": "Open the page first.",
                "data": { "elicitations": [url("e-1"), url("e-2")] },
            }))]
        }
    });
    for (_, lines) in upstream.ways() {
        opened.store(false, std::sync::atomic::Ordering::SeqCst);
        let gateway = Gateway::with("s", lines).start().await;
        let client = gateway.modern().offering(everything()).await;
        let asked = ask(&client, "s__later").await;
        let asks: Vec<_> = asked.requests().values().cloned().collect();
        assert_eq!(asks.len(), 2);
        assert_eq!(asks[0]["method"], "elicitation/create");
        assert_eq!(asks[0]["params"], without_id(url("e-1")));
        let accept = asked.all(&json!({ "action": "accept" }));
        let said = retry(&client, "s__later", accept, asked.state()).await;
        assert_eq!(said.text(), "in", "the call is made anew");
        let anew = upstream.calls().pop().unwrap();
        assert!(
            anew.params.get("inputResponses").is_none()
                && anew.params.get("requestState").is_none()
        );
    }
}

#[tokio::test]
async fn a_page_that_was_not_opened_ends_the_call_there() {
    let upstream = gated().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern().offering(everything()).await;
    for (action, text) in [("decline", "declined"), ("cancel", "did not answer")] {
        let asked: Asked = ask(&client, "s__gated").await;
        let before = upstream.calls().len();
        let answers = asked.all(&json!({ "action": action }));
        let said = retry(&client, "s__gated", answers, asked.state()).await;
        assert!(said.is_error() && said.text().contains(text), "{said:?}");
        assert_eq!(upstream.calls().len(), before, "the server is not asked in vain");
    }
}

#[tokio::test]
async fn the_legacy_error_passes_to_a_legacy_client_and_is_a_lack_for_a_modern_one() {
    let upstream = gated().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let legacy = gateway.legacy().await.offering(everything()).await;
    let said = legacy.call("s__gated", json!({})).await;
    assert_eq!(said.code(), -32042);
    assert_eq!(said.error()["data"]["elicitations"][1], url("e-2"));
    let modern = gateway.modern().offering(json!({ "elicitation": {} })).await;
    let said = modern.call("s__gated", json!({})).await;
    assert_eq!((said.status, said.code()), (400, -32021));
    let needed = &said.error()["data"]["requiredCapabilities"];
    assert_eq!(needed, &json!({ "elicitation": { "url": {} } }));
}
