//! Watches the configuration file and the files that it names, and periodically runs its commands
//! again.
//!
//! Editors write a new file and rename it over the old one, or write in place; Kubernetes swaps a
//! symbolic link two folders up. So the folders are watched, not the file, and only a change of the
//! contents counts. [`gate`] decides when changed files are complete.

mod files;
mod gate;
mod renames;

use std::sync::Arc;
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::clock;
use crate::config::ReloadTrigger;

use super::reload::Reloader;
pub(super) use files::{FileStamp, FileStamps};
use files::{WatchedFiles, folders_of, observe_files};
use gate::{GateDecision, ReloadGate};
use renames::RecentRenames;

/// Starts watching, then reloads whenever the contents change. Ends if no folder can be watched;
/// SIGHUP still works.
pub(super) async fn start(reloader: Arc<Reloader>) -> JoinHandle<()> {
    // One queued event is enough: it only triggers a comparison.
    let (told, events) = mpsc::channel(1);
    let renames = Arc::new(RecentRenames::default());
    let noted = Arc::clone(&renames);
    let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if let Ok(event) = event {
            noted.note(&event);
            if changes_something(&event) {
                let _ = told.try_send(());
            }
        }
    });
    let watcher = match watcher {
        Ok(watcher) => Arc::new(Mutex::new(watcher)),
        Err(error) => {
            tracing::warn!(%error, "the configuration cannot be watched: send SIGHUP to reload");
            return tokio::spawn(async {});
        }
    };
    let watch = FileWatch { watcher, renames, reloader };
    let loaded = watch.observe().await.unwrap_or_default();
    let gate = ReloadGate::new(watch.reloader.common.config.path.clone(), loaded);
    tokio::spawn(watch.follow(gate, events))
}

/// The watched folders, and the reloader of the files in them.
struct FileWatch {
    watcher: Arc<Mutex<RecommendedWatcher>>,
    renames: Arc<RecentRenames>,
    reloader: Arc<Reloader>,
}

impl FileWatch {
    async fn follow(mut self, mut gate: ReloadGate, mut events: mpsc::Receiver<()>) {
        let mut look_again = None;
        loop {
            let has_other_cause = tokio::select! {
                event = events.recv() => {
                    if event.is_none() {
                        return;
                    }
                    settle(&mut events).await;
                    false
                }
                () = sleep_until(look_again) => false,
                () = self.reloader.command_refresh() => self.reloader.renew_commands().await,
                () = self.reloader.certificates_valid() => true,
            };
            look_again = self.look(&mut gate, has_other_cause).await;
        }
    }

    /// Compares the files with the loaded ones, and reloads if they are complete, or if there is
    /// another cause. Returns the time of the next look if they may still be written.
    async fn look(&mut self, gate: &mut ReloadGate, has_other_cause: bool) -> Option<Instant> {
        let Some(files) = self.observe().await else {
            // The reload reports that the files cannot be read.
            if self.reloader.manner() == ReloadTrigger::Watch {
                self.reloader.reload_watched(FileStamps::new()).await;
            }
            return None;
        };
        let now = clock::now();
        let decision = gate.decide(&files, now);
        if self.reloader.manner() != ReloadTrigger::Watch {
            return None;
        }
        match decision {
            GateDecision::Unchanged if !has_other_cause => None,
            GateDecision::Wait(at) => Some(at),
            GateDecision::Incomplete(paths) => {
                self.reloader.report_incomplete(&paths).await;
                gate.settle(files);
                None
            }
            GateDecision::Unchanged | GateDecision::Load => {
                let stamps = files.iter().map(|(path, file)| (path.clone(), file.stamp.clone()));
                if self.reloader.reload_watched(stamps.collect()).await.is_none() {
                    // A file was written meanwhile.
                    return Some(now + gate::SETTLE_TIME);
                }
                gate.settle(self.observe_after_reload(files).await);
                None
            }
        }
    }

    /// Returns the files of the new configuration, which may name others. A change during the
    /// reload has its own event, so the loaded files keep their earlier state.
    async fn observe_after_reload(&self, loaded: WatchedFiles) -> WatchedFiles {
        let mut files = self.observe().await.unwrap_or_default();
        for (path, file) in &mut files {
            if let Some(before) = loaded.get(path) {
                file.clone_from(before);
            }
        }
        files
    }

    /// Reads the files, and watches their folders from now on: links may have changed their
    /// targets. Returns `None` if they cannot be read in time.
    async fn observe(&self) -> Option<WatchedFiles> {
        let (watcher, files) = (Arc::clone(&self.watcher), self.reloader.watched_files());
        let renames = Arc::clone(&self.renames);
        let read = self.reloader.reader.run(move || {
            watch(&mut watcher.lock(), &files);
            observe_files(&files, &renames)
        });
        read.await.ok()
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Returns true if an event may be a change. Comparing the files opens them, which also causes an
/// event: it must not trigger another comparison.
pub(super) fn changes_something(event: &Event) -> bool {
    use notify::event::{AccessKind, AccessMode};
    match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// Waits until there are no events for a moment: an editor's save and a volume's update are several
/// events. The wait is bounded, because a program may write to the same folder all the time.
pub(super) async fn settle(events: &mut mpsc::Receiver<()>) {
    let quiet = async {
        while let Ok(Some(())) = tokio::time::timeout(EVENT_QUIET_TIME, events.recv()).await {}
    };
    let _ = tokio::time::timeout(MAX_EVENT_WAIT, quiet).await;
}

fn watch(watcher: &mut RecommendedWatcher, files: &[std::path::PathBuf]) {
    for folder in folders_of(files) {
        if let Err(error) = watcher.watch(&folder, RecursiveMode::NonRecursive) {
            tracing::debug!(folder = %folder.display(), %error, "not watched");
        }
    }
}

/// Time without events before the contents are compared.
const EVENT_QUIET_TIME: Duration = Duration::from_millis(50);
/// Maximum wait for such a time.
const MAX_EVENT_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn looking_at_a_file_is_no_reason_to_look_again() {
        let folder = tempfile::tempdir().unwrap();
        let files = [folder.path().join("gateway.toml")];
        std::fs::write(&files[0], "a").unwrap();
        let (told, mut events) = mpsc::channel(16);
        let opened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            count.fetch_add(1, Ordering::SeqCst);
            if event.is_ok_and(|event| changes_something(&event)) {
                let _ = told.try_send(());
            }
        })
        .unwrap();
        watch(&mut watcher, &files);
        observe_files(&files, &RecentRenames::default());
        let wait = async {
            while opened.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.expect("the look is seen");
        assert!(events.try_recv().is_err(), "and not reported");
        std::fs::write(&files[0], "b").unwrap();
        tokio::time::timeout(Duration::from_secs(20), events.recv())
            .await
            .expect("a change is reported");
    }

    #[tokio::test(start_paused = true)]
    async fn a_folder_that_is_written_to_all_the_time_is_looked_at_all_the_same() {
        let (told, mut events) = mpsc::channel(1);
        let noise = tokio::spawn(async move {
            while told.send(()).await.is_ok() {
                tokio::time::sleep(EVENT_QUIET_TIME / 2).await;
            }
        });
        settle(&mut events).await;
        noise.abort();
    }
}
