//! Requests of operations: bodies, credentials, choices.

use serde_json::{Value, json};

use crate::support::Gateway;
use crate::support::api::{Page, PlainApi};

/// Returns a document with these paths, and security schemes of every kind.
fn document(paths: &Value) -> Value {
    json!({
        "openapi": "3.0.3", "info": { "title": "Api", "version": "1" }, "paths": paths,
        "components": { "securitySchemes": {
            "inHeader": { "type": "apiKey", "in": "header", "name": "X-Key" },
            "inQuery": { "type": "apiKey", "in": "query", "name": "key" },
            "inCookie": { "type": "apiKey", "in": "cookie", "name": "sid" },
            "login": { "type": "http", "scheme": "basic" },
            "token": { "type": "http", "scheme": "bearer" },
            "oauth": { "type": "oauth2", "flows": {} },
        } },
    })
}

fn secured(path: &str, scheme: &str) -> (String, Value) {
    let operation = json!({ "operationId": scheme, "security": [{ scheme: [] }] });
    (path.to_owned(), json!({ "get": operation }))
}

const SCHEMES: [&str; 6] = ["inHeader", "inQuery", "inCookie", "login", "token", "oauth"];

#[tokio::test]
async fn credentials_go_where_their_scheme_says() {
    let paths: serde_json::Map<_, _> =
        SCHEMES.iter().map(|scheme| secured(&format!("/{scheme}"), scheme)).collect();
    let api = PlainApi::with(&document(&paths.into())).await;
    let auth = "[servers.api.auth]\ninHeader = \"${env:KEY}\"\ninQuery = \"a&b\"\n\
                inCookie = \"c;d\"\nlogin = { username = \"me\", password = \"pw\" }\n\
                token = \"t1\"\noauth = \"t2\"\n";
    let gateway = Gateway::with("api", api.openapi() + auth).variable("KEY", "k1").start().await;
    let client = gateway.modern();
    for (scheme, target, header) in [
        ("inHeader", "/inHeader", Some(("x-key", "k1"))),
        ("inQuery", "/inQuery?key=a%26b", None),
        ("inCookie", "/inCookie", Some(("cookie", "sid=c%3Bd"))),
        ("login", "/login", Some(("authorization", "Basic bWU6cHc="))),
        ("token", "/token", Some(("authorization", "Bearer t1"))),
        ("oauth", "/oauth", Some(("authorization", "Bearer t2"))),
    ] {
        let said = client.call(&format!("api__{scheme}"), json!({})).await;
        assert!(!said.is_error(), "{said:?}");
        let sent = api.last();
        assert_eq!(sent.target, target);
        for name in ["x-key", "cookie", "authorization"] {
            let expected = header.filter(|(known, _)| *known == name).map(|(_, value)| value);
            assert_eq!(sent.header(name), expected, "{scheme}: {name}");
        }
    }
    assert_eq!(gateway.server("api").await["warnings"], json!([]));
}

#[tokio::test]
async fn a_scheme_without_a_value_is_in_the_status() {
    let (path, item) = secured("/token", "token");
    let api = PlainApi::with(&document(&json!({ path: item }))).await;
    let gateway = Gateway::with("api", api.openapi()).start().await;
    let warnings = gateway.server("api").await["warnings"].to_string();
    assert!(warnings.contains("security scheme \\\"token\\\" has no value"), "{warnings}");
    // A configured header counts as a value, and a client's own key does not.
    let lines = api.openapi() + "headers = { Authorization = \"Bearer t\" }\n";
    let gateway = Gateway::with("api", lines).start().await;
    assert_eq!(gateway.server("api").await["warnings"], json!([]));
    let client = gateway.modern();
    let call = client.ask_call("api__token", json!({}));
    call.header("x-api-key", "mine").header("cookie", "mine=1").send().await.said().await;
    let sent = api.last();
    assert_eq!((sent.target.as_str(), sent.header("authorization")), ("/token", Some("Bearer t")));
    assert_eq!((sent.header("x-api-key"), sent.header("cookie")), (None, None));
}

fn pets() -> Value {
    let get = |id: &str, tag: &str| json!({ "get": { "operationId": id, "tags": [tag] } });
    let mut paths = json!({
        "/pets": get("listPets", "pets"), "/pets/{id}": get("getPet", "pets"),
        "/admin": get("admin", "internal"),
    });
    paths["/pets/{id}"]["parameters"] = json!([
        { "name": "id", "in": "path", "required": true, "schema": { "type": "string" } },
        { "name": "full", "in": "query", "schema": { "type": "boolean" } },
    ]);
    paths["/pets"]["delete"] = json!({ "operationId": "clear" });
    document(&paths)
}

#[tokio::test]
async fn only_the_chosen_operations_are_offered() {
    let api = PlainApi::with(&pets()).await;
    for (lines, expected) in [
        ("include = [\"tag:pets\"]", vec!["listPets", "getPet"]),
        ("include = [\"GET /pets*\"]\nexclude = [\"/pets/*\"]", vec!["listPets"]),
        ("include = [{ method = \"DELETE\" }, \"adm*\"]", vec!["clear", "admin"]),
        (
            "exclude = [{ tag = \"pets\", operation = \"get*\" }]",
            vec!["listPets", "clear", "admin"],
        ),
    ] {
        let gateway = Gateway::with("api", api.openapi() + lines).start().await;
        let names = gateway.modern().tool_names().await;
        let expected: Vec<_> = expected.iter().map(|name| format!("api__{name}")).collect();
        assert_eq!(names, expected, "{lines}");
    }
}

#[tokio::test]
async fn operations_can_be_resources() {
    let api = PlainApi::with(&pets()).await;
    api.sets("/pets/a/b", Page::new(200, "text/plain", "not this one"));
    api.sets("/pets/gone", Page::new(404, "text/plain", "no such pet"));
    let lines = "include = [\"*\", { path = \"/pets*\", as = \"resource\" }]\n";
    let gateway = Gateway::with("api", api.openapi() + lines).start().await;
    let client = gateway.modern();
    assert_eq!(client.tool_names().await, ["api__admin"]);
    let listed = client.request("resources/list", json!({})).await;
    let uri = listed.result()["resources"][0]["uri"].as_str().unwrap().to_owned();
    assert!(uri.ends_with("/pets"), "{uri}");
    let read = client.read_resource(&uri).await;
    assert_eq!(read.result()["contents"][0]["mimeType"], "application/json");
    let templates = client.request("resources/templates/list", json!({})).await;
    let template = templates.result()["resourceTemplates"][0]["uriTemplate"].as_str().unwrap();
    assert!(template.ends_with("/pets/{id}{?full}"), "{template}");
    client.read_resource(&template.replace("{id}{?full}", "a%2Fb?full=true")).await;
    assert_eq!(api.last().target, "/pets/a%2Fb?full=true");
    let read = client.read_resource(&template.replace("{id}{?full}", "gone")).await;
    assert!(read.error().to_string().contains("no such pet"), "{read:?}");
    let before = api.received().len();
    for wrong in ["a/b", "a?other=1", "%2E%2E"] {
        let read = client.read_resource(&template.replace("{id}{?full}", wrong)).await;
        assert!(read.error().is_object(), "{wrong}: {read:?}");
    }
    assert_eq!(api.received().len(), before, "none of these is a resource");
    let warnings = gateway.server("api").await["warnings"].to_string();
    assert!(warnings.contains("DELETE /pets: it cannot be a resource"), "{warnings}");
}

fn mail() -> Value {
    // From the documentation of an agents framework: flat parameters, no `required` body.
    let schema = json!({
        "properties": {
            "to": { "type": "string" }, "limit": { "type": "integer" },
            "unread_only": { "type": "boolean" }, "cc": { "type": "string", "enum": ["a", "b"] },
        },
        "required": ["to"],
    });
    let send = json!({ "operationId": "send-email", "requestBody": { "content": { "application/json": { "schema": schema } } } });
    document(&json!({ "/send-email": { "post": send } }))
}

#[tokio::test]
async fn callers_that_fill_every_field_are_understood() {
    let api = PlainApi::with(&mail()).await;
    let lines = "empty_strings = \"drop\"\narguments = \"coerce\"\n";
    let gateway = Gateway::with("mail", api.openapi() + lines).start().await;
    let arguments = json!({ "to": "", "limit": "2", "unread_only": "", "cc": "" });
    let said = gateway.modern().call("mail__send-email", arguments).await;
    assert!(!said.is_error(), "{said:?}");
    assert_eq!(api.last().body, r#"{"to":"","limit":2}"#);
    let gateway = Gateway::with("mail", api.openapi()).start().await;
    let said = gateway.modern().call("mail__send-email", json!({ "to": "x", "cc": "" })).await;
    assert!(said.is_error(), "kept, and not allowed: {said:?}");
}

#[tokio::test]
async fn files_and_forms_are_sent_as_the_document_says() {
    let object = json!({ "type": "object", "properties": {
        "file": { "type": "string", "format": "binary" }, "note": { "type": "string" },
    } });
    let body = |kind: &str, schema: &Value| json!({ "post": { "requestBody": { "required": true, "content": { kind: { "schema": schema } } } } });
    let api = PlainApi::with(&document(&json!({
        "/multi": body("multipart/form-data", &object),
        "/form": body("application/x-www-form-urlencoded", &object),
        "/bytes": body("application/octet-stream", &json!({ "type": "string", "format": "binary" })),
        "/text": body("text/plain", &json!({ "type": "string" })),
    })))
    .await;
    let gateway = Gateway::with("api", api.openapi()).start().await;
    let client = gateway.modern();
    let arguments = json!({ "file": "aGVsbG8=", "note": "a&b" });
    client.call("api__post_multi", arguments.clone()).await;
    let sent = api.last();
    let text = String::from_utf8_lossy(&sent.body);
    assert!(sent.header("content-type").unwrap().starts_with("multipart/form-data; boundary="));
    assert!(
        text.contains(
            "filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\nhello\r\n"
        )
    );
    client.call("api__post_form", arguments).await;
    assert_eq!(api.last().body, "file=aGVsbG8%3D&note=a%26b");
    client.call("api__post_bytes", json!({ "body": "aGVsbG8=" })).await;
    assert_eq!(api.last().body, "hello");
    client.call("api__post_text", json!({ "body": "hello\n" })).await;
    let sent = api.last();
    assert_eq!((sent.header("content-type"), &*sent.body), (Some("text/plain"), &b"hello\n"[..]));
    let said = client.call("api__post_bytes", json!({ "body": "???" })).await;
    assert!(said.is_error() && said.text().contains("base64"), "{said:?}");
}

#[tokio::test]
async fn a_busy_api_is_called_again_if_that_can_do_no_harm() {
    let operation = |id: &str| json!({ "operationId": id });
    let paths = json!({ "/busy": { "get": operation("read"), "post": operation("write") },
        "/broken": { "get": operation("broken") } });
    let api = PlainApi::with(&document(&paths)).await;
    api.sets("/busy", Page::new(503, "text/plain", "later"));
    api.sets("/broken", Page::new(500, "text/plain", "no"));
    let gateway = Gateway::with("api", api.openapi() + "retries = 2").start().await;
    for (era, client) in gateway.both().await {
        for (name, path, expected) in
            [("read", "/busy", 3), ("write", "/busy", 1), ("broken", "/broken", 1)]
        {
            let before = api.calls(path).len();
            let said = client.call(&format!("api__{name}"), json!({})).await;
            assert_eq!(api.calls(path).len() - before, expected, "{era} {name}");
            // The client gets the last answer unchanged.
            assert!(said.is_error() && said.text().starts_with("HTTP 50"), "{said:?}");
        }
    }
}

#[tokio::test]
async fn a_parameter_that_is_a_credential_is_not_for_callers_to_choose() {
    let key = json!({ "name": "x-key", "in": "header", "required": true, "schema": {} });
    let query = json!({ "name": "q", "in": "query", "schema": {} });
    let read = json!({ "operationId": "read", "security": [{ "inHeader": [] }],
        "parameters": [key, query] });
    let api = PlainApi::with(&document(&json!({ "/a": { "get": read } }))).await;
    let lines = api.openapi() + "[servers.api.auth]\ninHeader = \"k\"\ntoken = \"t\"\n";
    let gateway = Gateway::with("api", lines).start().await;
    let client = gateway.modern();
    let schema = &client.tools().await[0]["inputSchema"];
    assert_eq!(schema["properties"], json!({ "q": {} }));
    assert_eq!(schema.get("required"), None);
    client.call("api__read", json!({})).await;
    assert_eq!(api.last().header("x-key"), Some("k"));
    // A missing credential that no operation requires would go unnoticed.
    let warnings = gateway.server("api").await["warnings"].to_string();
    assert!(warnings.contains("uses the security scheme \\\"token\\\""), "{warnings}");
}

#[tokio::test]
async fn schemas_of_answers_can_be_left_out() {
    let answer = json!({ "type": "object", "required": ["id"] });
    let answer = json!({ "200": { "description": "", "content": { "application/json": { "schema": answer } } } });
    let read = json!({ "operationId": "read", "responses": answer });
    let api = PlainApi::with(&document(&json!({ "/a": { "get": read } }))).await;
    api.sets("/a", Page::new(200, "text/plain", "not as promised"));
    for (choice, is_listed) in [("keep", true), ("drop", false)] {
        let lines = api.openapi() + &format!("output_schemas = \"{choice}\"");
        let gateway = Gateway::with("api", lines).start().await;
        let client = gateway.modern();
        assert_eq!(client.tools().await[0].get("outputSchema").is_some(), is_listed);
        assert_eq!(client.call("api__read", json!({})).await.is_error(), is_listed);
    }
}

#[tokio::test]
async fn the_variables_of_a_servers_url_can_be_set() {
    let mut api_document = document(&json!({ "/a": { "get": { "operationId": "read" } } }));
    api_document["servers"] =
        json!([{ "url": "/{version}", "variables": { "version": { "default": "v1" } } }]);
    let api = PlainApi::with(&api_document).await;
    for (lines, target) in [("", "/v1/a"), ("server_variables = { version = \"v2\" }", "/v2/a")] {
        let gateway = Gateway::with("api", api.openapi() + lines).start().await;
        gateway.modern().call("api__read", json!({})).await;
        assert_eq!(api.last().target, target);
    }
}
