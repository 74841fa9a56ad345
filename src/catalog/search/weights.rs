//! Every figure that the ranking is tuned by, in one place. They were chosen on the `tune` half of the
//! questions in `benches/search`, never on the other one.

use super::element::FIELDS;

/// How fast further occurrences of a term count less: BM25's `k1`.
pub(super) const SATURATION: f32 = 3.5;
/// The weight of each field, in the order of [`super::element::Field`], and how much its length counts:
/// BM25F's `w` and `b`.
pub(super) const FIELD_WEIGHTS: [(f32, f32); FIELDS] =
    [(5.0, 0.7), (2.5, 0.5), (2.0, 0.4), (0.8, 0.6), (1.0, 0.6), (0.4, 0.7), (2.5, 0.0)];
/// How many more documents are thought to be there, with none of the words. Among nine tools, five of
/// which are about notes, `note` would tell next to nothing otherwise, and any other word everything.
pub(super) const BACKGROUND: usize = 100;
/// How much of a score depends on the share of the question that a document has.
pub(super) const SHARE_WEIGHT: f32 = 0.4;
/// What is added for the name itself: more than any other score.
pub(super) const NAMED: f32 = 1000.0;
/// The share of a question that a confident answer has.
pub(super) const CONFIDENT_SHARE: f32 = 0.45;
/// What the parts of a word are worth.
pub(super) const PARTS: f32 = 0.9;
/// What two words are worth that are written as one.
pub(super) const JOINED: f32 = 0.9;
/// What an acronym of several words is worth.
pub(super) const ACRONYM: f32 = 0.8;
/// What a word in another language is worth.
pub(super) const TRANSLATED: f32 = 0.9;
/// What the meaning of a word's shape is worth.
pub(super) const SHAPE: f32 = 0.7;
/// What is worth no more than this does not say how much the word tells.
pub(super) const WEAK: f32 = 0.5;
/// The share of a verb in what a question says: most elements have some verb or other.
pub(super) const VERB_SHARE: f32 = 0.5;
/// What a match of a synonym is worth that the configuration gives.
pub(super) const CONFIGURED: f32 = 0.95;
/// What an abbreviation is worth, or another spelling.
pub(super) const SPELLING: f32 = 0.95;
/// What a word is worth that is used for another.
pub(super) const NEAR: f32 = 0.6;
/// What a general word is worth for a special one.
pub(super) const GENERAL: f32 = 0.7;
/// What a word of a trade is worth for an everyday word that makes it likely.
pub(super) const ASSOCIATED: f32 = 0.4;
/// One of so many elements, and no more, may have such a word: others tell no element from another.
pub(super) const ASSOCIATED_SHARE: usize = 5;
/// What a word is worth that differs by one edit.
pub(super) const ONE_EDIT: f32 = 0.8;
/// By two.
pub(super) const MORE_EDITS: f32 = 0.6;
/// What a word is worth that begins with the one that was asked for.
pub(super) const BEGINNING: f32 = 0.6;
/// What is left of that if the first letter differs: people seldom mistake it.
pub(super) const OTHER_START: f32 = 0.7;
/// A factor of the score of an element that does what was asked for.
pub(super) const SAME: f32 = 1.15;
/// Of one that does something like it.
pub(super) const RELATED: f32 = 1.0;
/// Of one that does something else.
pub(super) const NEUTRAL: f32 = 0.9;
/// Of one that does the opposite.
pub(super) const OPPOSED: f32 = 0.65;
/// What an everyday word itself is worth, if a definition happens to have it.
pub(super) const EVERYDAY: f32 = 0.5;
/// Its share in what a question says.
pub(super) const EVERYDAY_SHARE: f32 = 0.5;
/// What a word is worth that is quoted, and its share in what a question says.
pub(super) const QUOTED: f32 = 0.4;
/// How fast further tools of a server that have a word count less.
pub(super) const SERVER_SATURATION: f32 = 2.0;
/// How much the number of a server's tools counts against it.
pub(super) const SERVER_NORMALISATION: f32 = 0.6;
/// How much the scores of a server's tools rise at most, if the question is about that server.
pub(super) const SERVER_SHARE: f32 = 1.3;
/// What a document that is as near in meaning as the nearest one gets for that, as a part of the best mark
/// by words.
pub(super) const MEANING: f32 = 0.4;
/// What the nearest document gets in addition, as a part of that; the next ones half of it, a third, and
/// so on.
pub(super) const NEAREST: f32 = 0.7;
/// How near a document has to be that has none of the question's words, from the mean of all documents
/// (0) to the nearest (1).
pub(super) const MEANING_ALONE: f32 = 0.5;
