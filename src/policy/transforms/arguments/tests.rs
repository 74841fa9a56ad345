use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::catalog::{HeaderRules, Tool};
use crate::config::{Config, ConfigSource, SystemEnvironment};

fn transformed(schema: &Value, arguments: &str) -> Arc<Tool> {
    let text =
        format!("[servers.s]\ncommand = \"x\"\n[servers.s.tools.t]\narguments = {arguments}");
    let source =
        ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes: text.into() };
    let config = Config::read(&source, &SystemEnvironment).unwrap();
    let settings = &config.servers[0].tools.overrides[0].1.transforms;
    let raw = json!({ "name": "t", "inputSchema": schema }).to_string();
    let tool = Arc::new(Tool::parse(raw.as_bytes(), HeaderRules::Enforce).unwrap());
    Tool::transform(&tool, settings).unwrap().0
}

fn open_schema() -> Value {
    json!({ "type": "object", "required": ["need"], "properties": {
        "a": { "type": "integer" }, "b": { "type": "string" }, "need": { "type": "string" },
    } })
}

fn completed(arguments: &str, client: &str) -> Result<String, String> {
    let tool = transformed(&open_schema(), arguments);
    let mut headers = HeaderMap::new();
    headers.insert("x-user", "ann \"a\"".parse().unwrap());
    headers.append("x-two", "1".parse().unwrap());
    headers.append("x-two", "2".parse().unwrap());
    headers.insert("x-number", "42".parse().unwrap());
    headers.insert("x-odd", HeaderValue::from_bytes("é".as_bytes()).unwrap());
    let client = (!client.is_empty()).then_some(client.as_bytes());
    let done = complete_arguments(tool.transform.as_ref().unwrap(), client, &headers);
    done.map(|raw| String::from_utf8(raw).unwrap()).map_err(|error| error.to_string())
}

#[test]
fn arguments_are_completed_as_the_configuration_says() {
    for (edits, client, expected) in [
        ("{ a = { value = 7 } }", "", r#"{"a":7}"#),
        ("{ a = { value = 7 } }", r#"{"a":1,"b": "x"}"#, r#"{"b":"x","a":7}"#),
        ("{ a = { value = [1, { k = 2.5, t = true }] } }", "{}", r#"{"a":[1,{"k":2.5,"t":true}]}"#),
        ("{ a = { default = 7 } }", r#"{"a": null}"#, r#"{"a":null}"#),
        ("{ a = { default = 7 } }", "{}", r#"{"a":7}"#),
        (
            "{ a = { hide = true } }",
            r#"{"\u0061":1,"c":12345678901234567890123}"#,
            r#"{"c":12345678901234567890123}"#,
        ),
        ("{ a = { rename = \"n\" } }", r#"{"n":1e400,"a":2}"#, r#"{"a":1e400}"#),
        (
            "{ a = { rename = \"b\" }, b = { rename = \"a\" } }",
            r#"{"a":"x","b":1}"#,
            r#"{"b":"x","a":1}"#,
        ),
        ("{ a = { rename = \"n\", default = 7 } }", "{}", r#"{"a":7}"#),
        ("{ b = { from = \"a\" } }", r#"{"a":[ 1],"b":2}"#, r#"{"a":[ 1],"b":[ 1]}"#),
        ("{ b = { from = \"a\" }, a = { value = 1 } }", "{}", r#"{"a":1,"b":1}"#),
        ("{ b = { from = \"a\" }, a = { rename = \"n\" } }", r#"{"n":1}"#, r#"{"a":1,"b":1}"#),
        ("{ b = { from = \"a\" } }", "{}", "{}"),
        ("{ b = { value = \"u:${header:X-User}!\" } }", "{}", r#"{"b":"u:ann \"a\"!"}"#),
        ("{ b = { value = \"${header:X-None}\" } }", r#"{"b":"x"}"#, "{}"),
        ("{ b = { default = \"${header:X-User}\" } }", r#"{"b":"x"}"#, r#"{"b":"x"}"#),
        ("{ a = { value = \"${header:X-Number}\" } }", "{}", r#"{"a":42}"#),
        ("{ b = { value = \"${header:X-Number}\" } }", "{}", r#"{"b":"42"}"#),
        ("{ a = { value = \"${header:X-Number}\" } }", r#"{"b":7}"#, r#"{"b":7,"a":42}"#),
        ("{ b = { value = \"$${header:X}\" } }", "{}", r#"{"b":"${header:X}"}"#),
    ] {
        assert_eq!(completed(edits, client).unwrap(), expected, "{edits} {client}");
    }
}

#[test]
fn a_required_argument_without_its_header_is_refused_and_so_is_a_duplicate() {
    for (edits, client, expected) in [
        ("{ need = { value = \"${header:X-None}\" } }", "{}", "no header x-none"),
        ("{ b = { value = \"${header:X-Two}\" } }", "{}", "x-two twice"),
        (
            "{ b = { value = \"${header:X-Odd}\" } }",
            "{}",
            "x-odd has characters other than visible ASCII",
        ),
        ("{ b = { hide = true } }", r#"{"a":1,"a":2}"#, "duplicate key"),
    ] {
        let told = completed(edits, client).unwrap_err();
        assert!(told.contains(expected), "{edits} {client}: {told}");
    }
}

#[test]
fn errors_have_the_client_names_of_arguments_and_nothing_about_hidden_ones() {
    let tool = transformed(
        &open_schema(),
        "{ a = { rename = \"n/1\" }, b = { value = 1 }, need = { default = \"x\" } }",
    );
    let explain = |lines: &[&str]| {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        let violations = ArgumentsError { lines, others: OtherViolations::None };
        explain_to_client(tool.transform.as_ref().unwrap(), violations).to_string()
    };
    assert_eq!(
        explain(&["/a/0: type: x", "/b: type: y", "/c: type: z"]),
        "/n~11/0: type: x\n/c: type: z"
    );
    let hidden = explain(&["/b: type: y", "(root): required: property \"b\" is missing"]);
    assert_eq!(hidden, UNEXPLAINED_VIOLATION);
}
