//! The log: lines on standard error, for people or for machines.
//!
//! Levels and JSON come from `tracing-subscriber`, lines for people from [`human`]. Writing is our
//! own ([`sink`]): a bounded buffer that a separate thread writes every 20 ms. A line costs the
//! caller an append under a short lock; the thread is woken once per 20 ms, not once per line. If
//! standard error is not read, lines are dropped and counted, and calls continue. The price: the
//! lines of the last 20 ms are lost when the process is killed. Dropping [`LogHandle`] writes the
//! remaining lines.
//!
//! The access log, which every call pays for, bypasses `tracing` and goes straight into that buffer
//! ([`access`]). The last other lines stay in memory, for operators ([`LogTail`]).

mod access;
mod fault_log;
mod human;
mod sink;
mod tail;

use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_global_default;
use tracing::{Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry, reload};

use super::CallRecord;
use access::{AccessLog, AccessLogFormat};
pub use fault_log::{FaultLog, SharedFaultLog};
use human::HumanFormat;
use human::line_clock::LineClock;
use sink::{Flusher, Sink};
use tail::LogTailLayer;

pub(crate) use access::software::read_software;
pub use tail::{LogLine, LogTail};

/// The format of log lines; fixed while the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people; coloured and wrapped on a terminal.
    Human,
    /// One JSON object per line.
    Json,
}

/// Switch of the access log ([`CallRecord`]). It is independent of the levels: `warn` together with
/// the access log is a common wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessLogSwitch {
    /// One line per call.
    On,
    /// No lines.
    Off,
}

/// Settings of the log's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLevels<'a> {
    /// A level, `TARGET=LEVEL` pairs, or both: `info,trunkline::upstream=debug`.
    pub directives: &'a str,
    /// Switch of the access log.
    pub access: AccessLogSwitch,
}

/// Error of setting up or changing the log.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// A directive has neither a known level nor the form `TARGET=LEVEL`.
    #[error(
        "`{directive}` is not a log level: expected off, error, warn, info, debug, trace or \
         TARGET=LEVEL"
    )]
    Directive {
        /// The directive as written.
        directive: String,
    },
    /// This process has a log already.
    #[error("this process already has a log")]
    AlreadySet,
    /// The writer thread could not be started.
    #[error("the log's thread could not be started: {kind}")]
    Thread {
        /// The error of the system.
        kind: std::io::ErrorKind,
    },
    /// The subscriber no longer exists.
    #[error("the log has ended")]
    Gone,
}

/// The running log: owns its thread and changes its levels. Dropping it writes the remaining lines,
/// for a second at most.
#[derive(Debug)]
pub struct LogHandle {
    filter: ReloadableFilter,
    _flusher: Flusher,
}

/// Sends the process's log to standard error.
///
/// # Errors
/// [`LogError`]: a directive is wrong, a log is already set up, or no thread
/// could be started.
pub fn init_log(levels: LogLevels<'_>, format: LogFormat) -> Result<LogHandle, LogError> {
    let appearance = if stderr().is_terminal() {
        Appearance::Terminal(wanted_colours())
    } else {
        Appearance::Plain
    };
    init_log_into(stderr(), levels, format, appearance)
}

/// Returns the switch for colours: the variable `NO_COLOR` turns them off (<https://no-color.org>).
fn wanted_colours() -> Colours {
    match std::env::var_os("NO_COLOR") {
        Some(value) if !value.is_empty() => Colours::Off,
        _ => Colours::On,
    }
}

/// Sends the process's log to `out` through a separate thread.
///
/// # Errors
/// As [`init_log`].
pub fn init_log_into(
    out: impl Write + Send + 'static,
    levels: LogLevels<'_>,
    format: LogFormat,
    appearance: Appearance,
) -> Result<LogHandle, LogError> {
    let targets = parse_targets(levels)?;
    let width: sink::WidthSource = match (format, appearance) {
        (LogFormat::Human, Appearance::Terminal(_)) => human::wrap::terminal_width,
        _ => || None,
    };
    let (sink, flusher) = sink::start_sink(out, format, width)
        .map_err(|error| LogError::Thread { kind: error.kind() })?;
    let (subscriber, filter) = build_subscriber(targets, format, appearance, sink);
    set_global_default(subscriber).map_err(|_| LogError::AlreadySet)?;
    Ok(LogHandle { filter, _flusher: flusher })
}

impl LogHandle {
    /// Changes the levels, from the next line on.
    ///
    /// # Errors
    /// [`LogError::Directive`] names the invalid directive; the levels stay unchanged.
    pub fn set_levels(&self, levels: LogLevels<'_>) -> Result<(), LogError> {
        self.filter.reload(parse_targets(levels)?)
    }
}

/// Checks log directives without applying them, for the configuration.
///
/// # Errors
/// [`LogError::Directive`] names the invalid directive.
pub fn check_directives(directives: &str) -> Result<(), LogError> {
    parse_targets(LogLevels { directives, access: AccessLogSwitch::Off }).map(drop)
}

/// Appearance of lines for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appearance {
    /// For files and pipes: the whole time in UTC, and one line per event.
    Plain,
    /// For a terminal: the local time, and wrapped lines.
    Terminal(Colours),
}

impl Appearance {
    fn colours(self) -> Colours {
        match self {
            Self::Plain => Colours::Off,
            Self::Terminal(colours) => colours,
        }
    }

    fn clock(self) -> LineClock {
        match self {
            Self::Plain => LineClock::Utc,
            Self::Terminal(_) => LineClock::local(),
        }
    }
}

/// Switch for colours in lines on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// For a terminal that supports colours.
    On,
    /// Plain text.
    Off,
}

/// The filter of the log: `targets` for events, and the switch of the access log.
#[derive(Debug)]
struct ReloadableFilter {
    targets: reload::Handle<Targets, Registry>,
    access: Arc<AtomicBool>,
}

impl ReloadableFilter {
    fn reload(&self, targets: Targets) -> Result<(), LogError> {
        let access = enables_access_log(&targets);
        self.targets.reload(targets).map_err(|_| LogError::Gone)?;
        self.access.store(access, Ordering::Relaxed);
        Ok(())
    }
}

fn enables_access_log(targets: &Targets) -> bool {
    targets.would_enable(CallRecord::TARGET, &Level::INFO)
}

fn build_subscriber(
    targets: Targets,
    format: LogFormat,
    appearance: Appearance,
    sink: Sink,
) -> (impl Subscriber + Send + Sync, ReloadableFilter) {
    let access = Arc::new(AtomicBool::new(enables_access_log(&targets)));
    let style = match (format, appearance.colours()) {
        (LogFormat::Json, _) => AccessLogFormat::Json,
        (LogFormat::Human, Colours::On) => AccessLogFormat::Coloured,
        (LogFormat::Human, Colours::Off) => AccessLogFormat::Plain,
    };
    let clock = Arc::new(appearance.clock());
    let human = HumanFormat { colours: appearance.colours(), clock: Arc::clone(&clock) };
    let access_log = AccessLog { sink: sink.clone(), style, clock, on: Arc::clone(&access) };
    let (filter, targets) = reload::Layer::new(targets);
    let lines = line_layer(format, human, sink);
    let tail = LogTailLayer::default();
    let subscriber = tracing_subscriber::registry().with(filter);
    let subscriber = subscriber.with(lines).with(access_log).with(tail);
    (subscriber, ReloadableFilter { targets, access })
}

fn line_layer<S, W>(
    format: LogFormat,
    human: HumanFormat,
    writer: W,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        LogFormat::Human => layer.event_format(human).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_current_span(false).boxed(),
    }
}

/// Checks each directive: `Targets` would mistake a misspelt level for the name of a target, and
/// then log nothing.
fn parse_targets(levels: LogLevels<'_>) -> Result<Targets, LogError> {
    let mut targets = Targets::new().with_default(LevelFilter::OFF);
    for directive in levels.directives.split(',').map(str::trim).filter(|d| !d.is_empty()) {
        let wrong = || LogError::Directive { directive: directive.to_owned() };
        let (target, level) = match directive.split_once('=') {
            Some((target, level)) => (Some(target.trim()), level.trim()),
            None => (None, directive),
        };
        let level = level_filter(level).ok_or_else(wrong)?;
        targets = match target {
            Some("") => return Err(wrong()),
            Some(target) => targets.with_target(target, level),
            None => targets.with_default(level),
        };
    }
    let access = match levels.access {
        AccessLogSwitch::On => LevelFilter::INFO,
        AccessLogSwitch::Off => LevelFilter::OFF,
    };
    Ok(targets.with_target(CallRecord::TARGET, access))
}

/// Parses a level's name. The library also accepts `5` and the empty text.
fn level_filter(name: &str) -> Option<LevelFilter> {
    name.chars().all(|c| c.is_ascii_alphabetic()).then(|| name.parse().ok()).flatten()
}

#[cfg(test)]
pub(crate) mod tests;
