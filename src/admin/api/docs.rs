//! The tables of `docs/api.md`, made from the table of endpoints and the codes of problems.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::json;

use super::API_PATH;
use super::endpoints::{API_ENDPOINTS, ApiEndpoint};
use super::openapi::openapi_document;
use super::problem::ProblemCode;

fn endpoint_table() -> String {
    let mut table = "| endpoint | role | answer |\n|---|---|---|\n".to_owned();
    for endpoint in API_ENDPOINTS {
        let ApiEndpoint { method, path, role, summary, .. } = endpoint;
        let (method, role) = (method.as_str(), role.as_str());
        let _ = write!(table, "| `{method} {API_PATH}{path}` | {role} | {summary}");
        for parameter in endpoint.parameters {
            let _ = write!(table, "; `{}`: {}", parameter.name, parameter.meaning);
        }
        table.push_str(" |\n");
    }
    table
}

fn problem_table() -> String {
    let mut table = "| code | status | meaning |\n|---|--:|---|\n".to_owned();
    for (code, meaning) in ProblemCode::ALL {
        let (name, status) = (code.as_str(), code.status().as_u16());
        let _ = writeln!(table, "| `{name}` | {status} | {} |", meaning.trim());
    }
    table
}

/// Replaces the part of a page between two marks.
fn with_part(page: &str, name: &str, part: &str) -> String {
    let (start, end) = (format!("<!-- {name}, generated -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = page.split_once(&start).expect("the page has the mark");
    let (_, after) = rest.split_once(&end).expect("the page has the end");
    format!("{before}{start}\n{part}\n{end}{after}")
}

#[test]
fn the_page_of_the_api_has_every_endpoint_and_every_problem() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/api.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let fresh = with_part(&page, "endpoints", &endpoint_table());
    let fresh = with_part(&fresh, "problems", &problem_table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &fresh).expect("the page is written");
        return;
    }
    assert!(fresh == page, "docs/api.md is stale: run the tests with UPDATE_DOCS=1");
}

#[test]
fn the_document_describes_every_endpoint_with_schemas_that_exist() {
    let document = openapi_document();
    assert_eq!(document["openapi"], "3.1.0");
    for endpoint in API_ENDPOINTS {
        let path = &document["paths"][format!("{API_PATH}{}", endpoint.path)];
        let operation = &path[endpoint.method.as_str().to_lowercase()];
        assert_eq!(operation["summary"], endpoint.summary, "{}", endpoint.path);
        assert_eq!(operation["x-trunkline-role"], endpoint.role.as_str());
    }
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().expect("the end of the text");
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
}

#[test]
fn parameters_have_their_types_and_a_body_is_required_where_there_must_be_one() {
    let document = openapi_document();
    let operation =
        |method: &str, path: &str| document["paths"][format!("{API_PATH}{path}")][method].clone();
    let schema = |path: &str, name: &str| {
        let operation = operation("get", path);
        let all = operation["parameters"].as_array().expect("a list");
        let found = all.iter().find(|one| one["name"] == name).expect("the parameter");
        found["schema"].clone()
    };
    for (path, name, expected) in [
        ("/calls", "server", json!({ "type": "string" })),
        ("/calls", "limit", json!({ "type": "integer", "minimum": 0 })),
        ("/calls", "since", json!({ "type": "string", "format": "date-time" })),
        ("/configuration/history/{version}", "version", json!({ "type": "integer", "minimum": 0 })),
    ] {
        assert_eq!(schema(path, name), expected, "{path} {name}");
    }
    assert_eq!(schema("/log", "level")["enum"][0], "error");
    let wait = &operation("post", "/servers/{server}/enable")["parameters"][1];
    assert_eq!(wait["schema"], json!({ "type": "boolean" }));
    let required = |path: &str| operation("post", path)["requestBody"]["required"].clone();
    assert_eq!(required("/servers/{server}/test"), false);
    assert_eq!(required("/calls"), true);
}
