//! The time of day as answers carry it.

use std::cell::Cell;
use std::time::{Duration, UNIX_EPOCH};

/// An HTTP date (RFC 9110, 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
type Text = [u8; 29];

thread_local! {
    /// The second that was written last, and its text.
    static LAST: Cell<(u64, Text)> = const { Cell::new((u64::MAX, [0; 29])) };
}

/// The end of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// Adds the time of day.
pub(super) fn write(out: &mut Vec<u8>) {
    // A clock that was never set, or set to a year of five digits, is no reason to end.
    let second = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()).min(LAST_SECOND);
    LAST.with(|last| {
        let (of, text) = last.get();
        if of == second {
            out.extend_from_slice(&text);
            return;
        }
        let formatted = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        out.extend_from_slice(formatted.as_bytes());
        if let Ok(text) = formatted.as_bytes().try_into() {
            last.set((second, text));
        }
    });
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_written_as_http_has_it_however_often() {
        for _ in 0..2 {
            let mut out = Vec::new();
            super::write(&mut out);
            let text = String::from_utf8(out).unwrap();
            assert!(httpdate::parse_http_date(&text).is_ok(), "{text}");
            assert_eq!(text.len(), 29);
        }
    }
}
