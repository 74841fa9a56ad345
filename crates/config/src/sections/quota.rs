//! Daily quotas.

use std::fmt;

use super::rate::Rate;
use crate::faults::problem::SettingFault;
use crate::reader::ConfigReader;
use crate::reader::setting::TextSetting;

/// A number of calls per day, such as `"1000/day"`. A day begins at midnight UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DailyQuota(u32);

impl DailyQuota {
    /// The largest quota.
    pub const MAX: u32 = 1_000_000_000;

    /// The number of calls.
    #[inline]
    pub fn calls(self) -> u32 {
        self.0
    }
}

impl fmt::Display for DailyQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/day", self.0)
    }
}

impl TextSetting for DailyQuota {
    type Value = Self;
    const OFF: bool = true;
    const WORD: &'static str = "daily quota";
    const EXAMPLE: &'static str = "\"1000/day\"";
    const RULE: &'static str = "1 to 1000000000 per day (a `rate` limits shorter times)";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        let digits =
            text.strip_suffix("/day").or_else(|| text.strip_suffix("/d")).unwrap_or_default();
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let calls =
            digits.parse().ok().filter(|calls| is_number && (1..=Self::MAX).contains(calls));
        Ok(calls.map(Self))
    }

    fn correct_text(text: &str) -> Option<String> {
        Rate::correct_text(text).or_else(|| Some(format!("{text}/day")))
    }

    fn schema_pattern() -> Option<&'static str> {
        Some("^[0-9]+/(d|day)$")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ConfigSource, SystemEnvironment};

    #[test]
    fn a_quota_is_corrected_as_a_rate_is() {
        for (text, correct) in [
            ("1000", "1000/day"),
            ("1000 per day", "1000/day"),
            ("5/Days", "5/day"),
            ("5/D", "5/d"),
        ] {
            assert_eq!(DailyQuota::correct_text(text).as_deref(), Some(correct), "{text}");
        }
    }

    #[test]
    fn a_quota_is_a_number_of_calls_per_day() {
        for (text, calls) in [
            ("1/day", Some(1)),
            ("1000000000/day", Some(1_000_000_000)),
            ("0/day", None),
            ("1000000001/day", None),
            ("+1/day", None),
            ("1/d", Some(1)),
            ("1/h", None),
            ("/day", None),
        ] {
            let bytes = format!("[profiles.p]\nquota = \"{text}\"").into_bytes();
            let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
            let config = Config::read(&source, &SystemEnvironment);
            if let Some(calls) = calls {
                let quota = config.unwrap().profiles[0].quota;
                assert_eq!(quota, Some(DailyQuota(calls)), "{text}");
            } else {
                let fault = config.unwrap_err().to_string();
                assert!(fault.contains("gateway.toml:2: profiles.p.quota"), "{fault}");
                assert!(fault.contains("1 to 1000000000 per day"), "{fault}");
            }
        }
    }
}
