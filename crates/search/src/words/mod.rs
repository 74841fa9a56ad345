//! Splits text into words: identifiers are divided and letters folded, without regard to meaning.

pub(crate) mod shapes;
pub(crate) mod spelling;
pub(crate) mod stems;

use std::mem::take;

/// A word of a text, folded: lower case, without accents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// Its letters and digits, at most [`MAX_WORD`] bytes.
    pub(super) text: String,
    /// The parts of a word that has an inner structure (`createIssue`, `base64`); empty for others.
    pub(super) parts: Vec<String>,
    /// Its script.
    pub(super) script: Script,
}

/// The kind of script, which decides how words are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    /// A script that has spaces between words.
    Spaced,
    /// A run of Chinese, Japanese or Korean characters, without reliable spaces.
    Unspaced,
}

/// The words of a text, in order.
pub(super) fn split_words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    visit_words(text, |word| words.push(word));
    words
}

/// Calls `visit` with each word of a text.
pub(super) fn visit_words(text: &str, mut visit: impl FnMut(Word)) {
    let mut run = WordRun::default();
    for original in text.chars() {
        if is_combining_mark(original) {
            continue;
        }
        let class = CharClass::classify(original);
        if class == CharClass::Separator || class.is_unspaced() != run.is_unspaced() {
            run.finish(&mut visit);
        }
        if class != CharClass::Separator {
            run.push(original, class);
        }
    }
    run.finish(&mut visit);
}

/// Appends a character in lower case and without accents.
pub(super) fn fold_character(original: char, out: &mut String) {
    match original {
        'A'..='Z' => out.push(original.to_ascii_lowercase()),
        '\0'..='\u{7f}' => out.push(original),
        // Full-width forms of ASCII.
        '\u{ff01}'..='\u{ff5e}' => {
            let ascii = char::from_u32(u32::from(original) - 0xfee0).unwrap_or(original);
            out.push(ascii.to_ascii_lowercase());
        }
        _ => {
            for lower in original.to_lowercase().filter(|lower| !is_combining_mark(*lower)) {
                match find_base(lower) {
                    Some(base) => out.push_str(base),
                    None => out.push(lower),
                }
            }
        }
    }
}

/// A text in lower case and without accents.
pub(super) fn fold_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for original in text.chars().filter(|original| !is_combining_mark(*original)) {
        fold_character(original, &mut out);
    }
    out
}

/// A run of characters between two separators.
#[derive(Default)]
struct WordRun {
    /// The folded characters.
    folded: String,
    /// The beginnings of parts in `folded`, except the first.
    cuts: Vec<usize>,
    /// The class of the last character, and of the one before.
    last: Option<CharClass>,
    /// The beginning of the last character in `folded`.
    last_at: usize,
    /// True if characters of the word were left out.
    is_full: bool,
}

impl WordRun {
    fn is_unspaced(&self) -> bool {
        self.last.is_some_and(CharClass::is_unspaced)
    }

    fn push(&mut self, original: char, class: CharClass) {
        if self.last.is_none() {
            self.last = Some(class);
        }
        if self.is_full || (self.folded.len() + 4 > MAX_WORD && !class.is_unspaced()) {
            self.is_full = true;
            return;
        }
        let at = self.folded.len();
        if let Some(cut) = self.find_cut(class, at)
            && self.cuts.last() != Some(&cut)
        {
            self.cuts.push(cut);
        }
        self.last_at = at;
        self.last = Some(class);
        fold_character(original, &mut self.folded);
    }

    /// The beginning of a part, if one begins with a character of this class.
    fn find_cut(&self, class: CharClass, at: usize) -> Option<usize> {
        match (self.last?, class) {
            // `createIssue`, `s3Object`, `base64`, `3d`
            (CharClass::Lower | CharClass::Digit, CharClass::Upper)
            | (CharClass::Lower | CharClass::Upper, CharClass::Digit)
            | (CharClass::Digit, CharClass::Lower) => Some(at).filter(|at| *at > 0),
            // `HTTPServer`: the last capital belongs to the next part.
            (CharClass::Upper, CharClass::Lower) => Some(self.last_at).filter(|at| *at > 0),
            _ => None,
        }
    }

    /// Ends the word.
    fn finish(&mut self, visit: &mut impl FnMut(Word)) {
        let text = take(&mut self.folded);
        let cuts = take(&mut self.cuts);
        let script = if self.is_unspaced() { Script::Unspaced } else { Script::Spaced };
        *self = Self::default();
        if text.is_empty() {
            return;
        }
        let mut parts = Vec::new();
        if !cuts.is_empty() {
            let ends = cuts.iter().copied().chain([text.len()]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let pieces = starts.zip(ends).filter_map(|(start, end)| text.get(start..end));
            parts.extend(pieces.filter(|piece| !piece.is_empty()).map(str::to_owned));
        }
        visit(Word { text, parts, script });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Lower,
    Upper,
    Digit,
    /// A letter of a script without spaces.
    Unspaced,
    Separator,
}

impl CharClass {
    fn classify(original: char) -> Self {
        match original {
            'a'..='z' => Self::Lower,
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            '\0'..='\u{7f}' => Self::Separator,
            _ if is_unspaced(original) => Self::Unspaced,
            _ if original.is_uppercase() => Self::Upper,
            _ if original.is_alphabetic() => Self::Lower,
            _ if original.is_numeric() => Self::Digit,
            _ => Self::Separator,
        }
    }

    fn is_unspaced(self) -> bool {
        self == Self::Unspaced
    }
}

/// Han, Hiragana, Katakana and Hangul.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{3041}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{2ffff}' | '々')
        && !matches!(c, '\u{30fb}' | '\u{30a0}')
}

fn is_combining_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}')
}

/// The base letters, without an accent, of a lower-case letter.
fn find_base(lower: char) -> Option<&'static str> {
    Some(match lower {
        'à'..='å' | 'ā' | 'ă' | 'ą' | 'ǎ' => "a",
        'æ' => "ae",
        'ç' | 'ć' | 'ĉ' | 'ċ' | 'č' => "c",
        'ď' | 'đ' | 'ð' => "d",
        'è'..='ë' | 'ē' | 'ĕ' | 'ė' | 'ę' | 'ě' => "e",
        'ĝ' | 'ğ' | 'ġ' | 'ģ' => "g",
        'ĥ' | 'ħ' => "h",
        'ì'..='ï' | 'ĩ' | 'ī' | 'ĭ' | 'į' | 'ı' => "i",
        'ĵ' => "j",
        'ķ' => "k",
        'ĺ' | 'ļ' | 'ľ' | 'ł' => "l",
        'ñ' | 'ń' | 'ņ' | 'ň' => "n",
        'ò'..='ö' | 'ø' | 'ō' | 'ŏ' | 'ő' => "o",
        'œ' => "oe",
        'ŕ' | 'ŗ' | 'ř' => "r",
        'ś' | 'ŝ' | 'ş' | 'š' | 'ș' => "s",
        'ß' => "ss",
        'ţ' | 'ť' | 'ț' => "t",
        'þ' => "th",
        'ù'..='ü' | 'ũ' | 'ū' | 'ŭ' | 'ů' | 'ű' | 'ų' => "u",
        'ŵ' => "w",
        'ý' | 'ÿ' | 'ŷ' => "y",
        'ź' | 'ż' | 'ž' => "z",
        _ => return None,
    })
}

/// The most bytes of a word; the rest of a longer one is left out. Hashes and encoded data are no
/// words of queries.
const MAX_WORD: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        let words = split_words(text).into_iter();
        words
            .map(|word| match word.parts.len() {
                0 => word.text,
                _ => format!("{}={}", word.text, word.parts.join("+")),
            })
            .collect()
    }

    #[test]
    fn identifiers_are_divided_where_people_divide_them() {
        for (text, expected) in [
            ("create_issue-comment.v", &["create", "issue", "comment", "v"][..]),
            ("createIssue", &["createissue=create+issue"]),
            ("HTTPServer getURL", &["httpserver=http+server", "geturl=get+url"]),
            ("GitHub s3Object", &["github=git+hub", "s3object=s+3+object"]),
            ("base64 k8s", &["base64=base+64", "k8s=k+8+s"]),
            ("GET_ALL", &["get", "all"]),
            ("what's new?", &["what", "s", "new"]),
            ("", &[]),
            ("  -- !", &[]),
        ] {
            assert_eq!(split(text), expected, "{text}");
        }
    }

    #[test]
    fn letters_are_folded() {
        assert_eq!(
            split("Löschen LÖSCHEN lo\u{308}schen Straße"),
            ["loschen", "loschen", "loschen", "strasse"]
        );
        assert_eq!(split("supprimé ａｂＣ Привет"), ["supprime", "abc=ab+c", "привет"]);
        assert_eq!(fold_text("Où est l’œuvre"), "ou est l’oeuvre");
    }

    #[test]
    fn scripts_without_spaces_are_kept_apart_from_others() {
        let words = split_words("GitHubのissueを検索する");
        let found: Vec<_> = words.iter().map(|word| (&*word.text, word.script)).collect();
        assert_eq!(
            found,
            [
                ("github", Script::Spaced),
                ("の", Script::Unspaced),
                ("issue", Script::Spaced),
                ("を検索する", Script::Unspaced),
            ]
        );
    }

    #[test]
    fn a_long_word_is_cut() {
        let words = split_words(&"x".repeat(10_000));
        assert!(words.len() == 1 && words[0].text.len() <= MAX_WORD);
    }
}
