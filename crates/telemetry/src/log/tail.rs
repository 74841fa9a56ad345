//! The last lines of the log in memory, and a live stream of new ones.
//!
//! A layer beside that of the lines, behind the same filter: it has the lines that the log has, and
//! costs nothing for others. The access log is not among them, because it bypasses `tracing`, and of
//! libraries there are no lines below `info`.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use tracing::dispatcher::get_default;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use trunkline_core::clock;
use trunkline_core::text::{clip, escape_controls};

use super::human::LineParts;
use crate::recent::{LiveItems, Numbered, RecentBounds, RecentItems, TooManyObserversError};

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Its time.
    pub at: SystemTime,
    /// Its level.
    pub level: Level,
    /// The module that wrote it.
    pub target: &'static str,
    /// The server that it is about.
    pub server: Option<String>,
    /// The client or principal that it is about.
    pub client: Option<String>,
    /// The sentence, with controls escaped.
    pub text: String,
    /// The other fields, as ` name=value`.
    pub fields: String,
}

impl LogLine {
    /// Returns true for a line that a server wrote to its standard error.
    pub fn is_of_server(&self) -> bool {
        self.target == SERVER_TARGET
    }

    fn read(event: &Event<'_>) -> Self {
        let mut reader = LineFields::default();
        event.record(&mut reader);
        let LineFields { parts, server, client } = reader;
        let metadata = event.metadata();
        Self {
            at: clock::wall_now(),
            level: *metadata.level(),
            target: metadata.target(),
            server,
            client,
            text: clip(&parts.sentence, MAX_TEXT_BYTES).to_owned(),
            fields: clip(&parts.fields, MAX_TEXT_BYTES).to_owned(),
        }
    }

    fn bytes(&self) -> usize {
        let names = [&self.server, &self.client].into_iter().flatten();
        let names = names.map(String::len).sum::<usize>();
        size_of::<Self>() + names + self.text.len() + self.fields.len()
    }
}

/// Reads the fields of an event.
#[derive(Debug, Default)]
struct LineFields {
    parts: LineParts,
    server: Option<String>,
    client: Option<String>,
}

impl LineFields {
    /// Takes the name of a server or client.
    fn take_subject(&mut self, field: &Field, text: &str) {
        let name = || Some(escape_controls(clip(text, MAX_NAME_BYTES)));
        match field.name() {
            "server" => self.server = name(),
            "client" | "principal" => self.client = name(),
            _ => {}
        }
    }
}

impl Visit for LineFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take_subject(field, value);
        self.parts.record_str(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.parts.record_error(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "server" | "client" | "principal") {
            self.take_subject(field, &format!("{value:?}"));
        }
        self.parts.record_debug(field, value);
    }
}

/// The last lines of the process's log. Lines of servers have bounds of their own, so that a server
/// does not displace the gateway's lines.
#[derive(Debug)]
pub struct LogTail(RecentItems<LogLine>);

impl Default for LogTail {
    fn default() -> Self {
        Self(RecentItems::new(&[TAIL_BOUNDS, TAIL_BOUNDS]))
    }
}

impl LogTail {
    /// Returns the last lines of this process's log; `None` if it has no log.
    pub fn of_process() -> Option<Arc<Self>> {
        get_default(|current| {
            current.downcast_ref::<LogTailLayer>().map(|layer| Arc::clone(&layer.tail))
        })
    }

    /// Returns the matching lines before the one with this number, the newest first.
    pub fn list(
        &self,
        before: Option<u64>,
        limit: usize,
        matches: impl Fn(&LogLine) -> bool,
    ) -> Vec<Arc<Numbered<LogLine>>> {
        self.0.select(before, limit, matches)
    }

    /// Observes all new lines, after the last matching ones up to a limit.
    ///
    /// # Errors
    /// [`TooManyObserversError`].
    pub fn observe(
        &self,
        limit: usize,
        matches: impl Fn(&LogLine) -> bool,
    ) -> Result<LiveItems<LogLine>, TooManyObserversError> {
        self.0.observe(limit, matches)
    }

    /// Adds a line.
    pub fn push(&self, line: LogLine) {
        let (class, bytes) = (usize::from(line.is_of_server()), line.bytes());
        self.0.push(class, line, bytes);
    }
}

/// The layer that keeps the lines.
#[derive(Debug, Default)]
pub(super) struct LogTailLayer {
    tail: Arc<LogTail>,
}

impl<S: Subscriber> Layer<S> for LogTailLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        // Libraries log each frame at `debug`, also those of an answer with lines of the log.
        if *metadata.level() > Level::INFO && !metadata.target().starts_with(OWN_TARGETS) {
            return;
        }
        self.tail.push(LogLine::read(event));
    }
}

/// Start of the targets of the gateway's own lines.
const OWN_TARGETS: &str = "trunkline";
/// Target of the lines that servers write to their standard error.
const SERVER_TARGET: &str = "trunkline::server";
/// Bounds of the lines of servers, and of all others.
const TAIL_BOUNDS: RecentBounds = RecentBounds { items: 1000, bytes: 256 << 10 };
/// Limit of the bytes of a sentence, and of the other fields.
const MAX_TEXT_BYTES: usize = 4096;
/// Limit of the bytes of a name.
const MAX_NAME_BYTES: usize = 256;

#[cfg(test)]
mod tests;
