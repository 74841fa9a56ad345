//! Reads the records of an audit log, for commands that evaluate them.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::admin::log_files;
use crate::config::AuditConfig;

/// Returns the configured file and its rotated predecessors, newest first; `None` without a file.
/// The first may not exist yet. A pipe is left out: reading it would take records from its reader,
/// and never end.
pub(crate) fn audit_files(audit: &AuditConfig) -> Option<Vec<PathBuf>> {
    let files = log_files(audit)?.into_iter().enumerate();
    let files = files.take_while(|(place, path)| *place == 0 || path.exists());
    Some(files.map(|(_, path)| path).filter(|path| !is_pipe(path)).collect())
}

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Reads the records of a file by its path: see [`read_open_records`].
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read_records<T: DeserializeOwned>(
    path: &Path,
    see: impl FnMut(Option<T>),
) -> io::Result<()> {
    read_open_records(File::open(path)?, see)
}

/// Reads the records of a file. `see` is called for each line; `None` stands for one that is not a
/// record. A last line without an end is still being written, and left out.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read_open_records<T: DeserializeOwned>(
    file: File,
    mut see: impl FnMut(Option<T>),
) -> io::Result<()> {
    let mut log = BufReader::new(file);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigSource, SystemEnvironment};

    #[test]
    fn a_pipe_is_no_file_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let files_of = |path: &Path| {
            let bytes = format!("[audit]\nfile = {path:?}\n").into_bytes();
            let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
            audit_files(&Config::read(&source, &SystemEnvironment).unwrap().audit)
        };
        assert_eq!(files_of(&pipe), Some(Vec::new()));
        let log = folder.path().join("log");
        assert_eq!(files_of(&log), Some(vec![log.clone()]));
    }
}
