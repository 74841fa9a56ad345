//! Quotas.

use std::fmt;
use std::num::NonZeroU32;

use super::count_unit::{COUNT_PATTERN, CountUnit, correct_count, count_rule, parse_count};
use crate::faults::problem::SettingFault;
use crate::reader::ConfigReader;
use crate::reader::setting::TextSetting;

/// A number of calls in each window of time, such as `"1000/day"`. A window is a second, minute, hour
/// or day of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    /// The number of calls: 1 to [`Quota::MAX`].
    pub count: NonZeroU32,
    /// The length of a window.
    pub unit: CountUnit,
}

impl Quota {
    /// The largest quota.
    pub const MAX: u32 = 1_000_000_000;

    /// Returns the number of calls.
    #[inline]
    pub fn calls(self) -> u32 {
        self.count.get()
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.unit.name())
    }
}

impl TextSetting for Quota {
    type Value = Self;
    const OFF: bool = true;
    const WORD: &'static str = "quota";
    const EXAMPLE: &'static str = "\"1000/day\"";
    const RULE: &'static str = count_rule!("1000000000");

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        Ok(parse_count(text, Self::MAX).map(|(count, unit)| Self { count, unit }))
    }

    fn correct_text(text: &str) -> Option<String> {
        correct_count(text)
    }

    fn schema_pattern() -> Option<&'static str> {
        Some(COUNT_PATTERN)
    }
}
