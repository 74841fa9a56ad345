//! Plain HTTP APIs: an OpenAPI document becomes tools, and calls become requests.

mod credentials;
mod documents;
mod hostile;
mod requests;

use serde_json::{Value, json};

use crate::support::Gateway;
use crate::support::api::{Page, PlainApi};

/// Returns a document in the style of FastAPI.
pub fn shop() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Shop", "version": "0.3.0", "description": "Sells things." },
        "paths": {
            "/items/{item_id}": {
                "put": {
                    "tags": ["items"], "summary": "Update Item",
                    "description": "Changes an item.", "operationId": "update_item",
                    "parameters": [
                        { "name": "item_id", "in": "path", "required": true, "schema": { "type": "integer" } },
                        { "name": "dry_run", "in": "query", "schema": { "type": "boolean", "default": false } },
                        { "name": "X-Trace", "in": "header", "schema": { "type": "string" } },
                        { "name": "lang", "in": "cookie", "schema": { "type": "string" } },
                    ],
                    "requestBody": { "required": true, "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Item" } } } },
                    "responses": { "200": { "description": "ok", "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Item" } } } } },
                },
                "get": {
                    "operationId": "read_item",
                    "parameters": [{ "name": "item_id", "in": "path", "required": true, "schema": { "type": "string" } }],
                    "responses": { "200": { "description": "ok", "content": { "application/json": { "schema": { "type": "array", "items": { "type": "string" } } } } } },
                },
                "delete": {
                    "parameters": [{ "name": "item_id", "in": "path", "required": true, "schema": { "type": "string" } }],
                    "responses": { "204": { "description": "gone" } },
                },
            },
        },
        "components": { "schemas": {
            "Item": {
                "type": "object", "title": "Item",
                "properties": {
                    "name": { "type": "string" },
                    "price": { "type": "number" },
                    "parent": { "anyOf": [{ "$ref": "#/components/schemas/Item" }, { "type": "null" }] },
                },
                "required": ["name", "price"],
            },
        } },
    })
}

#[tokio::test]
async fn operations_become_tools_and_calls_become_requests() {
    let api = PlainApi::with(&shop()).await;
    let gateway = Gateway::with("shop", api.openapi()).start().await;
    for (era, client) in gateway.both().await {
        let tools = client.tools().await;
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        let expected = ["shop__update_item", "shop__read_item", "shop__delete_items_item_id"];
        assert_eq!(names, expected, "{era}");
        let update = &tools[0];
        assert_eq!(update["description"], "Update Item\n\nChanges an item.");
        let input = &update["inputSchema"];
        assert_eq!(input["required"], json!(["item_id", "name", "price"]));
        assert_eq!(input["properties"]["parent"]["anyOf"][0]["$ref"], "#/$defs/Item");
        assert_eq!(input["$defs"]["Item"]["required"], json!(["name", "price"]));
        assert_eq!(update["outputSchema"]["type"], "object");
        assert_eq!(update["annotations"]["idempotentHint"], true);
        assert_eq!(tools[1]["annotations"], json!({ "readOnlyHint": true }));
        assert_eq!(tools[2]["annotations"]["destructiveHint"], true);

        let arguments = json!({
            "item_id": 7, "dry_run": true, "X-Trace": "t 1", "lang": "de;x",
            "name": "Tea", "price": 2.50, "parent": { "name": "Drinks", "price": 0 },
        });
        let said = client.call("shop__update_item", arguments).await;
        assert!(!said.is_error(), "{era}: {said:?}");
        let sent = api.last();
        assert_eq!((&*sent.method, &*sent.target), ("PUT", "/items/7?dry_run=true"));
        assert_eq!(sent.header("x-trace"), Some("t 1"));
        assert_eq!(sent.header("cookie"), Some("lang=de%3Bx"));
        assert_eq!(sent.header("content-type"), Some("application/json"));
        let body: Value = serde_json::from_slice(&sent.body).unwrap();
        assert_eq!(body["parent"], json!({ "name": "Drinks", "price": 0 }));
        assert_eq!(said.result()["structuredContent"]["target"], "/items/7?dry_run=true");
    }
}

#[tokio::test]
async fn arguments_are_checked_before_the_api_sees_them() {
    let api = PlainApi::with(&shop()).await;
    let gateway = Gateway::with("shop", api.openapi()).start().await;
    let client = gateway.modern();
    let said = client.call("shop__update_item", json!({ "item_id": "x", "name": "Tea" })).await;
    assert!(said.is_error() && said.text().contains("item_id"), "{said:?}");
    for (id, words) in [("..", "refused"), ("a/../b", "refused"), ("", "empty")] {
        let said = client.call("shop__read_item", json!({ "item_id": id })).await;
        assert!(said.is_error() && said.text().contains(words), "{id:?}: {said:?}");
    }
    assert!(api.received().iter().all(|call| call.target == "/openapi.json"));
    client.call("shop__read_item", json!({ "item_id": "a/b?c#d" })).await;
    assert_eq!(api.last().target, "/items/a%2Fb%3Fc%23d");
}

#[tokio::test]
async fn answers_of_every_kind_become_results() {
    let api = PlainApi::with(&shop()).await;
    api.sets(
        "/items/list",
        Page::json(&json!(["a", "b"])).header("link", "</items/2>; rel=\"next\""),
    );
    api.sets("/items/gone", Page::new(204, "text/plain", ""));
    api.sets("/items/broken", Page::new(500, "application/json", "{\"detail\":\"no\"}"));
    api.sets("/items/moved", Page::new(302, "text/plain", "").header("location", "/items/list"));
    api.sets("/items/3", Page::new(303, "text/plain", "").header("location", "/created"));
    api.sets("/created", Page::json(&json!({ "result": "read" })));
    api.sets(
        "/items/away",
        Page::new(302, "text/plain", "").header("location", "http://127.0.0.2/"),
    );
    let gateway = Gateway::with("shop", api.openapi()).start().await;
    let client = gateway.modern();
    let read = |id: &'static str| client.call("shop__read_item", json!({ "item_id": id }));
    let said = read("list").await;
    assert_eq!(said.result()["structuredContent"], json!({ "result": ["a", "b"] }));
    assert_eq!(said.result()["_meta"]["http/link"], "</items/2>; rel=\"next\"");
    let said = read("broken").await;
    assert!(said.is_error());
    assert_eq!(said.text(), "HTTP 500 Internal Server Error: {\"detail\":\"no\"}");
    let said = read("moved").await;
    assert_eq!(said.result()["structuredContent"], json!({ "result": ["a", "b"] }));
    // The result of a change is read from the location in the answer (RFC 9110, 15.4.4).
    let item = json!({ "item_id": 3, "name": "Tea", "price": 1 });
    let said = client.call("shop__update_item", item).await;
    assert_eq!(said.result()["structuredContent"], json!({ "result": "read" }));
    let sent = api.last();
    assert_eq!((&*sent.method, &*sent.target, &*sent.body), ("GET", "/created", &b""[..]));
    let said = read("away").await;
    assert!(said.is_error() && said.text().contains("redirects"), "{said:?}");
    let said = client.call("shop__delete_items_item_id", json!({ "item_id": "gone" })).await;
    assert_eq!(said.text(), "Done: HTTP 204 No Content, without content.");
    assert!(!said.is_error());
}
