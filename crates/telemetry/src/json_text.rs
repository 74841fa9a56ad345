//! Text, numbers and times of log records, written without a serializer.
//!
//! Each call pays for its records, and a serializer costs several times as much as these functions.
//! Texts are escaped as required by JSON. Characters that a terminal may interpret or a viewer may
//! show as a line break (DEL, C1, U+2028 and U+2029) are escaped as well.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;

/// Appends a constant or a text that needs no escapes.
#[inline]
pub(super) fn push_raw(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// Appends an arbitrary text, in quotes and escaped.
#[inline]
pub(super) fn push_text(out: &mut Vec<u8>, text: &str) {
    if needs_no_escape(text) {
        push_raw(out, "\"");
        push_raw(out, text);
        push_raw(out, "\"");
    } else {
        push_escaped(out, text);
    }
}

#[cold]
fn push_escaped(out: &mut Vec<u8>, text: &str) {
    push_raw(out, "\"");
    for c in text.chars() {
        match c {
            '"' => push_raw(out, "\\\""),
            '\\' => push_raw(out, "\\\\"),
            '\n' => push_raw(out, "\\n"),
            '\r' => push_raw(out, "\\r"),
            '\t' => push_raw(out, "\\t"),
            '\u{8}' => push_raw(out, "\\b"),
            '\u{c}' => push_raw(out, "\\f"),
            '\u{2028}' | '\u{2029}' => push_code_point(out, c),
            c if c.is_control() => push_code_point(out, c),
            c => push_raw(out, c.encode_utf8(&mut [0; 4])),
        }
    }
    push_raw(out, "\"");
}

fn push_code_point(out: &mut Vec<u8>, c: char) {
    let _ = write!(out, "\\u{:04x}", u32::from(c));
}

/// Appends an address, without quotes.
#[inline]
pub(super) fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            push_digits(out, a.into());
            for byte in [b, c, d] {
                push_raw(out, ".");
                push_digits(out, byte.into());
            }
        }
        IpAddr::V6(v6) => {
            let _ = write!(out, "{v6}");
        }
    }
}

/// Appends an integer.
#[inline]
pub(super) fn push_integer(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        push_raw(out, "-");
    }
    push_digits(out, value.unsigned_abs());
}

/// Appends a number.
#[inline]
pub(super) fn push_digits(out: &mut Vec<u8>, value: u64) {
    push_raw(out, itoa::Buffer::new().format(value));
}

/// Appends a number, padded with zeros to at least the number of digits in `zeros`.
#[inline]
pub(super) fn push_padded(out: &mut Vec<u8>, zeros: &str, value: u64) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value);
    push_raw(out, zeros.get(digits.len()..).unwrap_or_default());
    push_raw(out, digits);
}

/// Cached text of the latest second, which many records share.
#[derive(Debug)]
pub(super) struct SecondText {
    /// The second since 1970 that `text` shows.
    second: Option<u64>,
    /// `2026-07-28T12:00:00`.
    text: String,
}

impl SecondText {
    pub(super) const fn new() -> Self {
        Self { second: None, text: String::new() }
    }

    /// Formats the second of a time since 1970: RFC 3339 in UTC, without the fraction and the `Z`.
    pub(super) fn of(&mut self, now: Duration) -> &str {
        let second = now.as_secs();
        if self.second != Some(second) {
            let time = i64::try_from(second).ok();
            let time = time.and_then(|second| Timestamp::from_second(second).ok());
            self.text.clear();
            let _ = write!(self.text, "{}", time.unwrap_or(Timestamp::MAX));
            // The latest representable time has a fraction, too.
            self.text.truncate(self.text.find(['.', 'Z']).unwrap_or(self.text.len()));
            self.second = Some(second);
        }
        &self.text
    }
}

/// Returns true if `text` needs no escapes between quotes: it is visible ASCII without quotes and
/// backslashes. Checks eight bytes at a time; the last eight overlap the preceding ones.
#[inline]
pub(super) fn needs_no_escape(text: &str) -> bool {
    let text = text.as_bytes();
    let Some(last) = text.last_chunk::<8>() else {
        return text.iter().all(|b| matches!(b, b' ' | b'!' | b'#'..=b'[' | b']'..=b'~'));
    };
    let (words, _) = text.as_chunks::<8>();
    words.iter().fold(odd_bytes(*last), |odd, word| odd | odd_bytes(*word)) == 0
}

/// Returns a value other than 0 if any of the eight bytes needs an escape.
fn odd_bytes(word: [u8; 8]) -> u64 {
    /// Repeats the byte in each position.
    const fn all(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    /// Sets the high bit of each position at which `word` has a byte below `byte`. A borrow may set
    /// further bits, but only if some byte was below.
    const fn below(word: u64, byte: u8) -> u64 {
        word.wrapping_sub(all(byte)) & !word
    }
    let word = u64::from_ne_bytes(word);
    let quote = below(word ^ all(b'"'), 1);
    let backslash = below(word ^ all(b'\\'), 1);
    let delete = below(word ^ all(0x7f), 1);
    (word | below(word, b' ') | quote | backslash | delete) & all(0x80)
}
