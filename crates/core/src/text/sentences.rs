//! Sentences, and texts cut at their ends.

use std::borrow::Cow;

/// The first sentence of a text, and the rest.
pub fn split_sentence(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        let ends = match character {
            '.' | '!' | '?' => {
                next.is_none_or(char::is_whitespace) && !ends_in_abbreviation(text, at)
            }
            '。' | '！' | '？' => true,
            '\n' => at > 0 && next.is_none_or(|next| next == '\n' || next == '\r' || next == '-'),
            _ => false,
        };
        if ends {
            return text.split_at(at + character.len_utf8());
        }
    }
    (text, "")
}

/// Returns true if the full stop at this position belongs to an abbreviation.
fn ends_in_abbreviation(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    ["e.g", "i.e", "etc", "vs", "approx"].iter().any(|end| {
        before.strip_suffix(end).is_some_and(|rest| !rest.ends_with(char::is_alphanumeric))
    })
}

/// The text, or as many of its first sentences as have at most `most` characters; the first words
/// of a first sentence that is longer. An ellipsis, which is not counted, marks the omission.
pub fn shorten_text(text: &str, most: usize) -> Cow<'_, str> {
    if has_at_most(text, most) {
        return Cow::Borrowed(text);
    }
    let (mut end, mut rest) = (0, text);
    loop {
        let (_, after) = split_sentence(rest);
        let next = text.len() - after.len();
        let is_short = text.get(..next).is_some_and(|taken| has_at_most(taken.trim_end(), most));
        if after.is_empty() || !is_short {
            break;
        }
        (end, rest) = (next, after);
    }
    match text.get(..end).map(str::trim_end) {
        Some(sentences) if !sentences.is_empty() => Cow::Owned(format!("{sentences} …")),
        _ => Cow::Owned(cut_at_word(text, most)),
    }
}

/// The first words of a text that is longer than `most` characters, with an ellipsis.
pub fn cut_at_word(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    let cut = text.get(..end).unwrap_or_default();
    let cut = cut.rsplit_once(char::is_whitespace).map_or(cut, |(words, _)| words);
    format!("{}…", cut.trim_end_matches([',', ';', ':', ' ', '\n']))
}

/// Returns true if a text has at most this many characters.
fn has_at_most(text: &str, most: usize) -> bool {
    text.len() <= most || text.chars().nth(most).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_the_first_sentence() {
        for (text, summary) in [
            ("Reads a file. Then stops.", "Reads a file."),
            ("Reads files, e.g. of v1.2 logs. More.", "Reads files, e.g. of v1.2 logs."),
            ("Reads a file\n\nArgs:\n path", "Reads a file\n"),
            ("ファイルを読む。次", "ファイルを読む。"),
            ("no end", "no end"),
            ("", ""),
        ] {
            assert_eq!(split_sentence(text).0, summary);
        }
    }

    #[test]
    fn a_text_is_cut_at_the_end_of_a_sentence() {
        let text = "Reads a file. Then it stops.\n\nArgs:\n path";
        for (most, expected) in [
            (100, text),
            (30, "Reads a file. Then it stops. …"),
            (28, "Reads a file. Then it stops. …"),
            (27, "Reads a file. …"),
            (13, "Reads a file. …"),
            (12, "Reads a…"),
            (3, "Rea…"),
        ] {
            assert_eq!(shorten_text(text, most), expected, "{most}");
        }
        assert_eq!(shorten_text("ファイルを読む。次もある", 9), "ファイルを読む。 …");
        assert_eq!(shorten_text("", 20), "");
    }
}
