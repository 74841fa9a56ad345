//! Several servers under the same load, taking turns, and what one costs beside
//! another.
//!
//! They take turns within every round, so that whatever else the machine does
//! befalls all of them alike. A ratio is made within a round; of the rounds'
//! ratios the median counts, and the lowest and the highest say how far to
//! trust it.

use std::sync::Arc;

use super::plan::Load;
use super::process::Meter;
use super::run::{RunOutcome, RunWatcher, run};
use super::script::Script;
use super::tally::Tally;
use super::{BenchFault, Interrupt};

/// One of those who take turns.
pub struct Contender {
    /// What it goes by.
    pub name: String,
    /// What is sent to it.
    pub script: Arc<Script>,
    /// Its processes, where they can be looked at.
    pub meter: Option<Meter>,
}

impl Contender {
    /// Its name, or its address where it needs none.
    pub fn shown(&self) -> &str {
        if self.name.is_empty() { self.script.writer.target.url.as_str() } else { &self.name }
    }
}

/// What one of them gave in one round.
pub type Leg = RunOutcome;

/// All of them, and what they gave.
pub struct Contest {
    /// Those who take turns.
    pub contenders: Vec<Contender>,
    /// By round, then by contender. The last round may lack some.
    pub rounds: Vec<Vec<Leg>>,
    /// The place of the one that others are compared with.
    pub base: usize,
    /// The place of the one that the others stand before, if there is such:
    /// what it takes is no cost of theirs.
    pub direct: Option<usize>,
}

/// How turns are taken.
#[derive(Debug, Clone, Copy)]
pub struct ContestRules {
    /// How often.
    pub rounds: usize,
    /// The place of the one that others are compared with.
    pub base: usize,
    /// The place of the one that the others stand before.
    pub direct: Option<usize>,
}

impl Contest {
    /// Runs rounds until all are done or somebody asks for the end.
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
            // Half a round compares nothing, but is better than nothing at all.
            if legs.len() == contest.contenders.len() || contest.rounds.is_empty() {
                contest.rounds.push(legs);
            }
            if interrupt.is_asked() {
                break;
            }
        }
        Ok(contest)
    }

    /// A figure of one contender, round by round.
    pub fn figures(&self, place: usize, read: impl Fn(&Leg) -> Option<f64>) -> Vec<f64> {
        let legs = self.rounds.iter().filter_map(|round| round.get(place));
        legs.filter_map(read).collect()
    }

    /// All that one contender's rounds counted, together.
    pub fn together(&self, place: usize) -> Option<Tally> {
        let mut legs = self.rounds.iter().filter_map(|round| round.get(place));
        let mut tally = legs.next()?.tally.clone();
        legs.for_each(|leg| tally.add(leg.tally.clone()));
        Some(tally)
    }

    /// How a figure of one relates to that of the base.
    pub fn ratio(&self, place: usize, read: impl Fn(&Leg) -> Option<f64>) -> Option<Spread> {
        ratio(self.pairs(place, self.base, read))
    }

    /// By how much a figure is higher than on the direct way, and how that
    /// relates to the same of the base.
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

    /// A figure of two of them, of each round that has both.
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

/// The spread of the rounds' own ratios. What is measured as nothing, or less,
/// cannot be divided by: on a busy machine that happens.
fn ratio(pairs: Vec<(f64, f64)>) -> Option<Spread> {
    let pairs = pairs.into_iter().filter(|(_, base)| *base > 0.0);
    Spread::of(pairs.map(|(own, base)| own / base).collect())
}

/// A median, and what it is the median of.
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
    /// That of some values; `None` where there are none.
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
        // The second round was made on a machine half as fast.
        let found = ratio(vec![(2.0, 1.0), (4.4, 2.0), (1.8, 1.0), (5.0, 0.0), (5.0, -1.0)]);
        let found = found.unwrap();
        assert!((found.median - 2.0).abs() < 1e-9);
        assert!((found.least - 1.8).abs() < 1e-9 && (found.most - 2.2).abs() < 1e-9);
        assert_eq!(ratio(vec![(1.0, 0.0)]), None);
    }
}
