//! The constants of the ranking, in one place. They were tuned on the `tune` half of the queries in
//! `benches/search`, never on the other one.

use super::fields::FIELD_COUNT;

/// The saturation of repeated occurrences of a term: BM25's `k1`.
pub(super) const TERM_SATURATION: f32 = 3.5;
/// The weight of each field, in the order of [`super::fields::Field`], and the influence of its
/// length: BM25F's `w` and `b`.
pub(super) const FIELD_WEIGHTS: [(f32, f32); FIELD_COUNT] =
    [(5.0, 0.7), (2.5, 0.5), (2.0, 0.4), (0.8, 0.6), (1.0, 0.6), (0.4, 0.7), (2.5, 0.0)];
/// The number of assumed further documents without any of the words. Among nine tools, of which
/// five are about notes, `note` would otherwise have almost no information, and any other word all
/// of it.
pub(super) const BACKGROUND_DOCUMENTS: usize = 100;
/// The part of a score that depends on the matched share of the query.
pub(super) const SHARE_WEIGHT: f32 = 0.4;
/// Added for a match of the name itself: more than any other score.
pub(super) const EXACT_NAME_SCORE: f32 = 1000.0;
/// The share of a query that a confident hit matches.
pub(super) const CONFIDENT_SHARE: f32 = 0.45;
/// The value of the parts of a word.
pub(super) const WORD_PART_WEIGHT: f32 = 0.9;
/// The value of two words that are written as one.
pub(super) const JOINED_WORDS_WEIGHT: f32 = 0.9;
/// The value of an acronym of several words.
pub(super) const ACRONYM_WEIGHT: f32 = 0.8;
/// The value of a word in another language.
pub(super) const TRANSLATION_WEIGHT: f32 = 0.9;
/// The value of the meaning of a word's shape.
pub(super) const WORD_SHAPE_WEIGHT: f32 = 0.7;
/// Variants up to this value do not count for a word's information.
pub(super) const WEAK_VARIANT_WEIGHT: f32 = 0.5;
/// The share of a verb in a query's information: most elements have some verb or other.
pub(super) const VERB_SHARE: f32 = 0.5;
/// The value of a configured synonym.
pub(super) const CONFIGURED_SYNONYM_WEIGHT: f32 = 0.95;
/// The value of an abbreviation, or of another spelling.
pub(super) const SPELLING_WEIGHT: f32 = 0.95;
/// The value of a near synonym.
pub(super) const NEAR_SYNONYM_WEIGHT: f32 = 0.6;
/// The value of a general word for a special one.
pub(super) const GENERAL_WORD_WEIGHT: f32 = 0.7;
/// The value of a domain's term for an everyday word that makes it likely.
pub(super) const ASSOCIATION_WEIGHT: f32 = 0.4;
/// Such a term counts if at most one in this many elements has it: others do not distinguish
/// elements.
pub(super) const ASSOCIATED_SHARE: usize = 5;
/// The value of a word that differs by one edit.
pub(super) const ONE_EDIT: f32 = 0.8;
/// The value of a word that differs by two edits.
pub(super) const MORE_EDITS: f32 = 0.6;
/// The value of a word that begins with the query's word.
pub(super) const WORD_BEGINNING_WEIGHT: f32 = 0.6;
/// A factor of the value of an edited word if the first letter differs: it is seldom mistyped.
pub(super) const OTHER_START: f32 = 0.7;
/// A factor of the score of an element with the requested action.
pub(super) const SAME_ACTION_FACTOR: f32 = 1.15;
/// The factor for a similar action.
pub(super) const RELATED_ACTION_FACTOR: f32 = 1.0;
/// The factor for another action.
pub(super) const NEUTRAL_ACTION_FACTOR: f32 = 0.9;
/// The factor for the opposite action.
pub(super) const OPPOSED_ACTION_FACTOR: f32 = 0.65;
/// The value of an everyday word itself, if a definition happens to have it.
pub(super) const EVERYDAY_WORD_WEIGHT: f32 = 0.5;
/// Its share in a query's information.
pub(super) const EVERYDAY_SHARE: f32 = 0.5;
/// The value of a quoted word, and its share in a query's information.
pub(super) const QUOTED_WORD_WEIGHT: f32 = 0.4;
/// The saturation of a word in further tools of a server.
pub(super) const SERVER_SATURATION: f32 = 2.0;
/// The influence of the number of a server's tools against it.
pub(super) const SERVER_NORMALISATION: f32 = 0.6;
/// The greatest rise of the scores of a server's tools, if the query is about that server.
pub(super) const SERVER_SHARE: f32 = 1.3;
/// The score of a document that is as near in meaning as the nearest one, as a part of the best
/// score by words.
pub(super) const MEANING_SHARE: f32 = 0.4;
/// The additional score of the nearest document, as a part of that; the next ones get half of it, a
/// third, and so on.
pub(super) const NEAREST_SHARE: f32 = 0.7;
/// The least nearness of a document with none of the query's words, from the mean of all documents
/// (0) to the nearest (1).
pub(super) const MEANING_ALONE: f32 = 0.5;
