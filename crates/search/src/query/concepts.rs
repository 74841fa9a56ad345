//! Maps a query's words to terms of an index: each word with all its variants.

use super::question::{QueryWord, SearchQuery};
use crate::SearchIndex;
use crate::elements::actions::Action;
use crate::ranking::Ranking;
use crate::ranking::slots::{Concept, Slot, Variant};
use crate::synonyms::associations::Associations;
use crate::synonyms::languages::Translation;
use crate::synonyms::thesaurus::{Synonym, SynonymGroups};
use crate::weights::{
    ACRONYM_WEIGHT, ASSOCIATED_SHARE, ASSOCIATION_WEIGHT, EVERYDAY_SHARE, EVERYDAY_WORD_WEIGHT,
    JOINED_WORDS_WEIGHT, QUOTED_WORD_WEIGHT, TRANSLATION_WEIGHT, VERB_SHARE, WEAK_VARIANT_WEIGHT,
    WORD_PART_WEIGHT, WORD_SHAPE_WEIGHT,
};
use crate::words::spelling::Misspelling;
use crate::words::stems::{is_everyday_word, stem_english};

/// Reads the words of a question against an index.
pub(crate) struct ConceptReader<'a> {
    index: &'a SearchIndex,
    ranking: &'a Ranking<'a>,
    /// The number of words that may still be compared with the whole vocabulary.
    corrections: usize,
}

impl<'a> ConceptReader<'a> {
    pub(crate) fn new(index: &'a SearchIndex, ranking: &'a Ranking<'a>) -> Self {
        Self { index, ranking, corrections: MAX_CORRECTIONS }
    }

    /// The concepts of a question, in order. A phrase of a group of synonyms is one concept; a word
    /// that the question repeats counts once.
    pub(crate) fn read(mut self, query: &SearchQuery) -> Vec<Concept> {
        let mut concepts = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        let mut rest = &*query.words;
        while let Some((word, others)) = rest.split_first() {
            if let Some((phrase, count)) = self.find_phrase(rest) {
                concepts.push(phrase);
                rest = rest.get(count..).unwrap_or_default();
                continue;
            }
            if let Some((joined, count)) = self.read_joined(rest, &mut seen) {
                concepts.push(joined);
                rest = rest.get(count..).unwrap_or_default();
                continue;
            }
            rest = others;
            if word.is_stop || seen.contains(&&*word.stem) {
                continue;
            }
            seen.push(&word.stem);
            concepts.extend(self.read_word(word));
        }
        concepts.extend(query.shapes.iter().filter_map(|words| self.read_shape(words)));
        concepts
    }

    /// The longest phrase at the start that has synonyms, and its number of words.
    fn find_phrase(&self, rest: &[QueryWord]) -> Option<(Concept, usize)> {
        let longest = self.groups().map(SynonymGroups::longest_phrase).into_iter().max()?;
        (2..=longest.min(rest.len())).rev().find_map(|count| {
            let words = rest.get(..count)?;
            let stems: Vec<_> = words.iter().map(|word| &*word.stem).collect();
            let key = stems.join(" ");
            if !self.groups().iter().any(|groups| groups.knows(&key)) {
                return None;
            }
            let mut concept = Concept::default();
            for word in words.iter().filter(|word| !word.is_stop) {
                let mut slot = self.open_slot(word);
                self.add_variant(&mut slot.variants, &word.parts, WORD_PART_WEIGHT);
                concept.weight += slot.information;
                concept.slots.push(slot);
            }
            self.add_synonyms(&mut concept.alternatives, &key, 1.0);
            if let [first, second] = words {
                self.add_variant(
                    &mut concept.alternatives,
                    &[join_words(first, second)],
                    JOINED_WORDS_WEIGHT,
                );
            }
            if concept.slots.is_empty() {
                let known = concept.alternatives.iter().flat_map(|variant| &variant.terms);
                concept.weight =
                    known.map(|term| self.ranking.information(*term)).fold(0.0, f32::max);
            }
            Some((concept, count))
        })
    }

    /// The concept for the shape of a word. Finding nothing for it does not count against a
    /// document.
    fn read_shape(&self, words: &[&str]) -> Option<Concept> {
        let mut slot = Slot::default();
        for word in words {
            let stem = stem_english(word);
            self.add_variant(&mut slot.variants, &[&*stem], WORD_SHAPE_WEIGHT);
            self.add_synonyms(&mut slot.variants, &stem, WORD_SHAPE_WEIGHT);
        }
        (!slot.variants.is_empty()).then(|| Concept { slots: vec![slot], ..Concept::default() })
    }

    /// Words at the start that documents write as one: `screen shot` for `screenshot`,
    /// `real user monitoring` for `RUM`.
    fn read_joined<'q>(
        &mut self,
        rest: &'q [QueryWord],
        seen: &mut Vec<&'q str>,
    ) -> Option<(Concept, usize)> {
        let is_content = |word: &&QueryWord| !word.is_stop && !word.is_quoted;
        let run = rest.iter().take(MAX_ACRONYM_WORDS).take_while(is_content).count();
        let run = rest.get(..run)?;
        let (count, term, discount) = (3..=run.len())
            .rev()
            .find_map(|count| Some((count, self.find_acronym(run.get(..count)?)?, ACRONYM_WEIGHT)))
            .or_else(|| {
                let [first, second, ..] = run else { return None };
                Some((2, self.find_term(&join_words(first, second))?, JOINED_WORDS_WEIGHT))
            })?;
        let words = run.get(..count)?;
        if words.iter().any(|word| seen.contains(&&*word.stem)) {
            return None;
        }
        let mut whole = Concept::default();
        for word in words {
            seen.push(&word.stem);
            let concept = self.read_word(word)?;
            whole.slots.extend(concept.slots);
            whole.weight += concept.weight;
        }
        whole.alternatives.push(Variant { terms: vec![term], discount });
        Some((whole, count))
    }

    /// The term that the initials of these words form, unless it has a meaning by itself.
    fn find_acronym(&self, words: &[QueryWord]) -> Option<usize> {
        let letters: String = words.iter().filter_map(|word| word.text.chars().next()).collect();
        let is_word = Action::of_verb(&letters).is_some()
            || is_everyday_word(&letters)
            || self.is_listed(&letters);
        self.find_term(&letters).filter(|_| !is_word)
    }

    fn read_word(&mut self, word: &QueryWord) -> Option<Concept> {
        let mut slot = self.open_slot(word);
        self.add_variant(&mut slot.variants, &word.parts, WORD_PART_WEIGHT);
        for translation in &word.translations {
            self.add_translation(&mut slot.variants, translation);
        }
        if word.translations.is_empty() {
            self.add_synonyms(&mut slot.variants, &word.stem, 1.0);
        }
        if slot.variants.is_empty() && !word.is_fragment && word.translations.is_empty() {
            self.add_divided(&mut slot.variants, &word.text);
            self.add_corrections(&mut slot.variants, word);
        }
        if slot.variants.is_empty() && word.is_fragment {
            return None;
        }
        if !slot.is_bounded {
            let known =
                slot.variants.iter().filter(|variant| variant.discount > WEAK_VARIANT_WEIGHT);
            let known = known.flat_map(|variant| &variant.terms);
            let best = known.map(|term| self.ranking.information(*term)).fold(0.0, f32::max);
            slot.information = if best > 0.0 { best } else { self.ranking.most_information() };
        }
        let is_verb = Action::of_verb(&word.text).is_some()
            || word.translations.iter().any(|one| Action::of_verb(one.english).is_some());
        let mut share = if is_verb { VERB_SHARE } else { 1.0 };
        if word.is_quoted {
            share *= QUOTED_WORD_WEIGHT;
            slot.variants.iter_mut().for_each(|variant| variant.discount *= QUOTED_WORD_WEIGHT);
        } else if is_everyday_word(&word.text) {
            share *= EVERYDAY_SHARE;
            if let Some(own) = slot.variants.first_mut().filter(|_| slot.is_bounded) {
                own.discount *= EVERYDAY_WORD_WEIGHT;
            }
        }
        Some(Concept {
            weight: slot.information * share,
            slots: vec![slot],
            alternatives: Vec::new(),
        })
    }

    /// A slot with the word itself, if a document has it.
    fn open_slot(&self, word: &QueryWord) -> Slot {
        let mut slot = Slot { information: self.ranking.most_information(), ..Slot::default() };
        if let Some(term) = self.find_term(&word.stem) {
            slot.information = self.ranking.information(term);
            slot.is_bounded = true;
            slot.variants.push(Variant { terms: vec![term], discount: 1.0 });
        }
        slot
    }

    /// The position of a term in the vocabulary, if a document that may be found has it.
    fn find_term(&self, term: &str) -> Option<usize> {
        let found = *self.index.terms.get(term)?;
        (self.ranking.frequency(found) > 0).then_some(found)
    }

    /// The positions of terms, if all of them exist.
    fn find_terms(&self, terms: &[impl AsRef<str>]) -> Option<Vec<usize>> {
        terms.iter().map(|term| self.find_term(term.as_ref())).collect()
    }

    fn add_variant(&self, variants: &mut Vec<Variant>, terms: &[impl AsRef<str>], discount: f32) {
        if let Some(terms) = self.find_terms(terms) {
            push_variant(variants, terms, discount);
        }
    }

    fn groups(&self) -> [&SynonymGroups; 2] {
        [&self.index.synonyms, SynonymGroups::built_in()]
    }

    fn add_synonyms(&self, variants: &mut Vec<Variant>, key: &str, discount: f32) {
        for groups in self.groups() {
            for Synonym { terms, discount: own } in groups.find(key) {
                self.add_variant(variants, terms, own * discount);
            }
        }
        self.add_associations(variants, key, discount);
    }

    /// Adds the terms of domains that an everyday word makes likely, if they distinguish elements.
    fn add_associations(&self, variants: &mut Vec<Variant>, key: &str, discount: f32) {
        // Among a few elements, two may have one.
        let most = (self.ranking.count() / ASSOCIATED_SHARE).max(2);
        for terms in Associations::built_in().find(key) {
            let found = self.find_terms(terms);
            let rare =
                found.filter(|all| all.iter().any(|one| self.ranking.frequency(*one) <= most));
            if let Some(terms) = rare {
                push_variant(variants, terms, ASSOCIATION_WEIGHT * discount);
            }
        }
    }

    /// Returns true if a stem is in a list, and therefore no misspelt word.
    fn is_listed(&self, stem: &str) -> bool {
        self.groups().iter().any(|groups| groups.knows(stem))
            || Associations::built_in().knows(stem)
    }

    fn add_translation(&self, variants: &mut Vec<Variant>, translation: &Translation) {
        self.add_variant(variants, &translation.terms, TRANSLATION_WEIGHT);
        self.add_synonyms(variants, &translation.key, TRANSLATION_WEIGHT);
    }

    /// `pullrequest` for `pull request`.
    fn add_divided(&self, variants: &mut Vec<Variant>, text: &str) {
        if !text.is_ascii() || text.len() > MAX_DIVIDED {
            return;
        }
        for at in MIN_PIECE..text.len().saturating_sub(MIN_PIECE - 1) {
            let (first, second) = text.split_at(at);
            self.add_variant(
                variants,
                &[stem_english(first), stem_english(second)],
                WORD_PART_WEIGHT,
            );
        }
    }

    /// Adds the likely intended words for a word that no document has.
    fn add_corrections(&mut self, variants: &mut Vec<Variant>, word: &QueryWord) {
        let Some(misspelling) = Misspelling::new(&word.text) else { return };
        if self.is_listed(&word.stem) || self.corrections == 0 {
            return;
        }
        self.corrections -= 1;
        let mut near = Vec::new();
        for (place, term) in self.index.vocabulary.iter().enumerate() {
            if let Some(similarity) = misspelling.similarity(&term.text, term.letters)
                && self.ranking.frequency(place) > 0
            {
                near.push((similarity, &*term.text));
            }
        }
        let listed = SynonymGroups::built_in_words().iter();
        near.extend(
            listed.filter_map(|(word, letters)| {
                Some((misspelling.similarity(word, *letters)?, *word))
            }),
        );
        near.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
        near.dedup();
        for (similarity, term) in near.into_iter().take(MAX_NEAR) {
            self.add_variant(variants, &[term], similarity);
            self.add_synonyms(variants, term, similarity);
        }
    }
}

/// Adds terms, or keeps the better of two matches of the same ones.
fn push_variant(variants: &mut Vec<Variant>, terms: Vec<usize>, discount: f32) {
    if terms.is_empty() || variants.len() >= MAX_VARIANTS {
        return;
    }
    match variants.iter_mut().find(|variant| variant.terms == terms) {
        Some(variant) => variant.discount = variant.discount.max(discount),
        None => variants.push(Variant { terms, discount }),
    }
}

/// The stem of two words that are written as one.
fn join_words(first: &QueryWord, second: &QueryWord) -> String {
    stem_english(&[&*first.text, &*second.text].concat())
}

/// The most words that an acronym stands for.
const MAX_ACRONYM_WORDS: usize = 5;
/// The most words of a question that are compared with the whole vocabulary.
const MAX_CORRECTIONS: usize = 8;
/// The most corrections of a misspelt word.
const MAX_NEAR: usize = 6;
/// The most variants of one word.
const MAX_VARIANTS: usize = 48;
/// The longest word that is divided in two.
const MAX_DIVIDED: usize = 24;
/// The shortest part of a divided word.
const MIN_PIECE: usize = 3;
