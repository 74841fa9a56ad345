//! Foreign text, made safe to repeat, and errors as text.
//!
//! Names, URIs and messages of clients and servers appear in errors and log lines. They are clipped
//! and escaped first, so that they cannot flood or forge a log or a response. The parts of this
//! module cut texts at the ends of sentences, recognise names that mark a secret, and estimate
//! tokens. It knows nothing but text; every module may use it.

mod secret_names;
mod sentences;

use std::borrow::Cow;

pub use secret_names::names_secret;
pub use sentences::{cut_at_word, shorten_text, split_sentence};

/// Returns UTF-8 without the byte order mark that it may begin with: JSON must not have one (RFC 8259,
/// 8.1), and JavaScript ignores it.
#[inline]
pub fn skip_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// The byte order mark in UTF-8.
pub const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The start of a text, at most `limit` bytes of it, cut between two characters.
#[inline]
pub fn clip(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or_default()
}

/// An error and its causes in one line of at most [`MAX_CHAIN_BYTES`] bytes; the first cause comes
/// last. Errors repeat texts of servers, so control characters are escaped.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    error_chain_with(error, |chain| Cow::Borrowed(chain))
}

/// Like [`error_chain`], with `hide` applied to the whole chain first: in a text that was clipped
/// and escaped, a secret could not be recognised any more.
pub fn error_chain_with(
    error: &(dyn std::error::Error + 'static),
    hide: impl FnOnce(&str) -> Cow<'_, str>,
) -> String {
    let errors = std::iter::successors(Some(error), |error| error.source());
    let chain = errors.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    escape_controls(clip(&remove_error_numbers(&hide(&chain)), MAX_CHAIN_BYTES))
}

/// Returns the text of a system's error without its number, which tells most readers nothing:
/// `No such file or directory`.
pub fn describe_system_error(error: &std::io::Error) -> String {
    remove_error_numbers(&error.to_string()).into_owned()
}

/// Removes the numbers that the standard library adds to errors of the system: ` (os error 2)`.
fn remove_error_numbers(text: &str) -> Cow<'_, str> {
    const BEFORE_NUMBER: &str = " (os error ";
    let mut rest = text;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once(BEFORE_NUMBER) {
        let number = after.split_once(')').filter(|(number, _)| number.parse::<i32>().is_ok());
        kept.push_str(before);
        if number.is_none() {
            kept.push_str(BEFORE_NUMBER);
        }
        rest = number.map_or(after, |(_, after)| after);
    }
    if kept.is_empty() && rest.len() == text.len() { text.into() } else { (kept + rest).into() }
}

/// A name as a step of a JSON pointer (RFC 6901, section 3), without a slash before it.
pub fn escape_pointer_step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Splits a quantity such as `30s` or `0.5ms` into its number and the worth of its unit. Returns
/// `None` for other units; the number may be empty, or have several points.
pub fn split_quantity<'a, T: Copy>(text: &'a str, units: &[(&str, T)]) -> Option<(&'a str, T)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let (_, worth) = units.iter().find(|(name, _)| *name == unit)?;
    Some((number, *worth))
}

/// The text on one line, without anything that could move the cursor, recolour the terminal, forge
/// another line or reverse the reading direction.
pub fn escape_controls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push(' '),
            c if c.is_control() || reorders(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// The text with every invisible character as an escape.
pub fn escape_invisible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

/// Returns true if a character leaves no mark by itself: joiners, fillers, directional controls,
/// variation selectors, tags and the characters that Unicode calls default ignorable.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Line and paragraph separators, and the bidirectional controls.
fn reorders(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The first characters of a text, on one line and without control and invisible characters.
pub fn one_line(text: &str, most: usize) -> String {
    let blank = |c: char| if c.is_whitespace() { ' ' } else { c };
    let shown = text.trim().chars().map(blank);
    let shown = shown.filter(|c| !c.is_control() && !is_invisible(*c)).take(most);
    shown.collect::<String>().trim().to_owned()
}

/// A URL with `***` for the user and password in it.
pub fn hide_password(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("//") else { return Cow::Borrowed(url) };
    let authority = rest.find(['/', '\\', '?', '#']).map_or(rest, |end| rest.split_at(end).0);
    match authority.rfind('@') {
        Some(at) => Cow::Owned(format!("{scheme}//***{}", rest.get(at..).unwrap_or_default())),
        None => Cow::Borrowed(url),
    }
}

/// The longest error in a log line or a status page, in bytes.
const MAX_CHAIN_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_is_a_number_and_one_of_the_units() {
        let units = [("ms", 1), ("s", 1000), ("", 7)];
        for (text, expected) in [
            ("30s", Some(("30", 1000))),
            ("0.5ms", Some(("0.5", 1))),
            ("8", Some(("8", 7))),
            ("s", Some(("", 1000))),
            ("3 s", None),
            ("3S", None),
            ("-3s", None),
            ("３s", None),
        ] {
            assert_eq!(split_quantity(text, &units), expected, "{text}");
        }
    }

    #[test]
    fn control_characters_are_shown_not_obeyed() {
        for (input, expected) in [
            ("plain ä", "plain ä"),
            ("a\tb\r", "a b\\u{d}"),
            ("\x1b[31mred\x07", "\\u{1b}[31mred\\u{7}"),
            ("x\u{202e}y\u{2028}z", "x\\u{202e}y\\u{2028}z"),
        ] {
            assert_eq!(escape_controls(input), expected);
        }
    }

    #[test]
    fn an_error_of_the_system_has_no_number() {
        let missing = std::fs::File::open("/no/such/file").unwrap_err();
        assert_eq!(describe_system_error(&missing), "No such file or directory");
        for (text, expected) in [
            ("a (os error 2): b (os error 13)", "a: b"),
            (" (os error 2)", ""),
            ("a (os error x) (os error 2", "a (os error x) (os error 2"),
        ] {
            assert_eq!(error_chain(&std::io::Error::other(text)), expected, "{text}");
        }
    }

    #[test]
    fn an_error_is_one_line_of_bounded_length() {
        let error = std::io::Error::other(format!("a\n{}", "x".repeat(MAX_CHAIN_BYTES)));
        let line = error_chain(&error);
        assert!(
            line.starts_with("a\\u{a}xxx") && line.len() < MAX_CHAIN_BYTES + 10,
            "{}",
            line.len()
        );
    }

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            ("https://user:hunter2@host/a@b", "https://***@host/a@b"),
            ("//hunter2@host", "//***@host"),
            ("https://a:b@c@host", "https://***@host"),
            ("https://host/@x", "https://host/@x"),
            ("/path", "/path"),
        ] {
            assert_eq!(hide_password(url), shown);
        }
    }

    #[test]
    fn a_text_is_clipped_between_characters() {
        for (text, limit, clipped) in
            [("", 3, ""), ("abc", 3, "abc"), ("abcd", 3, "abc"), ("aé", 2, "a"), ("éé", 3, "é")]
        {
            assert_eq!(clip(text, limit), clipped, "{text:?}");
        }
    }
}
