//! Keeps the usage of quotas in `gateway.state_dir`, so that it survives a restart.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::clock;
use crate::config::Config;
use crate::policy::{QuotaFile, QuotaLedger};
use crate::telemetry::log::FaultLog;
use crate::text::error_chain;

/// Writes the counts periodically, and at the end.
pub(super) struct QuotaKeeper {
    file: QuotaFile,
    ledger: Arc<QuotaLedger>,
    writing: JoinHandle<()>,
}

/// Returns the counts of an earlier run, and the file for those of this one, if there is a
/// `state_dir`. An unusable file is reported, and the counts start from zero: it does not keep the
/// gateway from starting.
pub(super) fn open_quotas(config: &Config, path: &Path) -> (Arc<QuotaLedger>, Option<QuotaFile>) {
    let Some(folder) = config.gateway.state_dir.folder() else { return (Arc::default(), None) };
    let file = match QuotaFile::open(folder, path) {
        Ok(file) => file,
        Err(error) => {
            tracing::warn!("quotas do not survive a restart: {}", error_chain(&error));
            return (Arc::default(), None);
        }
    };
    let ledger = file.read().unwrap_or_else(|error| {
        tracing::warn!("all quotas start from zero: {}", error_chain(&error));
        Arc::default()
    });
    (ledger, Some(file))
}

impl QuotaKeeper {
    pub(super) fn start(file: QuotaFile, ledger: &Arc<QuotaLedger>) -> Self {
        let (kept, counts) = (file.clone(), Arc::clone(ledger));
        let writing = tokio::spawn(async move {
            let mut faults = FaultLog::default();
            loop {
                tokio::time::sleep(WRITE_EVERY).await;
                write_counts(&kept, &counts, &mut faults).await;
            }
        });
        Self { file, ledger: Arc::clone(ledger), writing }
    }

    /// Writes the last counts.
    pub(super) async fn finish(self) {
        self.writing.abort();
        let _ = self.writing.await;
        write_counts(&self.file, &self.ledger, &mut FaultLog::default()).await;
    }
}

async fn write_counts(file: &QuotaFile, ledger: &Arc<QuotaLedger>, faults: &mut FaultLog) {
    let (file, ledger) = (file.clone(), Arc::clone(ledger));
    let written = tokio::task::spawn_blocking(move || file.write_changes(&ledger)).await;
    if let Ok(Err(error)) = written
        && let Some(line) = faults.note(&error_chain(&error), clock::now())
    {
        tracing::warn!("quotas are not written: {line}");
    }
}

/// Interval between writes: a killed process loses at most the counts of this time.
const WRITE_EVERY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::captured_log::CapturedLog;

    #[tokio::test(start_paused = true)]
    async fn counts_that_cannot_be_written_are_logged_once_a_minute() {
        let (log, folder) = (CapturedLog::start(), tempfile::tempdir().unwrap());
        let state = folder.path().join("state");
        let file = QuotaFile::open(&state, Path::new("gateway.toml")).unwrap();
        fs::remove_dir_all(&state).unwrap();
        fs::write(&state, "no folder").unwrap();
        let ledger = Arc::<QuotaLedger>::default();
        ledger.mark_changed();
        let keeper = QuotaKeeper::start(file, &ledger);
        tokio::time::sleep(Duration::from_secs(69)).await;
        keeper.writing.abort();
        let text = log.text();
        let lines: Vec<_> =
            text.lines().filter(|line| line.contains("quotas are not written: ")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(!lines[0].contains("still") && lines[1].ends_with(", 31 times"), "{text}");
    }
}
