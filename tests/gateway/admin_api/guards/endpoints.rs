//! Every endpoint: its role, its record, and the pages and hosts that it refuses.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::resources::get;
use super::super::{code, with_roles};
use crate::support::{Client, Gateway, json_lines, until, within};

/// An endpoint: its method, its path, its least role, and true if each request is recorded.
type KnownEndpoint = (&'static str, &'static str, &'static str, bool);

/// Written by hand, and not made from the gateway's own table: a change there has to be made here, too.
const ENDPOINTS: &[KnownEndpoint] = &[
    ("GET", "/openapi.json", "viewer", false),
    ("GET", "/status", "viewer", false),
    ("GET", "/activity", "viewer", false),
    ("GET", "/servers", "viewer", false),
    ("GET", "/servers/{server}", "viewer", false),
    ("POST", "/servers/{server}/restart", "operator", true),
    ("POST", "/servers/{server}/disable", "operator", true),
    ("POST", "/servers/{server}/enable", "operator", true),
    ("POST", "/servers/{server}/test", "operator", true),
    ("GET", "/servers/{server}/faults", "viewer", false),
    ("GET", "/servers/{server}/output", "operator", false),
    ("GET", "/catalog", "viewer", false),
    ("GET", "/tools", "viewer", false),
    ("GET", "/tools/names", "viewer", false),
    ("GET", "/scan", "viewer", false),
    ("GET", "/clients", "viewer", false),
    ("DELETE", "/sessions/{session}", "operator", true),
    ("GET", "/logins", "viewer", false),
    ("DELETE", "/logins/{login}", "operator", true),
    ("GET", "/definitions", "viewer", false),
    ("POST", "/servers/{server}/definitions/approve", "admin", true),
    ("POST", "/servers/{server}/definitions/reject", "admin", true),
    ("POST", "/servers/{server}/refresh", "operator", true),
    ("GET", "/calls", "viewer", false),
    ("GET", "/calls/live", "viewer", false),
    ("GET", "/calls/{id}", "viewer", false),
    ("GET", "/log", "viewer", false),
    ("GET", "/log/live", "viewer", false),
    ("GET", "/configuration", "viewer", false),
    ("POST", "/configuration/plan", "operator", false),
    ("POST", "/configuration/reload", "admin", true),
    ("POST", "/configuration/apply", "admin", true),
    ("GET", "/configuration/history", "viewer", false),
    ("GET", "/configuration/history/{version}", "admin", false),
    ("POST", "/configuration/rollback/{version}", "admin", true),
    // A call has a record of its own kind.
    ("POST", "/calls", "operator", false),
    ("GET", "/audit", "operator", false),
    ("GET", "/audit/live", "operator", false),
    ("POST", "/why", "operator", false),
];

/// Returns a path with a value in place of each parameter.
fn filled(path: &str) -> String {
    let segments = path.split('/').map(|it| if it.starts_with('{') { "7" } else { it });
    segments.collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn each_endpoint_has_the_role_that_its_effect_needs() {
    let gateway = Gateway::alone().start().await;
    let document = get(&gateway, "/openapi.json").await;
    let mut served = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let path = path.strip_prefix("/api/v1").unwrap();
            let role = operation["x-trunkline-role"].as_str().unwrap();
            served.insert(format!("{} {path} {role}", method.to_uppercase()));
        }
    }
    let known = ENDPOINTS.iter().map(|(method, path, role, _)| format!("{method} {path} {role}"));
    assert_eq!(served, known.collect(), "an endpoint or its role has changed");
}

async fn status_and_code(
    client: &Client,
    endpoint: &KnownEndpoint,
    header: (&str, &str),
) -> String {
    let (method, path, ..) = endpoint;
    let path = format!("/api/v1{}", filled(path));
    let ask = client.http(method, &path).header(header.0, header.1).body("{}");
    let said = ask.send().await.said().await;
    if said.header("content-type") != Some("application/problem+json") {
        return format!("{}", said.status);
    }
    code(&said, said.status)
}

#[tokio::test]
async fn no_endpoint_that_acts_takes_a_request_of_another_sites_page() {
    let gateway = with_roles(Gateway::alone()).start().await;
    for client in [gateway.operator(), gateway.remote_operator().key("rules-key")] {
        for endpoint in ENDPOINTS.iter().filter(|(method, ..)| *method != "GET") {
            let page = ("sec-fetch-site", "cross-site");
            assert_eq!(
                status_and_code(&client, endpoint, page).await,
                "foreign_page",
                "{endpoint:?}"
            );
            // A form of a page can have this type without a preflight.
            let form = ("content-type", "text/plain");
            let refused = status_and_code(&client, endpoint, form).await;
            assert_eq!(refused, "unsupported_media_type", "{endpoint:?}");
        }
    }
}

/// Sends a request with these headers to the admin listener, and returns the line of the status.
async fn status_line(gateway: &Gateway, start: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(gateway.running.admin.unwrap()).await.unwrap();
    let head = format!("{start} HTTP/1.1\r\nx-api-key: rules-key\r\n{headers}\r\n");
    within(stream.write_all(head.as_bytes())).await.unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(within(stream.read_u8()).await.unwrap());
    }
    String::from_utf8(line).unwrap()
}

#[tokio::test]
async fn no_endpoint_answers_under_a_foreign_name_or_to_a_foreign_origin() {
    let gateway = with_roles(Gateway::alone()).start().await;
    for (method, path, ..) in ENDPOINTS {
        let start = format!("{method} /api/v1{}", filled(path));
        for headers in [
            "host: evil.example.com\r\n",
            "host: localhost\r\norigin: https://evil.example.com\r\n",
            "host: localhost\r\norigin: null\r\n",
        ] {
            let line = status_line(&gateway, &start, headers).await;
            assert!(line.starts_with("HTTP/1.1 403"), "{start} {headers}: {line}");
        }
    }
}

#[tokio::test]
async fn each_change_is_recorded_with_its_operator_and_reading_is_not() {
    let audit = "[audit]\nfile = \"audit.jsonl\"\n";
    let gateway = with_roles(Gateway::alone()).toml(audit).start().await;
    let client = gateway.remote_operator().key("rules-key");
    for (method, path, ..) in ENDPOINTS {
        let path = format!("/api/v1{}", filled(path));
        let mut ask = client.http(method, &path);
        if *method == "POST" {
            ask = ask.body("{}").header("content-type", "application/json");
        }
        // The answers of streams have no end.
        assert_ne!(ask.send().await.status(), 403, "{method} {path}");
    }
    // Of calls, the API records refusals: this one names no tool.
    let is_recorded = |(method, path, _, recorded): &&KnownEndpoint| {
        *recorded || (*method, *path) == ("POST", "/calls")
    };
    let recorded = ENDPOINTS.iter().filter(is_recorded);
    let expected: Vec<_> =
        recorded.map(|(method, path, ..)| format!("{method} {}", filled(path))).collect();
    let log = gateway.folder().join("audit.jsonl");
    let changes = || -> Vec<Value> {
        let records = json_lines(&log).into_iter();
        records.filter(|record| record["operation"] == "change").collect()
    };
    until(|| changes().len() >= expected.len()).await;
    let text = |record: &Value| {
        format!("{} {}", record["method"].as_str().unwrap(), record["path"].as_str().unwrap())
    };
    assert_eq!(changes().iter().map(text).collect::<Vec<_>>(), expected);
    for record in changes() {
        let actor = json!({ "kind": "operator", "name": "client rules" });
        assert_eq!(
            (&record["actor"], &record["address"]),
            (&actor, &json!("127.0.0.1")),
            "{record}"
        );
        let is_done = record["outcome"] == "ok";
        assert_eq!(record["reason"].is_string(), !is_done, "{record}");
    }
}
