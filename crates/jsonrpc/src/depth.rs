//! The nesting depth of a text, measured and limited before it is parsed.

/// The text nests too deeply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the JSON nests deeper than {limit} levels")]
pub struct DepthError {
    /// The most levels allowed.
    pub limit: usize,
}

/// Checks that every `[` and `{` outside a string is at most `limit` levels deep.
///
/// The text need not be valid JSON: the parser rejects invalid text.
///
/// # Errors
/// [`DepthError`] at the first bracket past the limit.
pub fn within_depth(text: &[u8], limit: usize) -> Result<(), DepthError> {
    // Most messages have fewer brackets, in strings and outside them, than the allowed depth.
    // Counting brackets takes a tenth of the time of recognising strings.
    if opening(text) <= limit {
        return Ok(());
    }
    if deepest_level(text, limit) > limit { Err(DepthError { limit }) } else { Ok(()) }
}

/// The deepest nesting of `[` and `{` outside strings.
pub fn nesting_depth(text: &[u8]) -> usize {
    deepest_level(text, usize::MAX)
}

/// The deepest nesting, or the first one past `limit`.
fn deepest_level(text: &[u8], limit: usize) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => loop {
                match bytes.next() {
                    Some(b'\\') => {
                        bytes.next();
                    }
                    Some(b'"') | None => break,
                    Some(_) => {}
                }
            },
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
                if depth > limit {
                    break;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The number of `[` and `{`. Counted in bytes, so that the compiler vectorizes
/// the loop.
fn opening(text: &[u8]) -> usize {
    let count = |part: &[u8]| -> u8 {
        // `[` and `{` differ in this one bit only.
        part.iter().map(|byte| u8::from(byte | 0x20 == b'{')).sum()
    };
    text.chunks(usize::from(u8::MAX)).map(|part| usize::from(count(part))).sum()
}

/// The deepest nesting of a message from a server.
pub const MAX_SERVER_DEPTH: usize = 128;
/// The deepest nesting of a message from a client that the configuration can
/// allow.
pub const MAX_CLIENT_DEPTH: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brackets_outside_strings_count() {
        for (text, limit, fits) in [
            ("[[1]]", 2, true),
            ("[[1]]", 1, false),
            (r#"{"a":"[[[["}"#, 1, true),
            (r#"{"a":"\"[[[["}"#, 1, true),
            ("[[],[],[]]", 2, true),
            ("\"unclosed [", 0, true),
            (&"[".repeat(300), 300, true),
            (&"[".repeat(300), 299, false),
            (&format!("{}[[", " ".repeat(255)), 1, false),
        ] {
            assert_eq!(within_depth(text.as_bytes(), limit).is_ok(), fits, "{text}");
            assert_eq!(nesting_depth(text.as_bytes()) <= limit, fits, "{text}");
        }
    }
}
