//! Normalises words for comparison: stems of English, pairs of characters in scripts without
//! spaces, and no stop words.

use std::sync::{Arc, LazyLock};

use foldhash::HashMap;
use rust_stemmers::{Algorithm, Stemmer};

use super::{Script, Word};

/// Makes terms of words, and caches them.
pub(crate) struct TermMaker {
    /// The term of each word; `None` for words that are left out.
    made: HashMap<String, Option<Arc<str>>>,
}

impl TermMaker {
    pub(crate) fn new() -> Self {
        Self { made: HashMap::default() }
    }

    /// Calls `keep` with the terms of one word of a definition.
    pub(crate) fn visit_terms(&mut self, word: &Word, mut keep: impl FnMut(&Arc<str>)) {
        match word.script {
            Script::Spaced => {
                for text in word.parts.iter().chain([&word.text]) {
                    if let Some(term) = self.find_term(text) {
                        keep(term);
                    }
                }
            }
            Script::Unspaced => {
                visit_pairs(&word.text, |pair| {
                    if let Some(term) = self.find_term(pair) {
                        keep(term);
                    }
                });
            }
        }
    }

    fn find_term(&mut self, text: &str) -> Option<&Arc<str>> {
        if !self.made.contains_key(text) {
            let term = is_kept(text).then(|| Arc::from(stem_english(text)));
            self.made.insert(text.to_owned(), term);
        }
        self.made.get(text)?.as_ref()
    }
}

/// The stem of an English word. Any other word is its own stem.
pub(crate) fn stem_english(text: &str) -> String {
    stem_word(Algorithm::English, text)
}

/// The stem of a word in a language. A word with other letters than those of the language, without
/// accents, is its own stem.
pub(crate) fn stem_word(language: Algorithm, text: &str) -> String {
    let has_letters = match language {
        Algorithm::Russian => text.chars().all(|c| matches!(c, 'а'..='я' | 'ё')),
        _ => text.bytes().all(|byte| byte.is_ascii_lowercase()),
    };
    let has_stem = text.len() > 2 && has_letters;
    if has_stem { Stemmer::create(language).stem(text).into_owned() } else { text.to_owned() }
}

/// Calls `visit` with each pair of neighbours; with the whole text if that is shorter.
pub(crate) fn visit_pairs(text: &str, mut visit: impl FnMut(&str)) {
    let starts: Vec<_> = text.char_indices().map(|(at, _)| at).collect();
    if starts.len() < 3 {
        visit(text);
        return;
    }
    for (index, start) in starts.iter().enumerate().take(starts.len() - 1) {
        let end = starts.get(index + 2).copied().unwrap_or(text.len());
        visit(text.get(*start..end).unwrap_or_default());
    }
}

/// Returns true if a word of a definition is kept: single letters and small numbers have no
/// information.
fn is_kept(text: &str) -> bool {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let lengths = if is_number { 3..=4 } else { 2..=usize::MAX };
    lengths.contains(&text.len()) && !is_stop_word(text)
}

/// Returns true if a word is too common in English to distinguish texts.
pub(crate) fn is_stop_word(text: &str) -> bool {
    COMMON_WORDS.has(text, WordKind::Stop)
}

/// Returns true if a word is common in queries, and has no information about the request.
pub(crate) fn is_question_filler(text: &str) -> bool {
    COMMON_WORDS.has(text, WordKind::Filler)
}

/// Returns true for a word that is used in any context. A definition that happens to have it is
/// rarely the intended one.
pub(crate) fn is_everyday_word(text: &str) -> bool {
    COMMON_WORDS.has(text, WordKind::Everyday)
}

/// The reason for a word's low information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordKind {
    Stop,
    Filler,
    Everyday,
}

/// The words with little information, each with the reasons.
struct CommonWords {
    kinds: HashMap<&'static str, Vec<WordKind>>,
}

impl CommonWords {
    fn read(list: &'static str) -> Self {
        let mut kinds: HashMap<&str, Vec<WordKind>> = HashMap::default();
        for (kind, words) in list.lines().filter_map(|line| line.split_once(": ")) {
            let kind = match kind {
                "stop" => WordKind::Stop,
                "filler" => WordKind::Filler,
                "everyday" => WordKind::Everyday,
                _ => continue,
            };
            for word in words.split(' ') {
                kinds.entry(word).or_default().push(kind);
            }
        }
        Self { kinds }
    }

    fn has(&self, word: &str, kind: WordKind) -> bool {
        self.kinds.get(word).is_some_and(|kinds| kinds.contains(&kind))
    }
}

static COMMON_WORDS: LazyLock<CommonWords> =
    LazyLock::new(|| CommonWords::read(include_str!("../synonyms/thesaurus/common.txt")));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::split_words;

    fn terms(text: &str) -> Vec<String> {
        let mut maker = TermMaker::new();
        let mut terms = Vec::new();
        for word in split_words(text) {
            maker.visit_terms(&word, |term| terms.push(term.to_string()));
        }
        terms
    }

    #[test]
    fn the_list_of_common_words_is_read() {
        assert!(is_stop_word("the") && is_question_filler("please") && is_everyday_word("morning"));
        assert!(!is_stop_word("file") && !is_question_filler("the") && !is_everyday_word(""));
        assert!(COMMON_WORDS.kinds.len() > 300);
    }

    #[test]
    fn forms_of_a_word_are_one_term() {
        assert_eq!(terms("repositories repository"), ["repositori", "repositori"]);
        assert_eq!(
            terms("Creating the issues, created an issue"),
            terms("create issue create issue")
        );
    }

    #[test]
    fn scripts_without_spaces_give_pairs() {
        assert_eq!(terms("文件系统"), ["文件", "件系", "系统"]);
        assert_eq!(terms("検索"), ["検索"]);
    }

    #[test]
    fn numbers_and_single_letters_are_left_out() {
        assert_eq!(terms("a x 7 64 404 k8s"), ["404", "k8s"]);
    }
}
