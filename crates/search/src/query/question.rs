//! A parsed query: its words, their English, and the action that it asks for. Parsing does not
//! depend on the indexed elements.

use trunkline_core::text::clip;

use crate::elements::actions::Action;
use crate::elements::element::name_key;
use crate::synonyms::languages::{Dictionary, Language, Translation};
use crate::words::shapes::find_shapes;
use crate::words::stems::{is_question_filler, is_stop_word, stem_english, visit_pairs};
use crate::words::{Script, Word, split_words};

/// A parsed query.
#[derive(Debug)]
pub struct SearchQuery {
    pub(crate) words: Vec<QueryWord>,
    /// The meanings of its words' shapes: alternative terms for each.
    pub(crate) shapes: Vec<&'static [&'static str]>,
    /// The action that the query asks for, if it shows one.
    pub(crate) action: Option<Action>,
    /// Its letters and digits, folded: equal to the name of an element that is requested by name.
    pub(crate) key: String,
}

/// A word or phrase of a query.
#[derive(Debug, Default)]
pub(crate) struct QueryWord {
    /// The word as written, folded.
    pub(crate) text: String,
    /// Its stem.
    pub(crate) stem: String,
    /// The stems of its parts, if it has an inner structure, or its pairs of characters.
    pub(crate) parts: Vec<String>,
    /// Its English translations, if it is a word of another language.
    pub(crate) translations: Vec<&'static Translation>,
    /// True if it has no information, unless it is part of a phrase.
    pub(crate) is_stop: bool,
    /// True if it is quoted: a name or a value for a tool, rather than the tool's action.
    pub(crate) is_quoted: bool,
    /// True for characters without spaces that are in no list. They count if they are found, and do
    /// not count against a document if they are not.
    pub(crate) is_fragment: bool,
}

impl SearchQuery {
    /// Parses a query, in any of the known languages. At most [`MAX_QUERY_BYTES`] bytes and
    /// [`MAX_QUERY_WORDS`] words of it count.
    pub fn parse(question: &str) -> Self {
        let question = clip(question, MAX_QUERY_BYTES);
        let mut found: Vec<_> = split_quotations(question)
            .into_iter()
            .map(|(is_quoted, text)| (is_quoted, split_words(text)))
            .collect();
        let mut room = MAX_QUERY_WORDS;
        for (_, words) in &mut found {
            words.truncate(room);
            room -= words.len();
        }
        let all = found.iter().flat_map(|(_, words)| words);
        let spaced = all.filter(|word| word.script == Script::Spaced);
        let texts: Vec<_> = spaced.map(|word| &*word.text).collect();
        let language = Language::detect(&texts);
        let mut words = Vec::new();
        for (is_quoted, found) in &found {
            let read = read_words(found, language).into_iter();
            words.extend(read.map(|word| QueryWord { is_quoted: *is_quoted, ..word }));
        }
        words.truncate(MAX_QUERY_WORDS);
        let translated = words.iter().flat_map(|word| &word.translations);
        let action = match (language, translated.clone().next()) {
            (None, None) => Action::of_question(texts),
            (None, Some(_)) => {
                let mut words = translated;
                words.find_map(|word| Action::of_verb(word.english))
            }
            (Some(language), _)
                if texts.first().is_some_and(|first| language.is_interrogative(first)) =>
            {
                Some(Action::Read)
            }
            (Some(_), _) => words.iter().find_map(QueryWord::own_action),
        };
        let shapes = find_shapes(question).into_iter().map(|(_, words)| words).collect();
        Self { words, shapes, action, key: name_key(question) }
    }

    /// The query in English, word by word, as far as its words are in the lists; `None` if none of
    /// them is of another language.
    pub(crate) fn translate(&self) -> Option<String> {
        if self.words.iter().all(|word| word.translations.is_empty()) {
            return None;
        }
        let words = self.words.iter().filter(|word| !word.is_stop && !word.is_fragment);
        let english =
            words.map(|word| word.translations.first().map_or(&*word.text, |it| it.english));
        Some(english.collect::<Vec<_>>().join(" "))
    }

    /// Returns true if there is nothing to search for.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| word.is_stop) && self.shapes.is_empty()
    }
}

impl QueryWord {
    /// A word of English, or of a language that has no list.
    fn from_word(word: &Word) -> Self {
        let parts = word.parts.iter().filter(|part| part.len() > 1 && !is_stop_word(part));
        let is_letter = word.text.len() < 2;
        Self {
            stem: stem_english(&word.text),
            parts: parts.map(|part| stem_english(part)).collect(),
            is_stop: is_letter || is_stop_word(&word.text) || is_question_filler(&word.text),
            text: word.text.clone(),
            ..Self::default()
        }
    }

    fn own_action(&self) -> Option<Action> {
        if self.is_stop {
            return None;
        }
        let translated = self.translations.iter().find_map(|one| Action::of_verb(one.english));
        translated.or_else(|| self.translations.is_empty().then(|| Action::of_verb(&self.text))?)
    }
}

fn read_words(found: &[Word], language: Option<Language>) -> Vec<QueryWord> {
    let mut words = Vec::with_capacity(found.len());
    let mut rest = found;
    while let Some((word, others)) = rest.split_first() {
        if word.script == Script::Unspaced {
            read_unspaced(&word.text, &mut words);
            rest = others;
            continue;
        }
        if let Some((phrase, count)) = language.and_then(|language| find_phrase(language, rest)) {
            words.push(phrase);
            rest = rest.get(count..).unwrap_or_default();
            continue;
        }
        words.push(read_word(word, language));
        rest = others;
    }
    words
}

/// A phrase of several words at the start that is in the list of a language, and its number of
/// words.
fn find_phrase(language: Language, rest: &[Word]) -> Option<(QueryWord, usize)> {
    (2..=Dictionary::MAX_PHRASE_WORDS.min(rest.len())).rev().find_map(|count| {
        let texts = rest.get(..count)?.iter().map(|word| &*word.text);
        let text = texts.collect::<Vec<_>>().join(" ");
        let translations = Dictionary::built_in().find(language, &text);
        if translations.is_empty() {
            return None;
        }
        Some((QueryWord { stem: text.clone(), text, translations, ..QueryWord::default() }, count))
    })
}

fn read_word(word: &Word, language: Option<Language>) -> QueryWord {
    let mut read = QueryWord::from_word(word);
    let Some(language) = language else { return read };
    if language.is_stop_word(&word.text) {
        // `bitte` is not `bitten`, though both have the same stem.
        read.is_stop = true;
        return read;
    }
    read.translations = Dictionary::built_in().find(language, &word.text);
    if read.translations.is_empty() && language == Language::German {
        read.translations = Dictionary::built_in().find_compound(&word.text);
    }
    // `note` has no information in English, but some in French.
    read.is_stop &= read.translations.is_empty();
    read
}

/// Divides a run of characters without spaces into the known words, and the pairs between them.
fn read_unspaced(run: &str, words: &mut Vec<QueryWord>) {
    let mut rest = run;
    while !rest.is_empty() && words.len() < MAX_QUERY_WORDS {
        let word = Dictionary::built_in().find_unspaced(rest);
        let mut parts = Vec::new();
        visit_pairs(word.text, |pair| parts.push(pair.to_owned()));
        let is_fragment = word.translations.is_empty();
        words.push(QueryWord {
            text: word.text.to_owned(),
            stem: word.text.to_owned(),
            parts,
            translations: word.translations,
            is_stop: is_fragment && word.text.chars().count() < 2,
            is_quoted: false,
            is_fragment,
        });
        rest = word.rest;
    }
}

/// The parts of a query, each with true if it is quoted. A query that consists of a single
/// quotation is not quoted.
fn split_quotations(question: &str) -> Vec<(bool, &str)> {
    let mut parts = Vec::new();
    let mut rest = question;
    while let Some((open, mark)) = find_opening_quote(rest) {
        let (before, quoted) = rest.split_at(open);
        let inner = quoted.get(mark.len_utf8()..).unwrap_or_default();
        let closing = find_closing_quote(mark).unwrap_or(mark);
        let Some(close) = find_end_of_quotation(inner, closing) else { break };
        let (inner, after) = inner.split_at(close);
        parts.extend([(false, before), (true, inner)]);
        rest = after.get(closing.len_utf8()..).unwrap_or_default();
    }
    parts.push((false, rest));
    let is_unquoted = |(is_quoted, text): &(bool, &str)| {
        !is_quoted && text.contains(|c: char| c.is_alphanumeric())
    };
    if !parts.iter().any(is_unquoted) {
        for (is_quoted, _) in &mut parts {
            *is_quoted = false;
        }
    }
    parts
}

/// The first mark that opens a quotation, and its position. An apostrophe does so only before a
/// word: `the card 'launch party'`, but not `what's new`.
fn find_opening_quote(text: &str) -> Option<(usize, char)> {
    let mut before = ' ';
    for (place, mark) in text.char_indices() {
        let opens = mark != APOSTROPHE_MARK || before.is_whitespace() || before == '(';
        if opens && find_closing_quote(mark).is_some() {
            return Some((place, mark));
        }
        before = mark;
    }
    None
}

/// The end of a quotation. An apostrophe ends one only after a word.
fn find_end_of_quotation(inner: &str, closing: char) -> Option<usize> {
    let mut ends = inner.match_indices(closing).map(|(place, _)| place);
    ends.find(|place| {
        let after = inner.get(place + closing.len_utf8()..).and_then(|rest| rest.chars().next());
        closing != APOSTROPHE_MARK || after.is_none_or(|next| !next.is_alphanumeric())
    })
}

fn find_closing_quote(opening: char) -> Option<char> {
    Some(match opening {
        '"' | '`' | APOSTROPHE_MARK => opening,
        '‘' => '’',
        '“' | '„' => '”',
        '«' => '»',
        '「' => '」',
        '『' => '』',
        '《' => '》',
        _ => return None,
    })
}

const APOSTROPHE_MARK: char = '\'';

/// The most bytes of a query that count.
pub const MAX_QUERY_BYTES: usize = 400;
/// The most words of a query that count.
pub const MAX_QUERY_WORDS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(question: &str) -> Vec<String> {
        let query = SearchQuery::parse(question);
        let words = query.words.into_iter().filter(|word| !word.is_stop);
        words
            .map(|word| match word.translations.first() {
                Some(translation) => format!("{}={}", word.text, translation.english),
                None => word.text,
            })
            .collect()
    }

    #[test]
    fn meaningless_words_are_left_out() {
        assert_eq!(kept("I would like to create a new issue, please"), ["create", "new", "issue"]);
        assert!(SearchQuery::parse("what can you do for me?").is_empty());
        assert!(SearchQuery::parse("").is_empty());
    }

    #[test]
    fn words_of_other_languages_are_translated() {
        assert_eq!(kept("Lösche bitte die Datei"), ["losche=delete", "datei=file"]);
        assert_eq!(kept("consulta la base de datos"), ["consulta=query", "base de datos=database"]);
        assert_eq!(kept("ファイルを検索する")[..2], ["ファイル=file", "検索=search"]);
        assert_eq!(kept("удали файл"), ["удали=delete", "файл=file"]);
        assert_eq!(kept("创建文件"), ["创建=create", "文件=file"]);
        assert_eq!(SearchQuery::parse("Lösche die Datei").action, Some(Action::Delete));
        assert_eq!(
            SearchQuery::parse("Welche Dateien wurden gelöscht?").action,
            Some(Action::Read)
        );
        assert_eq!(SearchQuery::parse("删除文件").action, Some(Action::Delete));
    }

    #[test]
    fn quoted_text_is_separated_from_the_rest() {
        let quoted = |question: &str| -> Vec<String> {
            let words = SearchQuery::parse(question).words.into_iter();
            words.filter(|word| word.is_quoted).map(|word| word.text).collect()
        };
        assert_eq!(quoted(r#"create a task "buy milk" today"#), ["buy", "milk"]);
        assert_eq!(quoted("rename `a` to «b b»"), ["a", "b", "b"]);
        assert!(quoted(r#""create a task""#).is_empty());
        assert!(quoted(r#"an open " quote, and `one more"#).is_empty());
        assert_eq!(quoted("move the card 'launch party' to what's next"), ["launch", "party"]);
        assert_eq!(quoted("the users' notes on ‘a b’, and nobody's"), ["a", "b"]);
    }

    #[test]
    fn a_question_is_bounded() {
        let query = SearchQuery::parse(&"ab ".repeat(10_000));
        assert!(query.words.len() <= MAX_QUERY_WORDS);
        let query = SearchQuery::parse(&"漢字".repeat(10_000));
        assert!(query.words.len() <= MAX_QUERY_WORDS);
    }
}
