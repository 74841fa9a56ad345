//! Queries in other languages: detects the language, and translates its commonest words to English.
//!
//! Definitions of tools are almost always in English, and `find_tools` asks for queries in English. A
//! list of 250 words in eight languages helps with those that come in another one; unknown words
//! are searched untranslated.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use foldhash::HashMap;
use rust_stemmers::Algorithm;

use super::associations::Associations;
use super::thesaurus::{MAX_PHRASE, SynonymGroups};
use crate::words::stems::{is_question_filler, is_stop_word, stem_english, stem_word};
use crate::words::{fold_text, split_words};

/// A language with spaces between words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Language {
    German,
    French,
    Spanish,
    Portuguese,
    Italian,
    Russian,
}

impl Language {
    const ALL: [Self; 6] =
        [Self::German, Self::French, Self::Spanish, Self::Portuguese, Self::Italian, Self::Russian];

    /// Detects the language of a query with these words, folded; `None` for English, and for words
    /// that indicate no language.
    pub(crate) fn detect(words: &[&str]) -> Option<Self> {
        let dictionary = Dictionary::built_in();
        let is_english = |word: &&&str| {
            let known = || {
                let stem = stem_english(word);
                SynonymGroups::built_in().knows(&stem) || Associations::built_in().knows(&stem)
            };
            is_stop_word(word) || is_question_filler(word) || known()
        };
        let english = words.iter().filter(is_english).count();
        let is_of = |language: Self, word: &str| {
            language.is_stop_word(word) || !dictionary.find(language, word).is_empty()
        };
        let scores = Self::ALL.map(|language| {
            let found = words.iter().filter(|word| is_of(language, word));
            let own = found.clone().filter(|word| !is_english(word)).count();
            (found.count() + own, own, language)
        });
        // The first of equal ones: a word that several languages have means the same in all.
        let best = scores.into_iter().rev().max_by_key(|(score, ..)| *score);
        best.filter(|(score, own, _)| *own > 0 && *score > english).map(|(.., language)| language)
    }

    /// Returns true if a word, folded, is too common in the language to distinguish texts.
    pub(crate) fn is_stop_word(self, word: &str) -> bool {
        static STOP_WORDS: LazyLock<[HashSet<&str>; 6]> = LazyLock::new(|| {
            let lists = [
                GERMAN_STOP_WORDS,
                FRENCH_STOP_WORDS,
                SPANISH_STOP_WORDS,
                PORTUGUESE_STOP_WORDS,
                ITALIAN_STOP_WORDS,
                RUSSIAN_STOP_WORDS,
            ];
            lists.map(|list| list.split_ascii_whitespace().collect())
        });
        STOP_WORDS.get(self as usize).is_some_and(|words| words.contains(word))
    }

    /// Returns true if a word, folded, begins a question for information.
    pub(crate) fn is_interrogative(self, word: &str) -> bool {
        let words: &[&str] = match self {
            Self::German => {
                &["was", "wer", "wo", "wann", "welche", "welcher", "welches", "welchen"]
            }
            Self::French => {
                &["quel", "quelle", "quels", "quelles", "qui", "combien", "quand", "ou"]
            }
            Self::Spanish => {
                &["que", "quien", "cual", "cuales", "cuanto", "cuantos", "cuantas", "donde"]
            }
            Self::Portuguese => &["qual", "quais", "quem", "quanto", "quantos", "quantas", "onde"],
            Self::Italian => &["quale", "quali", "chi", "quanto", "quanti", "quante", "dove"],
            Self::Russian => &["какие", "какой", "какая", "кто", "где", "когда", "сколько"],
        };
        words.contains(&word)
    }

    fn algorithm(self) -> Algorithm {
        match self {
            Self::German => Algorithm::German,
            Self::French => Algorithm::French,
            Self::Spanish => Algorithm::Spanish,
            Self::Portuguese => Algorithm::Portuguese,
            Self::Italian => Algorithm::Italian,
            Self::Russian => Algorithm::Russian,
        }
    }
}

/// An English word or phrase.
#[derive(Debug)]
pub(crate) struct Translation {
    /// As written in the list.
    pub(crate) english: &'static str,
    /// Its stems, separated by spaces.
    pub(crate) key: Box<str>,
    /// Its stems.
    pub(crate) terms: Box<[Arc<str>]>,
}

/// The list of words in other languages.
#[derive(Default)]
pub(crate) struct Dictionary {
    translations: Vec<Translation>,
    /// By language: words as stems, separated by spaces.
    spaced: [WordTable; Language::ALL.len()],
    /// Japanese and Chinese words.
    unspaced: WordTable,
    /// The most characters of a word in `unspaced`.
    longest: usize,
}

/// Words with the positions of their translations.
type WordTable = HashMap<Box<str>, Vec<usize>>;

/// The text recognised at the start of a run of characters without spaces.
pub(crate) struct UnspacedWord<'a> {
    pub(crate) text: &'a str,
    /// The rest of the run.
    pub(crate) rest: &'a str,
    /// Empty if the text is not in the list.
    pub(crate) translations: Vec<&'static Translation>,
}

impl Dictionary {
    pub(crate) fn built_in() -> &'static Self {
        static BUILT_IN: LazyLock<Dictionary> = LazyLock::new(Dictionary::read);
        &BUILT_IN
    }

    fn read() -> Self {
        let mut read = Self::default();
        for (english, columns) in TRANSLATION_LIST.lines().filter_map(read_line) {
            let place = read.add_translation(english);
            for (column, words) in columns.enumerate() {
                for word in words.split(',').map(str::trim).filter(|word| !word.is_empty()) {
                    match Language::ALL.get(column) {
                        Some(language) => read.add_spaced(*language, word, place),
                        None => read.add_unspaced(word, place),
                    }
                }
            }
        }
        read
    }

    fn add_translation(&mut self, english: &'static str) -> usize {
        let stems: Vec<_> = english.split(' ').map(stem_english).collect();
        self.translations.push(Translation {
            english,
            key: stems.join(" ").into(),
            terms: stems.iter().map(|stem| Arc::from(&**stem)).collect(),
        });
        self.translations.len() - 1
    }

    fn add_spaced(&mut self, language: Language, word: &str, place: usize) {
        let mut spellings = vec![word.to_owned()];
        if language == Language::German && word.contains(['ä', 'ö', 'ü']) {
            // As typed without these letters.
            spellings.push(word.replace('ä', "ae").replace('ö', "oe").replace('ü', "ue"));
        }
        let Some(words) = self.spaced.get_mut(language as usize) else { return };
        for spelling in spellings {
            let split = split_words(&spelling);
            let key: Vec<_> =
                split.iter().map(|word| stem_word(language.algorithm(), &word.text)).collect();
            add_place(words, key.join(" "), place);
        }
    }

    fn add_unspaced(&mut self, word: &str, place: usize) {
        let word = fold_text(word);
        self.longest = self.longest.max(word.chars().count());
        add_place(&mut self.unspaced, word, place);
    }

    /// The English translations of a word, or of a phrase with spaces between its words, folded.
    pub(crate) fn find(&self, language: Language, phrase: &str) -> Vec<&Translation> {
        let stems: Vec<_> =
            phrase.split(' ').map(|word| stem_word(language.algorithm(), word)).collect();
        let words = self.spaced.get(language as usize);
        self.resolve(words.and_then(|words| words.get(&*stems.join(" "))))
    }

    /// The English translations of both parts of a German compound (`Benutzerkonto`).
    pub(crate) fn find_compound(&self, word: &str) -> Vec<&Translation> {
        let cuts = word.char_indices().map(|(at, _)| at).filter(|at| (3..=24).contains(at));
        for at in cuts {
            let (first, second) = word.split_at(at);
            if second.len() < 3 {
                break;
            }
            let second = self.find(Language::German, second);
            if second.is_empty() {
                continue;
            }
            let linked = [Some(first), first.strip_suffix('s'), first.strip_suffix('n')];
            let first = linked.into_iter().flatten().map(|one| self.find(Language::German, one));
            if let Some(first) = first.into_iter().find(|found| !found.is_empty()) {
                return first.into_iter().chain(second).collect();
            }
        }
        Vec::new()
    }

    /// The most words of a phrase in another language.
    pub(crate) const MAX_PHRASE_WORDS: usize = MAX_PHRASE;

    /// The longest word of the list that a run without spaces begins with; otherwise the text
    /// before the next one.
    pub(crate) fn find_unspaced<'a>(&'static self, run: &'a str) -> UnspacedWord<'a> {
        let mut end = 0;
        for (at, _) in run.char_indices() {
            if let Some((length, translations)) = self.longest_at(run.get(at..).unwrap_or_default())
            {
                if at > 0 {
                    break;
                }
                let (text, rest) = run.split_at(length);
                return UnspacedWord { text, rest, translations };
            }
            end = at + run.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        }
        let (text, rest) = run.split_at(end);
        UnspacedWord { text, rest, translations: Vec::new() }
    }

    /// The longest word that a run begins with: its length in bytes, and its translations.
    fn longest_at(&self, run: &str) -> Option<(usize, Vec<&Translation>)> {
        let ends: Vec<_> =
            run.char_indices().map(|(at, c)| at + c.len_utf8()).take(self.longest).collect();
        ends.into_iter().rev().find_map(|end| {
            let found = self.unspaced.get(run.get(..end)?)?;
            Some((end, self.resolve(Some(found))))
        })
    }

    fn resolve(&self, places: Option<&Vec<usize>>) -> Vec<&Translation> {
        let places = places.into_iter().flatten();
        places.filter_map(|place| self.translations.get(*place)).collect()
    }
}

fn add_place(words: &mut WordTable, word: String, place: usize) {
    let places = words.entry(word.into()).or_default();
    if !places.contains(&place) {
        places.push(place);
    }
}

/// A line of the list: the English, and the words of each language.
fn read_line(line: &'static str) -> Option<(&'static str, impl Iterator<Item = &'static str>)> {
    let (english, columns) = line.split_once(": ").filter(|_| !line.starts_with('#'))?;
    Some((english, columns.split('|')))
}

const TRANSLATION_LIST: &str = include_str!("languages.txt");

// Folded words without information about the request.
const GERMAN_STOP_WORDS: &str = "der die das den dem des ein eine einen einem einer eines und oder aber mit von \
    vom zu zum zur in im ins auf an am aus bei beim fur fuer nach uber ueber um bis durch ohne gegen \
    ist sind war wird werden wurde hat habe haben ich du er sie es wir ihr mir mich dir dich uns \
    mein meine meinen meinem meiner dein deine sein seine unser unsere was wer wie wo wann warum \
    welche welcher welches welchen kann konnen koennen konnte konntest muss mochte moechte will \
    soll bitte nicht kein keine auch noch nur alle diese dieser dieses diesen diesem dort hier da \
    man sich als wenn dass ob gibt gib brauche einmal mal";
const FRENCH_STOP_WORDS: &str = "le la les l un une des du de d et ou mais avec pour par sur sous dans en au aux \
    a est sont etait sera ai as avons avez ont je tu il elle nous vous ils elles me moi te toi se \
    mon ma mes ton ta tes son sa ses notre nos votre vos leur leurs ce cet cette ces que qui quoi \
    quel quelle quels quelles comment ou quand pourquoi peux peut pouvez veux voudrais dois faut \
    fait faire ne pas plus aussi tous toutes y s n j m t c qu est-ce besoin plait";
const SPANISH_STOP_WORDS: &str = "el la los las un una unos unas y e o u pero con de del al a en por para sin \
    sobre entre es son era fue ser estar esta estan este estos esta estas ese esa eso yo tu el ella \
    nosotros me mi mis te ti tu tus se su sus nuestro nuestra que quien cual cuales como donde \
    cuando porque puedo puede puedes quiero quisiera necesito debo hay hacer haz no mas tambien lo \
    le les favor si";
const PORTUGUESE_STOP_WORDS: &str = "o a os as um uma uns umas e ou mas com de do da dos das em no na nos nas ao \
    aos por pelo pela para sem sobre entre e sao era foi ser estar esta estao este esta isto esse \
    essa isso eu tu ele ela nos me mim meu minha meus minhas te seu sua seus suas nosso nossa que \
    quem qual quais como onde quando porque posso pode quero queria preciso devo ha fazer faca nao \
    mais tambem favor se";
const ITALIAN_STOP_WORDS: &str = "il lo la i gli le l un uno una e ed o ma con di del dello della dei degli delle \
    da dal dalla in nel nella nei nelle su sul sulla per tra fra senza a al allo alla ai agli alle \
    e sono era essere stato questo questa questi queste quello quella io tu lui lei noi mi mio mia \
    miei mie ti tuo tua si suo sua nostro nostra che chi quale quali come dove quando perche posso \
    puo puoi voglio vorrei devo c ce fare fai non piu anche favore se ci";

const RUSSIAN_STOP_WORDS: &str = "и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по \
    ее мне из ли от меня еще нет о ему для при это этот эта эти есть был была были быть мой моя мои \
    мое наш наша наши какие какой какая какое кто где когда почему можно нужно надо хочу могу \
    пожалуйста мне мой моей моем нам нас их или до под над между";

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(text: &str) -> Option<Language> {
        let words = split_words(text);
        Language::detect(&words.iter().map(|word| &*word.text).collect::<Vec<_>>())
    }

    #[test]
    fn a_question_tells_its_language() {
        for (text, language) in [
            ("Lösche die Datei im Ordner", Some(Language::German)),
            ("zeige offene Tickets", Some(Language::German)),
            ("supprimer un fichier", Some(Language::French)),
            ("buscar los archivos de la carpeta", Some(Language::Spanish)),
            ("criar uma nova tarefa no projeto", Some(Language::Portuguese)),
            ("crea un nuovo file nella cartella", Some(Language::Italian)),
            ("покажи файлы в папке", Some(Language::Russian)),
            ("create an issue in the repo", None),
            ("delete a file", None),
            ("", None),
        ] {
            assert_eq!(detect(text), language, "{text}");
        }
    }

    #[test]
    fn words_and_phrases_are_translated() {
        let dictionary = Dictionary::built_in();
        let english = |language, text: &str| -> Vec<_> {
            dictionary.find(language, &fold_text(text)).iter().map(|one| one.english).collect()
        };
        assert!(english(Language::German, "Löschen").contains(&"delete"));
        assert!(english(Language::German, "loeschen").contains(&"delete"));
        assert!(english(Language::German, "Dateien").contains(&"file"));
        assert!(english(Language::Spanish, "base de datos").contains(&"database"));
        assert!(english(Language::French, "xyz").is_empty());
        let compound: Vec<_> =
            dictionary.find_compound("benutzerkonto").iter().map(|one| one.english).collect();
        assert!(compound.contains(&"user") && compound.contains(&"account"), "{compound:?}");
    }

    #[test]
    fn words_without_spaces_are_recognised() {
        let mut rest = "を検索する";
        let mut found = Vec::new();
        while !rest.is_empty() {
            let word = Dictionary::built_in().find_unspaced(rest);
            found.push((word.text, word.translations.first().map(|one| one.english)));
            rest = word.rest;
        }
        assert_eq!(found, [("を", None), ("検索", Some("search")), ("する", None)]);
    }

    #[test]
    fn every_line_of_the_list_has_all_languages() {
        for line in
            TRANSLATION_LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let (english, columns) = read_line(line).unwrap();
            assert!(!english.is_empty() && english.trim() == english, "{line}");
            assert_eq!(columns.count(), Language::ALL.len() + 2, "{line}");
        }
        let dictionary = Dictionary::built_in();
        assert!(dictionary.translations.len() > 200);
        assert!(dictionary.spaced.iter().all(|words| words.len() > 200));
    }
}
