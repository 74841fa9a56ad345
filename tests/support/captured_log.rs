//! The log of one thread, for unit tests.
//!
//! tracing asks each callsite once if any subscriber wants it. While a process has a single subscriber,
//! it asks that of the thread that meets the callsite first, so a test on another thread, without a
//! subscriber, would disable the line for all. A second subscriber makes it ask all of them.

use std::sync::Arc;

use tempfile::NamedTempFile;
use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};

/// Keeps the lines that this thread logs.
pub(crate) struct CapturedLog {
    file: NamedTempFile,
    _second: Dispatch,
    _guard: DefaultGuard,
}

impl CapturedLog {
    /// Keeps the lines from here on, until it is dropped.
    pub(crate) fn start() -> Self {
        let file = NamedTempFile::new().unwrap();
        let writer = Arc::new(file.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
        let second = Dispatch::new(NoSubscriber::default());
        let guard = set_default(subscriber);
        // For callsites that were met before.
        tracing::callsite::rebuild_interest_cache();
        Self { file, _second: second, _guard: guard }
    }

    /// Returns all lines so far.
    pub(crate) fn text(&self) -> String {
        std::fs::read_to_string(self.file.path()).unwrap()
    }
}
