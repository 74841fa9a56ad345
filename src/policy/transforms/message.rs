//! The short message that clients get instead of the text of a result.

use std::borrow::Cow;

use serde_json::json;
use serde_json::value::RawValue;

use crate::config::{
    FormatChoice, MessageTemplate, ResultSettings, StructuredChoice, TemplatePart, ValuePath,
};
use crate::jsonrpc::{Members, object_of, parse_strict, string, text};

use super::MAX_RESULT_DEPTH;
use super::format::shorten_text;
use super::result::{CONTENT_MEMBER, STRUCTURED_CONTENT};

/// A result with its message, and the paths in the message that have no value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MadeMessage {
    /// The result; `None` if it stays as it is, because no message can be made.
    pub(super) raw: Option<Vec<u8>>,
    pub(super) missing: Vec<String>,
}

/// Puts the configured message into a tool result. The caller must have refused duplicate keys in
/// it.
pub(super) fn put_message(
    settings: &ResultSettings,
    result: &Members<'_>,
    has_output_schema: bool,
) -> MadeMessage {
    let content = result.find(CONTENT_MEMBER).map(RawValue::get);
    let content: Vec<&RawValue> =
        content.and_then(|content| serde_json::from_str(content).ok()).unwrap_or_default();
    let texts: Vec<String> = content.iter().filter_map(|item| text_of(item)).collect();
    let structured =
        result.find(STRUCTURED_CONTENT).map(RawValue::get).filter(|raw| *raw != "null");
    let source = structured.or_else(|| texts.iter().map(String::as_str).find(|text| is_json(text)));
    let mut missing = Vec::new();
    let made = source.and_then(|value| make_message(settings, value.trim(), &mut missing));
    let Some(message) = made.as_ref().or(settings.fallback.as_ref()) else {
        return MadeMessage { raw: None, missing };
    };

    let others = content.iter().filter(|item| text_of(item).is_none()).map(|item| item.get());
    let item = json!({ "type": "text", "text": message }).to_string();
    let items: Vec<_> = std::iter::once(item.as_str()).chain(others).collect();
    let items = format!("[{}]", items.join(","));
    let kept =
        result.0.iter().filter(|(name, _)| name != CONTENT_MEMBER && name != STRUCTURED_CONTENT);
    let mut members: Vec<(&str, Cow<'_, str>)> =
        kept.map(|(name, value)| (&**name, value.get().into())).collect();
    members.push((CONTENT_MEMBER, items.into()));
    let whole = || match structured {
        Some(value) => Some(Cow::Borrowed(value)),
        None => whole_of_texts(&texts, has_output_schema),
    };
    if settings.structured == StructuredChoice::Keep
        && let Some(whole) = whole()
    {
        members.push((STRUCTURED_CONTENT, whole));
    }
    MadeMessage { raw: Some(object_of(members)), missing }
}

/// Returns the texts that a message replaces, as structured content: an object, as older versions
/// of the protocol require it. A tool with an output schema promises an object of its own.
fn whole_of_texts(texts: &[String], has_output_schema: bool) -> Option<Cow<'_, str>> {
    let value = |text: &str| if is_json(text) { text.trim().to_owned() } else { string(text) };
    let whole = match texts {
        [] => return None,
        [text] if text.trim_start().starts_with('{') && is_json(text) => {
            return Some(text.trim().into());
        }
        _ if has_output_schema => return None,
        [text] => value(text),
        all => format!("[{}]", all.iter().map(|text| value(text)).collect::<Vec<_>>().join(",")),
    };
    Some(format!("{{\"result\":{whole}}}").into())
}

/// Returns true if a text is an object or an array without duplicate keys.
fn is_json(text: &str) -> bool {
    let text = text.trim();
    text.starts_with(['{', '[']) && parse_strict(text.as_bytes(), MAX_RESULT_DEPTH).is_ok()
}

/// Builds the message from a value; `None` if the value has nothing for it.
fn make_message(
    settings: &ResultSettings,
    value: &str,
    missing: &mut Vec<String>,
) -> Option<String> {
    let value = match &settings.field {
        Some(field) => {
            let found = ValuePath::follow(field.steps(), value);
            if found.and_then(value_text).is_none() {
                missing.push(written_path(field));
            }
            found?
        }
        None => value,
    };
    let Some(template) = &settings.template else {
        // A fallback alone shows no values.
        return settings.field.as_ref().and_then(|_| value_text(value));
    };
    fill_template(template, value, missing)
}

fn fill_template(
    template: &MessageTemplate,
    value: &str,
    missing: &mut Vec<String>,
) -> Option<String> {
    let (mut message, mut paths, mut found) = (String::new(), 0, 0);
    for part in template.parts() {
        match part {
            TemplatePart::Text(text) => message.push_str(text),
            TemplatePart::Value(path) => {
                paths += 1;
                match ValuePath::follow(path.steps(), value).and_then(value_text) {
                    Some(text) => {
                        found += 1;
                        message.push_str(&text);
                    }
                    None => missing.push(written_path(path)),
                }
            }
        }
    }
    (paths == 0 || found > 0).then_some(message)
}

fn written_path(path: &ValuePath) -> String {
    path.steps().collect::<Vec<_>>().join(".")
}

/// Returns a raw value as text: a string without its quotes, anything else as it was written, on
/// one line.
pub fn value_text(value: &str) -> Option<String> {
    match value.as_bytes().first()? {
        b'n' => None,
        b'"' => serde_json::from_str(value).ok(),
        _ => Some(shorten_text(value, FormatChoice::Compact).unwrap_or_else(|| value.to_owned())),
    }
}

/// Returns the text of an item of `content`, if it is a text item.
pub fn text_of(item: &RawValue) -> Option<String> {
    let item = Members::parse_with_duplicates(item.get().as_bytes()).ok()?;
    let is_text = item.find("type").and_then(text).is_some_and(|kind| kind == "text");
    item.find("text").filter(|_| is_text).and_then(text).map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

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
        let made = put_message(&settings(settings_text), &members, false);
        Some((serde_json::from_slice(&made.raw?).unwrap(), made.missing))
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
        // An array is not valid structured content before 2026-07-28.
        let (made, _) = with_message("{ field = \"0\" }", &text("[7]")).unwrap();
        assert_eq!(
            (&made["content"][0]["text"], &made["structuredContent"]),
            (&json!("7"), &json!({ "result": [7] }))
        );
        assert_eq!(with_message("{ field = \"a\" }", &text("plain text")), None);
        let (_, missing) =
            with_message("{ template = \"{a}{b.c}\" }", &text(r#"{"a": 1}"#)).unwrap();
        assert_eq!(missing, ["b.c"]);
    }

    #[test]
    fn the_texts_that_a_message_takes_the_place_of_are_kept() {
        let with = |texts: &[&str], settings_text: &str, has_schema| {
            let items = texts.iter().map(|text| json!({ "type": "text", "text": text }));
            let raw = json!({ "content": items.collect::<Vec<_>>() }).to_string();
            let members = Members::parse(raw.as_bytes()).unwrap();
            let made = put_message(&settings(settings_text), &members, has_schema).raw.unwrap();
            let made: Value = serde_json::from_slice(&made).unwrap();
            made.get("structuredContent").cloned().unwrap_or_default()
        };
        let fallback = "{ fallback = \"done\" }";
        for (texts, expected) in [
            (&["plain"][..], json!({ "result": "plain" })),
            (&["one", "{\"a\":1}"], json!({ "result": ["one", { "a": 1 }] })),
            (&["[1]"], json!({ "result": [1] })),
            (&["{\"a\":1}"], json!({ "a": 1 })),
            (&["{\"a\":1,\"a\":2}"], json!({ "result": "{\"a\":1,\"a\":2}" })),
            (&[], Value::Null),
        ] {
            assert_eq!(with(texts, fallback, false), expected, "{texts:?}");
        }
        assert_eq!(with(&["plain"], fallback, true), Value::Null);
        assert_eq!(with(&["{\"a\":1}"], fallback, true), json!({ "a": 1 }));
    }

    #[test]
    fn numbers_are_written_as_they_came() {
        let raw = br#"{"content":[],"structuredContent":{"n":12345678901234567890123,"f":1.50,"o":{"x": 1.0}}}"#;
        let members = Members::parse(raw).unwrap();
        let made = put_message(&settings("{ template = \"{n} { f } {o}\" }"), &members, false);
        let made: Value = serde_json::from_slice(&made.raw.unwrap()).unwrap();
        assert_eq!(made["content"][0]["text"], "12345678901234567890123 1.50 {\"x\":1.0}");
    }

    #[test]
    fn a_message_without_any_value_names_the_missing_ones() {
        let raw = br#"{"content":[],"structuredContent":{"a":1}}"#;
        let members = Members::parse(raw).unwrap();
        for (settings_text, missing) in [
            ("{ template = \"{b}{c.d}\" }", &["b", "c.d"][..]),
            ("{ field = \"b\", template = \"{x}\" }", &["b"]),
            ("{ field = \"b.c\" }", &["b.c"]),
        ] {
            let made = put_message(&settings(settings_text), &members, false);
            assert_eq!(
                (made.raw, &made.missing[..]),
                (None, &missing.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..])
            );
        }
    }
}
