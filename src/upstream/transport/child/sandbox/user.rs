//! The user that a child runs as.

use std::fs;

use super::policy::{SandboxError, UserIds};
use crate::config::ChildUser;

/// The numbers of a user.
pub(super) fn find_user(user: &ChildUser) -> Result<UserIds, SandboxError> {
    match user {
        ChildUser::Ids { user, group } => Ok(UserIds { user: *user, group: *group }),
        ChildUser::Name(name) => {
            let users = fs::read_to_string(USERS).map_err(SandboxError::Users)?;
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

const USERS: &str = "/etc/passwd";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\nmcp-x:x:7:8::/:\nmcp:x:1001:1002::/:/bin/false\n";
        assert_eq!(find_name(users, "mcp"), Some(UserIds { user: 1001, group: 1002 }));
        assert_eq!(find_name(users, "mc"), None);
        assert_eq!(find_name("mcp:x:a:b", "mcp"), None);
    }
}
