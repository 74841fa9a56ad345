//! Task ids as clients know them: unique across servers, and resolvable to the
//! server of the task.
//!
//! `SERVER.NATIVE` if the gateway requires no credentials, `SERVER.TAG.NATIVE`
//! for a configured client. The tag is a MAC over the id and the client's name,
//! so that an id is valid only for the client that received it, however its
//! server makes ids (SEP-2663, "Security Implications": ids are bearer tokens).
//! Nothing is stored: ids are valid as long as the keys.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::call::{Principal, ServerName};

/// Builds public ids and verifies them.
pub struct TaskIds {
    /// The keys, newest first: the first one signs, all of them verify.
    keys: Vec<hmac::Key>,
}

impl TaskIds {
    /// Signs with the first secret, verifies with any of them.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let key = |secret: &[u8]| {
            let purpose = hmac::Key::new(HMAC_SHA256, KEY_PURPOSE);
            hmac::Key::new(HMAC_SHA256, hmac::sign(&purpose, secret).as_ref())
        };
        Self { keys: secrets.into_iter().map(key).collect() }
    }

    /// The public id of a server's task, for `owner`.
    pub fn public(&self, owner: &Principal, server: &ServerName, native: &str) -> String {
        match owner {
            Principal::Anonymous => format!("{server}.{native}"),
            Principal::Client(name) => {
                let tag = self.keys.first().map(|key| tag(key, name, server, native));
                format!("{server}.{}.{native}", tag.unwrap_or_default())
            }
        }
    }

    /// The server of a task and the server's own id for it; `None` if the id
    /// does not belong to `owner`.
    pub fn native<'a>(&self, owner: &Principal, public: &'a str) -> Option<(ServerName, &'a str)> {
        let (server, rest) = public.split_once('.')?;
        let server = ServerName::new(server).ok()?;
        let Principal::Client(name) = owner else { return Some((server, rest)) };
        let (said, native) = rest.split_once('.')?;
        let is_right = |key: &hmac::Key| {
            let tag = tag(key, name, &server, native);
            verify_slices_are_equal(tag.as_bytes(), said.as_bytes()).is_ok()
        };
        self.keys.iter().any(is_right).then_some((server, native))
    }
}

impl std::fmt::Debug for TaskIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TaskIds({})", self.keys.len())
    }
}

/// The input of the MAC is unambiguous: the length delimits the client's name,
/// no server name contains a newline, and the native id is last.
fn tag(key: &hmac::Key, client: &str, server: &ServerName, native: &str) -> String {
    let text = format!("{}\n{client}\n{server}\n{native}", client.len());
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

    fn client(name: &str) -> Principal {
        Principal::Client(name.into())
    }

    fn server() -> ServerName {
        ServerName::new("s-1").unwrap()
    }

    #[test]
    fn an_id_is_good_for_its_owner_alone() {
        let ids = ids(&["one"]);
        let id = ids.public(&client("ann"), &server(), "7");
        assert_eq!(ids.native(&client("ann"), &id), Some((server(), "7")));
        assert_eq!(ids.native(&client("bob"), &id), None);
        let anyones = ids.public(&Principal::Anonymous, &server(), "7");
        assert_eq!(anyones, "s-1.7");
        assert_eq!(ids.native(&client("ann"), &anyones), None);
        for guess in ["7", "s-1.7", "s-1..7", "", ".", &id.replace(".7", ".8"), &id[1..]] {
            assert_eq!(ids.native(&client("ann"), guess), None, "{guess}");
        }
    }

    #[test]
    fn keys_rotate() {
        let (old, both, new) = (ids(&["one"]), ids(&["two", "one"]), ids(&["two"]));
        let ann = client("ann");
        let by_old = old.public(&ann, &server(), "7");
        let by_both = both.public(&ann, &server(), "7");
        assert_eq!(both.native(&ann, &by_old), Some((server(), "7")));
        assert_eq!(new.native(&ann, &by_both), Some((server(), "7")));
        assert_eq!(new.native(&ann, &by_old), None);
    }

    proptest! {
        #[test]
        fn every_id_leads_back(native in any::<String>(), owner in proptest::option::of("[a-z]{1,8}")) {
            let owner = owner.map_or(Principal::Anonymous, |name| client(&name));
            let ids = ids(&["one"]);
            let public = ids.public(&owner, &server(), &native);
            prop_assert_eq!(ids.native(&owner, &public), Some((server(), native.as_str())));
        }
    }
}
