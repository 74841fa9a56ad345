//! Paths to which a file was renamed: the evidence that a file was complete on arrival.
//!
//! A file that is created or written in place may be read when it is partial. Its inode does not
//! show the difference, because vim moves the old file away and writes a new one in its place.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Event, EventKind};
use parking_lot::Mutex;

/// Paths with a rename to them as their last event.
#[derive(Debug, Default)]
pub(super) struct RecentRenames(Mutex<BTreeSet<PathBuf>>);

impl RecentRenames {
    pub(super) fn has(&self, path: &Path) -> bool {
        self.0.lock().contains(path)
    }

    /// Records an event. Without evidence a file counts as written in place, so that a lost event
    /// costs a second at most.
    pub(super) fn note(&self, event: &Event) {
        let mut paths = self.0.lock();
        if event.need_rescan() {
            paths.clear();
        }
        match event.kind {
            EventKind::Modify(ModifyKind::Name(RenameMode::To)) => {
                if paths.len() >= MAX_RENAMED_PATHS {
                    paths.clear();
                }
                paths.extend(event.paths.iter().cloned());
            }
            // `To` has already reported the rename; permissions and times are set on complete
            // files.
            EventKind::Modify(ModifyKind::Name(RenameMode::Both) | ModifyKind::Metadata(_)) => {}
            EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write) => {}
            _ => event.paths.iter().for_each(|path| {
                paths.remove(path);
            }),
        }
    }
}

/// Maximum number of remembered paths; other programs may rename files in the same folder.
const MAX_RENAMED_PATHS: usize = 1024;

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, DataChange, Flag, MetadataKind};

    use super::*;

    #[test]
    fn a_rename_counts_until_the_file_is_written_removed_or_moved_away() {
        let path = PathBuf::from("/f/gateway.toml");
        let event = |kind| Event::new(kind).add_path(path.clone());
        let name = |mode| EventKind::Modify(ModifyKind::Name(mode));
        let data = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let renames = RecentRenames::default();
        for ends in [
            event(data),
            event(EventKind::Create(CreateKind::File)),
            event(EventKind::Access(AccessKind::Close(AccessMode::Write))),
            event(name(RenameMode::From)),
            Event::new(EventKind::Other).set_flag(Flag::Rescan),
        ] {
            renames.note(&event(name(RenameMode::To)));
            renames.note(&event(name(RenameMode::Both)));
            renames.note(&event(EventKind::Access(AccessKind::Close(AccessMode::Read))));
            renames.note(&event(EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any))));
            assert!(renames.has(&path));
            renames.note(&ends);
            assert!(!renames.has(&path), "{ends:?}");
        }
        for number in 0..=MAX_RENAMED_PATHS {
            let path = PathBuf::from(format!("/f/{number}"));
            renames.note(&Event::new(name(RenameMode::To)).add_path(path));
        }
        assert!(renames.0.lock().len() <= MAX_RENAMED_PATHS);
    }
}
