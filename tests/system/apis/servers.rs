//! Calls to real servers, which parse the gateway's requests by their own documents.

use std::process::Command;

use serde_json::{Value, json};

use super::file;
use crate::peers::HttpServer;
use crate::support::{Client, Gateway};

/// "hello" and "bye" in base64.
const HELLO: &str = "aGVsbG8=";
const BYE: &str = "Ynll";

fn python(script: &str) -> HttpServer {
    HttpServer::announcing(Command::new(file(".venv/bin/python")).arg(file(script)))
}

fn node(script: &str) -> HttpServer {
    HttpServer::announcing(Command::new("node").arg(file(script)))
}

fn at(server: &HttpServer, path: &str) -> String {
    format!("http://127.0.0.1:{}{path}", server.port)
}

/// Makes each call, and compares the structured content.
async fn call_each(client: &Client, calls: &[(&str, Value, Value)]) {
    for (tool, arguments, expected) in calls {
        let said = client.call(&format!("api__{tool}"), arguments.clone()).await;
        assert!(!said.is_error(), "{tool} {arguments}: {said:?}");
        assert_eq!(said.result()["structuredContent"], *expected, "{tool} {arguments}");
    }
}

#[tokio::test]
async fn fastapi_understands_every_call() {
    let server = python("fastapi_server.py");
    let lines = format!(
        "url = \"{}\"\nkind = \"openapi\"\n[servers.api.auth]\ninHeader = \"k1\"\n\
         inQuery = \"k&2\"\nbearer = \"t\"\nbasic = {{ username = \"me\", password = \"pw\" }}\n",
        at(&server, "")
    );
    let gateway = Gateway::with("api", lines).start().await;
    let item = |name: &str, parent: Value| json!({ "name": name, "price": 1.5, "tags": [], "parent": parent });
    let file = |name: &str, content: &str| json!({ "name": name, "type": "application/octet-stream", "content": content });
    for (_, client) in gateway.both().await {
        call_each(
            &client,
            &[
                (
                    "update_item_items__item_id__put",
                    json!({
                        "item_id": 7, "tag": ["a,b", "c d"], "dry_run": true, "x-trace": "t 1",
                        "session": "s1", "name": "Tea", "parent": { "name": "Drinks", "parent": null },
                    }),
                    json!({
                        "item_id": 7, "item": item("Tea", item("Drinks", Value::Null)),
                        "tag": ["a,b", "c d"], "dry_run": true, "x_trace": "t 1", "session": "s1",
                    }),
                ),
                (
                    "list_items_items_get",
                    json!({ "limit": 3, "order": ["a", "b"] }),
                    json!({ "result": [3, 2] }),
                ),
                (
                    "read_file_files__path__get",
                    json!({ "path": "a/b c.txt" }),
                    json!({ "path": "a/b c.txt" }),
                ),
                (
                    "sell_sales_post",
                    json!({ "item": { "name": "Tea" }, "owner": { "email": "a@b", "note": null }, "amount": 2 }),
                    json!({ "item": item("Tea", Value::Null), "owner": { "email": "a@b", "note": null }, "amount": 2 }),
                ),
                (
                    "change_owner_owners_patch",
                    json!({ "email": "a@b", "note": null }),
                    json!({ "owner": { "email": "a@b", "note": null }, "given": ["email", "note"] }),
                ),
                (
                    "fill_form_forms_post",
                    json!({ "name": "a&b=c", "size": [1, 2] }),
                    json!({ "name": "a&b=c", "size": [1, 2], "note": null }),
                ),
                (
                    "upload_uploads_post",
                    json!({ "picture": HELLO, "more": [BYE, HELLO], "caption": "Two", "raw": BYE, "cover": HELLO }),
                    json!({
                        "picture": file("picture", "hello"),
                        "more": [file("more", "bye"), file("more", "hello")],
                        "caption": "Two", "raw": "bye", "cover": file("cover", "hello"),
                    }),
                ),
                (
                    "upload_uploads_post",
                    json!({ "picture": HELLO, "more": [BYE], "caption": "One" }),
                    json!({
                        "picture": file("picture", "hello"), "more": [file("more", "bye")],
                        "caption": "One", "raw": null, "cover": null,
                    }),
                ),
                ("write_text_text_post", json!({ "body": "a\nb" }), json!({ "text": "a\nb" })),
                (
                    "write_bytes_bytes_post",
                    json!({ "body": HELLO }),
                    json!({ "size": 5, "first": 104 }),
                ),
                ("see_header_secrets_header_get", json!({}), json!({ "key": "k1" })),
                ("see_query_secrets_query_get", json!({}), json!({ "key": "k&2" })),
                ("see_bearer_secrets_bearer_get", json!({}), json!({ "scheme": "Bearer" })),
                ("see_basic_secrets_basic_get", json!({}), json!({ "username": "me" })),
            ],
        )
        .await;
        let picture = client.call("api__show_picture_picture_get", json!({})).await;
        let content = &picture.result()["content"][0];
        assert_eq!(
            *content,
            json!({ "type": "image", "data": "iVBORw==", "mimeType": "image/png" })
        );
        for (tool, arguments) in [
            ("delete_item_items__item_id__delete", json!({ "item_id": 1 })),
            ("count_items_items_head", json!({})),
        ] {
            let said = client.call(&format!("api__{tool}"), arguments).await;
            assert!(said.text().starts_with("Done: HTTP 20"), "{said:?}");
        }
        let said = client.call("api__sell_sales_post", json!({ "item": {} })).await;
        assert!(said.is_error(), "the document's schema holds: {said:?}");
    }
    assert_eq!(gateway.server("api").await["warnings"], json!([]));
}

#[tokio::test]
async fn each_style_in_each_place_is_parsed_back_to_the_argument() {
    let server = python("styles_server.py");
    let lines = format!("openapi = \"{}\"\n", at(&server, "/openapi.yaml"));
    let gateway = Gateway::with("api", lines).start().await;
    let client = gateway.modern();
    let (list, object) = (json!(["blue", "bl ack"]), json!({ "R": 100, "G": 200 }));
    let calls = [
        (
            "path_simple",
            "path",
            json!({ "text": "a c", "list": list, "object": object, "apart": object }),
        ),
        (
            "path_label",
            "path",
            json!({ "text": "blue", "list": list, "listApart": list, "object": object, "apart": object }),
        ),
        (
            "path_matrix",
            "path",
            json!({ "text": "blue", "list": list, "listApart": list, "object": object, "apart": object }),
        ),
        (
            "query_styles",
            "query",
            json!({
                "text": "a&b=c+d #é", "count": 7, "list": list, "listTogether": list,
                "objectTogether": object, "piped": ["a", "b"], "deep": object,
                "json": object, "reserved": "a/b?c",
            }),
        ),
        (
            "header_styles",
            "header",
            json!({ "X-Text": "a b", "X-List": list, "X-Object": object, "X-Apart": object, "X-Json": object }),
        ),
        ("cookie_styles", "cookie", json!({ "text": "ab", "list": ["a", "b"], "object": object })),
        ("json_body", "body", json!({ "id": 1, "note": null, "part": { "id": 2, "note": "x" } })),
        (
            "form_body",
            "body",
            json!({ "text": "a&b", "list": list, "together": list, "piped": ["a", "b"], "deep": object }),
        ),
    ];
    for (tool, place, arguments) in calls {
        let said = client.call(&format!("api__{tool}"), arguments.clone()).await;
        assert!(!said.is_error(), "{tool}: {said:?}");
        assert_eq!(said.result()["structuredContent"][place], arguments, "{tool}");
    }
    for (tool, arguments, body) in [
        ("json_list_body", json!({ "body": [{ "id": 1 }] }), json!([{ "id": 1 }])),
        (
            "multipart_body",
            json!({ "text": "a b", "object": object, "file": HELLO }),
            json!({ "text": "a b", "object": object, "file": "hello" }),
        ),
        ("text_body", json!({ "body": "a\nb" }), json!("a\nb")),
    ] {
        let said = client.call(&format!("api__{tool}"), arguments).await;
        assert!(!said.is_error(), "{tool}: {said:?}");
        assert_eq!(said.result()["structuredContent"]["body"], body, "{tool}");
    }
}

#[tokio::test]
async fn express_accepts_requests_of_its_document_and_no_others() {
    let server = node("shelf_server.mjs");
    let lines = format!(
        "url = \"{}\"\nkind = \"openapi\"\nauth.key = \"k1\"\narguments = \"coerce\"\n",
        at(&server, "")
    );
    let gateway = Gateway::with("api", lines).start().await;
    let client = gateway.modern();
    let trace = "8f1f4b1e-7d1b-4b6e-9d3a-0a2c7f1f6f10";
    let said = client
        .call(
            "api__findPages",
            json!({
                "id": "12", "pages": [1, 2], "lang": ["de", "e&n"], "sort": ["a", "b"],
                "spaced": [3, 4], "piped": [5, 6], "filter": { "author": "A B", "year": 1999 },
                "size": { "width": 2, "height": 3 }, "raw": { "author": "ä" }, "path": "/x/y?z",
                "limit": 5, "X-Days": ["mon", "tue"], "X-Trace": trace, "theme": "l;ght",
            }),
        )
        .await;
    assert!(!said.is_error(), "{said:?}");
    let parsed = &said.result()["structuredContent"];
    assert_eq!(parsed["path"], json!({ "id": 12, "pages": [1, 2] }));
    assert_eq!(
        parsed["query"],
        json!({
            "lang": ["de", "e&n"], "sort": ["a", "b"], "spaced": [3, 4], "piped": [5, 6],
            "filter": { "author": "A B", "year": 1999 }, "size": { "width": 2, "height": 3 },
            "raw": { "author": "ä" }, "path": "/x/y?z", "limit": 5,
        })
    );
    assert_eq!(parsed["header"], json!({ "X-Days": ["mon", "tue"], "X-Trace": trace }));
    assert_eq!(parsed["cookie"], json!({ "theme": "l;ght" }));

    let sent = async |tool: &str, arguments: Value| {
        let said = client.call(&format!("api__{tool}"), arguments).await;
        assert!(!said.is_error(), "{tool}: {said:?}");
        said.result()["structuredContent"].clone()
    };
    let book = json!({ "title": "One", "isbn": null, "sequel": { "title": "Two" } });
    assert_eq!(sent("addBook", json!({ "body": book })).await["body"], book);
    let change = json!({ "title": "Three", "isbn": null });
    assert_eq!(sent("changeBook", change.clone()).await["body"], change);
    let dog = json!({ "kind": "dog", "bark": true });
    assert_eq!(sent("addAnimal", json!({ "body": dog })).await["body"], dog);
    let form =
        json!({ "name": "a&b", "amount": "3", "tags": ["x", "y"], "owner": { "mail": "m@x" } });
    assert_eq!(sent("sendForm", form.clone()).await["body"], form);
    let note = sent("writeNote", json!({ "body": "a\nb" })).await;
    assert_eq!(note["body"], "a\nb");
    assert_eq!(sent("sendScan", json!({ "body": HELLO })).await["body"], "hello");
    let covers = sent("sendCovers", json!({
        "front": format!("data:image/jpeg;base64,{HELLO}"), "inside": [BYE, HELLO], "caption": "C",
    }))
    .await;
    let file = |field: &str, name: &str, kind: &str, content: &str| json!({ "field": field, "name": name, "type": kind, "content": content });
    assert_eq!(
        covers["files"],
        json!([
            file("front", "front.jpg", "image/jpeg", "hello"),
            file("inside", "inside", "application/octet-stream", "bye"),
            file("inside", "inside", "application/octet-stream", "hello"),
        ])
    );
    assert_eq!(covers["body"]["caption"], "C");
    let cover = sent("sendCovers", json!({ "front": HELLO, "caption": "C" })).await;
    assert_eq!(cover["files"], json!([file("front", "front.png", "image/png", "hello")]));

    for (tool, arguments) in [
        ("findPages", json!({ "id": 1, "pages": [1], "X-Trace": trace, "limit": 0 })),
        ("addAnimal", json!({ "body": { "kind": "cat" } })),
        ("addBook", json!({ "body": { "title": "One", "isbn": "x" } })),
    ] {
        let said = client.call(&format!("api__{tool}"), arguments).await;
        let text = said.text();
        assert!(said.is_error() && !text.contains("HTTP"), "refused by the gateway: {text}");
    }
}
