//! Durations and sizes: an integer and a unit, in one string.

use std::time::Duration;

use trunkline_core::text::split_quantity;

use crate::faults::problem::SettingFault;
use crate::reader::ConfigReader;
use crate::reader::setting::TextSetting;

/// A duration, possibly zero: an integer and a unit.
impl TextSetting for Duration {
    type Value = Self;
    const OFF: bool = true;
    const WORD: &'static str = "duration";
    const EXAMPLE: &'static str = "\"30s\"";
    const RULE: &'static str = "a whole number with ms, s, m, h or d";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        const DURATION_UNITS: [(&str, u64); 5] =
            [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let Some(millis) = parse_scaled(text, &DURATION_UNITS) else { return Ok(None) };
        let duration = Self::from_millis(millis);
        // An instant plus the duration must not overflow, on any system.
        if duration > MAX_DURATION { Err(range_problem("0s", "366d")) } else { Ok(Some(duration)) }
    }

    fn correct_text(text: &str) -> Option<String> {
        Some(correct_unit(
            text,
            &[("sec", "s"), ("min", "m"), ("hour", "h"), ("hr", "h"), ("day", "d")],
            "s",
        ))
    }

    fn schema_pattern() -> Option<&'static str> {
        Some("^[0-9]+(ms|s|m|h|d)$")
    }
}

/// A positive duration.
pub(crate) struct DurationSetting;

impl TextSetting for DurationSetting {
    type Value = Duration;
    const OFF: bool = true;
    const WORD: &'static str = <Duration as TextSetting>::WORD;
    const EXAMPLE: &'static str = <Duration as TextSetting>::EXAMPLE;
    const RULE: &'static str = <Duration as TextSetting>::RULE;

    fn parse_text(text: &str, reader: &ConfigReader<'_>) -> Result<Option<Duration>, SettingFault> {
        match <Duration as TextSetting>::parse_text(text, reader)? {
            Some(Duration::ZERO) => Err(range_problem("1ms", "366d")),
            other => Ok(other),
        }
    }

    fn correct_text(text: &str) -> Option<String> {
        <Duration as TextSetting>::correct_text(text)
    }

    fn schema_pattern() -> Option<&'static str> {
        <Duration as TextSetting>::schema_pattern()
    }
}

/// A number of bytes: an integer and a unit, at least one byte.
pub(crate) struct SizeSetting;

impl TextSetting for SizeSetting {
    type Value = usize;
    const OFF: bool = true;
    const WORD: &'static str = "size";
    const EXAMPLE: &'static str = "\"4MiB\"";
    const RULE: &'static str = "a whole number with B, KiB, MiB or GiB";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<usize>, SettingFault> {
        const SIZE_UNITS: [(&str, u64); 4] =
            [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
        let Some(bytes) = parse_scaled(text, &SIZE_UNITS) else { return Ok(None) };
        match usize::try_from(bytes) {
            Ok(bytes @ 1..=MAX_SIZE) => Ok(Some(bytes)),
            _ => Err(range_problem("1B", "2GiB")),
        }
    }

    fn correct_text(text: &str) -> Option<String> {
        Some(correct_unit(text, &[("k", "KiB"), ("m", "MiB"), ("g", "GiB"), ("b", "B")], "B"))
    }

    fn schema_pattern() -> Option<&'static str> {
        Some("^[0-9]+(B|KiB|MiB|GiB)$")
    }
}

/// A part of something, in whole percent.
pub(crate) struct PercentSetting;

impl TextSetting for PercentSetting {
    type Value = usize;
    const WORD: &'static str = "percentage";
    const EXAMPLE: &'static str = "\"75%\"";
    const RULE: &'static str = "a whole number with %";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<usize>, SettingFault> {
        let Some(percent) = parse_scaled(text, &[("%", 1)]) else { return Ok(None) };
        match usize::try_from(percent) {
            Ok(percent @ 1..=100) => Ok(Some(percent)),
            _ => Err(range_problem("1%", "100%")),
        }
    }

    fn correct_text(text: &str) -> Option<String> {
        Some(correct_unit(text, &[("percent", "%"), ("%", "%")], "%"))
    }

    fn schema_pattern() -> Option<&'static str> {
        Some("^[0-9]+%$")
    }
}

/// Parses digits and a unit, such as `30s`. A number that overflows becomes the
/// largest one, so that the bounds reject it.
pub(crate) fn parse_scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (digits, worth) = split_quantity(text, units)?;
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_whole.then(|| digits.parse().unwrap_or(u64::MAX).saturating_mul(worth))
}

/// Replaces the spelling of a unit by the unit with the same beginning: `5 minutes` becomes `5m`. A
/// number alone has the `plain` unit.
fn correct_unit(text: &str, spellings: &[(&str, &str)], plain: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.trim_start();
    if unit.is_empty() {
        return format!("{digits}{plain}");
    }
    let spelled = spellings.iter().find(|(spelling, _)| unit.starts_with(spelling));
    format!("{digits}{}", spelled.map_or(unit, |(_, unit)| unit))
}

fn range_problem(min: &str, max: &str) -> SettingFault {
    SettingFault::Range { min: min.into(), max: max.into() }
}

const MAX_DURATION: Duration = Duration::from_hours(366 * 24);
const MAX_SIZE: usize = 2 << 30;
