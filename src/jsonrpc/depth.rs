//! How deeply a text nests, told before anything takes it apart.

/// A text nests deeper than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the JSON nests deeper than {limit} levels")]
pub struct TooDeep {
    /// The most levels allowed.
    pub limit: usize,
}

/// Checks that no `[` or `{` outside a string stands deeper than `limit`.
///
/// The text need not be valid JSON: what is invalid is found by the parser.
///
/// # Errors
/// [`TooDeep`] at the first bracket past the limit.
pub fn within_depth(text: &[u8], limit: usize) -> Result<(), TooDeep> {
    let mut depth = 0_usize;
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
                if depth > limit {
                    return Err(TooDeep { limit });
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

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
        ] {
            assert_eq!(within_depth(text.as_bytes(), limit).is_ok(), fits, "{text}");
        }
    }
}
