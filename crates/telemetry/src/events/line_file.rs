//! A file that receives events as lines.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use tokio::task::{JoinHandle, spawn_blocking};

use super::queue::QueuedEvent;
use super::sink::DeliveryError;

/// The file, one line for each event.
///
/// The system cannot cancel a write that hangs. Such a write keeps its thread, and the next one
/// waits for it, so that at most one thread hangs.
pub(super) struct LineFile {
    path: PathBuf,
    append: AppendLine,
    running: Option<RunningAppend>,
}

/// Appends a line to a file, or only opens the file for an empty one; blocks.
type AppendLine = Arc<dyn Fn(&Path, &[u8]) -> Result<(), DeliveryError> + Send + Sync>;

/// An append in progress; `None` for one that only opens the file.
struct RunningAppend {
    event: Option<Arc<QueuedEvent>>,
    task: JoinHandle<Result<(), DeliveryError>>,
}

/// The event of an append, and its result.
type FinishedAppend = (Option<Arc<QueuedEvent>>, Result<(), DeliveryError>);

impl LineFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, append: Arc::new(append), running: None }
    }

    /// Appends an event. The file is opened for each event, so that it can be rotated.
    ///
    /// # Cancel safety
    /// If it is dropped early, the append continues. A further attempt with the same event gets its
    /// result, and one with another event begins after it.
    pub(super) async fn append_line(
        &mut self,
        event: &Arc<QueuedEvent>,
    ) -> Result<(), DeliveryError> {
        if let Some((Some(earlier), appended)) = self.finish_running().await
            && Arc::ptr_eq(&earlier, event)
        {
            return appended;
        }
        self.run_append(Some(event)).await
    }

    /// Opens the file before the first event, and creates it if it is missing.
    ///
    /// # Cancel safety
    /// If it is dropped early, the next attempt waits for it.
    pub(super) async fn open(&mut self) -> Result<(), DeliveryError> {
        self.finish_running().await;
        self.run_append(None).await
    }

    async fn run_append(&mut self, event: Option<&Arc<QueuedEvent>>) -> Result<(), DeliveryError> {
        let (path, append) = (self.path.clone(), Arc::clone(&self.append));
        let line = event.map(|event| event.json.clone()).unwrap_or_default();
        let task = spawn_blocking(move || append(&path, &line));
        self.running = Some(RunningAppend { event: event.map(Arc::clone), task });
        let appended = self.finish_running().await;
        appended.map_or(Ok(()), |(_, appended)| appended)
    }

    /// Waits for the running append; returns its event and its result.
    async fn finish_running(&mut self) -> Option<FinishedAppend> {
        let running = self.running.as_mut()?;
        let appended = (&mut running.task).await;
        let event = self.running.take()?.event;
        let appended =
            appended.unwrap_or_else(|stopped| Err(std::io::Error::other(stopped).into()));
        Some((event, appended))
    }
}

fn append(path: &Path, line: &[u8]) -> Result<(), DeliveryError> {
    // Opening a pipe or a device must not block.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let mut options = File::options();
    let mut file =
        options.append(true).create(true).mode(FILE_MODE).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(DeliveryError::NotRegular);
    }
    if line.is_empty() {
        return Ok(());
    }
    file.write_all(&[line, b"\n"].concat()).map_err(|error| {
        // Remove the partial line before the next attempt.
        let _ = file.set_len(metadata.len());
        error.into()
    })
}

/// Events name clients and tools.
const FILE_MODE: u32 = 0o600;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, SystemTime};

    use parking_lot::Mutex;
    use tokio::time::timeout;

    use super::super::kind::EventType;
    use super::*;

    fn event(id: &str) -> Arc<QueuedEvent> {
        let json = id.to_owned().into_bytes().into();
        let kind = EventType::ServerLost;
        Arc::new(QueuedEvent { id: id.into(), kind, at: SystemTime::UNIX_EPOCH, json })
    }

    #[tokio::test]
    async fn an_append_that_hangs_keeps_one_thread_and_writes_its_line_once() {
        let (appended, lines) = mpsc::sync_channel(10);
        let (release, released) = mpsc::sync_channel::<()>(10);
        let released = Mutex::new(released);
        let mut file = LineFile::new("unused".into());
        file.append = Arc::new(move |_, line: &[u8]| {
            appended.send(line.to_owned()).unwrap();
            released.lock().recv_timeout(Duration::from_secs(5)).unwrap();
            Ok(())
        });
        let (one, two) = (event("one"), event("two"));
        for _ in 0..5 {
            let hanging = timeout(Duration::from_millis(1), file.append_line(&one)).await;
            assert!(hanging.is_err());
        }
        release.send(()).unwrap();
        file.append_line(&one).await.unwrap();
        release.send(()).unwrap();
        file.append_line(&two).await.unwrap();
        assert_eq!(lines.try_iter().collect::<Vec<_>>(), [b"one", b"two"]);
    }
}
