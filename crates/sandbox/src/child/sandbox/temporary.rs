//! A folder for the temporary files of one child.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Once;

use data_encoding::HEXLOWER;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::geteuid;

use trunkline_core::crypto::random_bytes;

use super::policy::UserIds;

/// The folder. Dropping this removes it with all its content. If the process is killed, the next
/// one that creates a folder removes it.
#[derive(Debug)]
pub(crate) struct TemporaryFolder {
    path: PathBuf,
    /// Locked: a folder without a lock belongs to a process that is gone.
    _lock: File,
}

impl TemporaryFolder {
    /// Creates a folder that only this user, or the gateway's own, can use.
    pub(super) fn create(user: Option<UserIds>) -> io::Result<Self> {
        static SWEPT_ONCE: Once = Once::new();
        let parent = std::env::temp_dir();
        SWEPT_ONCE.call_once(|| remove_abandoned(&parent));
        Self::create_in(&parent, user)
    }

    fn create_in(parent: &Path, user: Option<UserIds>) -> io::Result<Self> {
        let name = HEXLOWER.encode(&random_bytes::<16>()?);
        // The folder has this name until it is locked, so that no other gateway mistakes it for an
        // abandoned one.
        let unlocked = parent.join(format!("{UNLOCKED_PREFIX}{name}"));
        DirBuilder::new().mode(0o700).create(&unlocked)?;
        let path = parent.join(format!("{LOCKED_PREFIX}{name}"));
        let prepare = || {
            let lock = lock_folder(&unlocked)?;
            if let Some(UserIds { user, group }) = user {
                chown(&unlocked, Some(user), Some(group))?;
            }
            fs::rename(&unlocked, &path)?;
            Ok(lock)
        };
        match prepare() {
            Ok(lock) => Ok(Self { path, _lock: lock.into() }),
            Err(error) => {
                let _empty = fs::remove_dir(&unlocked);
                Err(error)
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        let remove = move || {
            if let Err(error) = fs::remove_dir_all(&path) {
                tracing::warn!(
                    target: "trunkline::upstream::child::sandbox::temporary",
                    path = %path.display(),
                    %error,
                    "cannot remove temporary files"
                );
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// Locks a folder, unless another process has locked it.
fn lock_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(path, flags, Mode::empty())?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    Ok(folder)
}

/// Removes the folders of processes that were killed.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(LOCKED_PREFIX));
        let is_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let path = entry.path();
        // Root gives folders to other users.
        let is_own = |path: &Path| {
            let owner = path.symlink_metadata().map(|metadata| metadata.uid());
            geteuid().is_root() || owner.is_ok_and(|owner| owner == geteuid().as_raw())
        };
        if !id.is_some_and(is_id) || !is_own(&path) {
            continue;
        }
        let Ok(_lock) = lock_folder(&path) else { continue };
        if let Err(error) = fs::remove_dir_all(&path) {
            tracing::warn!(
                target: "trunkline::upstream::child::sandbox::temporary",
                path = %path.display(),
                %error,
                "cannot remove temporary files of an earlier run"
            );
        }
    }
}

const LOCKED_PREFIX: &str = "trunkline-";
const UNLOCKED_PREFIX: &str = ".trunkline-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_processes_that_are_gone_are_removed_and_no_others() {
        let parent = tempfile::tempdir().unwrap();
        let used = TemporaryFolder::create_in(parent.path(), None).unwrap();
        fs::write(used.path().join("file"), "x").unwrap();
        let gone = TemporaryFolder::create_in(parent.path(), None).unwrap();
        let abandoned = gone.path().to_owned();
        fs::create_dir(abandoned.join("folder")).unwrap();
        fs::write(abandoned.join("folder/file"), "x").unwrap();
        // A killed process closes its files, and removes nothing.
        let TemporaryFolder { _lock: lock, .. } = &gone;
        flock(lock, FlockOperation::Unlock).unwrap();
        let other = parent.path().join("trunkline-notes");
        fs::create_dir(&other).unwrap();
        let link = parent.path().join(format!("{LOCKED_PREFIX}{}", "0".repeat(32)));
        std::os::unix::fs::symlink(&other, &link).unwrap();
        remove_abandoned(parent.path());
        assert!(!abandoned.exists());
        assert!(used.path().join("file").exists() && other.exists() && link.exists());
    }
}
