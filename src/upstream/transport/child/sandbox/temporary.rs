//! A folder for the temporary files of one child.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use super::policy::UserIds;
use crate::crypto::random_bytes;

/// The folder, which is removed with everything in it when this is dropped.
#[derive(Debug)]
pub(in crate::upstream::transport::child) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Creates a folder that only this user, or the gateway's own, can use.
    pub(super) fn create(user: Option<UserIds>) -> io::Result<Self> {
        let name = format!("trunkline-{}", HEXLOWER.encode(&random_bytes::<16>()?));
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        let folder = Self(path);
        if let Some(UserIds { user, group }) = user {
            chown(&folder.0, Some(user), Some(group))?;
        }
        Ok(folder)
    }

    pub(in crate::upstream::transport::child) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        let remove = move || {
            if let Err(error) = fs::remove_dir_all(&path) {
                tracing::warn!(path = %path.display(), %error, "temporary files are left");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}
