//! The user that a child runs as.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use trunkline_config::{ChildUser, OwnUser, UidRange};
use trunkline_core::crypto::sha256;

use super::policy::{SandboxError, UserIds};

/// Returns the numbers of a user.
pub(super) fn find_user(user: &ChildUser) -> Result<UserIds, SandboxError> {
    match user {
        ChildUser::Ids { user, group } => Ok(UserIds { user: *user, group: *group }),
        ChildUser::Name(name) => {
            let users = fs::read_to_string(USERS_FILE).map_err(SandboxError::Users)?;
            find_name(&users, name).ok_or_else(|| SandboxError::NoUser { name: name.clone() })
        }
    }
}

/// Finds a name in the text of `/etc/passwd`.
fn find_name(users: &str, name: &str) -> Option<UserIds> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let mut ids = fields.skip(1).map(str::parse);
        Some(UserIds { user: ids.next()?.ok()?, group: ids.next()?.ok()? })
    })
}

/// Finds the user of a server, and its home. The owner of the home is the user. A server without a
/// home gets one, with a number of the range that no other home has.
pub(super) fn own_user(own: &OwnUser) -> Result<(UserIds, PathBuf), SandboxError> {
    if !rustix::process::geteuid().is_root() {
        return Err(SandboxError::NotRoot);
    }
    let home = own.folder.join(&own.server);
    let unusable = |cause| SandboxError::Home { folder: home.clone(), cause };
    DirBuilder::new().recursive(true).mode(0o755).create(&own.folder).map_err(unusable)?;
    // Other servers start at the same time, including those of other gateways.
    let lock = File::open(&own.folder).map_err(unusable)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|errno| unusable(errno.into()))?;
    let UidRange { first, last } = own.range;
    let user = match home.symlink_metadata() {
        Ok(found) if (first..=last).contains(&found.uid()) && found.is_dir() => found.uid(),
        Ok(found) => {
            return Err(SandboxError::HomeOwner { folder: home, owner: found.uid() });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let taken = taken_users(&own.folder).map_err(unusable)?;
            let user = choose_user(&own.server, own.range, &taken);
            let user = user.ok_or(SandboxError::NoUserLeft)?;
            make_home(&home, user).map_err(unusable)?;
            user
        }
        Err(error) => return Err(unusable(error)),
    };
    Ok((UserIds { user, group: user }, home))
}

/// Returns the owners of all homes.
fn taken_users(folder: &Path) -> io::Result<HashSet<u32>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.metadata()?.uid())).collect()
}

/// Chooses a number by the server's name, so that the numbers do not depend on the order of starts,
/// as far as the range has room.
fn choose_user(server: &str, range: UidRange, taken: &HashSet<u32>) -> Option<u32> {
    let UidRange { first, last } = range;
    let [a, b, c, d, ..] = sha256(server.as_bytes());
    let offset = u64::from(u32::from_be_bytes([a, b, c, d]));
    let count = u64::from(last - first) + 1;
    let users = (0..count).map(|step| (offset + step) % count + u64::from(first));
    users.filter_map(|user| u32::try_from(user).ok()).find(|user| !taken.contains(user))
}

/// Creates the home under a temporary name first, so that a home with its final name always has its
/// owner.
fn make_home(home: &Path, user: u32) -> io::Result<()> {
    let unfinished = home.with_extension("new");
    let _earlier = fs::remove_dir(&unfinished);
    DirBuilder::new().mode(0o700).create(&unfinished)?;
    chown(&unfinished, Some(user), Some(user))?;
    fs::rename(&unfinished, home)
}

const USERS_FILE: &str = "/etc/passwd";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_chooses_its_number_and_avoids_those_that_are_taken() {
        let range = UidRange { first: 1000, last: 1002 };
        let first = choose_user("files", range, &HashSet::new()).unwrap();
        assert_eq!(choose_user("files", range, &HashSet::from([0, 999])), Some(first));
        let second = choose_user("files", range, &HashSet::from([first])).unwrap();
        let third = choose_user("files", range, &HashSet::from([first, second])).unwrap();
        assert_eq!(HashSet::from([first, second, third]), HashSet::from([1000, 1001, 1002]));
        assert_eq!(choose_user("files", range, &HashSet::from([1000, 1001, 1002])), None);
        let whole = UidRange { first: 1, last: u32::MAX - 1 };
        assert!(choose_user("files", whole, &HashSet::new()).is_some());
    }

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\nmcp-x:x:7:8::/:\nmcp:x:1001:1002::/:/bin/false\n";
        assert_eq!(find_name(users, "mcp"), Some(UserIds { user: 1001, group: 1002 }));
        assert_eq!(find_name(users, "mc"), None);
        assert_eq!(find_name("mcp:x:a:b", "mcp"), None);
    }
}
