//! Results that are larger than the configuration allows.

use std::borrow::Cow;

use serde_json::json;
use serde_json::value::RawValue;

use super::MAX_RESULT_DEPTH;
use super::cut::{Omitted, cut_json, cut_text};
use super::message::text_of;
use crate::call::tool_error;
use crate::config::WhenLarger;
use crate::jsonrpc::{Members, check_depth, object_of};

/// A raw tool result in at most `max_size` bytes; `None` if it is not larger.
pub(super) fn limit_size(raw: &[u8], max_size: usize, when_larger: WhenLarger) -> Option<Vec<u8>> {
    if raw.len() <= max_size {
        return None;
    }
    let members = Members::parse_with_duplicates(raw).ok();
    let members = members.filter(|_| check_depth(raw, MAX_RESULT_DEPTH).is_ok());
    let members = members.filter(|_| when_larger == WhenLarger::Truncate);
    let cut = members.map(|members| truncate(&members, raw.len(), max_size));
    // What is not cut, such as `_meta`, may be larger than all that is allowed.
    let cut = cut.filter(|cut| cut.len() <= max_size);
    Some(cut.unwrap_or_else(|| {
        tool_error(&format!(
            "The result has {} bytes, and at most {max_size} are allowed. Ask for less of it: with a \
             filter, a smaller page or a narrower range.",
            raw.len()
        ))
    }))
}

/// The result with its contents cut, and a sentence about what is missing.
fn truncate(members: &Members<'_>, length: usize, max_size: usize) -> Vec<u8> {
    let is_content = |name: &str| name == "content" || name == "structuredContent";
    let (contents, others): (Vec<_>, Vec<_>) =
        members.0.iter().partition(|(name, _)| is_content(name));
    let small =
        others.iter().map(|(name, value)| name.len() + value.get().len() + 4).sum::<usize>();
    let mut room = max_size.saturating_sub(small + SENTENCE);
    let mut omitted = Omitted::default();
    let mut kept: Vec<(&str, Cow<'_, str>)> =
        others.iter().map(|(name, value)| (&**name, value.get().into())).collect();
    // The smaller one leaves what it does not need to the other.
    let mut contents = contents;
    contents.sort_by_key(|(_, value)| value.get().len());
    let mut left = contents.len();
    let mut items = Vec::new();
    for (name, value) in contents {
        let share = (room / left).saturating_sub(name.len() + 4);
        left -= 1;
        if name == "content" {
            items = cut_content(value, share, &mut omitted);
            room = room.saturating_sub(items.iter().map(|item| item.len() + 1).sum());
        } else {
            let cut = cut_json(value.get(), share, &mut omitted);
            room = room.saturating_sub(cut.len());
            kept.push((name, cut));
        }
    }
    let sentence = describe_cut(length, max_size, omitted);
    items.push(json!({ "type": "text", "text": sentence }).to_string().into());
    kept.push(("content", format!("[{}]", items.join(",")).into()));
    object_of(kept)
}

/// The items of `content` that fit. The last text is cut; JSON in it stays JSON.
fn cut_content<'a>(content: &'a RawValue, size: usize, omitted: &mut Omitted) -> Vec<Cow<'a, str>> {
    let items: Vec<&RawValue> = serde_json::from_str(content.get()).unwrap_or_default();
    let (mut kept, mut room) = (Vec::new(), size.saturating_sub(2));
    for (index, item) in items.iter().enumerate() {
        let raw = item.get();
        if raw.len() < room {
            room -= raw.len() + 1;
            kept.push(raw.into());
            continue;
        }
        let text = text_of(item).filter(|_| room > TEXT_ITEM);
        let cut = text.map(|text| cut_item(&text, room - TEXT_ITEM, omitted));
        omitted.elements += items.len() - index - usize::from(cut.is_some());
        kept.extend(cut.map(Cow::from));
        break;
    }
    kept
}

fn cut_item(text: &str, size: usize, omitted: &mut Omitted) -> String {
    let is_json = text.starts_with(['{', '[']) && serde_json::from_str::<&RawValue>(text).is_ok();
    if is_json && check_depth(text.as_bytes(), MAX_RESULT_DEPTH).is_ok() {
        // Quotes within a text take two bytes.
        let mut inner = size.saturating_sub(2);
        loop {
            let mut attempt = Omitted::default();
            let cut = cut_json(text, inner, &mut attempt);
            let item = json!({ "type": "text", "text": cut }).to_string();
            if item.len() <= size + TEXT_ITEM || inner < 4 {
                omitted.elements += attempt.elements;
                omitted.members += attempt.members;
                omitted.text_bytes += attempt.text_bytes;
                return item;
            }
            inner -= (inner / 8).max(1);
        }
    }
    json!({ "type": "text", "text": cut_text(text, size, omitted) }).to_string()
}

/// What was left out, and how to ask for it.
fn describe_cut(length: usize, max_size: usize, omitted: Omitted) -> String {
    let counts = [
        (omitted.elements, "elements"),
        (omitted.members, "members"),
        (omitted.text_bytes, "bytes of text"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<_> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    format!(
        "[This result was cut: it has {length} bytes, and at most {max_size} are shown. Left out: {}. \
         Ask for the rest in parts: with a filter, a smaller page or a narrower range.]",
        counts.join(", ")
    )
}

/// The bytes that are kept for the sentence about what was left out.
const SENTENCE: usize = 400;
/// The bytes of an item with an empty text.
const TEXT_ITEM: usize = r#"{"type":"text","text":""}"#.len();
