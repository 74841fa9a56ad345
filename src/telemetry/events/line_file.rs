//! A file to which events are appended.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;
use tokio::task::spawn_blocking;

use super::queue::QueuedEvent;
use super::sink::DeliveryError;

/// Appends an event as one line. The file is opened for each, so that it can be rotated.
pub(super) async fn append_line(
    path: &Path,
    event: &Arc<QueuedEvent>,
) -> Result<(), DeliveryError> {
    let (path, event) = (path.to_owned(), Arc::clone(event));
    let appended = spawn_blocking(move || append(&path, &event.json)).await;
    appended.unwrap_or_else(|stopped| Err(std::io::Error::other(stopped).into()))
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
    file.write_all(&[line, b"\n"].concat()).map_err(|error| {
        // No half line before the next attempt.
        let _ = file.set_len(metadata.len());
        error.into()
    })
}

/// Events name clients and tools.
const FILE_MODE: u32 = 0o600;
