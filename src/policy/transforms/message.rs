//! The short message that clients get instead of the text of a result.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::MAX_RESULT_DEPTH;
use crate::config::{MessageTemplate, ResultSettings, StructuredChoice, TemplatePart, ValuePath};
use crate::jsonrpc::{Members, object_of, parse_strict};

/// A result with its message, and the paths of the template that lead to nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResultWithMessage {
    pub(super) raw: Vec<u8>,
    pub(super) missing: Vec<String>,
}

/// Puts the configured message into a raw tool result; `None` if the result stays as it is.
pub(super) fn put_message(
    settings: &ResultSettings,
    result: &Members<'_>,
) -> Option<ResultWithMessage> {
    let content: Vec<&RawValue> = serde_json::from_str(result.find("content")?.get()).ok()?;
    let structured = result.find("structuredContent").filter(|value| value.get() != "null");
    let text = || content.iter().find_map(|item| text_of(item));
    let source: Option<Cow<'_, str>> = match structured {
        Some(value) => Some(value.get().into()),
        None => text().map(Cow::Owned),
    };
    let source = source.map(|raw| (parse_strict(raw.as_bytes(), MAX_RESULT_DEPTH), raw));
    let value = source.as_ref().and_then(|(value, _)| value.as_ref().ok());
    let mut missing = Vec::new();
    let made = value.and_then(|value| make_message(settings, value, &mut missing));
    let message = made.as_ref().or(settings.fallback.as_ref())?;

    let others = content.iter().filter(|item| text_of(item).is_none()).map(|item| item.get());
    let item = json!({ "type": "text", "text": message }).to_string();
    let items: Vec<_> = std::iter::once(item.as_str()).chain(others).collect();
    let items = format!("[{}]", items.join(","));
    let own = |name: &str| name == "content" || name == "structuredContent";
    let kept = result.0.iter().filter(|(name, _)| !own(name));
    let mut members: Vec<(&str, Cow<'_, str>)> =
        kept.map(|(name, value)| (&**name, value.get().into())).collect();
    members.push(("content", items.into()));
    // Older versions of the protocol allow no other kind than an object.
    let is_whole = structured.is_some() || value.is_some_and(Value::is_object);
    if settings.structured == StructuredChoice::Keep
        && is_whole
        && let Some((_, raw)) = source
    {
        members.push(("structuredContent", raw));
    }
    Some(ResultWithMessage { raw: object_of(members), missing })
}

/// The message that a value gives; `None` if it has nothing for it.
fn make_message(
    settings: &ResultSettings,
    value: &Value,
    missing: &mut Vec<String>,
) -> Option<String> {
    let value = match &settings.field {
        Some(field) => find_value(value, field)?,
        None => value,
    };
    let Some(template) = &settings.template else {
        // A fallback alone says nothing about values.
        return settings.field.as_ref().and_then(|_| value_text(value));
    };
    fill_template(template, value, missing)
}

fn fill_template(
    template: &MessageTemplate,
    value: &Value,
    missing: &mut Vec<String>,
) -> Option<String> {
    let (mut message, mut paths) = (String::new(), 0);
    for part in template.parts() {
        match part {
            TemplatePart::Text(text) => message.push_str(text),
            TemplatePart::Value(path) => {
                paths += 1;
                match find_value(value, path).and_then(value_text) {
                    Some(text) => message.push_str(&text),
                    None => missing.push(path.steps().collect::<Vec<_>>().join(".")),
                }
            }
        }
    }
    (paths == 0 || missing.len() < paths).then_some(message)
}

fn find_value<'a>(value: &'a Value, path: &ValuePath) -> Option<&'a Value> {
    path.steps().try_fold(value, |value, step| match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        Value::Object(members) => members.get(step),
        _ => None,
    })
}

/// A value in a text: a string without its quotes, anything else as JSON.
fn value_text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The text of an item of `content`, if it is one.
pub(super) fn text_of(item: &RawValue) -> Option<String> {
    let item = Members::parse_with_duplicates(item.get().as_bytes()).ok()?;
    let is_text = item.find("type").is_some_and(|kind| kind.get() == "\"text\"");
    serde_json::from_str(item.find("text").filter(|_| is_text)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigSource, SystemEnvironment};

    fn settings(result: &str) -> ResultSettings {
        let text = format!("[servers.s]\ncommand = \"x\"\n[servers.s.tools.t]\nresult = {result}");
        let source =
            ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes: text.into() };
        let config = Config::read(&source, &SystemEnvironment).unwrap();
        config.servers[0].tools.overrides[0].1.transforms.result.clone()
    }

    fn with_message(settings_text: &str, result: &Value) -> Option<(Value, Vec<String>)> {
        let raw = result.to_string();
        let members = Members::parse(raw.as_bytes()).unwrap();
        let made = put_message(&settings(settings_text), &members)?;
        Some((serde_json::from_slice(&made.raw).unwrap(), made.missing))
    }

    fn message(settings_text: &str, structured: &Value) -> Option<String> {
        let result = json!({ "content": [], "structuredContent": structured });
        let (value, _) = with_message(settings_text, &result)?;
        Some(value["content"][0]["text"].as_str().unwrap().to_owned())
    }

    #[test]
    fn a_message_is_made_of_a_field_or_a_template_or_is_the_fallback() {
        let atis = json!({
            "icao": "LSZB", "wind": { "dir": 240, "gusts": null }, "list": [{ "a/b": true }],
        });
        for (settings, expected) in [
            ("{ field = \"icao\" }", Some("LSZB")),
            ("{ field = \"structuredContent.icao\" }", Some("LSZB")),
            ("{ field = \"/list/0/a~1b\" }", Some("true")),
            ("{ field = \"wind\" }", Some("{\"dir\":240,\"gusts\":null}")),
            ("{ field = \"wind.gusts\" }", None),
            ("{ field = \"none\", fallback = \"nothing\" }", Some("nothing")),
            ("{ fallback = \"fetched\" }", Some("fetched")),
            ("{ template = \"{icao}: {wind.dir}° {{x}}\" }", Some("LSZB: 240° {x}")),
            ("{ template = \"{none}|{icao}\" }", Some("|LSZB")),
            ("{ template = \"{none}{wind.gusts}\" }", None),
            ("{ template = \"{none}\", fallback = \"nothing\" }", Some("nothing")),
            ("{ template = \"done\" }", Some("done")),
            ("{ field = \"wind\", template = \"from {dir}\" }", Some("from 240")),
        ] {
            assert_eq!(message(settings, &atis).as_deref(), expected, "{settings}");
        }
    }

    #[test]
    fn text_that_is_json_has_fields_and_becomes_structured_content() {
        let text = |text: &str| {
            json!({ "content": [
            { "type": "image", "data": "AA==", "mimeType": "image/png" },
            { "type": "text", "text": text },
        ], "_meta": { "k": 1 } })
        };
        let (made, _) =
            with_message("{ field = \"a\" }", &text(r#"{"a": "short", "b": 1.0}"#)).unwrap();
        assert_eq!(made["content"][0], json!({ "type": "text", "text": "short" }));
        assert_eq!(made["content"][1]["type"], "image");
        assert_eq!(made["structuredContent"], json!({ "a": "short", "b": 1.0 }));
        assert_eq!(made["_meta"], json!({ "k": 1 }));
        let dropped = "{ field = \"a\", structured = \"drop\" }";
        let (made, _) = with_message(dropped, &text(r#"{"a": 1}"#)).unwrap();
        assert_eq!(made.get("structuredContent"), None);
        // An array is no structured content before 2026-07-28.
        let (made, _) = with_message("{ field = \"0\" }", &text("[7]")).unwrap();
        assert_eq!(
            (&made["content"][0]["text"], made.get("structuredContent")),
            (&json!("7"), None)
        );
        assert_eq!(with_message("{ field = \"a\" }", &text("plain text")), None);
        let (_, missing) =
            with_message("{ template = \"{a}{b.c}\" }", &text(r#"{"a": 1}"#)).unwrap();
        assert_eq!(missing, ["b.c"]);
    }
}
