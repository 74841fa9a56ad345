//! Numbers in few characters.

use super::sample::LatencyBound;

/// Returns a rate in at most 5 characters; `-` if it is not known.
pub(super) fn show_rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 0.05 => "<0.1".to_owned(),
        Some(rate) if rate < 9.95 => format!("{rate:.1}"),
        Some(rate) if rate < 999.5 => format!("{rate:.0}"),
        Some(rate) => show_thousands(rate),
    }
}

/// Returns a count in at most 5 characters.
pub(super) fn show_count(count: usize) -> String {
    match u32::try_from(count) {
        Ok(count) if count < 10_000 => count.to_string(),
        Ok(count) => show_thousands(f64::from(count)),
        Err(_) => ">4G".to_owned(),
    }
}

fn show_thousands(number: f64) -> String {
    let mut rest = number / 1000.0;
    for unit in ["k", "M"] {
        if rest < 9.95 {
            return format!("{rest:.1}{unit}");
        }
        if rest < 999.5 {
            return format!("{rest:.0}{unit}");
        }
        rest /= 1000.0;
    }
    format!("{rest:.1}G")
}

/// Returns a number of bytes in binary units.
pub(super) fn show_bytes(bytes: u64) -> String {
    let mebibytes = bytes >> 20;
    if mebibytes < 10_240 { format!("{mebibytes} MiB") } else { format!("{} GiB", bytes >> 30) }
}

/// Returns a bucket of durations in at most 7 characters; `-` without requests.
pub(super) fn show_latency(bound: Option<LatencyBound>) -> String {
    match bound {
        None => "-".to_owned(),
        Some(LatencyBound::AtMost(seconds)) => format!("≤{}", show_seconds(seconds)),
        Some(LatencyBound::MoreThan(seconds)) => format!(">{}", show_seconds(seconds)),
    }
}

fn show_seconds(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1.0 => format!("{:.0}ms", seconds * 1000.0),
        seconds if seconds < 60.0 => format!("{seconds:.0}s"),
        seconds => format!("{:.0}min", seconds / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_columns() {
        for (rate, text) in [
            (None, "-"),
            (Some(0.0), "0"),
            (Some(0.01), "<0.1"),
            (Some(0.25), "0.2"),
            (Some(9.96), "10"),
            (Some(999.6), "1.0k"),
            (Some(12_345.0), "12k"),
            (Some(9.9e9), "9.9G"),
        ] {
            assert_eq!(show_rate(rate), text);
        }
        for (count, text) in [(0, "0"), (9_999, "9999"), (12_345, "12k"), (usize::MAX, ">4G")] {
            assert_eq!(show_count(count), text);
        }
        for (bound, text) in [
            (Some(LatencyBound::AtMost(0.01)), "≤10ms"),
            (Some(LatencyBound::AtMost(1.0)), "≤1s"),
            (Some(LatencyBound::MoreThan(300.0)), ">5min"),
            (None, "-"),
        ] {
            assert_eq!(show_latency(bound), text);
        }
        assert_eq!(show_bytes(45 << 20), "45 MiB");
        assert_eq!(show_bytes(20 << 30), "20 GiB");
    }
}
