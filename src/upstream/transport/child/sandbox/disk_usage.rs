//! The space that the files of a folder take, those included that are deleted and still open.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::Pid;

/// Returns true if the files below a folder take more than this many bytes. These processes may hold
/// deleted ones open.
pub(super) fn exceeds_size(folder: &Path, size: u64, processes: Vec<Pid>) -> bool {
    let mut usage = DiskUsage { size, used: 0, seen: HashSet::new() };
    usage.add_folder(folder) || processes.into_iter().any(|pid| usage.add_open_files(folder, pid))
}

struct DiskUsage {
    size: u64,
    used: u64,
    /// Files with several names, and those that are open more than once.
    seen: HashSet<(u64, u64)>,
}

impl DiskUsage {
    /// Adds the content of a folder, and returns true as soon as it is too much.
    fn add_folder(&mut self, folder: &Path) -> bool {
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                // Of a link, the link itself.
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
/// The least bytes that count for a file, so that their number has a bound, too.
const MIN_FILE_BYTES: u64 = 4096;
