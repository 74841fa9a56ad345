//! Locations of documents, and their changes and faults.

use serde_json::json;

use super::shop;
use crate::support::api::{Page, PlainApi};
use crate::support::{Gateway, within};

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
    let stale_until = async |expected: bool| loop {
        let warnings = gateway.server("shop").await["warnings"].to_string();
        if (warnings.contains("cannot reload the document") && warnings.contains("500")) == expected
        {
            break;
        }
    };
    within(stale_until(true)).await;
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
    within(stale_until(false)).await;
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
            "has another origin",
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

#[tokio::test]
async fn a_file_that_cannot_be_read_costs_only_the_operations_that_need_it() {
    let parameter = |target: &str| json!({ "get": { "parameters": [{ "$ref": target }] } });
    let mut document = shop();
    document["paths"]["/good"] = parameter("parts/good.json#/q");
    document["paths"]["/gone"] = parameter("parts/gone.json#/q");
    document["paths"]["/code"] = parameter("parts/code.ts#/q");
    document["info"]["x-samples"] = json!({ "$ref": "samples/one.ts" });
    let api = PlainApi::start().await;
    // References are relative to the document's own location, not to the requested one.
    api.sets("/openapi.json", Page::new(302, "", "").header("location", "/v2/doc.json"));
    api.sets("/v2/doc.json", Page::json(&document));
    let q = json!({ "q": { "name": "q", "in": "query", "description": "from the part" } });
    api.sets("/v2/parts/good.json", Page::json(&q));
    api.sets("/v2/parts/gone.json", Page::new(404, "text/plain", ""));
    api.sets("/v2/parts/code.ts", Page::new(200, "text/plain", "a: ["));
    let gateway = Gateway::with("shop", api.openapi()).start().await;
    let tools = serde_json::Value::from(gateway.modern().tools().await).to_string();
    assert!(tools.contains("from the part") && tools.contains("shop__update_item"), "{tools}");
    assert!(!tools.contains("get_gone") && !tools.contains("get_code"), "{tools}");
    let warnings = gateway.server("shop").await["warnings"].to_string();
    assert!(warnings.contains("GET /gone: the file of the reference"), "{warnings}");
    assert!(warnings.contains("GET /code: the file of the reference"), "{warnings}");
    assert!(api.calls("/v2/samples/one.ts").is_empty(), "nothing of it is read");
}

#[tokio::test]
async fn a_document_of_too_many_files_is_refused() {
    let refs: Vec<_> = (0..65).map(|at| json!({ "$ref": format!("part{at}.json") })).collect();
    let mut document = shop();
    document["components"]["schemas"]["Many"] = json!({ "anyOf": refs });
    let api = PlainApi::with(&document).await;
    let gateway = Gateway::with("shop", api.openapi()).start().await;
    let error = gateway.server("shop").await["last_error"]["message"].to_string();
    assert!(error.contains("more than 64 files"), "{error}");
    assert!(api.received().iter().all(|call| call.target == "/openapi.json"), "none was read");
}

#[tokio::test]
async fn the_search_goes_on_behind_a_page_that_cannot_be_read() {
    let api = PlainApi::start().await;
    let away = Page::new(302, "", "").header("location", "http://127.0.0.2/login");
    api.sets("/openapi.json", away);
    api.sets("/", Page::new(200, "text/html", "<html>"));
    api.sets("/api/openapi.json", Page::json(&shop()));
    let lines = format!("url = \"{}\"\nkind = \"openapi\"\n", api.url(""));
    let gateway = Gateway::with("shop", lines.clone()).start().await;
    assert_eq!(gateway.modern().tools().await.len(), 3);
    api.removes("/api/openapi.json");
    let gateway = Gateway::with("shop", lines).start().await;
    let error = gateway.server("shop").await["last_error"]["message"].to_string();
    for words in ["/openapi.json (it redirects", "/ (another page)"] {
        assert!(error.contains(words), "{error}");
    }
}

#[tokio::test]
async fn tools_and_resources_change_together() {
    let document = |version: &str| {
        let get = |id: String| json!({ "get": { "operationId": id } });
        json!({ "openapi": "3.1.0", "info": {}, "paths": {
            "/tool": get(format!("tool{version}")), format!("/page{version}"): get("page".into()),
        } })
    };
    let api = PlainApi::with(&document("1")).await;
    let lines = "include = [\"*\", { path = \"/page*\", as = \"resource\" }]\n\
                 openapi_refresh = \"1h\"\n";
    let gateway = Gateway::with("api", api.openapi() + lines).start().await;
    let client = gateway.modern();
    assert_eq!(client.tool_names().await, ["api__tool1"]);
    api.sets("/openapi.json", Page::json(&document("2")));
    let admin = gateway.operator();
    // A second listing shortly after the first does not read the document again.
    crate::support::within(async {
        while client.tool_names().await != ["api__tool2"] {
            let _ = admin.http("POST", "/servers/api/refresh").send().await.said().await;
        }
    })
    .await;
    let resources = client.request("resources/list", json!({})).await;
    let uri = resources.result()["resources"][0]["uri"].to_string();
    assert!(uri.contains("/page2"), "{uri}");
}

#[tokio::test]
async fn reports_about_a_document_are_bounded() {
    let broken = json!({ "get": { "parameters": [{ "$ref": "#/nowhere" }] } });
    let mut document = shop();
    for at in 0..100 {
        document["paths"][format!("/p{at}")] = broken.clone();
    }
    let api = PlainApi::with(&document).await;
    let gateway = Gateway::with("shop", api.openapi()).start().await;
    let warnings = gateway.server("shop").await["warnings"].as_array().unwrap().clone();
    assert_eq!(warnings.len(), 21, "{warnings:?}");
    assert_eq!(warnings[20], "and 80 more: `trunkline openapi` shows all");
}

#[tokio::test]
async fn of_several_servers_the_first_that_the_document_may_name_is_used() {
    let api = PlainApi::start().await;
    let mut document = shop();
    document["servers"] = json!([{ "url": "https://shop.example.com/v1" }, { "url": "/v2" }]);
    api.sets("/openapi.json", Page::json(&document));
    let gateway = Gateway::with("shop", api.openapi()).start().await;
    gateway.modern().call("shop__read_item", json!({ "item_id": "1" })).await;
    assert_eq!(api.last().target, "/v2/items/1");
}
