//! Watches the configuration file and the files that it names, and runs the commands that it names
//! again from time to time.
//!
//! Editors write a new file and rename it over the old one; Kubernetes swaps a
//! symbolic link two folders up. So the folders are watched, not the file, and
//! only a change of the contents counts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::codec::file::{MAX_PEM, read_file};
use crate::config::ReloadTrigger;
use crate::crypto::sha256;

use super::reload::Reloader;

/// Reloads whenever the contents change. Ends if nothing can be watched; SIGHUP
/// still works.
pub(super) async fn run(reloader: Arc<Reloader>) {
    // One queued event is enough: it only triggers a comparison.
    let (told, mut events) = mpsc::channel(1);
    let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| changes_something(&event)) {
            let _ = told.try_send(());
        }
    });
    let watcher = match watcher {
        Ok(watcher) => watcher,
        Err(error) => {
            tracing::warn!(%error, "the configuration cannot be watched: send SIGHUP to reload");
            return;
        }
    };
    let watcher = Arc::new(Mutex::new(watcher));
    let mut seen = compare(&watcher, &reloader).await;
    loop {
        let has_other_output = tokio::select! {
            event = events.recv() => {
                if event.is_none() {
                    return;
                }
                settle(&mut events).await;
                false
            }
            () = reloader.command_refresh() => reloader.renew_commands().await,
        };
        let now = compare(&watcher, &reloader).await;
        let has_changed = has_other_output || now != seen;
        if has_changed && reloader.manner() == ReloadTrigger::Watch {
            reloader.reload().await;
            // The new configuration may name other files. A change during the
            // reload has its own event.
            seen = compare(&watcher, &reloader).await;
            for (file, hash) in &mut seen {
                if let Some(before) = now.get(file) {
                    hash.clone_from(before);
                }
            }
        }
    }
}

/// The contents of the files, whose folders are watched from now on: links may have changed their
/// targets. Empty if they cannot be read in time, which counts as a change, so that the reload
/// reports it.
async fn compare(watcher: &Arc<Mutex<RecommendedWatcher>>, reloader: &Reloader) -> Contents {
    let (watcher, files) = (Arc::clone(watcher), reloader.files());
    let read = reloader.reader.run(move || {
        watch(&mut watcher.lock(), &files);
        contents(&files)
    });
    read.await.unwrap_or_default()
}

/// Whether an event may be a change. Comparing the files opens them, which is
/// an event, too: it must not trigger another comparison.
pub(super) fn changes_something(event: &Event) -> bool {
    use notify::event::{AccessKind, AccessMode};
    match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// Waits until there are no events for a moment: an editor's save and a
/// volume's update are several events. The wait is bounded, because a program
/// may write to the same folder all the time.
pub(super) async fn settle(events: &mut mpsc::Receiver<()>) {
    let quiet =
        async { while let Ok(Some(())) = tokio::time::timeout(QUIET, events.recv()).await {} };
    let _ = tokio::time::timeout(PATIENCE, quiet).await;
}

fn watch(watcher: &mut RecommendedWatcher, files: &[PathBuf]) {
    for folder in folders(files) {
        if let Err(error) = watcher.watch(&folder, RecursiveMode::NonRecursive) {
            tracing::debug!(folder = %folder.display(), %error, "not watched");
        }
    }
}

/// The folders of the files, and of their symbolic links' targets.
fn folders(files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let real = files.iter().filter_map(|file| file.canonicalize().ok());
    let all = files.iter().cloned().chain(real);
    all.map(|file| match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    })
    .collect()
}

/// The hashes of the files; `None` for one that cannot be read.
type Contents = BTreeMap<PathBuf, Option<Vec<u8>>>;

fn contents(files: &[PathBuf]) -> Contents {
    files.iter().map(|file| (file.clone(), hash(file))).collect()
}

fn hash(file: &Path) -> Option<Vec<u8>> {
    read_file(file, MAX_PEM).ok().map(|bytes| sha256(&bytes).to_vec())
}

/// How long there must be no events before the contents are compared.
const QUIET: Duration = Duration::from_millis(50);
/// The longest wait for that.
const PATIENCE: Duration = Duration::from_secs(1);

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
        contents(&files);
        let wait = async {
            while opened.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.expect("the look is seen");
        assert!(events.try_recv().is_err(), "and told to nobody");
        std::fs::write(&files[0], "b").unwrap();
        tokio::time::timeout(Duration::from_secs(20), events.recv())
            .await
            .expect("a change is told");
    }

    #[tokio::test(start_paused = true)]
    async fn a_folder_that_is_written_to_all_the_time_is_looked_at_all_the_same() {
        let (told, mut events) = mpsc::channel(1);
        let noise = tokio::spawn(async move {
            while told.send(()).await.is_ok() {
                tokio::time::sleep(QUIET / 2).await;
            }
        });
        settle(&mut events).await;
        noise.abort();
    }
}
