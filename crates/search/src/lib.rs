//! Search over the catalog's elements: finds the tools that serve a query.
//!
//! An element is analysed once ([`Analyser`], [`AnalysedElement`]): its words by field, as stems of
//! English. A [`SearchIndex`] is assembled of analysed elements, and answers a [`SearchQuery`] by
//! BM25F. Variants of a query's words are found as well: synonyms (built in, and [`SynonymGroups`]
//! of the configuration), associations, abbreviations, translations, and words that are spelt
//! nearly the same. With vectors of an embedding model ([`TextVector`]) the meaning of a query
//! counts, too ([`QuestionMeaning`]).
//!
//! Rights apply inside the search: elements that a caller may not see have no influence on an
//! answer, neither on its order, nor on its scores, nor on the cut at a limit. Everything here
//! takes values and returns values; the gateway decides which indexes are kept, and for how long.

#![warn(unreachable_pub)]

mod query;
mod elements;
mod ranking;
mod synonyms;
mod words;
mod weights;
mod fields;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use foldhash::HashMap;

use elements::actions::Action;
use elements::element::name_key;
pub use elements::element::{AnalysedElement, Analyser};
use fields::{FIELD_COUNT, Field, FieldCounts};
use query::concepts::ConceptReader;
pub use query::embedded_text::{MAX_EMBEDDED_TEXT, embedded_question, embedded_text};
pub use query::question::{MAX_QUERY_BYTES, MAX_QUERY_WORDS, SearchQuery};
use ranking::affinity::ServerAffinity;
pub use ranking::fusion::QuestionMeaning;
pub use ranking::vectors::{MAX_DIMENSIONS, TextVector};
use ranking::{Match, MatchMap, OccurrenceWeights, Ranking, add_lengths};
use synonyms::associations::Associations;
use synonyms::languages::Dictionary;
pub use synonyms::thesaurus::{MAX_GROUPS, MAX_MEMBERS, SynonymGroups};
use weights::{CONFIDENT_SHARE, EXACT_NAME_SCORE, SHARE_WEIGHT};
use words::spelling::LetterSet;

/// The position of a document among those that an index was built of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocumentId(pub usize);

/// An element that can be found.
#[derive(Debug, Clone)]
pub struct SearchDocument<'a> {
    /// The analysis of its definition.
    pub element: Arc<AnalysedElement>,
    /// The name of its server; empty for the gateway's own.
    pub server: &'a str,
    /// The configured name, if it differs from its server's.
    pub renamed: Option<&'a str>,
}

/// A document that matches a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchHit {
    /// The document.
    pub id: DocumentId,
    /// The score: a greater one is a better match, and it has no other meaning. More than 0.
    pub score: f32,
    /// True if it matches most of the query. An answer without a confident hit may be about
    /// something else.
    pub is_confident: bool,
}

/// The elements that are searched together. Immutable.
pub struct SearchIndex {
    documents: Vec<IndexedDocument>,
    /// The position of each term in the vocabulary.
    terms: HashMap<Arc<str>, usize>,
    vocabulary: Vec<VocabularyTerm>,
    /// The sums of all documents' lengths.
    totals: [u64; FIELD_COUNT],
    /// The most words that a document has in each field.
    longest: [u16; FIELD_COUNT],
    /// The number of documents of each server.
    server_sizes: Vec<usize>,
    synonyms: Arc<SynonymGroups>,
}

struct IndexedDocument {
    /// The position of its server among those of the index.
    server: usize,
    /// The number of words of each field.
    lengths: [u16; FIELD_COUNT],
    action: Option<Action>,
    /// The letters and digits of its names: its server's own, with the server's name before it or
    /// without it, and the configured one.
    keys: [Box<str>; 4],
}

/// A term, and the documents that have it.
struct VocabularyTerm {
    text: Arc<str>,
    letters: LetterSet,
    /// In order of documents.
    postings: Vec<Posting>,
}

/// The server of a document that is added.
struct DocumentServer<'a> {
    /// Its position among the servers of the index.
    place: usize,
    name: &'a str,
    terms: Vec<Arc<str>>,
}

/// The frequency of a term in a document.
struct Posting {
    document: u32,
    counts: FieldCounts,
    /// The saturated frequency of the term in the document, computed over all documents.
    saturated: f32,
}

impl Posting {
    fn document(&self) -> usize {
        self.document as usize
    }
}

impl SearchIndex {
    /// Assembles an index of the first [`MAX_DOCUMENTS`] documents. The synonyms are those of the
    /// configuration.
    pub fn build<'a>(
        documents: impl IntoIterator<Item = SearchDocument<'a>>,
        synonyms: Arc<SynonymGroups>,
        analyser: &mut Analyser,
    ) -> Self {
        let mut built = Self {
            documents: Vec::new(),
            terms: HashMap::default(),
            vocabulary: Vec::new(),
            totals: [0; FIELD_COUNT],
            longest: [0; FIELD_COUNT],
            server_sizes: Vec::new(),
            synonyms,
        };
        let mut servers: HashMap<&str, DocumentServer<'_>> = HashMap::default();
        for document in documents.into_iter().take(MAX_DOCUMENTS) {
            let SearchDocument { element, server: name, renamed } = document;
            let place = servers.len();
            let server = servers.entry(name).or_insert_with(|| {
                let terms = analyser.terms_of(name);
                built.server_sizes.push(0);
                DocumentServer { place, name, terms }
            });
            let mut added: Vec<_> =
                server.terms.iter().map(|term| (Arc::clone(term), Field::Server)).collect();
            if let Some(name) = renamed {
                let terms = analyser.terms_of(name).into_iter();
                added.extend(terms.map(|term| (term, Field::Name)));
            }
            built.add_document(server, &element, added, renamed);
        }
        built.saturate_counts();
        built
    }

    /// Computes the values that every query to all documents would compute again.
    fn saturate_counts(&mut self) {
        let weights = OccurrenceWeights::new(&self.totals, self.documents.len(), &self.longest);
        for posting in self.vocabulary.iter_mut().flat_map(|term| &mut term.postings) {
            if let Some(document) = self.documents.get(posting.document()) {
                posting.saturated = weights.saturate(posting.counts, &document.lengths);
            }
        }
    }

    fn add_document(
        &mut self,
        server: &DocumentServer<'_>,
        element: &AnalysedElement,
        mut added: Vec<(Arc<str>, Field)>,
        renamed: Option<&str>,
    ) {
        let document = u32::try_from(self.documents.len()).unwrap_or(u32::MAX);
        let mut lengths = element.lengths;
        for (_, field) in &added {
            if let Some(length) = lengths.get_mut(*field as usize) {
                *length = length.saturating_add(1);
            }
        }
        for (term, counts) in &element.terms {
            let mut counts = *counts;
            added.retain(|(one, field)| {
                let is_same = one == term;
                if is_same {
                    count_in(&mut counts, *field);
                }
                !is_same
            });
            self.add_posting(term, Posting { document, counts, saturated: 0.0 });
        }
        added.sort_by(|one, other| one.0.cmp(&other.0));
        for same in added.chunk_by(|one, other| one.0 == other.0) {
            let mut counts = FieldCounts::default();
            for (_, field) in same {
                count_in(&mut counts, *field);
            }
            if let Some((term, _)) = same.first() {
                self.add_posting(term, Posting { document, counts, saturated: 0.0 });
            }
        }
        add_lengths(&mut self.totals, &lengths);
        for (longest, length) in self.longest.iter_mut().zip(lengths) {
            *longest = length.max(*longest);
        }
        if let Some(size) = self.server_sizes.get_mut(server.place) {
            *size += 1;
        }
        let renamed_action = renamed.and_then(Action::of_name);
        let (own, server_key) = (&*element.name_key, name_key(server.name));
        let with_server = if own.is_empty() { String::new() } else { format!("{server_key}{own}") };
        let without_server = own.strip_prefix(&*server_key).unwrap_or_default();
        self.documents.push(IndexedDocument {
            server: server.place,
            lengths,
            action: renamed_action.or(element.action),
            keys: [
                own.into(),
                with_server.into(),
                without_server.into(),
                name_key(renamed.unwrap_or_default()).into(),
            ],
        });
    }

    fn add_posting(&mut self, term: &Arc<str>, posting: Posting) {
        let place = self.terms.get(term).copied().unwrap_or_else(|| {
            self.terms.insert(Arc::clone(term), self.vocabulary.len());
            let (text, letters) = (Arc::clone(term), LetterSet::of_word(term));
            self.vocabulary.push(VocabularyTerm { text, letters, postings: Vec::new() });
            self.vocabulary.len() - 1
        });
        if let Some(entry) = self.vocabulary.get_mut(place) {
            entry.postings.push(posting);
        }
    }

    /// The best matches of a query among the documents for which `is_visible` is true, best first.
    /// Documents with equal scores keep their order.
    ///
    /// The answer is exactly that of an index of these documents alone: hidden documents change
    /// neither the order nor a score. The time that it takes is not hidden.
    pub fn find(
        &self,
        query: &SearchQuery,
        limit: usize,
        is_visible: impl Fn(DocumentId) -> bool,
    ) -> Vec<SearchHit> {
        self.find_with_meaning(query, None, limit, is_visible)
    }

    /// Like [`SearchIndex::find`], by meaning as well as by words.
    ///
    /// Vectors of documents that may not be seen are not read. A document that matches by its
    /// meaning alone is never confident: the similarity of related texts differs between models.
    pub fn find_with_meaning(
        &self,
        query: &SearchQuery,
        meaning: Option<QuestionMeaning<'_>>,
        limit: usize,
        is_visible: impl Fn(DocumentId) -> bool,
    ) -> Vec<SearchHit> {
        if query.is_empty() || limit == 0 {
            return Vec::new();
        }
        let ranking = Ranking::new(self, is_visible);
        let concepts = ConceptReader::new(self, &ranking).read(query);
        let count = self.documents.len();
        let mut all = MatchMap::new(count);
        let mut scratch = std::array::from_fn(|_| MatchMap::new(count));
        let mut servers = ServerAffinity::new(self, &ranking);
        for concept in &concepts {
            let found = ranking.match_concept(concept, &mut scratch);
            servers.add_concept(found, concept.weight);
            found.drain(|document, found| {
                all.add(document, Match { share: found.share * concept.weight, ..found });
            });
        }
        let total: f32 = concepts.iter().map(|concept| concept.weight).sum();
        let factors = servers.into_factors();
        let mut hits = Vec::new();
        all.drain(|place, found| {
            if let Some(document) = self.documents.get(place) {
                let share = share_of(found, total);
                let found = DocumentMatch { id: DocumentId(place), score: found.score, share };
                let mut hit = judge_match(query, document, &found);
                hit.score *= factors.get(document.server).copied().unwrap_or(1.0);
                hits.push(hit);
            }
        });
        if let Some(meaning) = meaning {
            self.add_meaning(&mut hits, meaning, &ranking);
        }
        let rank = |one: &SearchHit, other: &SearchHit| {
            other.score.total_cmp(&one.score).then(one.id.cmp(&other.id))
        };
        if hits.len() > limit {
            hits.select_nth_unstable_by(limit, rank);
            hits.truncate(limit);
        }
        hits.sort_unstable_by(rank);
        hits
    }

    /// The approximate size in memory, in bytes, without the elements that it was built of.
    pub fn size(&self) -> usize {
        let postings: usize = self.vocabulary.iter().map(|term| term.postings.capacity()).sum();
        postings * size_of::<Posting>()
            + self.vocabulary.len() * (size_of::<VocabularyTerm>() + 64)
            + self.documents.len() * (size_of::<IndexedDocument>() + 48)
    }

    /// The number of documents.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Returns true if there are no documents.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }
}

impl std::fmt::Debug for SearchIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (documents, terms) = (self.documents.len(), self.vocabulary.len());
        f.debug_struct("SearchIndex")
            .field("documents", &documents)
            .field("terms", &terms)
            .finish_non_exhaustive()
    }
}

/// Reads the built-in word lists, unless they have been read. Otherwise the first query reads them.
pub fn read_word_lists() {
    SynonymGroups::built_in();
    Associations::built_in();
    Dictionary::built_in();
}

/// The part of a query that a document matches, from 0 to 1.
fn share_of(found: Match, total: f32) -> f32 {
    if total > 0.0 { (found.share / total).min(1.0) } else { 0.0 }
}

/// A document that matches some of a query's words.
struct DocumentMatch {
    id: DocumentId,
    score: f32,
    /// The part of the query that the document matches, from 0 to 1.
    share: f32,
}

/// The score of a match, adjusted by the document's other properties.
fn judge_match(
    query: &SearchQuery,
    document: &IndexedDocument,
    found: &DocumentMatch,
) -> SearchHit {
    let DocumentMatch { id, share, .. } = *found;
    let is_named = document.keys.iter().any(|key| !key.is_empty() && **key == *query.key);
    let mut score = found.score * (1.0 - SHARE_WEIGHT + SHARE_WEIGHT * share);
    if let (Some(asked), Some(own)) = (query.action, document.action) {
        score *= own.suitability(asked);
    }
    if is_named {
        score += EXACT_NAME_SCORE;
    }
    SearchHit { id, score, is_confident: is_named || share >= CONFIDENT_SHARE }
}

fn count_in(counts: &mut FieldCounts, field: Field) {
    if let Some(count) = counts.get_mut(field as usize) {
        *count = count.saturating_add(1);
    }
}

/// The most documents of an index.
pub const MAX_DOCUMENTS: usize = 100_000;
