//! Memory limit of the gateway's control group, and the bounds that have to fit into it.

use std::path::{Path, PathBuf};

use crate::codec::file::read_file;
use crate::config::{Config, ReducedBound};

/// Reduces the configuration's memory bounds to [`BOUNDS_PERCENT`] percent of the memory that the
/// control group's limit leaves beside [`PROGRAM_MEMORY`]. Without a limit they stay unchanged.
pub(super) fn fit_control_group(config: &mut Config) -> Vec<ReducedBound> {
    let groups = read_file(Path::new("/proc/self/cgroup"), MAX_GROUP_FILE).unwrap_or_default();
    let groups = String::from_utf8_lossy(&groups).into_owned();
    match memory_limit(&groups, Path::new("/sys/fs/cgroup")) {
        Some(limit) => config.fit_memory(share_of_limit(limit)),
        None => Vec::new(),
    }
}

/// Logs the bounds that were reduced.
pub(super) fn log_reduced(reduced: &[ReducedBound]) {
    for bound in reduced {
        tracing::warn!(
            "{}: {} bytes instead of {}, because the control group has little memory",
            bound.key,
            bound.after,
            bound.before
        );
    }
}

fn share_of_limit(limit: u64) -> usize {
    let left = limit - PROGRAM_MEMORY.min(limit / 2);
    usize::try_from(left / 100 * BOUNDS_PERCENT).unwrap_or(usize::MAX)
}

/// Returns the lowest limit of the control groups in the text of `/proc/self/cgroup`, and of their
/// parents. In a container the file system may begin at the group itself.
fn memory_limit(groups: &str, root: &Path) -> Option<u64> {
    let of_line = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            return lowest_limit(root, path, "memory.max");
        }
        let has_memory = controllers.split(',').any(|controller| controller == "memory");
        has_memory.then(|| lowest_limit(&root.join("memory"), path, "memory.limit_in_bytes"))?
    };
    groups.lines().filter_map(of_line).min()
}

fn lowest_limit(root: &Path, path: &str, file: &str) -> Option<u64> {
    // A group outside of the namespace is shown with `..`.
    let is_inside = !Path::new(path).components().any(|part| part.as_os_str() == "..");
    let group: PathBuf = if is_inside { root.join(path) } else { root.to_owned() };
    let folders = group.ancestors().take_while(|folder| folder.starts_with(root));
    let limits = folders.filter_map(|folder| {
        let text = read_file(&folder.join(file), MAX_GROUP_FILE).ok()?;
        std::str::from_utf8(&text).ok()?.trim().parse().ok()
    });
    limits.min()
}

/// Memory in bytes of a gateway without load: its program pages, catalog and threads.
const PROGRAM_MEMORY: u64 = 48 << 20;
/// Share of the remaining memory for all bounds together, in percent. The rest is for connections
/// and memory that the bounds do not count.
const BOUNDS_PERCENT: u64 = 60;
/// Maximum bytes of a control group's file.
const MAX_GROUP_FILE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_a_group_and_those_around_it_counts() {
        let root = tempfile::tempdir().unwrap();
        let has = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let limit = |groups: &str| memory_limit(groups, root.path());
        assert_eq!(limit("0::/a/b\n"), None);
        has("a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), None);
        has("a/memory.max", "157286400\n");
        assert_eq!(limit("0::/a/b\n"), Some(157_286_400));
        has("a/b/memory.max", "104857600\n");
        assert_eq!(limit("0::/a/b\n"), Some(104_857_600));
        has("a/memory.max", "52428800\n");
        assert_eq!(limit("0::/a/b\n"), Some(52_428_800));
        // The group is the root of the container's view.
        has("memory.max", "1000\n");
        assert_eq!(limit("0::/not/there\n"), Some(1000));
        assert_eq!(limit("0::/../..\n"), Some(1000));
        has("memory/c/memory.limit_in_bytes", "500\n");
        assert_eq!(limit("5:cpu:/c\n4:hugetlb,memory:/c\n"), Some(500));
        assert_eq!(limit("no group"), None);
    }

    #[test]
    fn the_bounds_leave_room_for_the_program() {
        assert_eq!(share_of_limit(150 << 20), 64_172_820);
        assert_eq!(share_of_limit(32 << 20), 10_066_320);
        assert_eq!(share_of_limit(0), 0);
    }
}
