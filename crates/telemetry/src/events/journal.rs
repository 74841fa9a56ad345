//! The queue on disk: undelivered events are sent again after a restart.
//!
//! One file, to which lines are appended: an event, or `-ID` once the event has left the queue.
//! Appended lines survive the end of the process. They are not synced to disk, so that a power
//! failure can lose the last of them; the file is synced whenever it is rewritten.

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use trunkline_core::clock;
use trunkline_core::codec::file::{FileError, FileReader};
use trunkline_core::codec::own_folder::{OwnFolder, OwnFolderError};
use trunkline_core::codec::replace_file::Draft;
use trunkline_core::text::error_chain;

use super::kind::EventType;
use super::queue::{EventQueue, JournalChanges, QueuedEvent, REMOVAL_PREFIX};

/// Error of a queue folder.
#[derive(Debug, thiserror::Error)]
pub(super) enum JournalError {
    #[error("cannot create, read or write it")]
    System(#[from] io::Error),
    #[error("expected a folder that only the gateway's own user can write to")]
    Foreign,
    #[error("another gateway keeps its events there")]
    InUse,
    #[error("cannot read the events")]
    File(#[from] FileError),
}

impl From<OwnFolderError> for JournalError {
    fn from(error: OwnFolderError) -> Self {
        match error {
            OwnFolderError::System(error) => Self::System(error),
            OwnFolderError::NotFolder | OwnFolderError::Foreign => Self::Foreign,
        }
    }
}

/// The journal of one gateway.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: Option<File>,
    /// Held until the gateway exits.
    _lock: File,
}

impl Journal {
    /// Opens the journal in a folder, which is created if missing, and reads the events of an
    /// earlier run.
    pub(super) fn open(
        folder: &Path,
        limit: usize,
    ) -> Result<(Self, Vec<QueuedEvent>), JournalError> {
        let folder = OwnFolder::open(folder)?;
        let path = folder.path().join(EVENTS_FILE);
        let mut options = File::options();
        let lock = options
            .create(true)
            .append(true)
            .mode(FILE_MODE)
            .open(folder.path().join(LOCK_FILE))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::InUse),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        // A gateway with a larger queue may have written it.
        let bytes = folder.read(EVENTS_FILE, limit.saturating_mul(2).max(MAX_JOURNAL_BYTES))?;
        let events = read_events(&bytes.unwrap_or_default());
        Ok((Self { path, file: None, _lock: lock }, events))
    }

    /// Writes changes of the queue.
    pub(super) fn write(&mut self, changes: &JournalChanges) -> io::Result<()> {
        match &mut self.file {
            Some(file) if !changes.rewrite => file.write_all(&changes.lines),
            _ => {
                let mut draft = Draft::create(&self.path, FILE_MODE)?;
                draft.file().write_all(&changes.lines)?;
                self.file = Some(draft.commit()?);
                Ok(())
            }
        }
    }
}

/// Writes the changes of a queue to its journal until `end` is cancelled. A running write is
/// completed first: it holds the folder.
pub(super) async fn keep_journal(
    queue: Arc<EventQueue>,
    mut journal: Journal,
    end: CancellationToken,
) {
    let mut is_failing = false;
    loop {
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            () = queue.unsaved.notified() => {}
        }
        let Some(changes) = queue.take_changes() else { continue };
        let number = changes.number;
        let written = tokio::task::spawn_blocking(move || {
            let written = journal.write(&changes);
            (journal, written)
        });
        let Ok((back, written)) = written.await else { return };
        journal = back;
        match written {
            Ok(()) => {
                is_failing = false;
                queue.health.folder.note_fault(None);
                queue.note_saved(number);
            }
            Err(error) => {
                // The next change writes the lines that the file lacks.
                queue.keep_journal();
                queue.health.folder.note_fault(Some(error_chain(&error)));
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(
                        target: "trunkline::telemetry::events::journal", "events are not kept on disk: {}", error_chain(&error)
                    );
                }
                let _ = tokio::time::timeout(JOURNAL_RETRY_PAUSE, end.cancelled()).await;
            }
        }
    }
}

/// Opens the journal on a blocking thread, with a time limit. Briefly retries a folder that is in
/// use: the lock of a gateway that has just ended lasts until programs that were being started
/// beside it run.
pub(super) async fn open_journal(
    folder: &Path,
    limit: usize,
) -> Result<(Journal, Vec<QueuedEvent>), String> {
    open_when_free(folder, limit, || {}).await
}

/// Opens the journal as [`open_journal`] does, and calls `on_busy` before each pause.
async fn open_when_free(
    folder: &Path,
    limit: usize,
    mut on_busy: impl FnMut(),
) -> Result<(Journal, Vec<QueuedEvent>), String> {
    let files = FileReader::new(OPEN_TIME);
    let began = clock::now();
    loop {
        let path = folder.to_owned();
        match files.run(move || Journal::open(&path, limit)).await {
            Ok(Ok(opened)) => return Ok(opened),
            Ok(Err(JournalError::InUse)) if clock::now() - began < IN_USE_TIME => {
                on_busy();
                tokio::time::sleep(IN_USE_PAUSE).await;
            }
            Ok(Err(error)) => return Err(error_chain(&error)),
            Err(error) => return Err(error_chain(&error)),
        }
    }
}

/// Returns the events that were added and not removed. Skips lines that do not parse, such as a
/// truncated one.
fn read_events(bytes: &[u8]) -> Vec<QueuedEvent> {
    let lines = || bytes.split(|byte| *byte == b'\n');
    let removed: HashSet<_> =
        lines().filter_map(|line| line.strip_prefix(REMOVAL_PREFIX)).collect();
    let events = lines().filter_map(read_event);
    events.filter(|event| !removed.contains(event.id.as_bytes())).collect()
}

fn read_event(line: &[u8]) -> Option<QueuedEvent> {
    #[derive(Deserialize)]
    struct WrittenEvent<'a> {
        id: &'a str,
        r#type: &'a str,
        time: Timestamp,
    }
    let written: WrittenEvent<'_> = serde_json::from_slice(line).ok()?;
    Some(QueuedEvent {
        id: written.id.into(),
        kind: EventType::parse(written.r#type)?,
        at: SystemTime::from(written.time),
        json: Bytes::copy_from_slice(line),
    })
}

const FILE_MODE: u32 = 0o600;
const EVENTS_FILE: &str = "events.queue";
const LOCK_FILE: &str = "events.lock";
/// Maximum bytes of a journal that is read, unless the queue may be larger.
const MAX_JOURNAL_BYTES: usize = 64 << 20;
/// Time limit for reading the journal.
const OPEN_TIME: Duration = Duration::from_secs(2);
/// Time limit for a folder that is in use, and pause between two attempts.
const IN_USE_TIME: Duration = Duration::from_secs(1);
const IN_USE_PAUSE: Duration = Duration::from_millis(20);
/// Pause after a failed write.
const JOURNAL_RETRY_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::metrics::{EventCounts, EventFate};

    fn line(id: &str) -> String {
        format!(r#"{{"id":"{id}","type":"trunkline.server.lost","time":"2026-11-23T12:00:00Z"}}"#)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn events_that_were_not_delivered_are_there_after_a_restart() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("queue");
        let queue = EventQueue::new(EventCounts::default());
        queue.set_limit(10_000);
        queue.keep_journal();
        let (mut journal, left) = Journal::open(&folder, 10_000).unwrap();
        assert!(left.is_empty());
        for id in ["a", "b", "c"] {
            queue.push(read_event(line(id).as_bytes()).unwrap());
            journal.write(&queue.take_changes().unwrap()).unwrap();
        }
        queue.remove(&queue.first().unwrap(), EventFate::Delivered);
        journal.write(&queue.take_changes().unwrap()).unwrap();
        let path = folder.join(EVENTS_FILE);
        assert_eq!((mode(&folder), mode(&path)), (0o700, 0o600), "for the gateway's user alone");
        assert!(matches!(Journal::open(&folder, 10_000), Err(JournalError::InUse)));
        // The process was killed in the middle of a line.
        File::options().append(true).open(&path).unwrap().write_all(b"{\"id\":\"d").unwrap();
        drop(journal);
        let (_, left) = Journal::open(&folder, 10_000).unwrap();
        let ids: Vec<_> = left.iter().map(|event| &*event.id).collect();
        assert_eq!(ids, ["b", "c"]);
    }

    #[tokio::test]
    async fn a_folder_that_is_in_use_for_a_moment_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("queue");
        let (journal, _) = Journal::open(&folder, 10).unwrap();
        let mut held = Some(journal);
        let opened = open_when_free(&folder, 10, || held = None).await;
        let _opened = opened.unwrap();
        assert!(held.is_none(), "it was in use");
        let fault = open_journal(&folder, 10).await.unwrap_err();
        assert!(fault.contains("another gateway"), "{fault}");
    }

    #[test]
    fn a_long_journal_is_read_without_a_search_for_each_line() {
        let added = (0..50_000).map(|number| line(&format!("e{number}")) + "\n");
        // Any gateway may have written it, so the order of the removals is arbitrary.
        let removed = (1..50_000).rev().map(|number| format!("-e{number}\n"));
        let text: String = added.chain(removed).collect();
        let begun = clock::now();
        let left = read_events(text.as_bytes());
        let lasted = clock::now() - begun;
        assert_eq!(left.iter().map(|event| &*event.id).collect::<Vec<_>>(), ["e0"]);
        assert!(lasted < Duration::from_secs(20), "{lasted:?}: with a search it is a minute");
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Journal::open(folder.path(), 10), Err(JournalError::Foreign)));
    }
}
