//! Items of a result's content: selection by MIME type, and formats of their texts.

use std::borrow::Cow;

use serde_json::json;
use serde_json::value::RawValue;

use crate::config::{FormatChoice, Pattern};
use crate::jsonrpc::{Members, object_of, string, text};
use crate::mcp::media_type_essence;
use crate::text::clip;

use super::format::shorten_text;
use super::message::text_of;

/// Rewrites the raw `content` with texts in this format, and without items of other MIME types;
/// `None` if it stays as it is.
pub(super) fn change_contents(
    content: &str,
    format: FormatChoice,
    allowed: Option<&[Pattern]>,
) -> Option<String> {
    let items: Vec<&RawValue> = serde_json::from_str(content).ok()?;
    let mut has_changed = false;
    let items = items.iter().map(|item| {
        let changed = allowed.and_then(|allowed| refuse_type(item, allowed));
        let changed = changed.or_else(|| {
            let text = text_of(item).filter(|_| format != FormatChoice::Json)?;
            replace_text(item, &shorten_text(&text, format)?)
        });
        has_changed |= changed.is_some();
        changed.map_or(Cow::Borrowed(item.get()), Cow::Owned)
    });
    let items: Vec<_> = items.collect();
    has_changed.then(|| format!("[{}]", items.join(",")))
}

/// Replaces the text of an item.
fn replace_text(item: &RawValue, text: &str) -> Option<String> {
    let members = Members::parse_with_duplicates(item.get().as_bytes()).ok()?;
    let text = string(text);
    let members = members.0.iter().map(|(name, value)| match &**name {
        "text" => ("text", Cow::Borrowed(text.as_str())),
        name => (name, Cow::Borrowed(value.get())),
    });
    String::from_utf8(object_of(members)).ok()
}

/// Returns a sentence in place of an item with a type that clients do not get.
fn refuse_type(item: &RawValue, allowed: &[Pattern]) -> Option<String> {
    let members = Members::parse_with_duplicates(item.get().as_bytes()).ok()?;
    let kind = members.find("type").and_then(text)?;
    let declared =
        |members: &Members<'_>| members.find("mimeType").and_then(text).map(Cow::into_owned);
    let found = match &*kind {
        "image" | "audio" | "resource_link" => declared(&members),
        "resource" => {
            let resource = members.find("resource")?.get();
            let resource = Members::parse_with_duplicates(resource.as_bytes()).ok()?;
            let is_text = resource.find("text").is_some() && resource.find("blob").is_none();
            declared(&resource).or_else(|| is_text.then(|| "text/plain".to_owned()))
        }
        _ => return None,
    };
    // The type is unknown if it is not declared.
    let found = found.unwrap_or_else(|| "unknown".into());
    let essence = media_type_essence(&found);
    if allowed.iter().any(|pattern| pattern.matches(&essence)) {
        return None;
    }
    let (found, length) = (clip(&found, 64), item.get().len());
    let text =
        format!("[{kind} of type {found} left out: {length} bytes of a type that is not allowed]");
    Some(json!({ "type": "text", "text": text }).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn contents_of_other_types_are_replaced_also_where_they_do_not_say_theirs() {
        let allowed = ["image/png", "text/*"].map(|text| Pattern::new(text).unwrap());
        for (item, is_refused) in [
            (json!({ "type": "image", "data": "", "mimeType": "image/png" }), false),
            (json!({ "type": "image", "data": "", "mimeType": "image/PNG; a=b" }), false),
            (json!({ "type": "image", "data": "", "mimeType": "image/svg+xml" }), true),
            (json!({ "type": "audio", "data": "" }), true),
            (json!({ "type": "resource_link", "uri": "a:b" }), true),
            (json!({ "type": "resource_link", "uri": "a:b", "mimeType": "text/csv" }), false),
            (json!({ "type": "resource", "resource": { "uri": "a:b", "blob": "" } }), true),
            (json!({ "type": "resource", "resource": { "uri": "a:b", "text": "" } }), false),
            (
                json!({ "type": "resource", "resource": { "uri": "a:b", "text": "", "blob": "" } }),
                true,
            ),
            (json!({ "type": "text", "text": "" }), false),
        ] {
            let content = json!([item]).to_string();
            let changed = change_contents(&content, FormatChoice::Json, Some(&allowed));
            let changed: Option<Value> = changed.map(|raw| serde_json::from_str(&raw).unwrap());
            assert_eq!(changed.is_some(), is_refused, "{item}");
            if let Some(changed) = changed {
                assert!(changed[0]["text"].as_str().unwrap().contains("left out"), "{changed}");
            }
        }
    }

    #[test]
    fn a_text_is_a_text_however_its_type_is_written() {
        let content = r#"[{"\u0074ype":"te\u0078t","text":"{ }","_meta":{}}]"#;
        let changed = change_contents(content, FormatChoice::Compact, None).unwrap();
        assert_eq!(changed, r#"[{"type":"te\u0078t","text":"{}","_meta":{}}]"#);
    }
}
