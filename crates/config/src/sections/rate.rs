//! Rates.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use super::count_unit::{COUNT_PATTERN, CountUnit, correct_count, count_rule, parse_count};
use crate::faults::problem::SettingFault;
use crate::reader::ConfigReader;
use crate::reader::setting::TextSetting;

/// A number of events per time, such as `"100/min"`. All of them may come at once; the allowance
/// refills evenly over the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// The number of events: 1 to [`Rate::MAX`].
    pub count: NonZeroU32,
    /// The time: a second, a minute, an hour or a day.
    pub per: Duration,
}

impl Rate {
    /// The largest count: a larger one would limit nothing.
    pub const MAX: u32 = 1_000_000;
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CountUnit::of_length(self.per) {
            Some(unit) => write!(f, "{}/{}", self.count, unit.name()),
            None => write!(f, "{}/{:?}", self.count, self.per),
        }
    }
}

impl TextSetting for Rate {
    type Value = Self;
    const OFF: bool = true;
    const WORD: &'static str = "rate";
    const EXAMPLE: &'static str = "\"100/min\"";
    const RULE: &'static str = count_rule!("1000000");

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        let rate = parse_count(text, Self::MAX);
        Ok(rate.map(|(count, unit)| Self { count, per: unit.length() }))
    }

    fn correct_text(text: &str) -> Option<String> {
        correct_count(text)
    }

    fn schema_pattern() -> Option<&'static str> {
        Some(COUNT_PATTERN)
    }
}
