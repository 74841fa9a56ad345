//! Fuses two opinions of which documents answer a question: that of its words, and that of its meaning.
//!
//! Marks of words and similarities of vectors have different scales, and both have other ranges for each
//! question. So a similarity counts by where it stands between the mean of all documents that may be
//! found and the best of them, and adds to a mark a part of the best mark. Among thousands of documents
//! hundreds are nearly as near as the best one, and their words would decide between them alone. So the
//! nearest few count for more, by their ranks.

use std::sync::Arc;

use super::ranking::Ranking;
use super::vectors::TextVector;
use super::weights::{MEANING, MEANING_ALONE, NAMED, NEAREST};
use super::{DocumentId, SearchHit, SearchIndex};

/// What an embedding model says of a question, and of the documents of an index.
#[derive(Debug, Clone, Copy)]
pub struct QuestionMeaning<'a> {
    /// The vector of the question.
    pub question: &'a TextVector,
    /// The vectors of the documents, in their order; `None` for those that have none.
    pub documents: &'a [Option<Arc<TextVector>>],
}

impl SearchIndex {
    /// Adds to the marks of hits how well the documents answer by their meaning, and adds hits for those
    /// that do, but have none of the question's words. Only documents that may be found are looked at.
    pub(super) fn add_meaning(
        &self,
        hits: &mut Vec<SearchHit>,
        meaning: QuestionMeaning<'_>,
        ranking: &Ranking<'_>,
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
        let most = MEANING * scale_of(hits);
        let mut nearness = vec![0.0_f32; self.len()];
        for (place, similarity) in &alike {
            if let Some(near) = nearness.get_mut(*place) {
                *near = ((similarity - mean) / range).max(0.0);
            }
        }
        for (place, rank) in find_nearest(alike).into_iter().zip(1_u8..) {
            if let Some(near) = nearness.get_mut(place) {
                *near += NEAREST / f32::from(rank);
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

/// The best mark by words. A name that is asked for does not tell how much other marks are worth; without
/// an answer by words there is no scale, and none is needed.
fn scale_of(hits: &[SearchHit]) -> f32 {
    let marks = hits.iter().map(|hit| hit.score).filter(|score| *score < NAMED);
    let best = marks.fold(0.0, f32::max);
    if best > 0.0 { best } else { 1.0 }
}

/// The places of the nearest documents, the nearest one first.
fn find_nearest(mut alike: Vec<(usize, f32)>) -> Vec<usize> {
    let nearer = |one: &(usize, f32), other: &(usize, f32)| {
        other.1.total_cmp(&one.1).then(one.0.cmp(&other.0))
    };
    if alike.len() > MOST_NEAREST {
        alike.select_nth_unstable_by(MOST_NEAREST, nearer);
        alike.truncate(MOST_NEAREST);
    }
    alike.sort_unstable_by(nearer);
    alike.into_iter().map(|(place, _)| place).collect()
}

/// How many of the nearest count for more: what the ranks behind them would add is next to nothing.
const MOST_NEAREST: usize = 16;
