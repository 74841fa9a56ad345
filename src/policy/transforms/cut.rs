//! JSON and text cut to a size, so that JSON stays JSON: arrays end at an element, texts at a
//! character, and objects keep their members as long as there is room for them.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::jsonrpc::{Members, string};
use crate::text::clip;

/// Counts of the omitted parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Omitted {
    /// Elements of arrays.
    pub(super) elements: usize,
    /// Bytes of texts.
    pub(super) text_bytes: usize,
    /// Members of objects.
    pub(super) members: usize,
}

impl Omitted {
    pub(super) fn add(&mut self, other: Self) {
        self.elements += other.elements;
        self.text_bytes += other.text_bytes;
        self.members += other.members;
    }
}

/// Returns the beginning of a raw value, in at most `size` bytes; `null` always fits. The value
/// must have been checked for its depth.
pub(super) fn cut_json<'a>(raw: &'a str, size: usize, omitted: &mut Omitted) -> Cow<'a, str> {
    cut_level(raw, CutBudget { size, levels: MAX_CUT_LEVELS }, omitted)
}

/// Limits of the beginning of a value.
#[derive(Clone, Copy)]
struct CutBudget {
    /// In bytes.
    size: usize,
    /// Nested levels.
    levels: usize,
}

/// Each level is parsed anew: those beyond the limit become `null`.
fn cut_level<'a>(raw: &'a str, budget: CutBudget, omitted: &mut Omitted) -> Cow<'a, str> {
    let CutBudget { size, levels } = budget;
    if raw.len() <= size {
        return raw.into();
    }
    match (raw.as_bytes().first(), levels.checked_sub(1)) {
        (Some(b'"'), _) => cut_string(raw, size, omitted).into(),
        (Some(b'['), Some(levels)) => cut_array(raw, CutBudget { size, levels }, omitted).into(),
        (Some(b'{'), Some(levels)) => cut_object(raw, CutBudget { size, levels }, omitted).into(),
        (first, _) => {
            omitted.elements += usize::from(matches!(first, Some(b'[' | b'{')));
            "null".into()
        }
    }
}

/// Returns the beginning of a text, so that its JSON has at most `size` bytes.
pub(super) fn cut_text<'a>(text: &'a str, size: usize, omitted: &mut Omitted) -> &'a str {
    let mut end = clip(text, size.saturating_sub(2)).len();
    // Escapes take more bytes than their characters.
    while end > 0 {
        let length = string(text.get(..end).unwrap_or_default()).len();
        let Some(excess) = length.checked_sub(size).filter(|excess| *excess > 0) else { break };
        end = clip(text, end.saturating_sub(excess.div_ceil(MAX_ESCAPE))).len();
    }
    omitted.text_bytes += text.len() - end;
    text.get(..end).unwrap_or_default()
}

fn cut_string(raw: &str, size: usize, omitted: &mut Omitted) -> String {
    let Ok(text) = serde_json::from_str::<Cow<'_, str>>(raw) else { return "null".into() };
    string(cut_text(&text, size, omitted))
}

fn cut_array(raw: &str, budget: CutBudget, omitted: &mut Omitted) -> String {
    let CutBudget { size, levels } = budget;
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(raw) else { return "null".into() };
    let mut out = String::from("[");
    let mut kept = 0;
    for item in &items {
        let comma = usize::from(kept > 0);
        let room = size.saturating_sub(out.len() + comma + 1);
        let item = if item.get().len() <= room {
            Cow::Borrowed(item.get())
        } else if kept == 0 && room >= MIN_PART_BYTES {
            // A part of the only element is more useful than an empty array.
            cut_level(item.get(), CutBudget { size: room, levels }, omitted)
        } else {
            break;
        };
        if comma > 0 {
            out.push(',');
        }
        out.push_str(&item);
        kept += 1;
    }
    omitted.elements += items.len() - kept;
    out.push(']');
    out
}

/// Keeps small members whole; large ones share the rest of the room.
fn cut_object(raw: &str, budget: CutBudget, omitted: &mut Omitted) -> String {
    let CutBudget { size, levels } = budget;
    let Ok(members) = Members::parse_with_duplicates(raw.as_bytes()) else { return "null".into() };
    let keys: Vec<_> = members.0.iter().map(|(key, _)| string(key)).collect();
    let values: Vec<_> = members.0.iter().map(|(_, value)| value.get()).collect();
    let overhead = |index: usize| keys.get(index).map_or(0, |key| key.len() + 2);
    let mut by_size: Vec<usize> = (0..values.len()).collect();
    by_size.sort_by_key(|index| values.get(*index).map_or(0, |value| value.len()));
    let mut room = size.saturating_sub(2);
    let mut cut: Vec<Option<Cow<'_, str>>> = vec![None; values.len()];
    for (done, index) in by_size.iter().enumerate() {
        let share = room / (values.len() - done);
        let fair = share.saturating_sub(overhead(*index));
        let Some(value) = values.get(*index) else { continue };
        if value.len() > fair && fair < MIN_PART_BYTES {
            omitted.members += 1;
            continue;
        }
        let value = cut_level(value, CutBudget { size: fair, levels }, omitted);
        room = room.saturating_sub(value.len() + overhead(*index));
        if let Some(place) = cut.get_mut(*index) {
            *place = Some(value);
        }
    }
    let kept = keys.iter().zip(&cut).filter_map(|(key, value)| Some((key, value.as_ref()?)));
    let kept: Vec<_> = kept.map(|(key, value)| format!("{key}:{value}")).collect();
    format!("{{{}}}", kept.join(","))
}

/// Limit of the nested levels that are cut.
const MAX_CUT_LEVELS: usize = 8;
/// Minimum bytes of a value's part.
const MIN_PART_BYTES: usize = 16;
/// Limit of the bytes of JSON for one byte of text.
const MAX_ESCAPE: usize = 6;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn cut(raw: &str, size: usize) -> (String, Omitted) {
        let mut omitted = Omitted::default();
        (cut_json(raw, size, &mut omitted).into_owned(), omitted)
    }

    #[test]
    fn arrays_end_at_an_element_and_texts_at_a_character() {
        assert_eq!(cut("[1,2,3]", 7).0, "[1,2,3]");
        assert_eq!(
            cut("[1,22,333,4444]", 10),
            ("[1,22,333]".into(), Omitted { elements: 1, ..Omitted::default() })
        );
        assert_eq!(cut(r#""aé""#, 4).0, r#""a""#);
        let (text, omitted) = cut(r#""\u0001\u0001\u0001\u0001""#, 15);
        assert_eq!((text.as_str(), omitted.text_bytes), (r#""\u0001\u0001""#, 2));
    }

    #[test]
    fn small_members_stay_whole_beside_large_ones() {
        let raw = json!({ "rows": vec![1; 500], "total": 500, "name": "x" }).to_string();
        let (text, omitted) = cut(&raw, 100);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["total"], &value["name"]), (&json!(500), &json!("x")));
        let rows = value["rows"].as_array().unwrap().len();
        assert!(rows > 20 && omitted.elements == 500 - rows && text.len() <= 100, "{text}");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,40}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
                prop::collection::vec(("[a-z\"]{1,8}", inner), 0..8)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn cut_results_are_json_within_their_size(value in any_json(), size in 4_usize..400) {
            let raw = value.to_string();
            let (text, omitted) = cut(&raw, size);
            prop_assert!(text.len() <= size, "{} of {size}: {text}", text.len());
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
            prop_assert_eq!(text == raw, raw.len() <= size);
            prop_assert!(raw.len() > size || omitted == Omitted::default());
        }
    }
}
