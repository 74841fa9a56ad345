//! URIs in results that were released to a client. The client may request them although no list
//! contains them, if their server's resources are subject to rules or holds.
//!
//! They are kept as digests, in this process alone. They give no access to resources that rules
//! deny or a hold covers.

use std::collections::{HashMap, HashSet, VecDeque};

use parking_lot::Mutex;

use crate::call::{Principal, ServerName};
use crate::crypto::sha256;
use crate::shares::Holder;

/// The released URIs of all clients.
#[derive(Default)]
pub(crate) struct ReleasedUris(Mutex<ReleasedByClient>);

#[derive(Default)]
struct ReleasedByClient {
    clients: HashMap<Holder, ReleasedToClient>,
    /// Counts the uses of all clients.
    uses: u64,
}

struct ReleasedToClient {
    principal: Principal,
    known: HashSet<UriDigest>,
    /// The same digests, the oldest first.
    order: VecDeque<UriDigest>,
    /// The number of the last use.
    used: u64,
}

type UriDigest = [u8; 16];

impl ReleasedUris {
    /// Records a URI of a server in a result for a client.
    pub(crate) fn note(&self, client: (&Principal, &Holder), server: &ServerName, native: &str) {
        let (principal, holder) = client;
        let digest = digest_of(server, native);
        let mut released = self.0.lock();
        released.uses += 1;
        let used = released.uses;
        if !released.clients.contains_key(holder) {
            released.make_room();
        }
        let own = released.clients.entry(holder.clone()).or_insert_with(|| ReleasedToClient {
            principal: principal.clone(),
            known: HashSet::new(),
            order: VecDeque::new(),
            used,
        });
        own.used = used;
        if own.known.insert(digest) {
            own.order.push_back(digest);
        }
        if own.order.len() > MAX_URIS_PER_CLIENT
            && let Some(oldest) = own.order.pop_front()
        {
            own.known.remove(&oldest);
        }
    }

    /// Returns true if a URI was released to a client.
    pub(crate) fn has(&self, holder: &Holder, server: &ServerName, native: &str) -> bool {
        let digest = digest_of(server, native);
        let mut released = self.0.lock();
        released.uses += 1;
        let used = released.uses;
        let own = released.clients.get_mut(holder);
        own.is_some_and(|own| {
            own.used = used;
            own.known.contains(&digest)
        })
    }

    /// Drops the URIs of unknown principals.
    pub(crate) fn retain(&self, keep: impl Fn(&Principal) -> bool) {
        self.0.lock().clients.retain(|_, own| keep(&own.principal));
    }
}

impl ReleasedByClient {
    /// Makes room for one more client: clients without credentials go first, then the least recently
    /// used.
    fn make_room(&mut self) {
        while self.clients.len() >= MAX_CLIENTS {
            let rank = |holder: &Holder, own: &ReleasedToClient| {
                (matches!(holder, Holder::Client(_)), own.used)
            };
            let oldest = self.clients.iter().min_by_key(|(holder, own)| rank(holder, own));
            let Some(oldest) = oldest.map(|(holder, _)| holder.clone()) else { return };
            self.clients.remove(&oldest);
        }
    }
}

fn digest_of(server: &ServerName, native: &str) -> UriDigest {
    let whole = sha256(format!("{server} {native}").as_bytes());
    let mut digest = UriDigest::default();
    digest.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
    digest
}

/// Limit of the URIs of one client; the oldest are forgotten.
const MAX_URIS_PER_CLIENT: usize = 1024;
/// Limit of clients with released URIs.
const MAX_CLIENTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_keeps_its_newest_uris_whatever_others_are_given() {
        let released = ReleasedUris::default();
        let server = ServerName::new("s").unwrap();
        let note = |holder: &Holder, uri: &str| {
            released.note((&Principal::Anonymous, holder), &server, uri);
        };
        let ann = Holder::Client("ann".into());
        for number in 0..=MAX_URIS_PER_CLIENT {
            note(&ann, &format!("x:{number}"));
        }
        assert!(!released.has(&ann, &server, "x:0") && released.has(&ann, &server, "x:1"));
        for number in 0..2 * u32::try_from(MAX_CLIENTS).unwrap() {
            note(&Holder::Address(std::net::Ipv4Addr::from(number).into()), "x:0");
        }
        assert_eq!(released.0.lock().clients.len(), MAX_CLIENTS);
        assert!(released.has(&ann, &server, "x:1"), "strangers make room for one another");
        let bob = Holder::Client("bob".into());
        assert!(!released.has(&bob, &server, "x:1"));
        assert!(!released.has(&ann, &ServerName::new("t").unwrap(), "x:1"));
        released.retain(|_| false);
        assert!(!released.has(&ann, &server, "x:1"));
    }
}
