//! Combines two rankings of the documents for a query: by its words, and by its meaning.
//!
//! Scores of words and similarities of vectors have different scales, and the ranges of both vary
//! with the query. So a similarity counts by its position between the mean of all documents that
//! may be found and the best of them, and adds a part of the best score. Among thousands of
//! documents hundreds are nearly as near as the best one, and their words alone would decide
//! between them. So the nearest few count for more, by their ranks.

use std::sync::Arc;

use super::Ranking;
use super::vectors::TextVector;
use crate::weights::{EXACT_NAME_SCORE, MEANING_ALONE, MEANING_SHARE, NEAREST_SHARE};
use crate::{DocumentId, SearchHit, SearchIndex};

/// The vectors of a query, and of the documents of an index.
#[derive(Debug, Clone, Copy)]
pub struct QuestionMeaning<'a> {
    /// The vector of the query.
    pub question: &'a TextVector,
    /// The vectors of the documents, in their order; `None` for those that have none.
    pub documents: &'a [Option<Arc<TextVector>>],
}

impl SearchIndex {
    /// Adds the documents' scores by meaning to the hits, and adds hits for documents that match by
    /// meaning, but have none of the query's words. Considers only documents that may be found.
    pub(crate) fn add_meaning(
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
        // All are the same, or there are none.
        if range <= f32::EPSILON {
            return;
        }
        let most = MEANING_SHARE * scale_of(hits);
        let mut nearness = vec![0.0_f32; self.len()];
        for (place, similarity) in &alike {
            if let Some(near) = nearness.get_mut(*place) {
                *near = ((similarity - mean) / range).max(0.0);
            }
        }
        for (place, rank) in find_nearest(alike).into_iter().zip(1_u8..) {
            if let Some(near) = nearness.get_mut(place) {
                *near += NEAREST_SHARE / f32::from(rank);
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

/// The best score by words. The score of a requested name is no measure for other scores; without a
/// hit by words there is no scale, and none is needed.
fn scale_of(hits: &[SearchHit]) -> f32 {
    let marks = hits.iter().map(|hit| hit.score).filter(|score| *score < EXACT_NAME_SCORE);
    let best = marks.fold(0.0, f32::max);
    if best > 0.0 { best } else { 1.0 }
}

/// The positions of the nearest documents, the nearest one first.
fn find_nearest(mut alike: Vec<(usize, f32)>) -> Vec<usize> {
    let nearer = |one: &(usize, f32), other: &(usize, f32)| {
        other.1.total_cmp(&one.1).then(one.0.cmp(&other.0))
    };
    if alike.len() > MAX_NEAREST_DOCUMENTS {
        alike.select_nth_unstable_by(MAX_NEAREST_DOCUMENTS, nearer);
        alike.truncate(MAX_NEAREST_DOCUMENTS);
    }
    alike.sort_unstable_by(nearer);
    alike.into_iter().map(|(place, _)| place).collect()
}

/// The number of nearest documents that count for more: later ranks would add next to nothing.
const MAX_NEAREST_DOCUMENTS: usize = 16;
