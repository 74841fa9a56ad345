//! URIs that servers read differently from their text.
//!
//! The gateway compares URIs as text; servers parse them. A parser that follows the WHATWG URL
//! standard deletes tabs and line ends, reads `\` as `/`, and resolves dot segments,
//! percent-encoded ones included. So a URI with a character of the first two kinds is refused
//! everywhere, and a URI with a dot segment wherever a pattern or a bound variable decides which
//! URIs may be read.

use std::borrow::Cow;

/// Returns true if a URI or template contains only characters that every parser keeps: no control
/// characters and no backslash, which RFC 3986 excludes from URIs.
pub(crate) fn has_only_stable_characters(uri: &str) -> bool {
    !uri.contains(|character: char| character.is_control() || character == '\\')
}

/// Returns true if resolving dot segments, once, would change a URI. Percent-encoded dots and
/// separators count as dots and separators. Parts of a segment that a server may cut off are
/// ignored: spaces at its ends, and parameters after `;`.
pub(crate) fn has_dot_segment(uri: &str) -> bool {
    let decoded = decode_path_characters(uri);
    decoded
        .split(['/', '\\', '?', '#', '&', '=', ',', ':', ';'])
        .any(|segment| matches!(segment.trim_matches(' '), "." | ".."))
}

/// Returns true if the value of a template's first variable begins like an absolute path, although
/// the template's own text before it, `prefix`, ends with the separator: joining paths drops
/// everything before an absolute one.
pub(crate) fn has_absolute_value(prefix: &str, uri: &str) -> bool {
    let is_folder = prefix.ends_with('/') && !prefix.ends_with("://");
    let value = uri.strip_prefix(prefix).filter(|_| is_folder);
    value.is_some_and(|value| decode_path_characters(value).starts_with(['/', '\\']))
}

/// Decodes the characters that decide where a path leads, once: `.`, `/`, `\`, `;` and the space.
fn decode_path_characters(uri: &str) -> Cow<'_, str> {
    if !uri.contains('%') {
        return Cow::Borrowed(uri);
    }
    let (mut decoded, mut rest) = (String::with_capacity(uri.len()), uri);
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let code = after.get(..2).map(str::to_ascii_lowercase);
        let character = match code.as_deref() {
            Some("2e") => Some('.'),
            Some("2f") => Some('/'),
            Some("5c") => Some('\\'),
            Some("3b") => Some(';'),
            Some("20") => Some(' '),
            _ => None,
        };
        decoded.push(character.unwrap_or('%'));
        rest = if character.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_parsers_drop_or_change_are_found() {
        for uri in ["a://\tb", "a://b\n", "\ra://b", "a://b\u{7f}", "a://b\0", "a:\\b", "a:\u{85}"]
        {
            assert!(!has_only_stable_characters(uri), "{uri:?}");
        }
        for uri in ["file:///a.txt", "db://{table}/é?x=1#y", "not listed", "a%09b"] {
            assert!(has_only_stable_characters(uri), "{uri:?}");
        }
    }

    #[test]
    fn dot_segments_are_found_in_every_encoding() {
        for uri in [
            "..",
            "f:///pub/../x",
            "f:///pub/./x",
            "f:///pub/..",
            "f:///pub/%2e%2e/x",
            "f:///pub/%2E./x",
            "f:///pub/.%2e/x",
            "f:///pub/a%2f..%2Fx",
            "f:///pub/..%5cx",
            "f:///pub/..\\x",
            "f:///pub/.. ",
            "f:///pub/..%20/x",
            "f:///pub/..;v=1/x",
            "f:///pub/..%3Bv=1/x",
            "f:///pub?file=../x",
            "f:///pub?a,..",
            "f:..",
        ] {
            assert!(has_dot_segment(uri), "{uri:?}");
        }
        for uri in [
            "f:///pub/a..b/...",
            "f:///.hidden",
            "f:///a%2eb",
            "f:///100%/x",
            "f:///%",
            "%2",
            "é%é",
        ] {
            assert!(!has_dot_segment(uri), "{uri:?}");
        }
    }

    #[test]
    fn a_value_that_is_an_absolute_path_is_found() {
        for (prefix, uri, found) in [
            ("f:///data/", "f:///data//etc", true),
            ("f:///data/", "f:///data/%2Fetc", true),
            ("f:///data/", "f:///data/etc//x", false),
            ("f:///data", "f:///data/etc", false),
            ("f://", "f:///data", false),
            ("f:///other/", "f:///data//etc", false),
        ] {
            assert_eq!(has_absolute_value(prefix, uri), found, "{prefix} {uri}");
        }
    }

    /// `%252e%252e` is the name `%2e%2e`, not a dot segment.
    #[test]
    fn percent_encoding_is_resolved_once() {
        assert!(!has_dot_segment("f:///pub/%252e%252e/x"));
    }
}
