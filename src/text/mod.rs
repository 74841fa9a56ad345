//! Text that others wrote, made safe to repeat, and errors as text.
//!
//! Names, URIs and messages of clients and servers appear in errors and log
//! lines. They are clipped first, so that nobody floods a log or a response.
//! This module knows nothing but text; every module may use it.

use std::borrow::Cow;

/// The start of a text, at most `limit` bytes of it, cut between two characters.
pub fn clip(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or_default()
}

/// An error and its causes in one line; the first cause comes last.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let errors = std::iter::successors(Some(error), |error| error.source());
    errors.map(ToString::to_string).collect::<Vec<_>>().join(": ")
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

#[cfg(test)]
mod tests {
    use super::*;

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
