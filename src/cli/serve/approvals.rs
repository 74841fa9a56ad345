//! Watches the folder of baselines, so that a running gateway applies the approvals of `trunkline
//! pin approve`.

use std::path::PathBuf;
use std::sync::Arc;

use notify::{Event, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::watch::{changes_something, settle};
use crate::policy::BaselineFolder;
use crate::snapshot::Snapshots;

/// Starts the task; `None` if baselines are not stored.
pub(super) fn watch_approvals(snapshots: &Arc<Snapshots>) -> Option<JoinHandle<()>> {
    let folder = snapshots.definitions().folder()?.clone();
    Some(tokio::spawn(follow_folder(folder, Arc::clone(snapshots))))
}

async fn follow_folder(folder: BaselineFolder, snapshots: Arc<Snapshots>) {
    let path: PathBuf = folder.path().to_owned();
    let (told, mut events) = mpsc::channel(1);
    let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        let concerns = |event: &Event| event.paths.iter().any(|path| folder.has_file(path));
        if event.is_ok_and(|event| changes_something(&event) && concerns(&event)) {
            let _ = told.try_send(());
        }
    });
    let watching = watcher.and_then(|mut watcher| {
        watcher.watch(&path, RecursiveMode::NonRecursive).map(|()| watcher)
    });
    let _watcher = match watching {
        Ok(watcher) => watcher,
        Err(error) => {
            tracing::warn!(%error, "approved definitions take effect at the next start only");
            return;
        }
    };
    while events.recv().await.is_some() {
        settle(&mut events).await;
        snapshots.read_approvals();
    }
}
