//! A contest: several servers take turns under the same load, and their costs are compared.
//!
//! They take turns within every round, so that other activity of the machine affects all of them
//! alike. A ratio is computed within a round. The reported ratio is the median of the rounds; the
//! lowest and the highest show its reliability.

use std::sync::Arc;

use super::process::Meter;
use super::run::{RunOutcome, RunWatcher, run};
use crate::load::tally::Tally;
use crate::session::plan::Load;
use crate::session::script::Script;
use crate::{BenchFault, Interrupt};

/// A participant of a contest.
pub struct Contender {
    /// The name of the contender.
    pub name: String,
    /// The requests to send.
    pub script: Arc<Script>,
    /// Measures its processes, if they are accessible.
    pub meter: Option<Meter>,
}

impl Contender {
    /// The name, or the address of an unnamed contender.
    pub fn shown(&self) -> &str {
        if self.name.is_empty() { &self.script.writer.target.shown } else { &self.name }
    }
}

/// The result of one contender in one round.
pub type Leg = RunOutcome;

/// The contenders, and their results.
pub struct Contest {
    /// The contenders, in the order of their turns.
    pub contenders: Vec<Contender>,
    /// The results by round, then by contender. The last round may be
    /// incomplete.
    pub rounds: Vec<Vec<Leg>>,
    /// The index of the contender that the others are compared with.
    pub base: usize,
    /// Index of the direct contender, to which the others forward, if there is one: its cost is
    /// subtracted from theirs.
    pub direct: Option<usize>,
}

/// The rules of a contest.
#[derive(Debug, Clone, Copy)]
pub struct ContestRules {
    /// The number of rounds.
    pub rounds: usize,
    /// The index of the contender that the others are compared with.
    pub base: usize,
    /// Index of the direct contender, to which the others forward.
    pub direct: Option<usize>,
}

impl Contest {
    /// Runs rounds until all are complete or the end is requested.
    ///
    /// # Errors
    /// [`BenchFault`].
    pub async fn hold(
        contenders: Vec<Contender>,
        load: &Load,
        rules: ContestRules,
        interrupt: &Interrupt,
        watch: &mut dyn RunWatcher,
    ) -> Result<Self, BenchFault> {
        let ContestRules { rounds, base, direct } = rules;
        let mut contest = Self { contenders, rounds: Vec::new(), base, direct };
        for _ in 0..rounds {
            let mut legs = Vec::new();
            for contender in &contest.contenders {
                let meter = contender.meter.as_ref();
                legs.push(run(&contender.script, load, meter, interrupt, watch).await?);
                if interrupt.is_asked() {
                    break;
                }
            }
            // An incomplete round allows no comparison, but is better than no
            // result.
            if legs.len() == contest.contenders.len() || contest.rounds.is_empty() {
                contest.rounds.push(legs);
            }
            if interrupt.is_asked() {
                break;
            }
        }
        Ok(contest)
    }

    /// A figure of one contender, by round.
    pub fn figures(&self, place: usize, read: impl Fn(&Leg) -> Option<f64>) -> Vec<f64> {
        let legs = self.rounds.iter().filter_map(|round| round.get(place));
        legs.filter_map(read).collect()
    }

    /// The sum of one contender's counts over all rounds.
    pub fn together(&self, place: usize) -> Option<Tally> {
        let mut legs = self.rounds.iter().filter_map(|round| round.get(place));
        let mut tally = legs.next()?.tally.clone();
        legs.for_each(|leg| tally.add(leg.tally.clone()));
        Some(tally)
    }

    /// The ratio of one contender's figure to the base's.
    pub fn ratio(&self, place: usize, read: impl Fn(&Leg) -> Option<f64>) -> Option<Spread> {
        ratio(self.pairs(place, self.base, read))
    }

    /// Returns a contender's overhead over the direct figure, and the ratio of that to the base's
    /// overhead.
    pub fn added(
        &self,
        place: usize,
        read: impl Fn(&Leg) -> Option<f64>,
    ) -> (Option<Spread>, Option<Spread>) {
        let Some(direct) = self.direct else { return (None, None) };
        let above = |place: usize| -> Vec<f64> {
            let pairs = self.pairs(place, direct, &read);
            pairs.into_iter().map(|(own, direct)| own - direct).collect()
        };
        let (own, base) = (above(place), above(self.base));
        let ratio = ratio(own.iter().copied().zip(base).collect());
        (Spread::of(own), ratio)
    }

    /// A figure of two contenders, for each round that has both.
    fn pairs(
        &self,
        one: usize,
        other: usize,
        read: impl Fn(&Leg) -> Option<f64>,
    ) -> Vec<(f64, f64)> {
        let both = |round: &Vec<Leg>| Some((read(round.get(one)?)?, read(round.get(other)?)?));
        self.rounds.iter().filter_map(both).collect()
    }
}

/// Returns the spread of the ratios by round. A base of zero or less, which happens on a busy
/// machine, has no ratio and is omitted.
fn ratio(pairs: Vec<(f64, f64)>) -> Option<Spread> {
    let pairs = pairs.into_iter().filter(|(_, base)| *base > 0.0);
    Spread::of(pairs.map(|(own, base)| own / base).collect())
}

/// A median, with the lowest and highest value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lowest.
    pub least: f64,
    /// The highest.
    pub most: f64,
}

impl Spread {
    /// Computes the spread of some values; `None` if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let (low, high) = (values.get((values.len() - 1) / 2)?, values.get(values.len() / 2)?);
        Some(Self { median: f64::midpoint(*low, *high), least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_between_the_lowest_and_the_highest() {
        let spread = |values: &[f64]| Spread::of(values.to_vec());
        let of = |median, least, most| Some(Spread { median, least, most });
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[2.0]), of(2.0, 2.0, 2.0));
        assert_eq!(spread(&[3.0, 1.0, 10.0]), of(3.0, 1.0, 10.0));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 9.0]), of(3.0, 1.0, 9.0));
    }

    #[test]
    fn a_ratio_is_made_within_a_round() {
        // The second round was measured on a machine half as fast.
        let found = ratio(vec![(2.0, 1.0), (4.4, 2.0), (1.8, 1.0), (5.0, 0.0), (5.0, -1.0)]);
        let found = found.unwrap();
        assert!((found.median - 2.0).abs() < 1e-9);
        assert!((found.least - 1.8).abs() < 1e-9 && (found.most - 2.2).abs() < 1e-9);
        assert_eq!(ratio(vec![(1.0, 0.0)]), None);
    }
}
