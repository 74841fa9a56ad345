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
use super::run::{Outcome, Watch, run};
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

/// What one of them gave in one round.
pub type Leg = Outcome;

/// All of them, and what they gave.
pub struct Contest {
    /// Those who take turns.
    pub contenders: Vec<Contender>,
    /// By round, then by contender. The last round may lack some.
    pub rounds: Vec<Vec<Leg>>,
    /// The place of the one that others are compared with.
    pub base: usize,
}

impl Contest {
    /// Runs rounds until all are done or somebody asks for the end.
    ///
    /// # Errors
    /// [`BenchFault`].
    pub async fn hold(
        contenders: Vec<Contender>,
        base: usize,
        (load, rounds): (&Load, usize),
        interrupt: &Interrupt,
        watch: &mut dyn Watch,
    ) -> Result<Self, BenchFault> {
        let mut contest = Self { contenders, rounds: Vec::new(), base };
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
        let of = |round: &Vec<Leg>| {
            let own = read(round.get(place)?)?;
            let base = read(round.get(self.base)?)?;
            // What is measured as nothing cannot be divided by.
            (base > 0.0).then_some(own / base)
        };
        Spread::of(self.rounds.iter().filter_map(of).collect())
    }
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
}
