//! Reads the records of an audit log, for commands that evaluate them.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::config::AuditConfig;
use crate::telemetry::audit::rotated_file;

/// Returns the configured file and its rotated predecessors, newest first; `None` without a file.
/// The first may not exist yet.
pub(crate) fn audit_files(audit: &AuditConfig) -> Option<Vec<PathBuf>> {
    let file = audit.file.as_ref()?;
    let earlier = (1..=audit.keep).map(|number| rotated_file(file, number));
    let earlier = earlier.take_while(|path| path.exists());
    Some([file.clone()].into_iter().chain(earlier).collect())
}

/// Reads the records of a file. `see` is called for each line; `None` stands for one that is not a
/// record. A last line without an end is still being written, and left out.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read_records<T: DeserializeOwned>(
    path: &Path,
    mut see: impl FnMut(Option<T>),
) -> io::Result<()> {
    let mut log = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut log).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let record = serde_json::from_slice(&line).ok();
        let is_partial = !line.ends_with(b"\n") && log.fill_buf()?.is_empty();
        if record.is_some() || !is_partial {
            see(record);
        }
    }
}

/// Limit of the bytes of a line.
const MAX_LINE_BYTES: u64 = 4 << 20;
