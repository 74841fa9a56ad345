use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::captured_log::CapturedLog;
use crate::catalog::{HeaderRules, Tool};
use crate::config::{Config, ConfigSource, SystemEnvironment};

fn result_transform(settings: &str, output: Option<&Value>) -> ResultTransform {
    let text = format!("[servers.s]\ncommand = \"x\"\n[servers.s.tools.t]\n{settings}");
    let source =
        ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes: text.into() };
    let config = Config::read(&source, &SystemEnvironment).unwrap();
    let settings = &config.servers[0].tools.overrides[0].1.transforms;
    let mut tool = json!({ "name": "t", "inputSchema": { "type": "object" } });
    if let Some(output) = output {
        tool["outputSchema"] = output.clone();
    }
    let tool = Tool::parse(tool.to_string().as_bytes(), HeaderRules::Enforce).unwrap();
    ResultTransform::new(&Arc::new(tool), settings)
}

fn shaped(settings: &str, output: Option<&Value>, raw: &str) -> Option<String> {
    let transform = result_transform(settings, output);
    let server = ServerName::new("s").unwrap();
    let body = ResultBody::parse(raw.to_owned().into()).unwrap();
    let shaped = shape_result(&transform, &server, &body, &|_| None)?;
    Some(String::from_utf8(shaped.to_vec()).unwrap())
}

fn shaped_value(settings: &str, output: Option<&Value>, raw: &Value) -> Value {
    let shaped = shaped(settings, output, &raw.to_string());
    shaped.map_or_else(|| raw.clone(), |shaped| serde_json::from_str(&shaped).unwrap())
}

#[test]
fn no_composed_text_brings_back_stripped_characters() {
    let hostile =
        r#"{"a":"\u001b[1mx\u202e","rows":[{"k":"\u001b]0;t\u0007y","j":1},{"k":"z","j":22}]}"#;
    let answer = json!({ "content": [{ "type": "text", "text": hostile }] });
    let strip = "strip = [\"ansi\", \"control\", \"invisible\"]";
    for settings in [
        format!("result = {{ {strip} }}"),
        format!("result = {{ {strip}, field = \"a\" }}"),
        format!("result = {{ {strip}, field = \"rows\", format = \"csv\" }}"),
        format!("result = {{ {strip}, template = \"{{a}}\", structured = \"keep\" }}"),
    ] {
        let made = shaped_value(&settings, None, &answer).to_string();
        for bad in ["\\u001b", "\\u202e", "\u{202e}", "[1m", "0;t"] {
            assert!(!made.contains(bad), "{settings}: {bad} {made}");
        }
        assert!(made.contains('x') || made.contains('y'), "{made}");
    }
}

#[test]
fn a_duplicate_key_is_an_error_where_results_are_changed() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    for raw in [
        r#"{"content":[],"structuredContent":{"a":"x"},"structuredContent":{"a":1}}"#,
        r#"{"content":[],"structuredContent":{"a":"x"},"structured\u0043ontent":{"a":1}}"#,
        r#"{"content":[{"type":"text","type":"image","text":"x","data":"","mimeType":"a/b"}]}"#,
    ] {
        let made = shaped("check_output = \"enforce\"", Some(&schema), raw).unwrap();
        assert!(made.contains("duplicate key") && made.contains("\"isError\":true"), "{made}");
    }
}

#[test]
fn results_that_do_not_fit_are_logged_once_a_minute_for_each_tool() {
    let log = CapturedLog::start();
    let schema = json!({ "type": "object" });
    for server in ["faulty-one", "faulty-two"] {
        let transform = result_transform("check_output = \"warn\"", Some(&schema));
        let server = ServerName::new(server).unwrap();
        let body = ResultBody::parse(r#"{"content":[],"structuredContent":[1]}"#.into()).unwrap();
        for _ in 0..20 {
            shape_result(&transform, &server, &body, &|_| None);
        }
    }
    let text = log.text();
    let lines = text.lines().filter(|line| line.contains("does not fit the tool's outputSchema"));
    assert_eq!(lines.count(), 2, "{text}");
}

#[test]
fn output_of_every_kind_is_checked() {
    for (schema, value, fits) in [
        (json!({ "type": "array", "items": { "type": "integer" } }), json!([1]), true),
        (json!({ "type": "array", "items": { "type": "integer" } }), json!(["x"]), false),
        (json!({ "type": "object" }), json!([1]), false),
        (json!({}), json!([1]), true),
        (json!({ "anyOf": [{ "type": "object" }, { "type": "string" }] }), json!("x"), true),
        (json!({ "anyOf": [{ "type": "object" }, { "type": "string" }] }), json!(7), false),
        // The schema cannot be compiled: results pass, with a warning in the log.
        (json!({ "$ref": "https://example.com/other" }), json!(7), true),
    ] {
        let answer = json!({ "content": [], "structuredContent": value });
        let made = shaped_value("check_output = \"enforce\"", Some(&schema), &answer);
        assert_eq!(made.get("isError").is_none(), fits, "{schema} {made}");
    }
}

#[test]
fn structured_content_is_dropped_whether_or_not_there_is_a_message() {
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    for (answer, of_message, alone) in [
        (json!({ "content": [], "structuredContent": { "b": 1 } }), r#"{"b":1}"#, r#"{"b":1}"#),
        (json!({ "content": [], "structuredContent": { "a": 1 } }), "1", r#"{"a":1}"#),
        (json!({ "structuredContent": { "a": 1 }, "isError": true }), r#"{"a":1}"#, r#"{"a":1}"#),
        (json!({ "structuredContent": { "a": 1 } }), "1", r#"{"a":1}"#),
        (json!({ "content": text("x"), "structuredContent": { "b": 1 } }), "x", "x"),
    ] {
        for (settings, expected) in [
            ("result = { field = \"a\", structured = \"drop\" }", of_message),
            ("result.structured = \"drop\"", alone),
        ] {
            let made = shaped_value(settings, None, &answer);
            assert_eq!(made.get("structuredContent"), None, "{made}");
            assert_eq!(made["content"], text(expected), "{settings} {answer}");
        }
    }
}

#[test]
fn a_result_without_content_is_changed_and_a_created_task_is_not() {
    let settings = "check_output = \"enforce\"\nresult.max_size = \"1KiB\"";
    let schema = json!({ "type": "object", "required": ["a"] });
    let made = shaped_value(settings, Some(&schema), &json!({ "structuredContent": {} }));
    assert_eq!(made["isError"], true);
    for raw in [
        json!({ "task": { "taskId": "1", "status": "working" } }),
        json!({ "resultType": "input_required", "inputRequests": {} }),
        json!({ "resultType": "task", "taskId": "1", "status": "working" }),
    ] {
        assert_eq!(shaped(settings, Some(&schema), &raw.to_string()), None, "{raw}");
    }
    let passed_off = json!({ "task": { "taskId": "1" }, "structuredContent": {} });
    assert_eq!(shaped_value(settings, Some(&schema), &passed_off)["isError"], true);
}

#[test]
fn structured_content_that_was_cut_fits_its_schema_or_is_an_error() {
    let rows = json!({ "content": [], "structuredContent": { "rows": vec![1; 2000] } });
    for (least, is_error) in [(10, false), (1000, true)] {
        let rows_schema = json!({ "type": "array", "minItems": least });
        let schema = json!({ "type": "object", "properties": { "rows": rows_schema } });
        let made = shaped_value("result.max_size = \"1KiB\"", Some(&schema), &rows);
        assert_eq!(made.get("isError").is_some(), is_error, "{made}");
    }
}

#[test]
fn the_result_within_a_task_is_changed() {
    let transform = result_transform("result.strip = [\"control\"]", None);
    let server = ServerName::new("s").unwrap();
    let task = json!({
        "taskId": "1\u{7}", "status": "completed",
        "result": { "content": [{ "type": "text", "text": "a\u{7}b" }] },
    });
    let made = shape_task(&transform, &server, task.to_string().as_bytes(), &|_| None).unwrap();
    let made: Value = serde_json::from_slice(&made).unwrap();
    assert_eq!(made["result"]["content"][0]["text"], "ab");
    assert_eq!(made["taskId"], "1\u{7}");
    let working = br#"{"taskId":"1","status":"working"}"#;
    assert_eq!(shape_task(&transform, &server, working, &|_| None), None);
}
