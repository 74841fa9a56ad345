//! The items of a result's content: which kinds clients get, and how their texts are written.

use std::borrow::Cow;

use serde_json::json;
use serde_json::value::RawValue;

use super::format::shorten_text;
use super::message::text_of;
use crate::config::{FormatChoice, Pattern};
use crate::jsonrpc::{Members, object_of, string};
use crate::mcp::media_type_essence;
use crate::text::clip;

/// The raw `content` with texts in this format, and without items of other MIME types; `None` if it
/// stays as it is.
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

/// The same item with another text.
fn replace_text(item: &RawValue, text: &str) -> Option<String> {
    let members = Members::parse_with_duplicates(item.get().as_bytes()).ok()?;
    let text = string(text);
    let members = members.0.iter().map(|(name, value)| match &**name {
        "text" => ("text", Cow::Borrowed(text.as_str())),
        name => (name, Cow::Borrowed(value.get())),
    });
    String::from_utf8(object_of(members)).ok()
}

/// A sentence instead of an item whose type is not among those that clients get.
fn refuse_type(item: &RawValue, allowed: &[Pattern]) -> Option<String> {
    let members = Members::parse_with_duplicates(item.get().as_bytes()).ok()?;
    let text = |members: &Members<'_>, name| -> Option<String> {
        serde_json::from_str(members.find(name)?.get()).ok()
    };
    let kind = text(&members, "type")?;
    let found = match kind.as_str() {
        // Both have to have one.
        "image" | "audio" => text(&members, "mimeType").unwrap_or_else(|| "unknown".into()),
        "resource_link" => text(&members, "mimeType")?,
        "resource" => {
            let resource = members.find("resource")?.get();
            text(&Members::parse_with_duplicates(resource.as_bytes()).ok()?, "mimeType")?
        }
        _ => return None,
    };
    let essence = media_type_essence(&found);
    if allowed.iter().any(|pattern| pattern.matches(&essence)) {
        return None;
    }
    let (found, length) = (clip(&found, 64), item.get().len());
    let text =
        format!("[{kind} of type {found} left out: {length} bytes of a type that is not allowed]");
    Some(json!({ "type": "text", "text": text }).to_string())
}
