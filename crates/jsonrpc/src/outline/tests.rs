use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;
use crate::{Members, Payload, members};

/// The contents of an outline, level by level.
fn outlined(text: &[u8]) -> Option<String> {
    fn value(part: OutlinePart<'_>, out: &mut String, levels: usize) -> Option<()> {
        let raw = std::str::from_utf8(part.raw()).unwrap();
        assert!(!raw.is_empty() && raw.trim() == raw, "{raw:?}");
        assert_eq!(part.is_escaped(), raw.starts_with('"') && raw.contains('\\'));
        match (raw.as_bytes()[0], part.parts()) {
            (b'{', Some(parts)) => object(parts, out, levels - 1)?,
            (b'[', Some(parts)) => {
                out.push('[');
                for part in parts {
                    value(part, out, levels - 1)?;
                    out.push(',');
                }
                out.push(']');
            }
            (byte, parts) => {
                assert!(parts.is_none() && (levels == 0 || !matches!(byte, b'{' | b'[')));
                out.push_str(raw);
            }
        }
        Some(())
    }
    fn object(parts: OutlineParts<'_>, out: &mut String, levels: usize) -> Option<()> {
        out.push('{');
        for part in parts {
            let key = part.key().ok()?;
            write!(out, "{:?}:", std::str::from_utf8(&key).unwrap()).ok()?;
            value(part, out, levels)?;
            out.push(',');
        }
        out.push('}');
        Some(())
    }
    let outline = Outline::of(text, 100, 1000).ok()?;
    let mut out = String::new();
    object(outline.parts(text)?, &mut out, MAX_OUTLINE_LEVELS)?;
    Some(out)
}

/// The same contents, as parsed by serde.
fn read(text: &[u8]) -> Option<String> {
    fn value(raw: &RawValue, out: &mut String, levels: usize) -> Option<()> {
        match raw.get().as_bytes()[0] {
            b'{' if levels > 0 => {
                object(
                    Members::parse_with_duplicates(raw.get().as_bytes()).ok()?,
                    out,
                    levels - 1,
                )?;
            }
            b'[' if levels > 0 => {
                out.push('[');
                for element in serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok()? {
                    value(element, out, levels - 1)?;
                    out.push(',');
                }
                out.push(']');
            }
            _ => out.push_str(raw.get()),
        }
        Some(())
    }
    fn object(members: Members<'_>, out: &mut String, levels: usize) -> Option<()> {
        out.push('{');
        for (key, raw) in members.0 {
            write!(out, "{key:?}:").ok()?;
            value(raw, out, levels)?;
            out.push(',');
        }
        out.push('}');
        Some(())
    }
    let mut out = String::new();
    object(Members::parse_with_duplicates(text).ok()?, &mut out, MAX_OUTLINE_LEVELS)?;
    Some(out)
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("true".to_owned()),
        Just("false".to_owned()),
        Just("null".to_owned()),
        r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,4})?",
        r#""([ a-zé😀\[{},:]|\\["\\/bfnrt]|\\u00[0-9a-f]{2}|\\ud83d\\ude00|\\ud800){0,12}""#,
        "\"[a-z\\[\\]{}, ]{0,90}\"",
    ]
}

fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(""), 1 => Just(" "), 1 => Just("\n\t"), 1 => Just(" \r\n ")]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "\"[a-c]{0,2}\"",
        2 => "\"[a-z/._]{0,40}\"",
        1 => r#""(\\u0061|\\n|b|é|\\ud83d\\ude00){1,3}""#,
        1 => Just("\"\\ud800\"".to_owned()),
    ]
}

/// All kinds of objects, with white space everywhere.
fn text() -> impl Strategy<Value = String> {
    let value = scalar().prop_recursive(6, 40, 5, |inner| {
        let element = (space(), inner.clone(), space())
            .prop_map(|(a, value, b)| format!("{a}{value}{b}"))
            .boxed();
        let member = (space(), key(), space(), element.clone())
            .prop_map(|(a, key, b, value)| format!("{a}{key}{b}:{value}"));
        prop_oneof![
            prop::collection::vec(element, 0..5).prop_map(|all| format!("[{}]", all.join(","))),
            prop::collection::vec(member, 0..5).prop_map(|all| format!("{{{}}}", all.join(","))),
        ]
    });
    let member = (space(), key(), space(), value)
        .prop_map(|(a, key, b, value)| format!("{a}{key}{b}: {value}"));
    (space(), prop::collection::vec(member, 0..6), space())
        .prop_map(|(a, all, b)| format!("{a}{{{}}}{b}", all.join(",")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_object_is_outlined_as_serde_reads_it(text in text()) {
        prop_assert_eq!(outlined(text.as_bytes()), read(text.as_bytes()));
    }

    #[test]
    fn broken_objects_are_refused_by_both(
        text in text(),
        at: prop::sample::Index,
        with in prop_oneof![Just(None), any::<u8>().prop_map(Some), prop::sample::select(b"{}[],:\"\\ 0-e".to_vec()).prop_map(Some)],
        cut in any::<bool>(),
    ) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        match (with, cut) {
            (Some(with), true) => bytes[at] = with,
            (Some(with), false) => bytes.insert(at, with),
            (None, true) => bytes.truncate(at),
            (None, false) => { bytes.remove(at); }
        }
        prop_assert_eq!(outlined(&bytes), read(&bytes));
    }

    #[test]
    fn members_are_the_same_with_an_outline_and_without(text in text()) {
        const NAMES: [&str; 4] = ["a", "b", "ab", ""];
        let spans = |found: Result<[Option<Spot>; 4], ObjectError>| {
            found.map(|found| found.map(|part| part.map(Spot::span))).ok()
        };
        let walked = members(text.as_bytes(), &NAMES, 100);
        let walked = walked.map(|found| found.map(|raw| raw.map(<[u8]>::to_owned))).ok();
        let payload = Payload::from(text.clone());
        let read = payload.clone().read().ok();
        let noted = read.as_ref().and_then(|payload| spans(payload.members(&NAMES)));
        prop_assert_eq!(&noted, &spans(payload.members(&NAMES)));
        let noted = noted.map(|all| all.map(|span| span.map(|span| text.as_bytes()[span].to_owned())));
        prop_assert_eq!(noted, walked);
    }
}

#[test]
fn too_many_values_leave_no_outline_but_an_object() {
    let text = |count: usize| format!("{{\"a\":[{}],\"b\":1}}", vec!["1"; count].join(","));
    let has_outline =
        |text: &str| Outline::of(text.as_bytes(), 9, 50).unwrap().parts(text.as_bytes()).is_some();
    assert!(has_outline(&text(48)) && !has_outline(&text(49)));
    let many = Payload::from(text(5000)).read().unwrap();
    let [b] = many.members(&["b"]).unwrap();
    assert_eq!(many.raw_at(b.unwrap()), b"1");
    assert!(Payload::from(text(5000).replace("],", "]]")).read().is_err());
}

#[test]
fn deep_values_are_bounded_and_stepped_over() {
    let text = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    for levels in [1, MAX_OUTLINE_LEVELS, MAX_OUTLINE_LEVELS + 1, 63, 64, 65, 99] {
        assert!(outlined(text(levels).as_bytes()).is_some(), "{levels}");
    }
    assert_eq!(
        Outline::of(text(9).as_bytes(), 9, 50).map(|_| ()),
        Err(ObjectError::Depth(crate::DepthError { limit: 9 }))
    );
}
