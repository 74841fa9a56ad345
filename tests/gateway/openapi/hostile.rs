//! Hostile documents and answers.

use serde_json::{Map, Value, json};

use super::shop;
use crate::support::Gateway;
use crate::support::api::{Page, PlainApi};

/// Returns the error of a server with this document, next to a working server.
async fn refusal_of(body: impl Into<bytes::Bytes>) -> String {
    let (good, bad) = (PlainApi::with(&shop()).await, PlainApi::start().await);
    bad.sets("/openapi.json", Page::new(200, "application/json", body));
    let gateway = Gateway::with("good", good.openapi()).server("bad", bad.openapi()).start().await;
    assert_eq!(gateway.modern().tools().await.len(), 3, "nothing else is disturbed");
    gateway.server("bad").await["last_error"]["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_document_of_50_megabytes_is_refused() {
    let error = refusal_of(vec![b' '; 50 << 20]).await;
    assert!(error.contains("larger than 33554432 bytes"), "{error}");
}

#[tokio::test]
async fn a_document_of_100_000_operations_is_refused_with_its_place() {
    let paths: Map<_, _> =
        (0..100_000).map(|at| (format!("/p{at}"), json!({ "get": {} }))).collect();
    let document = json!({ "openapi": "3.1.0", "info": {}, "paths": paths });
    let error = refusal_of(document.to_string()).await;
    assert!(
        error.contains("at /paths/~1p20000: the document has more than 20000 operations"),
        "{error}"
    );
}

#[tokio::test]
async fn a_yaml_bomb_is_refused() {
    let mut bomb = String::from(
        "openapi: 3.1.0\npaths: { /p: { get: {} } }\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n",
    );
    for at in 1..12 {
        let one = format!("*a{}", at - 1);
        bomb += &format!("a{at}: &a{at} [{}]\n", [one.as_str(); 10].join(", "));
    }
    let error = refusal_of(bomb).await;
    assert!(error.contains("alias"), "{error}");
}

#[tokio::test]
async fn variables_of_a_servers_url_are_filled_in_once() {
    let variables: Map<_, _> = (0..60)
        .map(|at| (format!("a{at}"), json!({ "default": format!("{{a{0}}}{{a{0}}}", at + 1) })))
        .collect();
    for (url, variables, shown) in [
        ("{a0}", Value::Object(variables), "%7Ba1%7D%7Ba1%7D"),
        ("/{none}", json!({}), "/{none}"),
        ("/{none", json!({}), "/{none"),
        ("/{long}", json!({ "long": { "default": "x".repeat(3000) } }), "/{long}"),
    ] {
        let mut document = shop();
        document["servers"] = json!([{ "url": url, "variables": variables }]);
        let api = PlainApi::with(&document).await;
        let gateway = Gateway::with("shop", api.openapi()).start().await;
        if url == "{a0}" {
            gateway.modern().call("shop__read_item", json!({ "item_id": "1" })).await;
            assert_eq!(api.last().target, format!("/{shown}/items/1"));
        } else {
            let error = gateway.server("shop").await["last_error"]["message"].to_string();
            assert!(error.contains(shown), "{error}");
        }
    }
}

#[tokio::test]
async fn an_operation_that_returns_its_request_is_left_out() {
    let mut document = shop();
    document["paths"]["/echo"] = json!({ "trace": { "operationId": "echo" } });
    let api = PlainApi::with(&document).await;
    let gateway = Gateway::with("shop", api.openapi()).start().await;
    let names = gateway.modern().tool_names().await;
    assert!(!names.contains(&"shop__echo".to_owned()), "{names:?}");
    let remarks = gateway.server("shop").await["warnings"].to_string();
    assert!(remarks.contains("TRACE"), "{remarks}");
}

#[tokio::test]
async fn cycles_are_no_danger() {
    let schema = |to: &str| json!({ "allOf": [{ "$ref": format!("#/components/schemas/{to}") }, { "type": "object" }] });
    let mut document = shop();
    document["components"]["schemas"]["A"] = schema("B");
    document["components"]["schemas"]["B"] = schema("A");
    let body = json!({ "content": { "application/json": { "schema": { "$ref": "#/components/schemas/A" } } } });
    document["paths"]["/cycle"] =
        json!({ "post": { "operationId": "cycle", "requestBody": body } });
    document["paths"]["/loop"] = json!({ "$ref": "#/paths/~1loop" });
    let api = PlainApi::with(&document).await;
    let gateway = Gateway::with("shop", api.openapi()).start().await;
    let client = gateway.modern();
    let names = client.tool_names().await;
    let warnings = gateway.server("shop").await["warnings"].to_string();
    assert_eq!(names.len(), 3, "{names:?} {warnings}");
    assert!(warnings.contains("cycle: inputSchema chains more than"), "{warnings}");
    assert!(warnings.contains("/loop: the reference"), "{warnings}");
    let said = client.call("shop__read_item", json!({ "item_id": "7" })).await;
    assert!(!said.is_error(), "{said:?}");
}

#[tokio::test]
async fn neither_arguments_nor_the_document_choose_the_host_or_add_headers() {
    let mut document = shop();
    let parameter = |name: &str, place: &str| json!({ "name": name, "in": place, "required": true, "schema": { "type": "string" } });
    document["paths"]["//evil.test/{x}"] =
        json!({ "get": { "operationId": "evil", "parameters": [parameter("x", "path")] } });
    document["paths"]["/h"] = json!({ "get": { "operationId": "h", "parameters": [parameter("X-A", "header"), parameter("Host", "header"), parameter("q", "query"), parameter("c", "cookie")] } });
    let api = PlainApi::with(&document).await;
    let gateway = Gateway::with("shop", api.openapi()).start().await;
    let client = gateway.modern();
    client.call("shop__evil", json!({ "x": "@other.test/" })).await;
    let sent = api.last();
    assert_eq!(sent.target, "//evil.test/%40other.test%2F");
    assert_eq!(sent.header("host"), Some(&*api.address.to_string()));
    let arguments = |a: &str| json!({ "X-A": a, "q": "1&admin=1#x", "c": "1; admin=1" });
    let said = client.call("shop__h", arguments("a\r\nX-B: 1")).await;
    assert!(said.is_error() && said.text().contains("X-A"), "{said:?}");
    client.call("shop__h", arguments("a")).await;
    let sent = api.last();
    assert_eq!(sent.target, "/h?q=1%26admin%3D1%23x");
    assert_eq!(sent.header("cookie"), Some("c=1%3B%20admin%3D1"));
}

#[tokio::test]
async fn credentials_stay_with_their_origin() {
    let elsewhere = PlainApi::with(&shop()).await;
    let api = PlainApi::with(&shop()).await;
    api.sets(
        "/items/away",
        Page::new(307, "text/plain", "").header("location", &elsewhere.url("/x")),
    );
    let headers = "headers = { X-Secret = \"hunter2-hunter2\" }\n";
    let gateway = Gateway::with("shop", api.openapi() + headers).start().await;
    let said = gateway.modern().call("shop__read_item", json!({ "item_id": "away" })).await;
    assert!(said.is_error() && !format!("{said:?}").contains("hunter2"), "{said:?}");
    assert_eq!(api.last().header("x-secret"), Some("hunter2-hunter2"));
    // A document at another location than its API does not get the API's credentials.
    let lines = format!("{}base_url = \"{}\"\n{headers}", elsewhere.openapi(), api.url("/v1"));
    let gateway = Gateway::with("shop", lines).start().await;
    gateway.modern().call("shop__read_item", json!({ "item_id": "7" })).await;
    assert_eq!(api.last().target, "/v1/items/7");
    assert_eq!(api.last().header("x-secret"), Some("hunter2-hunter2"));
    assert!(elsewhere.received().iter().all(|call| call.header("x-secret").is_none()));
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_refused() {
    let api = PlainApi::with(&shop()).await;
    api.sets("/items/large", Page::new(200, "text/plain", vec![b'x'; 2 << 20]));
    let gateway = Gateway::with("shop", api.openapi() + "max_response = \"1MiB\"\n").start().await;
    let said = gateway.modern().call("shop__read_item", json!({ "item_id": "large" })).await;
    assert!(said.is_error() && said.text().contains("larger than 1048576 bytes"), "{said:?}");
}

#[tokio::test]
async fn a_local_document_reads_only_files_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("api")).unwrap();
    std::fs::write(path("secret.json"), r#"{"type":"string","description":"outside"}"#).unwrap();
    std::os::unix::fs::symlink(path("secret.json"), path("api/link.json")).unwrap();
    std::fs::write(path("api/part.yaml"), "type: string\ndescription: inside\n").unwrap();
    let api = PlainApi::start().await;
    let with = |target: &str| {
        let parameter = json!({ "name": "q", "in": "query", "schema": { "$ref": target } });
        let operation = json!({ "operationId": "op", "parameters": [parameter] });
        let servers = json!([{ "url": api.url("") }]);
        json!({ "openapi": "3.1.0", "servers": servers, "paths": { "/x": { "get": operation } } })
    };
    let mut seen = Vec::new();
    for target in ["part.yaml", "../secret.json", "link.json"] {
        std::fs::write(path("api/openapi.json"), with(target).to_string()).unwrap();
        let lines = format!("openapi = {:?}\n", path("api/openapi.json"));
        let gateway = Gateway::with("api", lines).start().await;
        let tools: Value = gateway.modern().tools().await.into();
        seen.push((tools.to_string(), gateway.server("api").await.to_string()));
    }
    assert!(seen[0].0.contains("inside"), "{:?}", seen[0]);
    assert!(seen[1].1.contains("outside of the document's own origin or folder"), "{:?}", seen[1]);
    assert!(seen[2].1.contains("it is outside of the document's folder"), "{:?}", seen[2]);
    assert!(seen.iter().all(|(tools, _)| !tools.contains("outside")));
}

#[tokio::test]
async fn a_local_document_does_not_choose_where_credentials_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("openapi.json");
    let api = PlainApi::start().await;
    let mut document = shop();
    document["servers"] = json!([{ "url": api.url("/v1") }]);
    std::fs::write(&path, document.to_string()).unwrap();
    let lines = format!("openapi = {path:?}\n");
    let base = format!("base_url = \"{}\"\n", api.url("/v2"));
    for credentials in ["headers = { X-Secret = \"hunter2\" }\n", "auth.key = \"hunter2\"\n"] {
        let gateway = Gateway::with("shop", lines.clone() + credentials).start().await;
        let error = gateway.server("shop").await["last_error"]["message"].to_string();
        assert!(error.contains("set `base_url`"), "{error}");
        let gateway = Gateway::with("shop", lines.clone() + &base + credentials).start().await;
        gateway.modern().call("shop__read_item", json!({ "item_id": "7" })).await;
        assert_eq!(api.last().target, "/v2/items/7");
    }
    let gateway = Gateway::with("shop", lines).start().await;
    gateway.modern().call("shop__read_item", json!({ "item_id": "7" })).await;
    assert_eq!(api.last().target, "/v1/items/7");
}

#[tokio::test]
async fn a_local_document_that_changes_does_not_move_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("openapi.json");
    let (api, elsewhere) = (PlainApi::start().await, PlainApi::start().await);
    let write = |to: &PlainApi, name: &str| {
        let mut document = shop();
        document["servers"] = json!([{ "url": to.url("") }]);
        document["paths"]["/items/{item_id}"]["get"]["operationId"] = json!(name);
        // A partial file is never visible.
        let next = folder.path().join("next.json");
        std::fs::write(&next, document.to_string()).unwrap();
        std::fs::rename(&next, &path).unwrap();
    };
    write(&api, "one");
    let lines = format!("openapi = {path:?}\nopenapi_refresh = \"20ms\"\n");
    let gateway = Gateway::with("shop", lines).start().await;
    let client = gateway.modern();
    let has = async |name: &str| client.tool_names().await.contains(&format!("shop__{name}"));
    assert!(has("one").await);
    write(&elsewhere, "two");
    for _ in 0..100 {
        assert!(!has("two").await, "the last good one stays");
        client.call("shop__one", json!({ "item_id": "7" })).await;
    }
    write(&api, "three");
    crate::support::within(async { while !has("three").await {} }).await;
    client.call("shop__three", json!({ "item_id": "7" })).await;
    assert_eq!(api.last().target, "/items/7");
    assert!(elsewhere.received().is_empty(), "no request went there");
}

#[tokio::test]
async fn parts_of_a_path_do_not_climb_together() {
    let list = json!({ "name": "a", "in": "path", "style": "label", "explode": true, "required": true, "schema": { "type": "array" } });
    let mut document = shop();
    document["paths"]["/x/{a}"] = json!({ "get": { "operationId": "join", "parameters": [list] } });
    document["paths"]["/q?fixed=1"] = json!({ "get": { "operationId": "fixed", "parameters": [{ "name": "more", "in": "query" }] } });
    let api = PlainApi::with(&document).await;
    let gateway = Gateway::with("shop", api.openapi()).start().await;
    let client = gateway.modern();
    client.call("shop__join", json!({ "a": ["1", "2"] })).await;
    assert_eq!(api.last().target, "/x/.1.2");
    let before = api.received().len();
    // Neither item climbs by itself: `..%2Fadmin` does.
    let said = client.call("shop__join", json!({ "a": ["", "/admin"] })).await;
    assert!(said.is_error() && said.text().contains("refused"), "{said:?}");
    assert_eq!(api.received().len(), before);
    client.call("shop__fixed", json!({ "more": "a b" })).await;
    assert_eq!(api.last().target, "/q?fixed=1&more=a%20b");
}

#[tokio::test]
async fn credentials_that_a_server_repeats_are_hidden() {
    let api = PlainApi::with(&shop()).await;
    let page = Page::new(403, "application/json", r#"{"detail":"hunter2-hunter2 may not"}"#);
    api.sets("/items/no", page.header("link", "</items?key=hunter2-hunter2>; rel=\"next\""));
    let lines = api.openapi() + "headers = { X-Secret = \"hunter2-hunter2\" }\n";
    let gateway = Gateway::with("shop", lines).start().await;
    let said = gateway.modern().call("shop__read_item", json!({ "item_id": "no" })).await;
    assert!(said.text().contains("*** may not"), "{said:?}");
    assert_eq!(said.result()["_meta"]["http/link"], "</items?key=***>; rel=\"next\"");
}

#[tokio::test]
async fn a_successful_answer_repeats_no_credential_and_keeps_other_headers() {
    let api = PlainApi::with(&shop()).await;
    let lines = api.openapi()
        + "headers = { X-API-Key = \"hunter2/hunter2\", X-Tenant = \"acme-corporation\" }\n";
    let gateway = Gateway::with("shop", lines).start().await;
    for body in [
        r#"{"headers":{"k":"hunter2\/hunter2","t":"acme-corporation"}}"#,
        r#"{"url":"/?k=hunter2%2Fhunter2","t":"acme-corporation"}"#,
    ] {
        api.sets("/items/mirror", Page::new(200, "application/json", body));
        for (era, client) in gateway.both().await {
            let said = client.call("shop__read_item", json!({ "item_id": "mirror" })).await;
            let answer = said.answer().to_string();
            assert!(answer.contains("***") && !answer.contains("hunter2"), "{era} {answer}");
            assert!(answer.contains("acme-corporation"), "{era} {answer}");
        }
    }
}
