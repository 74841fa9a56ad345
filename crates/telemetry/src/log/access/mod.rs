//! The access log, formatted without a serializer.
//!
//! Every call pays for its line; with events, visitors and a serializer a line cost 22,000
//! instructions. The access log is therefore a layer that
//! [`CallRecord::write_to_log`] finds in the current subscriber. It receives the record directly,
//! without an event in between. The line is byte for byte the ordinary layer's line for
//! [`CallRecord`]'s event, which the tests enforce, with two improvements: in JSON it escapes
//! characters that a terminal may interpret or a viewer may show as a line break (DEL, C1, U+2028
//! and U+2029), and it names no spans.

use std::cell::Cell;
use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::Subscriber;
use tracing::dispatcher::get_default;
use tracing_subscriber::Layer;

use trunkline_core::clock;
use trunkline_core::text::clip;

use super::sink::Sink;
use crate::json_text::{
    SecondText, needs_no_escape, push_address, push_digits, push_integer, push_padded, push_text,
};
use crate::{CallRecord, MAX_CLIENT_TEXT_BYTES};

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

impl CallRecord<'_> {
    /// The target of the access log; a filter directive for it turns the log off. See
    /// [`AccessLogSwitch`](super::AccessLogSwitch).
    pub const TARGET: &'static str = "trunkline::access";

    /// Writes the record to the access log. If the log is off, this only costs a check of the
    /// current subscriber.
    pub fn write_to_log(&self) {
        if !write_call_record(self) {
            self.emit_event();
        }
    }

    /// Emits the record as an event, for subscribers other than [the log's](super).
    fn emit_event(&self) {
        tracing::info!(
            target: CallRecord::TARGET,
            principal = self.principal,
            address = self.address.map(tracing::field::display),
            profile = self.profile,
            method = clip(self.method, MAX_CLIENT_TEXT_BYTES),
            tool = self.public.tool(),
            native_tool = self.native.tool(),
            prompt = self.public.prompt(),
            native_prompt = self.native.prompt(),
            resource = self.public.resource_uri().as_deref(),
            native_resource = self.native.resource_uri().as_deref(),
            server = self.server,
            outcome = self.outcome.label(),
            reason = self.outcome.failure_reason(),
            code = self.outcome.code(),
            duration_ms = as_milliseconds(self.duration_us()),
            upstream_ms = self.upstream_us().map(as_milliseconds),
            trace_id = self.trace_id,
            client_version = clip(self.client_version, MAX_CLIENT_TEXT_BYTES),
            server_version = self.server_version.map(|version| clip(version, MAX_CLIENT_TEXT_BYTES)),
            transport = self.transport,
            "call"
        );
    }
}

/// Milliseconds with three decimals: the form that readers compare.
#[expect(clippy::cast_precision_loss, reason = "exact for a call of a hundred years")]
fn as_milliseconds(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

/// Writes `record` to the current subscriber's access log. Returns false if there is none.
fn write_call_record(record: &CallRecord<'_>) -> bool {
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
        let mut scratch = LINE_SCRATCH.try_with(Cell::take).unwrap_or_default();
        let mut line = AccessLogLine { out: &mut scratch.line, style: self.style };
        line.write_line(record, scratch.second.of(now), now.subsec_micros());
        // The sink counts the lines that it drops.
        let _ = (&self.sink).write_all(&scratch.line);
        scratch.line.clear();
        let _ = LINE_SCRATCH.try_with(|kept| kept.set(scratch));
    }
}

thread_local! {
    static LINE_SCRATCH: Cell<LineScratch> = const { Cell::new(LineScratch::new()) };
}

/// Buffers that a thread keeps between two lines.
#[derive(Debug)]
struct LineScratch {
    line: Vec<u8>,
    second: SecondText,
}

impl Default for LineScratch {
    fn default() -> Self {
        Self::new()
    }
}

impl LineScratch {
    const fn new() -> Self {
        Self { line: Vec::new(), second: SecondText::new() }
    }
}

/// A line being formatted.
#[derive(Debug)]
struct AccessLogLine<'a> {
    out: &'a mut Vec<u8>,
    style: AccessLogFormat,
}

/// Selects one of three texts by the style of the line. Each has a constant length, so that it
/// compiles to a few stores.
macro_rules! by_style {
    ($line:ident, $plain:expr, $coloured:expr, $json:expr $(,)?) => {
        match $line.style {
            AccessLogFormat::Plain => $line.write_raw($plain),
            AccessLogFormat::Coloured => $line.write_raw($coloured),
            AccessLogFormat::Json => $line.write_raw($json),
        }
    };
}

/// Writes a field, if it has a value; `$write` is the method for its kind of value.
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
        field!(line, "method", write_text, Some(clip(record.method, MAX_CLIENT_TEXT_BYTES)));
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
        field!(
            line,
            "client_version",
            write_text,
            Some(clip(record.client_version, MAX_CLIENT_TEXT_BYTES))
        );
        field!(
            line,
            "server_version",
            write_text,
            record.server_version.map(|version| clip(version, MAX_CLIENT_TEXT_BYTES))
        );
        field!(line, "transport", write_word, Some(record.transport));
        by_style!(line, "\n", "\n", ",\"target\":\"trunkline::access\"}\n");
    }

    #[inline]
    fn write_raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Writes a constant text, in quotes.
    fn write_word(&mut self, word: &'static str) {
        self.write_raw("\"");
        self.write_raw(word);
        self.write_raw("\"");
    }

    /// Writes an arbitrary text, in quotes and escaped.
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
        match self.style {
            AccessLogFormat::Json => push_text(self.out, text),
            AccessLogFormat::Plain | AccessLogFormat::Coloured => {
                let _ = write!(self.out, "{text:?}");
            }
        }
    }

    /// Writes an address: quoted in JSON, bare elsewhere.
    fn write_address(&mut self, address: IpAddr) {
        by_style!(self, "", "", "\"");
        push_address(self.out, address);
        by_style!(self, "", "", "\"");
    }

    fn write_integer(&mut self, value: i64) {
        push_integer(self.out, value);
    }

    /// Writes microseconds as milliseconds, with as many decimals as needed, at least one.
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
        push_digits(self.out, value);
    }

    fn write_padded(&mut self, zeros: &str, value: u64) {
        push_padded(self.out, zeros, value);
    }
}

#[cfg(test)]
mod tests;
