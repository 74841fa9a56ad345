//! Where documents are found, and what happens when they change or cannot be read.

use serde_json::json;

use super::shop;
use crate::support::Gateway;
use crate::support::api::{Page, PlainApi};

#[tokio::test]
async fn a_document_is_looked_for_at_the_usual_places() {
    for place in ["/openapi.json", "/", "/api/openapi.json", "/docs/openapi.json"] {
        let api = PlainApi::start().await;
        api.sets(place, Page::json(&shop()));
        let lines = format!("url = \"{}\"\nkind = \"openapi\"\n", api.url(""));
        let gateway = Gateway::with("shop", lines).start().await;
        assert_eq!(gateway.modern().tools().await.len(), 3, "{place}");
    }
}

#[tokio::test]
async fn a_changed_document_changes_the_list_and_an_unreadable_one_leaves_it() {
    let api = PlainApi::start().await;
    let page = |document| Page::json(document).header("etag", "\"one\"");
    api.sets("/openapi.json", page(&shop()));
    let lines = api.openapi() + "openapi_refresh = \"50ms\"\n";
    let gateway = Gateway::with("shop", lines).start().await;
    let client = gateway.modern();
    let mut stream = client.listen().await;
    api.sets("/openapi.json", Page::new(500, "text/plain", "down"));
    let failed = api.calls("/openapi.json").len();
    crate::support::until(|| api.calls("/openapi.json").len() > failed + 1).await;
    assert_eq!(client.tools().await.len(), 3, "the last good document stays");
    let mut changed = shop();
    changed["paths"]["/items/{item_id}"].as_object_mut().unwrap().remove("delete");
    api.sets("/openapi.json", Page::json(&changed).header("etag", "\"two\""));
    loop {
        let message = stream.message().await.unwrap();
        if message["method"] == "notifications/tools/list_changed" {
            break;
        }
    }
    assert_eq!(client.tools().await.len(), 2);
    let seen = api.calls("/openapi.json");
    assert!(seen.iter().any(|call| call.header("if-none-match") == Some("\"one\"")));
}

#[tokio::test]
async fn a_document_that_cannot_be_used_is_a_failure_with_its_place() {
    let api = PlainApi::start().await;
    for (body, words) in [
        (
            "{\"openapi\":\"3.1.0\",\"paths\":{\"/a\":{\"get\":{}},\"/a\":1}}",
            "/paths/~1a: the key is a duplicate",
        ),
        ("{\"swagger\":\"2.0\",\"paths\":{}}", "found \\\"2.0\\\""),
        ("{\"openapi\":\"3.1.0\"}", "at /paths"),
        (
            "{\"openapi\":\"3.1.0\",\"paths\":{},\"servers\":[{\"url\":\"http://169.254.169.254/\"}]}",
            "of another origin",
        ),
        ("<html>", "found none"),
    ] {
        api.sets("/openapi.json", Page::new(200, "application/json", body));
        let gateway = Gateway::with("shop", api.openapi()).start().await;
        let error = gateway.server("shop").await["last_error"]["message"].to_string();
        assert!(error.contains(words), "{body}: {error}");
    }
}

#[tokio::test]
async fn an_operation_that_cannot_be_used_is_left_out_with_the_reason() {
    let mut document = shop();
    document["paths"]["/away"] = json!({ "get": { "operationId": "away", "parameters": [{ "$ref": "http://169.254.169.254/x" }] } });
    document["paths"]["/b/{x}"] = json!({ "get": { "operationId": "b" } });
    let api = PlainApi::with(&document).await;
    let gateway = Gateway::with("shop", api.openapi()).start().await;
    assert_eq!(gateway.modern().tools().await.len(), 3);
    let warnings = gateway.server("shop").await["warnings"].to_string();
    assert!(
        warnings.contains("GET /away: the reference") && warnings.contains("169.254"),
        "{warnings}"
    );
    assert!(warnings.contains("GET /b/{x}: no parameter is declared"), "{warnings}");
    assert!(api.received().iter().all(|call| call.target == "/openapi.json"));
}
