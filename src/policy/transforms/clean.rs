//! Removal of superfluous characters from results: controls, ANSI sequences and invisible ones.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::config::StripChoice;
use crate::jsonrpc::string;

/// Strips the texts in raw JSON, keys excepted, and those in texts that are JSON themselves; `None`
/// if none of them changes.
pub(super) fn strip_texts(raw: &str, choices: &[StripChoice]) -> Option<String> {
    strip_level(raw, choices, MAX_NESTED_TEXTS)
}

fn strip_level(raw: &str, choices: &[StripChoice], nested: usize) -> Option<String> {
    if choices.is_empty() {
        return None;
    }
    let mut out = String::new();
    let mut done = 0;
    for (start, end) in texts_in(raw) {
        let Some(token) = raw.get(start..end).filter(|token| may_change(token)) else { continue };
        let Ok(text) = serde_json::from_str::<Cow<'_, str>>(token) else { continue };
        let stripped = strip_text(&text, choices);
        let inner = nested.checked_sub(1).filter(|_| is_json(&stripped));
        let inner = inner.and_then(|nested| strip_level(&stripped, choices, nested));
        let stripped = inner.map_or(stripped, Cow::Owned);
        if stripped != text {
            out.push_str(raw.get(done..start)?);
            out.push_str(&string(&stripped));
            done = end;
        }
    }
    if done == 0 {
        return None;
    }
    out.push_str(raw.get(done..)?);
    Some(out)
}

/// Returns true if a text is an object or an array with escapes in its own texts, which may stand
/// for stripped characters.
fn is_json(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with(['{', '['])
        && text.contains('\\')
        && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Returns the spans of the texts in raw JSON, without keys.
fn texts_in(raw: &str) -> Vec<(usize, usize)> {
    let bytes = raw.as_bytes();
    let (mut spans, mut at) = (Vec::new(), 0);
    while let Some(start) = find_from(bytes, at, |byte| byte == b'"') {
        let mut end = start + 1;
        while let Some(byte) = bytes.get(end).filter(|byte| **byte != b'"') {
            end += if *byte == b'\\' { 2 } else { 1 };
        }
        at = end + 1;
        let next = find_from(bytes, at, |byte| !byte.is_ascii_whitespace());
        if next.and_then(|next| bytes.get(next)) != Some(&b':') {
            spans.push((start, at));
        }
    }
    spans
}

fn find_from(bytes: &[u8], from: usize, is_wanted: impl Fn(u8) -> bool) -> Option<usize> {
    let found = bytes.get(from..)?.iter().position(|byte| is_wanted(*byte))?;
    Some(from + found)
}

/// Returns true if a JSON string can contain any of the characters: it contains controls as escapes
/// only.
fn may_change(token: &str) -> bool {
    token.bytes().any(|byte| byte == b'\\' || byte >= 0x7f)
}

fn strip_text<'a>(text: &'a str, choices: &[StripChoice]) -> Cow<'a, str> {
    let mut stripped = Cow::Borrowed(text);
    // A sequence begins with a control, so sequences are removed first.
    if choices.contains(&StripChoice::Ansi) && stripped.contains(introduces_sequence) {
        stripped = Cow::Owned(without_sequences(&stripped));
    }
    if choices.contains(&StripChoice::Control) && stripped.contains(is_stripped_control) {
        stripped = Cow::Owned(stripped.replace(is_stripped_control, ""));
    }
    if choices.contains(&StripChoice::Invisible) && stripped.contains(is_invisible) {
        stripped = Cow::Owned(without_invisible(&stripped));
    }
    stripped
}

/// Returns true if an escape sequence begins with this character: ESC, or a C1 control.
fn introduces_sequence(c: char) -> bool {
    c == '\u{1b}' || second_character(c).is_some()
}

/// Returns the character that, after ESC, is equivalent to this C1 control.
fn second_character(c: char) -> Option<char> {
    match c {
        '\u{90}' => Some('P'),
        '\u{98}' => Some('X'),
        '\u{9b}' => Some('['),
        '\u{9d}' => Some(']'),
        '\u{9e}' => Some('^'),
        '\u{9f}' => Some('_'),
        _ => None,
    }
}

fn is_stripped_control(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r')
}

/// Returns the text without escape sequences (ECMA-48): control sequences, strings such as window
/// titles, and all other escapes.
fn without_sequences(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let introducer = match (c, second_character(c)) {
            (_, Some(second)) => Some(second),
            ('\u{1b}', None) => chars.next(),
            _ => {
                out.push(c);
                continue;
            }
        };
        match introducer {
            Some('[') => {
                while chars.next_if(|c| matches!(c, '\u{20}'..='\u{3f}')).is_some() {}
                chars.next_if(|c| matches!(c, '\u{40}'..='\u{7e}'));
            }
            Some(']' | 'P' | '^' | '_' | 'X') => {
                let ends = |c: &char| matches!(c, '\u{7}' | '\u{1b}' | '\u{9c}' | '\n');
                while chars.next_if(|c| !ends(c)).is_some() {}
                // The terminator: BEL, ST, or ESC and a backslash.
                if chars.next_if_eq(&'\u{1b}').is_some() {
                    chars.next_if_eq(&'\\');
                } else {
                    chars.next_if(|c| matches!(c, '\u{7}' | '\u{9c}'));
                }
            }
            Some('\u{20}'..='\u{2f}') => {
                while chars.next_if(|c| matches!(c, '\u{20}'..='\u{2f}')).is_some() {}
                chars.next();
            }
            _ => {}
        }
    }
    out
}

/// Returns the text without invisible characters. Joiners stay between letters of scripts that need
/// them, and within emoji.
fn without_invisible(text: &str) -> String {
    let all: Vec<char> = text.chars().collect();
    let is_joined = |place: Option<usize>| {
        let near = place.and_then(|place| all.get(place));
        near.is_some_and(|c| !c.is_ascii() && !is_invisible(*c))
    };
    let kept = all.iter().enumerate().filter(|(place, c)| match c {
        '\u{200c}' | '\u{200d}' => {
            is_joined(place.checked_sub(1)) && is_joined(place.checked_add(1))
        }
        c => !is_invisible(**c),
    });
    kept.map(|(_, c)| *c).collect()
}

/// Returns true for zero-width characters, bidirectional controls, tags and the selectors that can
/// carry data.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0e}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Limit of JSON nested as text within JSON.
const MAX_NESTED_TEXTS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_configured_characters_are_stripped() {
        use StripChoice::{Ansi, Control, Invisible};
        for (choices, raw, expected) in [
            (&[Ansi][..], r#"["\u001b[1;31mred\u001b[0m\u0007"]"#, Some(r#"["red\u0007"]"#)),
            (
                &[Ansi],
                r#"["\u001b]0;title\u0007a\u001b]8;;u\u001b\\b\u001b(Bc\u009b2Jd"]"#,
                Some(r#"["abcd"]"#),
            ),
            (&[Ansi], r#"["\u001b"]"#, Some(r#"[""]"#)),
            (
                &[Ansi],
                r#"["a\u009d0;title\u009cb\u0090x\u001b\\c\u009fx\u0007d"]"#,
                Some(r#"["abcd"]"#),
            ),
            (&[Ansi], r#"["{\"a\":\"\\u001b[1mx\"}"]"#, Some(r#"["{\"a\":\"x\"}"]"#)),
            (
                &[Invisible],
                r#"["[\"{\\\"a\\\":\\\"\\\\u202ex\\\"}\"]"]"#,
                Some(r#"["[\"{\\\"a\\\":\\\"x\\\"}\"]"]"#),
            ),
            (&[Invisible], "[\"a\u{fe00}b\u{fe0e}☀\u{fe0f}\"]", Some("[\"ab☀\u{fe0f}\"]")),
            (&[Control], r#"["a\u0000\u0007\u009b\n\tb\u007f"]"#, Some(r#"["a\n\tb"]"#)),
            (&[Control, Ansi], r#"["\u001b[1mx"]"#, Some(r#"["x"]"#)),
            (&[Control], r#"["\u001b[1mx"]"#, Some(r#"["[1mx"]"#)),
            (&[Invisible], "[\"a\u{200b}b\u{e0041}\u{202e}\"]", Some("[\"ab\"]")),
            (&[Invisible], "[\"a\\u200d\"]", Some("[\"a\"]")),
            (&[Invisible], "[\"👩\u{200d}👩 می\u{200c}خ\"]", None),
            (
                &[Control, Ansi, Invisible],
                r#"{"k\u0000":["plain \" é",12345678901234567890123]}"#,
                None,
            ),
            (
                &[Control],
                r#"{"k\u0000" : "\\\u0000", "n": 1e400}"#,
                Some(r#"{"k\u0000" : "\\", "n": 1e400}"#),
            ),
        ] {
            assert_eq!(strip_texts(raw, choices).as_deref(), expected, "{raw}");
        }
    }
}
