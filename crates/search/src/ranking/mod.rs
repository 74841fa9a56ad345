//! BM25F: scores documents for a query.
//!
//! The formula is that of S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework:
//! BM25 and Beyond" (2009), section 3.6: the counts of a term are weighted and normalised for each
//! field, added, and saturated once. Every figure is computed from the documents that may be found,
//! and from no others, so that a hidden document changes nothing.

pub(crate) mod affinity;
pub(crate) mod fusion;
pub(crate) mod slots;
pub(crate) mod vectors;

use super::fields::{FIELD_COUNT, FieldCounts};
use super::weights::{BACKGROUND_DOCUMENTS, FIELD_WEIGHTS, TERM_SATURATION};
use super::{DocumentId, Posting, SearchIndex};
use slots::{Concept, Slot, Variant};

/// The documents that may be found, and their figures for the formula.
pub(super) struct Ranking<'a> {
    index: &'a SearchIndex,
    /// By document; `None` if all may be found.
    shown: Option<Vec<bool>>,
    /// The number of documents that may be found.
    count: usize,
    /// The number of documents of each server that may be found; `None` if all may.
    server_sizes: Option<Vec<usize>>,
    /// The weights for the documents that may be found, if these are not all.
    weights: Option<OccurrenceWeights>,
}

/// By field and number of words: the weight of one occurrence.
#[derive(Default)]
pub(super) struct OccurrenceWeights([Vec<f32>; FIELD_COUNT]);

/// The match of a document with a query.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Match {
    /// The score; 0 without a match.
    pub(super) score: f32,
    /// The matched part of the query: a sum of weights.
    pub(super) share: f32,
}

/// Matches by document, of which few have any.
pub(super) struct MatchMap {
    matches: Vec<Match>,
    touched: Vec<usize>,
}

impl<'a> Ranking<'a> {
    pub(super) fn new(index: &'a SearchIndex, is_visible: impl Fn(DocumentId) -> bool) -> Self {
        let shown: Vec<_> =
            (0..index.documents.len()).map(|id| is_visible(DocumentId(id))).collect();
        let count = shown.iter().filter(|shown| **shown).count();
        if count == shown.len() {
            return Self { index, shown: None, count, server_sizes: None, weights: None };
        }
        let mut totals = [0_u64; FIELD_COUNT];
        let mut sizes = vec![0; index.server_sizes.len()];
        for (document, _) in index.documents.iter().zip(&shown).filter(|(_, shown)| **shown) {
            add_lengths(&mut totals, &document.lengths);
            if let Some(size) = sizes.get_mut(document.server) {
                *size += 1;
            }
        }
        let weights = Some(OccurrenceWeights::new(&totals, count, &index.longest));
        Self { index, shown: Some(shown), count, server_sizes: Some(sizes), weights }
    }

    /// The number of documents that may be found.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The number of documents of each server that may be found.
    pub(super) fn server_sizes(&self) -> &[usize] {
        self.server_sizes.as_deref().unwrap_or(&self.index.server_sizes)
    }

    /// The number of documents with a term that may be found.
    pub(super) fn frequency(&self, term: usize) -> usize {
        let postings = self.postings(term);
        match &self.shown {
            None => postings.len(),
            Some(_) => postings.iter().filter(|posting| self.shows(posting.document())).count(),
        }
    }

    /// The information of a term, in nats.
    pub(super) fn information(&self, term: usize) -> f32 {
        information_of(self.frequency(term), self.count + BACKGROUND_DOCUMENTS)
    }

    /// The information of a term that no document has.
    pub(super) fn most_information(&self) -> f32 {
        information_of(0, self.count + BACKGROUND_DOCUMENTS)
    }

    /// The match of each document with a concept, regardless of the concept's share in the query.
    pub(super) fn match_concept<'m>(
        &self,
        concept: &Concept,
        scratch: &'m mut [MatchMap; 3],
    ) -> &'m mut MatchMap {
        let [whole, best, terms] = scratch;
        let total: f32 = concept.slots.iter().map(|slot| slot.information).sum();
        for slot in &concept.slots {
            self.match_slot(slot, best, terms);
            let part = if total > 0.0 { slot.information / total } else { 0.0 };
            best.drain(|document, found| {
                whole.add(document, Match { score: found.score, share: found.share * part });
            });
        }
        for variant in &concept.alternatives {
            self.match_variant(variant, f32::INFINITY, terms);
            terms.drain(|document, found| whole.raise(document, found));
        }
        whole
    }

    fn match_slot(&self, slot: &Slot, best: &mut MatchMap, terms: &mut MatchMap) {
        let most = if slot.is_bounded { slot.information } else { f32::INFINITY };
        for variant in &slot.variants {
            if let [term] = *variant.terms {
                let worth = self.information(term).min(most) * variant.discount;
                self.visit_counts(term, |document, saturated| {
                    best.raise(
                        document,
                        Match { score: worth * saturated, share: variant.certainty() },
                    );
                });
            } else {
                self.match_variant(variant, most, terms);
                terms.drain(|document, found| best.raise(document, found));
            }
        }
    }

    /// The documents that have all terms of a variant.
    fn match_variant(&self, variant: &Variant, most: f32, matches: &mut MatchMap) {
        #[expect(clippy::cast_precision_loss, reason = "a phrase has few words")]
        let (each, needed) = (1.0 / variant.terms.len() as f32, variant.terms.len() as f32);
        for term in &variant.terms {
            let worth = self.information(*term).min(most) * variant.discount;
            self.visit_counts(*term, |document, saturated| {
                matches.add(document, Match { score: worth * saturated, share: 1.0 });
            });
        }
        matches.retain(|found| {
            let has_all = found.share >= needed;
            // A bounded word is not worth more if it is written as several.
            if most.is_finite() {
                found.score *= each;
            }
            found.share = variant.certainty();
            has_all
        });
    }

    /// Calls `visit` with each document that may be found and has a term, and with the saturated
    /// frequency of the term, between 0 and 1.
    fn visit_counts(&self, term: usize, mut visit: impl FnMut(usize, f32)) {
        let Some(weights) = &self.weights else {
            self.postings(term).iter().for_each(|one| visit(one.document(), one.saturated));
            return;
        };
        for posting in self.postings(term).iter().filter(|posting| self.shows(posting.document())) {
            let place = posting.document();
            if let Some(document) = self.index.documents.get(place) {
                visit(place, weights.saturate(posting.counts, &document.lengths));
            }
        }
    }

    fn postings(&self, term: usize) -> &[Posting] {
        self.index.vocabulary.get(term).map_or(&[], |term| &term.postings)
    }

    /// Returns true if a document may be found.
    pub(super) fn shows(&self, document: usize) -> bool {
        let shown = self.shown.as_ref();
        shown.is_none_or(|shown| shown.get(document).copied().unwrap_or_default())
    }
}

impl OccurrenceWeights {
    /// The weights for `count` documents with `totals` words in all fields together, and at most
    /// `longest` words each.
    pub(super) fn new(
        totals: &[u64; FIELD_COUNT],
        count: usize,
        longest: &[u16; FIELD_COUNT],
    ) -> Self {
        let mut all = Self::default();
        let fields = all.0.iter_mut().zip(totals).zip(longest).zip(FIELD_WEIGHTS);
        for (((weights, total), longest), (weight, normalisation)) in fields {
            #[expect(clippy::cast_precision_loss, reason = "counts of words are small")]
            let mean = *total as f32 / count.max(1) as f32;
            weights.extend((0..=*longest).map(|length| {
                let relative = if mean > 0.0 { f32::from(length) / mean } else { 1.0 };
                weight / (1.0 - normalisation + normalisation * relative)
            }));
        }
        all
    }

    /// The saturated frequency of a term in a document, between 0 and 1: the counts of its fields,
    /// weighted and added.
    pub(super) fn saturate(&self, counts: FieldCounts, lengths: &[u16; FIELD_COUNT]) -> f32 {
        let fields = counts.into_iter().zip(lengths).zip(&self.0);
        let present = fields.filter(|((count, _), _)| *count > 0);
        let weighted = present.map(|((count, length), weights)| {
            f32::from(count) * weights.get(usize::from(*length)).copied().unwrap_or_default()
        });
        let frequency: f32 = weighted.sum();
        frequency / (TERM_SATURATION + frequency)
    }
}

impl MatchMap {
    pub(super) fn new(documents: usize) -> Self {
        Self { matches: vec![Match::default(); documents], touched: Vec::new() }
    }

    fn find_entry(&mut self, document: usize) -> Option<&mut Match> {
        let entry = self.matches.get_mut(document)?;
        if entry.score == 0.0 {
            self.touched.push(document);
        }
        Some(entry)
    }

    pub(super) fn add(&mut self, document: usize, found: Match) {
        if let Some(entry) = self.find_entry(document) {
            entry.score += found.score;
            entry.share += found.share;
        }
    }

    /// Keeps the better of the stored match and the new one.
    fn raise(&mut self, document: usize, found: Match) {
        if let Some(entry) = self.find_entry(document) {
            entry.score = entry.score.max(found.score);
            entry.share = entry.share.max(found.share);
        }
    }

    /// Changes all matches, and drops those for which `keep` is false.
    fn retain(&mut self, mut keep: impl FnMut(&mut Match) -> bool) {
        let matches = &mut self.matches;
        self.touched.retain(|document| {
            let Some(entry) = matches.get_mut(*document) else { return false };
            let kept = keep(entry);
            if !kept {
                *entry = Match::default();
            }
            kept
        });
    }

    /// Calls `visit` with all matches.
    pub(super) fn visit(&self, mut visit: impl FnMut(usize, Match)) {
        for document in &self.touched {
            if let Some(entry) = self.matches.get(*document) {
                visit(*document, *entry);
            }
        }
    }

    /// Removes all matches, and calls `visit` with each.
    pub(super) fn drain(&mut self, mut visit: impl FnMut(usize, Match)) {
        for document in self.touched.drain(..) {
            if let Some(entry) = self.matches.get_mut(document) {
                visit(document, std::mem::take(entry));
            }
        }
    }
}

/// The information of a term that `frequency` of `count` texts have, in nats.
#[expect(clippy::cast_precision_loss, reason = "counts of documents are small")]
pub(super) fn information_of(frequency: usize, count: usize) -> f32 {
    let (count, frequency) = (count as f32, frequency as f32);
    (1.0 + (count - frequency + 0.5) / (frequency + 0.5)).ln()
}

/// Adds the lengths of a document's fields.
pub(super) fn add_lengths(totals: &mut [u64; FIELD_COUNT], lengths: &[u16; FIELD_COUNT]) {
    for (total, length) in totals.iter_mut().zip(lengths) {
        *total += u64::from(*length);
    }
}
