//! Fuses two opinions of which documents answer a question: that of its words, and that of its meaning.
//!
//! Marks of words and similarities of vectors have different scales, and both have other ranges for each
//! question. So a similarity counts by where it stands between the mean of all documents that may be
//! found and the best of them, and adds to a mark a part of the best mark. How large that part is depends
//! on the words: where a document has the whole question, there is little left to be guessed.

use std::sync::Arc;

use super::ranking::Ranking;
use super::vectors::TextVector;
use super::weights::{MEANING, MEANING_ALONE, MEANING_IF_SAID, NAMED};
use super::{DocumentId, SearchHit, SearchIndex};

/// What an embedding model says of a question, and of the documents of an index.
#[derive(Debug, Clone, Copy)]
pub struct QuestionMeaning<'a> {
    /// The vector of the question.
    pub question: &'a TextVector,
    /// The vectors of the documents, in their order; `None` for those that have none.
    pub documents: &'a [Option<Arc<TextVector>>],
}

/// The best answer by words alone.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BestByWords {
    score: f32,
    /// How much of the question it has, from 0 to 1.
    share: f32,
}

impl BestByWords {
    /// Notes an answer. A name that is asked for does not tell how much other marks are worth.
    pub(super) fn note(&mut self, score: f32, share: f32) {
        if score < NAMED && (score, share) > (self.score, self.share) {
            *self = Self { score, share };
        }
    }

    /// What the document that is nearest in meaning gets for that.
    fn most_for_meaning(self) -> f32 {
        // Without an answer by words there is no scale, and none is needed.
        let scale = if self.score > 0.0 { self.score } else { 1.0 };
        scale * (MEANING + (MEANING_IF_SAID - MEANING) * self.share)
    }
}

impl SearchIndex {
    /// Adds to the marks of hits how well the documents answer by their meaning, and adds hits for those
    /// that do, but have none of the question's words. Only documents that may be found are looked at.
    pub(super) fn add_meaning(
        &self,
        hits: &mut Vec<SearchHit>,
        meaning: QuestionMeaning<'_>,
        (ranking, words): (&Ranking<'_>, BestByWords),
    ) {
        let vectors = meaning.documents.iter().take(self.len()).enumerate();
        let shown = vectors.filter(|(place, _)| ranking.shows(*place));
        let alike: Vec<(usize, f32)> = shown
            .filter_map(|(place, vector)| {
                Some((place, meaning.question.similarity(vector.as_deref()?)))
            })
            .collect();
        #[expect(clippy::cast_precision_loss, reason = "counts of documents are small")]
        let mean = alike.iter().map(|(_, one)| one).sum::<f32>() / alike.len() as f32;
        let range = alike.iter().map(|(_, one)| one - mean).fold(0.0, f32::max);
        // All the same, or none.
        if range <= f32::EPSILON {
            return;
        }
        let most = words.most_for_meaning();
        let mut nearness = vec![0.0_f32; self.len()];
        for (place, similarity) in alike {
            if let Some(near) = nearness.get_mut(place) {
                *near = ((similarity - mean) / range).max(0.0);
            }
        }
        for hit in hits.iter_mut() {
            if let Some(near) = nearness.get_mut(hit.id.0) {
                hit.score += most * std::mem::take(near);
            }
        }
        let others = nearness.into_iter().enumerate().filter(|(_, near)| *near >= MEANING_ALONE);
        hits.extend(others.map(|(place, near)| SearchHit {
            id: DocumentId(place),
            score: most * near,
            is_confident: false,
        }));
    }
}
