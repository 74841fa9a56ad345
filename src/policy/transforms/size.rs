//! Results that are larger than the configuration allows.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;

use crate::call::tool_error;
use crate::config::WhenLarger;
use crate::jsonrpc::{Members, check_depth, object_of};

use super::MAX_RESULT_DEPTH;
use super::cut::{Omitted, cut_json, cut_text};
use super::message::text_of;
use super::result::{CONTENT_MEMBER, STRUCTURED_CONTENT};

/// Limit of a result's size, and the treatment of larger ones.
pub(super) struct SizeLimit<'a> {
    pub(super) max_size: usize,
    pub(super) when_larger: WhenLarger,
    /// Returns true if structured content that was cut still fits the clients' schema.
    pub(super) fits: &'a dyn Fn(&str) -> bool,
    pub(super) keep: &'a KeepWhole<'a>,
}

/// The readable part of a larger result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeText {
    /// Its structured content, its texts, or all of it.
    pub text: String,
    /// The type of the text.
    pub mime: &'static str,
}

/// The address of a whole result, for a client that has received a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptResource {
    /// The URI.
    pub uri: String,
    /// Its lifetime.
    pub lasting: Duration,
}

/// Keeps the whole of a result; `None` if there is no room for it.
pub type KeepWhole<'a> = dyn Fn(WholeText) -> Option<KeptResource> + 'a;

/// Returns a raw tool result within its limit; `None` if it is not larger.
pub(super) fn limit_size(raw: &[u8], limit: &SizeLimit<'_>) -> Option<Vec<u8>> {
    let max_size = limit.max_size;
    if raw.len() <= max_size {
        return None;
    }
    let members = Members::parse_with_duplicates(raw).ok();
    let kept = members.as_ref().filter(|_| limit.when_larger == WhenLarger::Resource);
    let kept = kept.and_then(|members| (limit.keep)(whole_text(raw, members)));
    let members = members.filter(|_| check_depth(raw, MAX_RESULT_DEPTH).is_ok());
    let members = members.filter(|_| limit.when_larger != WhenLarger::Error);
    let size = CutSize { length: raw.len(), max_size };
    let cut = members.map(|members| truncate(&members, size, kept.as_ref()));
    // Members that are not cut, such as `_meta`, may be larger than the limit.
    let cut = cut.filter(|cut| cut.len() <= max_size && fits_schema(cut, limit));
    Some(cut.unwrap_or_else(|| {
        tool_error(&format!(
            "The result has {} bytes, and at most {max_size} are allowed. {}",
            raw.len(),
            advise(kept.as_ref())
        ))
    }))
}

/// Returns the readable part of the whole: structured content, otherwise the texts, otherwise all
/// of it.
fn whole_text(raw: &[u8], members: &Members<'_>) -> WholeText {
    let json = |text: &str| WholeText { text: text.to_owned(), mime: "application/json" };
    if let Some(structured) = members.find(STRUCTURED_CONTENT).filter(|value| value.get() != "null")
    {
        return json(structured.get());
    }
    let content = members.find(CONTENT_MEMBER).map_or("[]", RawValue::get);
    let items: Vec<&RawValue> = serde_json::from_str(content).unwrap_or_default();
    let texts: Option<Vec<String>> = items.into_iter().map(text_of).collect();
    match texts {
        Some(texts) => WholeText { text: texts.join("\n"), mime: "text/plain" },
        None => json(&String::from_utf8_lossy(raw)),
    }
}

/// Describes the ways to get the rest.
fn advise(kept: Option<&KeptResource>) -> String {
    let Some(KeptResource { uri, lasting }) = kept else {
        return "Ask for less of it: with a filter, a smaller page or a narrower range.".to_owned();
    };
    let seconds = lasting.as_secs();
    format!(
        "The whole can be read for {seconds} s as the resource {uri}, and a part of it as \
         {uri}?range=0-65535 (the first and the last byte)."
    )
}

fn fits_schema(cut: &[u8], limit: &SizeLimit<'_>) -> bool {
    let members = Members::parse_with_duplicates(cut).ok();
    let structured = members.and_then(|members| members.find(STRUCTURED_CONTENT));
    structured.is_none_or(|structured| (limit.fits)(structured.get()))
}

/// Sizes of a result that is cut, in bytes.
#[derive(Clone, Copy)]
struct CutSize {
    /// Of the whole result.
    length: usize,
    max_size: usize,
}

/// Cuts the contents of the result, and adds a sentence about the missing parts.
fn truncate(members: &Members<'_>, size: CutSize, kept: Option<&KeptResource>) -> Vec<u8> {
    let is_content = |name: &str| name == CONTENT_MEMBER || name == STRUCTURED_CONTENT;
    let (contents, others): (Vec<_>, Vec<_>) =
        members.0.iter().partition(|(name, _)| is_content(name));
    let small =
        others.iter().map(|(name, value)| name.len() + value.get().len() + 4).sum::<usize>();
    let mut room = size.max_size.saturating_sub(small + SENTENCE_RESERVE_BYTES);
    let mut omitted = Omitted::default();
    let mut shown: Vec<(&str, Cow<'_, str>)> =
        others.iter().map(|(name, value)| (&**name, value.get().into())).collect();
    // The smaller one leaves its unused room to the other.
    let mut contents = contents;
    contents.sort_by_key(|(_, value)| value.get().len());
    let mut left = contents.len();
    let mut items = Vec::new();
    for (name, value) in contents {
        let share = (room / left).saturating_sub(name.len() + 4);
        left -= 1;
        if name == CONTENT_MEMBER {
            items = cut_content(value, share, &mut omitted);
            room = room.saturating_sub(items.iter().map(|item| item.len() + 1).sum());
        } else {
            let cut = cut_json(value.get(), share, &mut omitted);
            room = room.saturating_sub(cut.len());
            shown.push((name, cut));
        }
    }
    let sentence = describe_cut(size, omitted, kept);
    items.push(json!({ "type": "text", "text": sentence }).to_string().into());
    shown.push((CONTENT_MEMBER, format!("[{}]", items.join(",")).into()));
    object_of(shown)
}

/// Returns the items of `content` that fit. The first text that does not is cut; JSON in it stays
/// JSON.
fn cut_content<'a>(content: &'a RawValue, size: usize, omitted: &mut Omitted) -> Vec<Cow<'a, str>> {
    let items: Vec<&RawValue> = serde_json::from_str(content.get()).unwrap_or_default();
    let mut room = size.saturating_sub(2);
    let mut kept: Vec<Option<Cow<'_, str>>> = vec![None; items.len()];
    // Small items stay, even after one that is too large.
    let mut by_size: Vec<usize> = (0..items.len()).collect();
    by_size.sort_by_key(|index| items.get(*index).map_or(0, |item| item.get().len()));
    for index in by_size {
        let Some(item) = items.get(index) else { continue };
        let raw = item.get();
        let shown = if raw.len() < room {
            Some(Cow::Borrowed(raw))
        } else {
            let text = text_of(item).filter(|_| room > TEXT_ITEM + MIN_TEXT_BYTES);
            text.map(|text| cut_item(&text, room - TEXT_ITEM - 1, omitted).into())
        };
        omitted.elements += usize::from(shown.is_none());
        room = room.saturating_sub(shown.as_ref().map_or(0, |shown| shown.len() + 1));
        if let Some(place) = kept.get_mut(index) {
            *place = shown;
        }
    }
    kept.into_iter().flatten().collect()
}

fn cut_item(text: &str, size: usize, omitted: &mut Omitted) -> String {
    let is_json = text.starts_with(['{', '[']) && serde_json::from_str::<&RawValue>(text).is_ok();
    if is_json && check_depth(text.as_bytes(), MAX_RESULT_DEPTH).is_ok() {
        // Quotes within a text take two bytes. Half of the size fits in any case:
        let least = size / 2;
        let mut inner = size;
        loop {
            let mut attempt = Omitted::default();
            let cut = cut_json(text, inner, &mut attempt);
            let item = json!({ "type": "text", "text": cut }).to_string();
            let length = item.len().saturating_sub(TEXT_ITEM);
            if length <= size || inner <= least {
                omitted.add(attempt);
                return item;
            }
            let estimate = inner.saturating_mul(size) / length;
            inner = if inner == size { estimate - estimate / 16 } else { least }.max(least);
        }
    }
    json!({ "type": "text", "text": cut_text(text, size, omitted) }).to_string()
}

/// Describes the omitted parts, and the ways to get them.
fn describe_cut(size: CutSize, omitted: Omitted, kept: Option<&KeptResource>) -> String {
    let CutSize { length, max_size } = size;
    let counts = [
        (omitted.elements, "elements"),
        (omitted.members, "members"),
        (omitted.text_bytes, "bytes of text"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<_> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    format!(
        "[This result was cut: it has {length} bytes, and at most {max_size} are shown. Left out: {}. \
         {}]",
        counts.join(", "),
        if kept.is_some() { advise(kept) } else { ASK_FOR_REST.to_owned() }
    )
}

const ASK_FOR_REST: &str =
    "Ask for the rest in parts: with a filter, a smaller page or a narrower range.";
/// Bytes reserved for the sentence about the omitted parts.
const SENTENCE_RESERVE_BYTES: usize = 600;
/// Minimum bytes of a text's part.
const MIN_TEXT_BYTES: usize = 16;
/// The bytes of an item with an empty text.
const TEXT_ITEM: usize = r#"{"type":"text","text":""}"#.len();

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn limited(result: &Value, when_larger: WhenLarger, fits: &dyn Fn(&str) -> bool) -> Value {
        let limit = SizeLimit { max_size: 1024, when_larger, fits, keep: &|_| None };
        let raw = limit_size(result.to_string().as_bytes(), &limit).unwrap();
        assert!(raw.len() <= 1024, "{}", raw.len());
        serde_json::from_slice(&raw).unwrap()
    }

    #[test]
    fn small_items_stay_beside_one_that_is_too_large() {
        let content = json!([
            { "type": "text", "text": "before" },
            { "type": "image", "data": "A".repeat(4000), "mimeType": "image/png" },
            { "type": "text", "text": "x".repeat(4000) },
            { "type": "text", "text": "behind" },
        ]);
        let cut = limited(&json!({ "content": content }), WhenLarger::Truncate, &|_| true);
        let texts: Vec<_> =
            cut["content"].as_array().unwrap().iter().map(|it| it["text"].as_str()).collect();
        assert_eq!((texts.len(), texts[0], texts[2]), (4, Some("before"), Some("behind")));
        assert!(texts[1].unwrap().starts_with("xxxx"), "{texts:?}");
        assert!(texts[3].unwrap().contains("1 elements"), "{texts:?}");
    }

    #[test]
    fn results_that_violate_their_schema_once_cut_are_errors() {
        let result = json!({ "content": [], "structuredContent": { "rows": vec![1; 2000] } });
        let cut = limited(&result, WhenLarger::Truncate, &|structured| structured.len() > 2);
        assert!(cut["structuredContent"]["rows"].as_array().unwrap().len() > 10, "{cut}");
        for (choice, fits) in [(WhenLarger::Truncate, false), (WhenLarger::Error, true)] {
            let refused = limited(&result, choice, &|_| fits);
            assert_eq!(refused["isError"], true, "{refused}");
        }
    }

    #[test]
    fn the_whole_of_a_larger_result_is_kept_where_there_is_room() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        let (long, rows) = ("x".repeat(2000), vec![1; 2000]);
        for (result, mime, whole) in [
            (
                json!({ "content": [], "structuredContent": { "rows": rows } }),
                "application/json",
                None,
            ),
            (
                json!({ "content": [text(&long), text("y")] }),
                "text/plain",
                Some(format!("{long}\ny")),
            ),
        ] {
            let seen = std::cell::RefCell::new(None);
            let keep = |text: WholeText| {
                seen.replace(Some(text));
                Some(KeptResource {
                    uri: "trunkline://results/1".into(),
                    lasting: Duration::from_mins(1),
                })
            };
            let when_larger = WhenLarger::Resource;
            let limit = SizeLimit { max_size: 1024, when_larger, fits: &|_| true, keep: &keep };
            let cut = limit_size(result.to_string().as_bytes(), &limit).unwrap();
            let told = String::from_utf8(cut).unwrap();
            assert!(told.len() <= 1024 && told.contains("results/1?range=0-65535"), "{told}");
            let seen = seen.take().unwrap();
            assert_eq!(seen.mime, mime);
            let expected = whole.unwrap_or_else(|| result["structuredContent"].to_string());
            assert_eq!(seen.text, expected);
        }
        let result = json!({ "content": [text(&long)] });
        let cut = limited(&result, WhenLarger::Resource, &|_| true);
        assert!(cut.to_string().contains("Ask for the rest"), "{cut}");
    }

    proptest! {
        #[test]
        fn json_in_a_text_stays_json_within_its_size(
            rows in prop::collection::vec("[\"\\\\a\\n\u{1}é]{0,60}", 1..200),
        ) {
            let text = json!({ "rows": rows }).to_string();
            let result = json!({ "content": [{ "type": "text", "text": text }] });
            if result.to_string().len() > 1024 {
                let cut = limited(&result, WhenLarger::Truncate, &|_| true);
                let text = cut["content"][0]["text"].as_str().unwrap();
                prop_assert!(serde_json::from_str::<Value>(text).is_ok(), "{text}");
            }
        }
    }
}
