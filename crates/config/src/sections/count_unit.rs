//! Counts per unit of time, such as `"100/min"`: the text of rates and quotas.

use std::num::NonZeroU32;
use std::time::Duration;

/// A unit of time that rates and quotas are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CountUnit {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl CountUnit {
    /// Returns the length of the unit.
    #[inline]
    pub fn length(self) -> Duration {
        Duration::from_secs(self.row().seconds)
    }

    /// Returns the name that is shown.
    pub(super) fn name(self) -> &'static str {
        self.row().names.first().copied().unwrap_or_default()
    }

    /// Returns the unit of this length; `None` if there is none.
    pub(super) fn of_length(length: Duration) -> Option<Self> {
        let row = COUNT_UNITS.iter().find(|row| Duration::from_secs(row.seconds) == length);
        row.map(|row| row.unit)
    }

    fn of_name(name: &str) -> Option<Self> {
        COUNT_UNITS.iter().find(|row| row.names.contains(&name)).map(|row| row.unit)
    }

    fn row(self) -> &'static UnitRow {
        match self {
            Self::Second => &COUNT_UNITS[0],
            Self::Minute => &COUNT_UNITS[1],
            Self::Hour => &COUNT_UNITS[2],
            Self::Day => &COUNT_UNITS[3],
        }
    }
}

/// A unit of the table.
struct UnitRow {
    unit: CountUnit,
    /// Its names in the configuration; the first one is shown.
    names: &'static [&'static str],
    seconds: u64,
}

/// Parses `COUNT/UNIT`, with a count of at most `most`.
pub(super) fn parse_count(text: &str, most: u32) -> Option<(NonZeroU32, CountUnit)> {
    let (count, unit) = text.split_once('/')?;
    let unit = CountUnit::of_name(unit)?;
    let digits = count.bytes().all(|byte| byte.is_ascii_digit());
    let count: u32 = count.parse().ok().filter(|count| digits && *count <= most)?;
    Some((NonZeroU32::new(count)?, unit))
}

/// Returns the likely meaning of a text that is no `COUNT/UNIT`.
pub(super) fn correct_count(text: &str) -> Option<String> {
    let (count, unit) = text.split_once('/').or_else(|| text.split_once(" per "))?;
    let unit = unit.trim().to_ascii_lowercase();
    let is_known = CountUnit::of_name(&unit).is_some();
    let unit = if is_known { &unit } else { unit.strip_suffix('s').unwrap_or(&unit) };
    Some(format!("{}/{unit}", count.trim()))
}

/// Writes the rule of a `COUNT/UNIT` with this largest count.
macro_rules! count_rule {
    ($most:literal) => {
        concat!("1 to ", $most, " per s, min, h or day")
    };
}
pub(super) use count_rule;

/// The regular expression of `COUNT/UNIT`.
pub(super) const COUNT_PATTERN: &str = "^[0-9]+/(s|sec|second|min|m|minute|h|hour|day|d)$";

/// The units, in the order of [`CountUnit`].
const COUNT_UNITS: [UnitRow; 4] = [
    UnitRow { unit: CountUnit::Second, names: &["s", "sec", "second"], seconds: 1 },
    UnitRow { unit: CountUnit::Minute, names: &["min", "m", "minute"], seconds: 60 },
    UnitRow { unit: CountUnit::Hour, names: &["h", "hour"], seconds: 3_600 },
    UnitRow { unit: CountUnit::Day, names: &["day", "d"], seconds: 86_400 },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::setting::TextSetting;
    use crate::{Config, ConfigSource, Quota, Rate, SystemEnvironment};

    /// Returns the configuration of a profile with a setting.
    fn read(setting: &str, text: &str) -> Result<Config, String> {
        let bytes = format!("[profiles.p]\n{setting} = \"{text}\"").into_bytes();
        let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
        Config::read(&source, &SystemEnvironment).map_err(|faults| faults.to_string())
    }

    #[test]
    fn rates_and_quotas_accept_the_same_units() {
        for (names, shown, seconds) in [
            (&["s", "sec", "second"] as &[_], "s", 1),
            (&["min", "m", "minute"], "min", 60),
            (&["h", "hour"], "h", 3_600),
            (&["day", "d"], "day", 86_400),
        ] {
            for name in names {
                let text = format!("7/{name}");
                let rate = read("rate", &text).unwrap().profiles[0].rate.unwrap();
                assert_eq!((rate.count.get(), rate.per.as_secs()), (7, seconds), "{text}");
                let quota = read("quota", &text).unwrap().profiles[0].quota.unwrap();
                assert_eq!((quota.calls(), quota.unit.length().as_secs()), (7, seconds), "{text}");
                let shown = format!("7/{shown}");
                assert_eq!([rate.to_string(), quota.to_string()], [shown.clone(), shown]);
            }
        }
    }

    #[test]
    fn rates_and_quotas_refuse_the_same_texts_with_the_same_sentence() {
        for text in ["7", "/s", "0/s", "+7/s", "-7/s", "7.5/s", "7/", "7/s/s", "7/week"] {
            for (setting, rule) in [
                ("rate", "is not a rate; write 1 to 1000000 per s, min, h or day, such as"),
                ("quota", "is not a quota; write 1 to 1000000000 per s, min, h or day, such as"),
            ] {
                let fault = read(setting, text).unwrap_err();
                let place = format!("gateway.toml:2: profiles.p.{setting}: \"{text}\"");
                assert!(fault.contains(&place) && fault.contains(rule), "{fault}");
            }
        }
        for (setting, most) in [("rate", Rate::MAX), ("quota", Quota::MAX)] {
            read(setting, &format!("{most}/s")).unwrap();
            read(setting, &format!("{}/s", most + 1)).unwrap_err();
        }
    }

    #[test]
    fn the_rule_and_the_pattern_have_the_units_and_the_limits() {
        let names: Vec<_> = COUNT_UNITS.iter().flat_map(|row| row.names).copied().collect();
        assert_eq!(COUNT_PATTERN, format!("^[0-9]+/({})$", names.join("|")));
        for (rule, most) in [(Rate::RULE, Rate::MAX), (Quota::RULE, Quota::MAX)] {
            assert_eq!(rule, format!("1 to {most} per s, min, h or day"));
        }
        assert_eq!(Rate::schema_pattern(), Quota::schema_pattern());
    }

    #[test]
    fn other_spellings_are_corrected() {
        for (text, correct) in [
            ("1000 per day", Some("1000/day")),
            ("5/Days", Some("5/day")),
            ("5/D", Some("5/d")),
            ("5 / S", Some("5/s")),
            ("5/hours", Some("5/hour")),
            ("1000", None),
        ] {
            assert_eq!(correct_count(text).as_deref(), correct, "{text}");
        }
    }
}
