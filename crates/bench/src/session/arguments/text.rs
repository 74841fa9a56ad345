//! Generates strings: by pattern, by format, by length.

use fastrand::Rng;
use regex_syntax::hir::{Hir, HirKind};
use serde_json::{Map, Value};

/// Generates a string that follows the schema's rules for strings.
pub(super) fn make(schema: &Map<String, Value>, rng: &mut Rng) -> String {
    let length = |key: &str| schema.get(key).and_then(Value::as_u64);
    let least = usize::try_from(length("minLength").unwrap_or(0)).unwrap_or(0).min(MAX_TEXT_BYTES);
    let most =
        length("maxLength").and_then(|most| usize::try_from(most).ok()).unwrap_or(MAX_TEXT_BYTES);
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && let Ok(pattern) = regex_syntax::parse(pattern)
    {
        let mut text = String::new();
        write(&pattern, rng, &mut text);
        // Without an end anchor, any text may follow the match.
        while text.chars().count() < least && !ends(&pattern) {
            text.push('x');
        }
        return text;
    }
    if let Some(text) =
        schema.get("format").and_then(Value::as_str).and_then(|it| formatted(it, rng))
    {
        return text;
    }
    let usual = least.max(1) + rng.usize(..24);
    words(rng, usual.min(most.max(least)))
}

fn words(rng: &mut Rng, length: usize) -> String {
    let mut text = String::with_capacity(length + 12);
    while text.len() < length {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(SAMPLE_WORDS.get(rng.usize(..SAMPLE_WORDS.len())).copied().unwrap_or("word"));
    }
    text.truncate(length);
    // A trailing space may be trimmed by the recipient.
    if text.ends_with(' ') {
        text.pop();
        text.push('s');
    }
    text
}

fn formatted(format: &str, rng: &mut Rng) -> Option<String> {
    let (day, hour, minute) = (rng.u8(1..=28), rng.u8(0..24), rng.u8(0..60));
    let date = format!("2026-{:02}-{day:02}", rng.u8(1..=12));
    let time = format!("{hour:02}:{minute:02}:00Z");
    let number = rng.u32(..10_000);
    Some(match format {
        "date" => date,
        "time" => time,
        "date-time" => format!("{date}T{time}"),
        "duration" => format!("PT{}M", minute + 1),
        "email" | "idn-email" => format!("user{number}@example.com"),
        "hostname" | "idn-hostname" => format!("host{number}.example.com"),
        "ipv4" => format!("192.0.2.{}", rng.u8(1..=254)),
        "ipv6" => format!("2001:db8::{:x}", rng.u16(1..)),
        "uri" | "url" | "iri" => format!("https://example.com/{number}"),
        "uri-reference" | "iri-reference" => format!("/{number}"),
        "uuid" => {
            let (a, b) = (rng.u32(..), rng.u64(..1 << 48));
            format!(
                "{a:08x}-{:04x}-4{:03x}-a{:03x}-{b:012x}",
                rng.u16(..),
                rng.u16(..4096),
                rng.u16(..4096)
            )
        }
        "json-pointer" => format!("/a/{number}"),
        "regex" => "^[a-z]+$".into(),
        _ => return None,
    })
}

/// Writes a text that the pattern matches.
fn write(pattern: &Hir, rng: &mut Rng, out: &mut String) {
    if out.len() > MAX_TEXT_BYTES {
        return;
    }
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => out.push_str(&String::from_utf8_lossy(&literal.0)),
        HirKind::Class(class) => out.extend(one_of(class, rng)),
        HirKind::Repetition(repeated) => {
            let most = repeated.max.unwrap_or(repeated.min.saturating_add(6));
            let most = most.min(repeated.min.saturating_add(12));
            for _ in 0..rng.u32(repeated.min..=most) {
                write(&repeated.sub, rng, out);
            }
        }
        HirKind::Capture(group) => write(&group.sub, rng, out),
        HirKind::Concat(parts) => parts.iter().for_each(|part| write(part, rng, out)),
        HirKind::Alternation(parts) => {
            if let Some(part) = parts.get(rng.usize(..parts.len().max(1))) {
                write(part, rng, out);
            }
        }
    }
}

/// A character of a class; printable ASCII if the class has any.
fn one_of(class: &regex_syntax::hir::Class, rng: &mut Rng) -> Option<char> {
    let ranges: Vec<(char, char)> = match class {
        regex_syntax::hir::Class::Unicode(class) => {
            class.iter().map(|range| (range.start(), range.end())).collect()
        }
        regex_syntax::hir::Class::Bytes(class) => {
            class.iter().map(|range| (range.start().into(), range.end().into())).collect()
        }
    };
    let plain = |(low, high): &(char, char)| *low <= '~' && *high >= ' ';
    let printable: Vec<_> = ranges
        .iter()
        .filter(|range| plain(range))
        .map(|(low, high)| ((*low).max(' '), (*high).min('~')))
        .collect();
    let pool = if printable.is_empty() { &ranges } else { &printable };
    let (low, high) = *pool.get(rng.usize(..pool.len().max(1)))?;
    Some(rng.char(low..=high))
}

/// Returns true if a pattern has an end anchor.
fn ends(pattern: &Hir) -> bool {
    pattern.properties().look_set_suffix().contains(regex_syntax::hir::Look::End)
}

const SAMPLE_WORDS: [&str; 16] = [
    "alpha", "river", "seven", "paper", "cloud", "north", "stone", "green", "light", "quick",
    "table", "winter", "silver", "garden", "bridge", "signal",
];
/// The longest text.
const MAX_TEXT_BYTES: usize = 64 * 1024;
