//! Disk space of the files in a folder, including files that are deleted but still open.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::Pid;

/// Returns true if the files below a folder take more than `size` bytes. Includes deleted files
/// that `processes` hold open.
pub(super) fn exceeds_size(folder: &Path, size: u64, processes: Vec<Pid>) -> bool {
    let mut usage = DiskUsage { size, used: 0, seen: HashSet::new() };
    usage.add_folder(folder) || processes.into_iter().any(|pid| usage.add_open_files(folder, pid))
}

struct DiskUsage {
    size: u64,
    used: u64,
    /// Files counted before, because a file may have several names or be open more than once.
    seen: HashSet<(u64, u64)>,
}

impl DiskUsage {
    /// Adds the content of a folder. Returns true as soon as it exceeds the limit.
    fn add_folder(&mut self, folder: &Path) -> bool {
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                // Does not follow links.
                let Ok(metadata) = entry.metadata() else { continue };
                if self.add(&metadata) {
                    return true;
                }
                if metadata.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        false
    }

    fn add_open_files(&mut self, folder: &Path, process: Pid) -> bool {
        let files = fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero()));
        for entry in files.into_iter().flatten().flatten() {
            let path = entry.path();
            let is_within = fs::read_link(&path).is_ok_and(|file| file.starts_with(folder));
            if is_within && fs::metadata(&path).is_ok_and(|metadata| self.add(&metadata)) {
                return true;
            }
        }
        false
    }

    fn add(&mut self, metadata: &Metadata) -> bool {
        if self.seen.insert((metadata.dev(), metadata.ino())) {
            self.used += (metadata.blocks() * BLOCK_BYTES).max(MIN_FILE_BYTES);
        }
        self.used > self.size
    }
}

/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;
/// Minimum size counted for each file, so that the number of files is limited, too.
const MIN_FILE_BYTES: u64 = 4096;
