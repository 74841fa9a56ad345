//! Log lines for people: time, level, server or client, sentence, and the other fields.
//!
//! ```text
//! 14:02:11  WARN server=files the connection failed; next try in 2 s owner=everyone
//! ```
//!
//! A terminal shows the local time of day, colours unless `NO_COLOR` is set, and long lines with a
//! hanging indent ([`wrap`]). Files and pipes get the whole time in UTC and one line per event. The
//! module's path is part of the lines of `debug` and `trace` only.

pub(super) mod line_clock;
pub(super) mod wrap;

use std::fmt::{self, Write as _};
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use trunkline_core::clock;
use trunkline_core::text::{error_chain, escape_controls};

use super::Colours;
use crate::json_text::SecondText;
use line_clock::LineClock;

/// Format of the lines. It names no spans.
#[derive(Debug, Clone)]
pub(super) struct HumanFormat {
    pub(super) colours: Colours,
    pub(super) clock: Arc<LineClock>,
}

impl<S, N> FormatEvent<S, N> for HumanFormat
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut second = SecondText::new();
        let mut parts = LineParts::default();
        event.record(&mut parts);
        let level = *event.metadata().level();
        let style = LineStyle::of(self.colours);
        let LineStyle { dim, bold, plain } = style;
        let time = self.clock.read(clock::unix_now(), &mut second);
        if let Some(day) = time.new_day {
            writeln!(writer, "{dim}{day}{plain}")?;
        }
        let (colour, name) = (style.of_level(level), level_name(level));
        write!(writer, "{dim}{}{}{plain} {colour}{name}{plain}", time.text, time.zone)?;
        if level > Level::INFO {
            write!(writer, " {dim}{}{plain}", event.metadata().target())?;
        }
        if !parts.subject.is_empty() {
            write!(writer, "{bold}{}{plain}", parts.subject)?;
        }
        if !parts.sentence.is_empty() {
            write!(writer, " {}", parts.sentence)?;
        }
        if !parts.fields.is_empty() {
            write!(writer, "{dim}{}{plain}", parts.fields)?;
        }
        writeln!(writer)
    }
}

/// Control sequences of a terminal; empty without colours.
#[derive(Debug, Clone, Copy)]
struct LineStyle {
    dim: &'static str,
    bold: &'static str,
    plain: &'static str,
}

impl LineStyle {
    fn of(colours: Colours) -> Self {
        match colours {
            Colours::On => Self { dim: "\x1b[2m", bold: "\x1b[1m", plain: "\x1b[0m" },
            Colours::Off => Self { dim: "", bold: "", plain: "" },
        }
    }

    fn of_level(self, level: Level) -> &'static str {
        match level {
            _ if self.plain.is_empty() => "",
            Level::ERROR => "\x1b[31m",
            Level::WARN => "\x1b[33m",
            Level::INFO => "\x1b[32m",
            _ => "\x1b[34m",
        }
    }
}

/// Returns the name of a level, all of the same width.
fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => " WARN",
        Level::INFO => " INFO",
        Level::DEBUG => "DEBUG",
        _ => "TRACE",
    }
}

/// The fields of an event, as text.
#[derive(Debug, Default)]
pub(super) struct LineParts {
    /// The fields in [`SUBJECT_FIELDS`], with a space before each.
    subject: String,
    pub(super) sentence: String,
    /// The other fields, with a space before each.
    pub(super) fields: String,
}

impl LineParts {
    fn push(&mut self, field: &Field, text: &str) {
        match field.name() {
            "message" => self.sentence = escape_controls(text),
            name if SUBJECT_FIELDS.contains(&name) => push_field(&mut self.subject, name, text),
            name => push_field(&mut self.fields, name, text),
        }
    }
}

impl Visit for LineParts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.push(field, &error_chain(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, &format!("{value:?}"));
    }
}

/// Appends ` name=value`. The value is in quotes unless it is one word.
fn push_field(out: &mut String, name: &str, text: &str) {
    let is_quoted = text.len() > 1 && text.starts_with('"') && text.ends_with('"');
    let is_word = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && c != '"');
    // Values that were formatted by `Debug` have quotes and escapes already.
    let _ = if is_word || is_quoted && !text.chars().any(char::is_control) {
        write!(out, " {name}={text}")
    } else {
        write!(out, " {name}={text:?}")
    };
}

/// Fields that name the subject of a line.
const SUBJECT_FIELDS: [&str; 3] = ["server", "client", "principal"];
