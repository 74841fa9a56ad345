//! The affinity of servers to a query: each server is ranked as one document with the words of all
//! its tools.
//!
//! Users name their subject (customers, invoices, last quarter) rather than a tool. Often no tool
//! has all of these words, but the tools of one server have them together. The scores of a word in
//! a server's tools are added and saturated, and count less the more tools the server has: a large
//! server has a tool for any word. A word counts more the fewer servers have it. Documents and
//! servers that may not be found have no influence.

use super::{MatchMap, Ranking, information_of};
use crate::SearchIndex;
use crate::weights::{SERVER_NORMALISATION, SERVER_SATURATION, SERVER_SHARE};

/// The affinity of each server to a query, by its position among the servers of the index.
pub(crate) struct ServerAffinity<'a> {
    index: &'a SearchIndex,
    /// By server: the sum of a word's scores at which the word counts half of its maximum.
    halves: Vec<f32>,
    /// The number of servers with a document that may be found.
    count: usize,
    scores: Vec<f32>,
    /// By server: the sum of its documents' scores for the concept that is being added.
    sums: Vec<f32>,
    /// The servers with a sum.
    touched: Vec<usize>,
}

impl<'a> ServerAffinity<'a> {
    pub(crate) fn new(index: &'a SearchIndex, ranking: &Ranking<'_>) -> Self {
        let sizes = ranking.server_sizes();
        let count = sizes.iter().filter(|size| **size > 0).count();
        #[expect(clippy::cast_precision_loss, reason = "counts of documents are small")]
        let halves = sizes.iter().map(|size| {
            let mean = ranking.count() as f32 / count.max(1) as f32;
            let relative = *size as f32 / mean.max(1.0);
            SERVER_SATURATION * (1.0 - SERVER_NORMALISATION + SERVER_NORMALISATION * relative)
        });
        Self {
            index,
            halves: halves.collect(),
            count,
            scores: vec![0.0; sizes.len()],
            sums: vec![0.0; sizes.len()],
            touched: Vec::new(),
        }
    }

    /// Adds the documents' scores for a concept; `weight` is the concept's part in the query.
    pub(crate) fn add_concept(&mut self, matches: &MatchMap, weight: f32) {
        let mut best = 0.0_f32;
        matches.visit(|document, found| {
            best = best.max(found.score);
            let server = self.index.documents.get(document).map(|document| document.server);
            let Some((server, sum)) = server.and_then(|it| Some((it, self.sums.get_mut(it)?)))
            else {
                return;
            };
            if *sum == 0.0 {
                self.touched.push(server);
            }
            *sum += found.score;
        });
        let information = information_of(self.touched.len(), self.count);
        for server in self.touched.drain(..) {
            let (Some(sum), Some(half), Some(score)) =
                (self.sums.get_mut(server), self.halves.get(server), self.scores.get_mut(server))
            else {
                continue;
            };
            let sum = std::mem::take(sum) / best;
            *score += weight * information * sum / (sum + half);
        }
    }

    /// By server: the factor of its documents' scores.
    pub(crate) fn into_factors(self) -> Vec<f32> {
        let most = self.scores.iter().copied().fold(0.0, f32::max);
        let share = |score: f32| if most > 0.0 { score / most } else { 0.0 };
        self.scores.into_iter().map(|score| 1.0 + SERVER_SHARE * share(score)).collect()
    }
}
