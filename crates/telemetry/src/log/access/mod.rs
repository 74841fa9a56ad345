//! The access log, formatted without a serializer.
//!
//! Every call pays for its line; with events, visitors and a serializer a line cost 22,000
//! instructions. The access log is therefore a layer that
//! [`CallRecord::write_to_log`] finds in the current subscriber. It receives the record directly,
//! without an event in between. In JSON the line is byte for byte the ordinary layer's line for
//! [`CallRecord`]'s event, which the tests enforce, with two improvements: it escapes characters
//! that a terminal may interpret or a viewer may show as a line break (DEL, C1, U+2028 and U+2029),
//! and it names no spans. The line for people is a sentence and the fields that people need
//! ([`human_line`]).

mod human_line;
pub(super) mod software;

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

use super::human::line_clock::LineClock;
use super::sink::Sink;
use crate::json_text::{
    SecondText, push_address, push_digits, push_integer, push_padded, push_text,
};
use crate::{CallRecord, MAX_CLIENT_TEXT_BYTES};
use software::{KnownSoftware, read_software};

/// The layer that writes the access log.
#[derive(Debug)]
pub(super) struct AccessLog {
    pub(super) sink: Sink,
    pub(super) style: AccessLogFormat,
    pub(super) clock: Arc<LineClock>,
    pub(super) on: Arc<AtomicBool>,
}

/// The format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessLogFormat {
    /// A sentence and `key=value`.
    Plain,
    /// The same, for a terminal with colours.
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

    /// Returns true if a record would be written: its facts need not be gathered otherwise.
    pub fn is_logged() -> bool {
        let own = get_default(|current| {
            current.downcast_ref::<AccessLog>().map(|log| log.on.load(Ordering::Relaxed))
        });
        own.unwrap_or_else(|| tracing::enabled!(target: CallRecord::TARGET, tracing::Level::INFO))
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
            items = self.items,
            outcome = self.outcome.label(),
            reason = self.outcome.failure_reason(),
            limit = self.limit.map(|limit| clip(limit, MAX_CLIENT_TEXT_BYTES)),
            code = self.outcome.code(),
            duration_ms = as_milliseconds(self.duration_us()),
            upstream_ms = self.upstream_us().map(as_milliseconds),
            trace_id = self.trace_id,
            client_software = self.client_info.and_then(read_software).as_deref(),
            client_era = self.client_era,
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
        let LineScratch { line, second, software } = &mut scratch;
        let software = record.client_info.and_then(|info| software.of(info));
        let facts = LineFacts { record, software };
        let mut out = AccessLogLine { out: line };
        match self.style {
            AccessLogFormat::Json => {
                out.write_json(&facts, second.of(now), now.subsec_micros());
            }
            style => out.write_human(&facts, style, &self.clock.read(now, second)),
        }
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
    software: KnownSoftware,
}

impl Default for LineScratch {
    fn default() -> Self {
        Self::new()
    }
}

impl LineScratch {
    const fn new() -> Self {
        Self { line: Vec::new(), second: SecondText::new(), software: KnownSoftware::new() }
    }
}

/// Facts of a line.
struct LineFacts<'a> {
    record: &'a CallRecord<'a>,
    /// Name and version of the client's software.
    software: Option<&'a str>,
}

/// A line being formatted.
#[derive(Debug)]
struct AccessLogLine<'a> {
    out: &'a mut Vec<u8>,
}

/// Writes a member of JSON, if it has a value; `$write` is the method for its kind of value.
macro_rules! member {
    ($line:ident, $name:literal, $write:ident, $value:expr) => {
        if let Some(value) = $value {
            $line.write_raw(concat!(",\"", $name, "\":"));
            $line.$write(value);
        }
    };
}

impl AccessLogLine<'_> {
    fn write_json(&mut self, facts: &LineFacts<'_>, date: &str, micros: u32) {
        let (line, LineFacts { record, software }) = (self, facts);
        let clipped = |text| clip(text, MAX_CLIENT_TEXT_BYTES);
        line.write_raw("{\"timestamp\":\"");
        line.write_raw(date);
        line.write_raw(".");
        line.write_padded("000000", micros.into());
        line.write_raw("Z\",\"level\":\"INFO\",\"message\":\"call\"");
        member!(line, "principal", write_text, record.principal);
        member!(line, "address", write_address, record.address);
        member!(line, "profile", write_text, Some(record.profile));
        member!(line, "method", write_text, Some(clipped(record.method)));
        member!(line, "tool", write_text, record.public.tool());
        member!(line, "native_tool", write_text, record.native.tool());
        member!(line, "prompt", write_text, record.public.prompt());
        member!(line, "native_prompt", write_text, record.native.prompt());
        member!(line, "resource", write_text, record.public.resource_uri().as_deref());
        member!(line, "native_resource", write_text, record.native.resource_uri().as_deref());
        member!(line, "server", write_text, record.server);
        member!(line, "items", write_digits, record.items);
        member!(line, "outcome", write_word, Some(record.outcome.label()));
        member!(line, "reason", write_word, record.outcome.failure_reason());
        member!(line, "limit", write_text, record.limit.map(clipped));
        member!(line, "code", write_integer, record.outcome.code());
        member!(line, "duration_ms", write_milliseconds, Some(record.duration_us()));
        member!(line, "upstream_ms", write_milliseconds, record.upstream_us());
        member!(line, "trace_id", write_text, record.trace_id);
        member!(line, "client_software", write_text, *software);
        member!(line, "client_era", write_word, Some(record.client_era));
        member!(line, "client_version", write_text, Some(clipped(record.client_version)));
        member!(line, "server_version", write_text, record.server_version.map(clipped));
        member!(line, "transport", write_word, Some(record.transport));
        line.write_raw(",\"target\":\"trunkline::access\"}\n");
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
        push_text(self.out, text);
    }

    /// Writes an address, in quotes.
    fn write_address(&mut self, address: IpAddr) {
        self.write_raw("\"");
        push_address(self.out, address);
        self.write_raw("\"");
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
