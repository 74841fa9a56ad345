//! Dates with a time, in the one form that all SDKs read.

/// Returns true for an ISO 8601 date and time with an offset, as in `2026-07-28T09:30:00Z`. Seconds
/// and their fractions may be absent, as the TypeScript SDK has it; it rejects the whole list for any
/// other form.
pub(super) fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once('T') else { return false };
    let Some(time) = strip_offset(time) else { return false };
    let (clock, fraction) = time.split_once('.').map_or((time, None), |(a, b)| (a, Some(b)));
    let is_fraction = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<_> = clock.split(':').collect();
    let has_seconds = parts.len() == 3;
    let is_clock = (parts.len() == 2 || has_seconds)
        && parts.iter().zip([23, 59, 59]).all(|(part, most)| is_number(part, 0, most));
    // The calendar is jiff's: the last day of February depends on the year.
    date.len() == 10
        && date.parse::<jiff::civil::Date>().is_ok()
        && is_clock
        && fraction.is_none_or(|digits| has_seconds && is_fraction(digits))
}

/// The time without its offset: `Z`, or hours and minutes with a sign.
fn strip_offset(time: &str) -> Option<&str> {
    if let Some(time) = time.strip_suffix('Z') {
        return Some(time);
    }
    let sign = time.rfind(['+', '-'])?;
    let (time, offset) = time.split_at_checked(sign)?;
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    (is_number(hours, 0, 23) && is_number(minutes, 0, 59)).then_some(time)
}

/// Returns true for two digits of a number within these bounds.
fn is_number(text: &str, least: u8, most: u8) -> bool {
    let is_digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits && text.parse().is_ok_and(|number: u8| (least..=most).contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_date_with_time_and_offset_is_one() {
        for text in [
            "2026-07-28T09:30:00Z",
            "2026-07-28T09:30Z",
            "2024-02-29T23:59:59.123456+05:30",
            "2026-01-01T00:00:00.1-11:00",
        ] {
            assert!(is_date_time(text), "{text}");
        }
        for text in [
            "",
            "2026-07-28",
            "2026-07-28T09:30:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-07-28 09:30:00Z",
            "2026-07-28T24:00:00Z",
            "2026-07-28T09:30:00z",
            "2026-07-28T09:30:00+0530",
            "2026-07-28T09:30:00.Z",
            "2026-07-28T09:30.5Z",
            "20260728T093000Z",
            "Tue, 28 Jul 2026 09:30:00 GMT",
            "yesterday",
        ] {
            assert!(!is_date_time(text), "{text}");
        }
    }
}
