//! The access log, formatted by hand.
//!
//! Every call pays for its line, and through events, visitors and a serializer
//! it cost 22,000 instructions. So the access log is a layer that
//! [`CallRecord::write_to_log`] finds in the current subscriber and hands the
//! record to, without an event between. The line is byte for byte the one that
//! the ordinary layer would write for [`CallRecord`]'s event, which the tests
//! enforce, with two improvements: in JSON it escapes characters that a
//! terminal may interpret or a viewer may show as a line break (DEL, C1, U+2028
//! and U+2029), and it names no spans.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tracing::Subscriber;
use tracing::dispatcher::get_default;
use tracing_subscriber::Layer;

use super::sink::Sink;
use crate::clock;
use crate::telemetry::{CLIP, CallRecord};
use crate::text::clip;

/// The layer that writes the access log.
#[derive(Debug)]
pub(super) struct AccessLog {
    pub(super) sink: Sink,
    pub(super) style: AccessLogFormat,
    pub(super) on: Arc<AtomicBool>,
}

/// The format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessLogFormat {
    /// `key=value`.
    Plain,
    /// `key=value`, for a terminal with colours.
    Coloured,
    /// One JSON object.
    Json,
}

/// Ignores events: it receives records directly.
impl<S: Subscriber> Layer<S> for AccessLog {}

/// Writes `record` to the current subscriber's access log; returns whether
/// there is one.
pub(in crate::telemetry) fn write_call_record(record: &CallRecord<'_>) -> bool {
    get_default(|current| {
        current.downcast_ref::<AccessLog>().map(|log| log.write_record(record)).is_some()
    })
}

impl AccessLog {
    fn write_record(&self, record: &CallRecord<'_>) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let now = clock::unix_now();
        // A call may end while its thread ends.
        let mut scratch = SCRATCH.try_with(Cell::take).unwrap_or_default();
        scratch.format_date(now);
        let mut line = AccessLogLine { out: &mut scratch.line, style: self.style };
        line.write_line(record, &scratch.date, now.subsec_micros());
        // The sink counts the lines that it drops.
        let _ = (&self.sink).write_all(&scratch.line);
        scratch.line.clear();
        let _ = SCRATCH.try_with(|kept| kept.set(scratch));
    }
}

thread_local! {
    static SCRATCH: Cell<LineScratch> = const { Cell::new(LineScratch::new()) };
}

/// Buffers that a thread keeps between two lines.
#[derive(Debug)]
struct LineScratch {
    line: Vec<u8>,
    /// The second since 1970 that `date` shows.
    second: Option<u64>,
    /// `2026-07-28T12:00:00`.
    date: String,
}

impl Default for LineScratch {
    fn default() -> Self {
        Self::new()
    }
}

impl LineScratch {
    const fn new() -> Self {
        Self { line: Vec::new(), second: None, date: String::new() }
    }

    fn format_date(&mut self, now: Duration) {
        let second = now.as_secs();
        if self.second == Some(second) {
            return;
        }
        let time =
            i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
        self.date.clear();
        let _ = write!(self.date, "{}", time.unwrap_or(Timestamp::MAX));
        // Without the `Z`; the latest representable time has a fraction, too.
        self.date.truncate(self.date.find(['.', 'Z']).unwrap_or(self.date.len()));
        self.second = Some(second);
    }
}

/// A line being formatted.
#[derive(Debug)]
struct AccessLogLine<'a> {
    out: &'a mut Vec<u8>,
    style: AccessLogFormat,
}

/// One of three texts, by the style of the line. Each has a constant length, so
/// that it compiles to a few stores.
macro_rules! by_style {
    ($line:ident, $plain:expr, $coloured:expr, $json:expr $(,)?) => {
        match $line.style {
            AccessLogFormat::Plain => $line.write_raw($plain),
            AccessLogFormat::Coloured => $line.write_raw($coloured),
            AccessLogFormat::Json => $line.write_raw($json),
        }
    };
}

/// A field, if it has a value; `$write` is the method for its kind of value.
macro_rules! field {
    ($line:ident, $name:literal, $write:ident, $value:expr) => {
        if let Some(value) = $value {
            by_style!(
                $line,
                concat!(" ", $name, "="),
                concat!(" \x1b[3m", $name, "\x1b[0m\x1b[2m=\x1b[0m"),
                concat!(",\"", $name, "\":"),
            );
            $line.$write(value);
        }
    };
}

impl AccessLogLine<'_> {
    fn write_line(&mut self, record: &CallRecord<'_>, date: &str, micros: u32) {
        let line = self;
        by_style!(line, "", "\x1b[2m", "{\"timestamp\":\"");
        line.write_raw(date);
        line.write_raw(".");
        line.write_padded("000000", micros.into());
        by_style!(
            line,
            "Z  INFO trunkline::access: call",
            "Z\x1b[0m \x1b[32m INFO\x1b[0m \x1b[2mtrunkline::access\x1b[0m\x1b[2m:\x1b[0m call",
            "Z\",\"level\":\"INFO\",\"message\":\"call\"",
        );
        field!(line, "principal", write_text, record.principal);
        field!(line, "address", write_address, record.address);
        field!(line, "profile", write_text, Some(record.profile));
        field!(line, "method", write_text, Some(clip(record.method, CLIP)));
        field!(line, "tool", write_text, record.public.tool());
        field!(line, "native_tool", write_text, record.native.tool());
        field!(line, "prompt", write_text, record.public.prompt());
        field!(line, "native_prompt", write_text, record.native.prompt());
        field!(line, "resource", write_text, record.public.resource_uri().as_deref());
        field!(line, "native_resource", write_text, record.native.resource_uri().as_deref());
        field!(line, "server", write_text, record.server);
        field!(line, "outcome", write_word, Some(record.outcome.label()));
        field!(line, "reason", write_word, record.outcome.failure_reason());
        field!(line, "code", write_integer, record.outcome.code());
        field!(line, "duration_ms", write_milliseconds, Some(record.duration_us()));
        field!(line, "upstream_ms", write_milliseconds, record.upstream_us());
        field!(line, "trace_id", write_text, record.trace_id);
        field!(line, "client_version", write_text, Some(clip(record.client_version, CLIP)));
        field!(
            line,
            "server_version",
            write_text,
            record.server_version.map(|version| clip(version, CLIP))
        );
        field!(line, "transport", write_word, Some(record.transport));
        by_style!(line, "\n", "\n", ",\"target\":\"trunkline::access\"}\n");
    }

    #[inline]
    fn write_raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// A constant text, in quotes.
    fn write_word(&mut self, word: &'static str) {
        self.write_raw("\"");
        self.write_raw(word);
        self.write_raw("\"");
    }

    /// An arbitrary text, in quotes and escaped.
    fn write_text(&mut self, text: &str) {
        if needs_no_escape(text) {
            self.write_raw("\"");
            self.write_raw(text);
            self.write_raw("\"");
        } else {
            self.write_escaped(text);
        }
    }

    #[cold]
    fn write_escaped(&mut self, text: &str) {
        if self.style != AccessLogFormat::Json {
            let _ = write!(self.out, "{text:?}");
            return;
        }
        self.write_raw("\"");
        for c in text.chars() {
            match c {
                '"' => self.write_raw("\\\""),
                '\\' => self.write_raw("\\\\"),
                '\n' => self.write_raw("\\n"),
                '\r' => self.write_raw("\\r"),
                '\t' => self.write_raw("\\t"),
                '\u{8}' => self.write_raw("\\b"),
                '\u{c}' => self.write_raw("\\f"),
                '\u{2028}' | '\u{2029}' => self.write_code_point(c),
                c if c.is_control() => self.write_code_point(c),
                c => self.write_raw(c.encode_utf8(&mut [0; 4])),
            }
        }
        self.write_raw("\"");
    }

    fn write_code_point(&mut self, c: char) {
        let _ = write!(self.out, "\\u{:04x}", u32::from(c));
    }

    /// An address: quoted in JSON, bare elsewhere.
    fn write_address(&mut self, address: IpAddr) {
        by_style!(self, "", "", "\"");
        match address {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                self.write_digits(a.into());
                for byte in [b, c, d] {
                    self.write_raw(".");
                    self.write_digits(byte.into());
                }
            }
            IpAddr::V6(v6) => {
                let _ = write!(self.out, "{v6}");
            }
        }
        by_style!(self, "", "", "\"");
    }

    fn write_integer(&mut self, value: i64) {
        if value < 0 {
            self.write_raw("-");
        }
        self.write_digits(value.unsigned_abs());
    }

    /// Microseconds as milliseconds: with as many decimals as needed, at least
    /// one.
    fn write_milliseconds(&mut self, micros: u64) {
        self.write_digits(micros / 1000);
        self.write_raw(".");
        match micros % 1000 {
            rest if rest % 100 == 0 => self.write_digits(rest / 100),
            rest if rest % 10 == 0 => self.write_padded("00", rest / 10),
            rest => self.write_padded("000", rest),
        }
    }

    fn write_digits(&mut self, value: u64) {
        self.write_raw(itoa::Buffer::new().format(value));
    }

    /// A number with as many digits as there are `zeros`, at least.
    fn write_padded(&mut self, zeros: &str, value: u64) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(value);
        self.write_raw(zeros.get(digits.len()..).unwrap_or_default());
        self.write_raw(digits);
    }
}

/// Whether `text` needs no escapes between quotes: visible ASCII without quotes
/// and backslashes. Eight bytes at a time; the last eight overlap those before.
fn needs_no_escape(text: &str) -> bool {
    let text = text.as_bytes();
    let Some(last) = text.last_chunk::<8>() else {
        return text.iter().all(|b| matches!(b, b' ' | b'!' | b'#'..=b'[' | b']'..=b'~'));
    };
    let (words, _) = text.as_chunks::<8>();
    words.iter().fold(odd_bytes(*last), |odd, word| odd | odd_bytes(*word)) == 0
}

/// Not 0 if any of the eight bytes needs an escape.
fn odd_bytes(word: [u8; 8]) -> u64 {
    /// The same byte in each position.
    const fn all(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    /// Sets the high bit of each position whose byte in `word` is below `byte`.
    /// A borrow may set further bits, but only if some byte was below.
    const fn below(word: u64, byte: u8) -> u64 {
        word.wrapping_sub(all(byte)) & !word
    }
    let word = u64::from_ne_bytes(word);
    let quote = below(word ^ all(b'"'), 1);
    let backslash = below(word ^ all(b'\\'), 1);
    let delete = below(word ^ all(0x7f), 1);
    (word | below(word, b' ') | quote | backslash | delete) & all(0x80)
}

#[cfg(test)]
mod tests;
