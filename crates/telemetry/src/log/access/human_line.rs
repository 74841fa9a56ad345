//! The line of the access log for people:
//!
//! ```text
//! 14:02:11  INFO client=ci tools/call files__read: ok in 1.5 ms server=files software="agent 1.0"
//! ```
//!
//! It has the fields that explain a call. Native names, versions and transports are in the JSON
//! line.

use std::io::Write as _;

use super::{AccessLogFormat, AccessLogLine, LineFacts};
use crate::json_text::needs_no_escape;
use crate::log::human::line_clock::LineTime;
use crate::{CallRecord, MAX_CLIENT_TEXT_BYTES};

use trunkline_core::text::clip;

/// Control sequences of a terminal; empty without colours.
struct LineColours {
    dim: &'static str,
    level: &'static str,
    bold: &'static str,
    plain: &'static str,
}

impl LineColours {
    fn of(style: AccessLogFormat) -> Self {
        match style {
            AccessLogFormat::Coloured => {
                Self { dim: "\x1b[2m", level: "\x1b[32m", bold: "\x1b[1m", plain: "\x1b[0m" }
            }
            AccessLogFormat::Plain | AccessLogFormat::Json => {
                Self { dim: "", level: "", bold: "", plain: "" }
            }
        }
    }
}

/// Writes ` name=value`, if there is a value.
macro_rules! field {
    ($line:ident, $name:literal, $write:ident, $value:expr) => {
        if let Some(value) = $value {
            $line.write_raw(concat!(" ", $name, "="));
            $line.$write(value);
        }
    };
}

/// Returns the profile, unless it is that of `/mcp` itself or unknown.
fn profile_of<'a>(record: &CallRecord<'a>) -> Option<&'a str> {
    Some(record.profile).filter(|profile| !matches!(*profile, "" | "default"))
}

impl AccessLogLine<'_> {
    pub(super) fn write_human(
        &mut self,
        facts: &LineFacts<'_>,
        style: AccessLogFormat,
        time: &LineTime<'_>,
    ) {
        let (line, LineFacts { record, software }) = (self, facts);
        let LineColours { dim, level, bold, plain } = LineColours::of(style);
        line.write_raw(dim);
        if let Some(day) = time.new_day {
            line.write_raw(day);
            line.write_raw("\n");
        }
        line.write_raw(time.text);
        line.write_raw(time.zone);
        line.write_raw(plain);
        line.write_raw(" ");
        line.write_raw(level);
        line.write_raw(" INFO");
        line.write_raw(plain);
        line.write_raw(bold);
        field!(line, "client", write_bare, record.principal);
        line.write_raw(plain);
        line.write_sentence(record);
        line.write_raw(dim);
        field!(line, "limit", write_bare, record.limit.map(|it| clip(it, MAX_CLIENT_TEXT_BYTES)));
        field!(line, "code", write_integer, record.outcome.code());
        field!(line, "server", write_bare, record.server);
        field!(line, "upstream_ms", write_milliseconds, record.upstream_us());
        field!(line, "profile", write_bare, profile_of(record));
        field!(line, "address", write_display, record.address);
        field!(line, "software", write_bare, *software);
        field!(line, "era", write_raw, Some(record.client_era).filter(|era| !era.is_empty()));
        field!(line, "trace_id", write_bare, record.trace_id);
        line.write_raw(plain);
        line.write_raw("\n");
    }

    /// Writes `tools/call files__read: refused (rate) in 1.5 ms`.
    fn write_sentence(&mut self, record: &CallRecord<'_>) {
        self.write_raw(" ");
        match record.method {
            "" => self.write_raw("request"),
            method => self.write_bare(clip(method, MAX_CLIENT_TEXT_BYTES)),
        }
        let uri = record.public.resource_uri();
        let name = record.public.tool().or(record.public.prompt()).or(uri.as_deref());
        if let Some(name) = name {
            self.write_raw(" ");
            self.write_bare(name);
        }
        self.write_raw(": ");
        self.write_raw(record.outcome.label());
        if let Some(reason) = record.outcome.failure_reason() {
            self.write_raw(" (");
            self.write_raw(reason);
            self.write_raw(")");
        }
        if let Some(items) = record.items {
            self.write_raw(", ");
            self.write_digits(items);
            self.write_raw(" items");
        }
        self.write_raw(" in ");
        self.write_milliseconds(record.duration_us());
        self.write_raw(" ms");
    }

    /// Writes a text: as it is if it is one word, otherwise in quotes and escaped.
    fn write_bare(&mut self, text: &str) {
        if !needs_no_escape(text) {
            let _ = write!(self.out, "{text:?}");
        } else if text.is_empty() || text.contains(' ') {
            self.write_raw("\"");
            self.write_raw(text);
            self.write_raw("\"");
        } else {
            self.write_raw(text);
        }
    }

    fn write_display(&mut self, value: impl std::fmt::Display) {
        let _ = write!(self.out, "{value}");
    }
}
