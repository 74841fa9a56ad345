//! Task ids as clients know them: unique across servers, and resolvable to the server of the task.
//!
//! `SERVER.NATIVE` if the gateway requires no credentials, `SERVER.TAG.NATIVE` for a configured
//! client. The tag is a MAC over the id and the client's name, so that an id is valid only for the
//! client that received it, however its server makes ids (SEP-2663, "Security Implications": ids
//! are bearer tokens). Nothing is stored: ids are valid as long as the keys.
//!
//! `SERVER~TOOL` replaces `SERVER` in the id of a task if the configuration changes the results of
//! its tool: the task's final result is changed as well, whenever it is fetched.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use trunkline_core::crypto::derive_key;

use crate::call::{NativeName, Principal, ServerName};

/// A task of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskOrigin<'a> {
    /// The server.
    pub server: ServerName,
    /// The tool that was called, if its results are changed.
    pub tool: Option<NativeName>,
    /// The server's own id.
    pub native: &'a str,
}

impl TaskOrigin<'_> {
    /// The first part of the public id.
    fn place(&self) -> String {
        match &self.tool {
            None => self.server.to_string(),
            Some(tool) => format!("{}~{}", self.server, URL_SAFE_NO_PAD.encode(tool.as_str())),
        }
    }

    /// Reads the first part of a public id.
    fn parse_place(place: &str) -> Option<(ServerName, Option<NativeName>)> {
        let (server, tool) = match place.split_once('~') {
            None => (place, None),
            Some((server, tool)) => {
                let tool = URL_SAFE_NO_PAD.decode(tool).ok()?;
                (server, Some(NativeName::new(std::str::from_utf8(&tool).ok()?)))
            }
        };
        Some((ServerName::new(server).ok()?, tool))
    }
}

/// Builds public ids and verifies them.
pub struct TaskIds {
    /// The keys, newest first: the first one signs, all of them verify.
    keys: Vec<hmac::Key>,
}

impl TaskIds {
    /// Signs with the first secret, verifies with any of them.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let key = |secret| hmac::Key::new(HMAC_SHA256, &derive_key(KEY_PURPOSE, secret));
        Self { keys: secrets.into_iter().map(key).collect() }
    }

    /// The public id of a server's task, for `owner`.
    pub fn public(&self, owner: &Principal, task: &TaskOrigin<'_>) -> String {
        let (place, native) = (task.place(), task.native);
        match owner {
            Principal::Anonymous => format!("{place}.{native}"),
            Principal::Client(name) | Principal::User(name) => {
                let tag = self.keys.first().map(|key| tag(key, name, &place, native));
                format!("{place}.{}.{native}", tag.unwrap_or_default())
            }
        }
    }

    /// The task with a public id; `None` if the id does not belong to `owner`.
    pub fn origin<'a>(&self, owner: &Principal, public: &'a str) -> Option<TaskOrigin<'a>> {
        let (place, rest) = public.split_once('.')?;
        let (server, tool) = TaskOrigin::parse_place(place)?;
        let (Principal::Client(name) | Principal::User(name)) = owner else {
            return Some(TaskOrigin { server, tool, native: rest });
        };
        let (said, native) = rest.split_once('.')?;
        let is_right = |key: &hmac::Key| {
            let tag = tag(key, name, place, native);
            verify_slices_are_equal(tag.as_bytes(), said.as_bytes()).is_ok()
        };
        self.keys.iter().any(is_right).then_some(TaskOrigin { server, tool, native })
    }
}

impl std::fmt::Debug for TaskIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TaskIds({})", self.keys.len())
    }
}

/// The input of the MAC is unambiguous: the length delimits the client's name,
/// no first part of an id contains a newline, and the native id is last.
fn tag(key: &hmac::Key, client: &str, place: &str, native: &str) -> String {
    let text = format!("{}\n{client}\n{place}\n{native}", client.len());
    let mac = hmac::sign(key, text.as_bytes());
    let short = mac.as_ref().get(..TAG_BYTES).unwrap_or_default();
    URL_SAFE_NO_PAD.encode(short)
}

/// The length of a tag before encoding.
const TAG_BYTES: usize = 16;
const KEY_PURPOSE: &[u8] = b"trunkline task id key\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(secrets: &[&str]) -> TaskIds {
        TaskIds::new(secrets.iter().map(|secret| secret.as_bytes()))
    }

    #[test]
    fn an_id_of_an_earlier_version_is_valid() {
        let origin =
            ids(&["two", "one"]).origin(&client("ann"), "s.88dyUmSNhx66f98aXQZs1g.task-1").unwrap();
        assert_eq!((origin.server.as_str(), origin.native), ("s", "task-1"));
    }

    fn client(name: &str) -> Principal {
        Principal::Client(name.into())
    }

    fn task(native: &str) -> TaskOrigin<'_> {
        TaskOrigin { server: ServerName::new("s-1").unwrap(), tool: None, native }
    }

    #[test]
    fn an_id_is_good_for_its_owner_alone() {
        let ids = ids(&["one"]);
        let id = ids.public(&client("ann"), &task("7"));
        assert_eq!(ids.origin(&client("ann"), &id), Some(task("7")));
        assert_eq!(ids.origin(&client("bob"), &id), None);
        let anyones = ids.public(&Principal::Anonymous, &task("7"));
        assert_eq!(anyones, "s-1.7");
        assert_eq!(ids.origin(&client("ann"), &anyones), None);
        for guess in ["7", "s-1.7", "s-1..7", "", ".", &id.replace(".7", ".8"), &id[1..]] {
            assert_eq!(ids.origin(&client("ann"), guess), None, "{guess}");
        }
    }

    #[test]
    fn a_clients_id_cannot_be_made_one_of_another_tool() {
        let (ids, ann) = (ids(&["one"]), client("ann"));
        let of_tool = |tool| TaskOrigin { tool: Some(NativeName::new(tool)), ..task("7") };
        let id = ids.public(&ann, &of_tool("a"));
        assert_eq!(ids.origin(&ann, &id), Some(of_tool("a")));
        let (place, rest) = id.split_once('.').unwrap();
        let other = ids.public(&ann, &of_tool("b"));
        let (other, _) = other.split_once('.').unwrap();
        assert_ne!(place, other);
        for place in ["s-1", other, "s-1~", "s-1~!"] {
            assert_eq!(ids.origin(&ann, &format!("{place}.{rest}")), None, "{place}");
        }
    }

    #[test]
    fn keys_rotate() {
        let (old, both, new) = (ids(&["one"]), ids(&["two", "one"]), ids(&["two"]));
        let ann = client("ann");
        let by_old = old.public(&ann, &task("7"));
        let by_both = both.public(&ann, &task("7"));
        assert_eq!(both.origin(&ann, &by_old), Some(task("7")));
        assert_eq!(new.origin(&ann, &by_both), Some(task("7")));
        assert_eq!(new.origin(&ann, &by_old), None);
    }

    proptest! {
        #[test]
        fn every_id_leads_back(
            native in any::<String>(),
            owner in proptest::option::of("[a-z]{1,8}"),
            tool in proptest::option::of(any::<String>()),
        ) {
            let owner = owner.map_or(Principal::Anonymous, |name| client(&name));
            let ids = ids(&["one"]);
            let tool = tool.as_deref().map(NativeName::new);
            let origin = TaskOrigin { tool, ..task(&native) };
            let public = ids.public(&owner, &origin);
            prop_assert_eq!(ids.origin(&owner, &public), Some(origin));
        }
    }
}
