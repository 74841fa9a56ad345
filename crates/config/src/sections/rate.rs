//! Rates.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

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

    /// Parses `COUNT/UNIT`.
    fn from_text(text: &str) -> Option<Self> {
        let (count, unit) = text.split_once('/')?;
        let (_, seconds) = RATE_UNITS.iter().find(|(name, _)| *name == unit)?;
        let digits = count.bytes().all(|byte| byte.is_ascii_digit());
        let count: u32 = count.parse().ok().filter(|count| digits && *count <= Self::MAX)?;
        Some(Self { count: NonZeroU32::new(count)?, per: Duration::from_secs(*seconds) })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match RATE_UNITS.iter().find(|(_, seconds)| *seconds == self.per.as_secs()) {
            Some((unit, _)) => write!(f, "{}/{unit}", self.count),
            None => write!(f, "{}/{:?}", self.count, self.per),
        }
    }
}

impl TextSetting for Rate {
    type Value = Self;
    const OFF: bool = true;
    const WORD: &'static str = "rate";
    const EXAMPLE: &'static str = "\"100/min\"";
    const RULE: &'static str = "1 to 1000000 per s, min, h or d";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        Ok(Self::from_text(text))
    }

    fn correct_text(text: &str) -> Option<String> {
        let (count, unit) = text.split_once('/').or_else(|| text.split_once(" per "))?;
        let unit = unit.trim().to_ascii_lowercase();
        Some(format!("{}/{}", count.trim(), unit.strip_suffix('s').unwrap_or(&unit)))
    }

    fn schema_pattern() -> Option<&'static str> {
        Some("^[0-9]+/(s|sec|second|min|m|minute|h|hour|d|day)$")
    }
}

/// The names of the units and their seconds; the first name of each is the one that is shown.
const RATE_UNITS: [(&str, u64); 10] = [
    ("s", 1),
    ("sec", 1),
    ("second", 1),
    ("min", 60),
    ("m", 60),
    ("minute", 60),
    ("h", 3_600),
    ("hour", 3_600),
    ("d", 86_400),
    ("day", 86_400),
];
