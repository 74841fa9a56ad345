//! Ids of Legacy sessions, and of event streams of 2024-11-05, that name their owner.
//!
//! An id is the owner's id and random bytes, sealed with the principal and the endpoint as associated
//! data. Any replica opens it with the identity of the request, so there is no table of sessions, and
//! an id is worthless to another caller.

use std::collections::HashMap;
use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::{ClusterError, ReplicaId};
use crate::call::{Endpoint, Principal, ProfileName};
use crate::crypto::{NONCE_LEN, Sealer, random_bytes};

/// Creates and opens ids of one kind.
#[derive(Debug)]
pub(super) struct SessionIds {
    own: ReplicaId,
    sealer: Sealer,
    /// Ids that were opened: each request for a session of another replica asks for it several times.
    opened: Mutex<HashMap<Box<str>, OpenedId, RandomState>>,
}

/// The owner of a session, and the identity that its id has opened for.
#[derive(Debug)]
struct OpenedId {
    owner: ReplicaId,
    principal: Principal,
    endpoint: Endpoint,
}

impl SessionIds {
    pub(super) fn new(own: ReplicaId, sealer: Sealer) -> Self {
        Self { own, sealer, opened: Mutex::default() }
    }

    /// Creates the id of a session or a stream of this replica.
    pub(super) fn create(
        &self,
        principal: &Principal,
        endpoint: &Endpoint,
    ) -> Result<Arc<str>, ClusterError> {
        let mut plain = self.own.as_bytes().to_vec();
        plain.extend(random_bytes::<RANDOM_BYTES>()?);
        let sealed = self.sealer.seal(&bind(principal, endpoint), plain)?;
        Ok(BASE64URL_NOPAD.encode(&sealed).into())
    }

    /// Returns the owner; `None` if the id is of no replica, or was created for another principal or
    /// endpoint.
    pub(super) fn owner_of(
        &self,
        id: &str,
        principal: &Principal,
        endpoint: &Endpoint,
    ) -> Option<ReplicaId> {
        if id.len() != ENCODED_BYTES {
            return None;
        }
        if let Some(known) = self.opened.lock().get(id)
            && (&known.principal, &known.endpoint) == (principal, endpoint)
        {
            return Some(known.owner);
        }
        let sealed = BASE64URL_NOPAD.decode(id.as_bytes()).ok()?;
        let plain = self.sealer.open(&bind(principal, endpoint), &sealed)?;
        let owner = plain.first_chunk().copied().map(ReplicaId::new)?;
        self.note_opened(
            id,
            OpenedId { owner, principal: principal.clone(), endpoint: endpoint.clone() },
        );
        Some(owner)
    }

    fn note_opened(&self, id: &str, opened_id: OpenedId) {
        let mut opened = self.opened.lock();
        if opened.len() >= MAX_OPENED_IDS {
            opened.clear();
        }
        opened.insert(id.into(), opened_id);
    }
}

/// Writes a principal and an endpoint in a form that no other pair has.
pub(super) fn bind(principal: &Principal, endpoint: &Endpoint) -> Vec<u8> {
    let kind = match principal {
        Principal::Anonymous => b'a',
        Principal::Client(_) => b'c',
        Principal::User(_) => b'u',
    };
    let mut bound = vec![kind];
    let profile = endpoint.profile.as_ref().map(ProfileName::as_str);
    for part in [Some(principal.as_str()), profile, endpoint.narrowing.as_deref()] {
        bound.push(u8::from(part.is_some()));
        let part = part.unwrap_or_default();
        bound.extend((part.len() as u64).to_be_bytes());
        bound.extend(part.as_bytes());
    }
    bound
}

/// Limit of the ids that are remembered. They are opened again after that.
const MAX_OPENED_IDS: usize = 10_000;
/// Random bytes of an id.
const RANDOM_BYTES: usize = 16;
/// Characters of an id: nonce, owner, random bytes and the tag of 16 bytes.
const ENCODED_BYTES: usize =
    ((NONCE_LEN + ReplicaId::ID_BYTES + RANDOM_BYTES + 16) * 8).div_ceil(6);

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(own: u8) -> SessionIds {
        let sealer = Sealer::new(b"test", [&b"a shared key"[..]]).unwrap();
        SessionIds::new(ReplicaId::new([own; 8]), sealer)
    }

    fn at(profile: Option<&str>, narrowing: Option<&str>) -> Endpoint {
        Endpoint {
            profile: profile.map(|name| ProfileName::new(name).unwrap()),
            narrowing: narrowing.map(Into::into),
        }
    }

    #[test]
    fn any_replica_finds_the_owner_and_no_other_caller_does() {
        let (client, user) = (Principal::Client("x".into()), Principal::User("x".into()));
        let endpoint = at(Some("p"), Some("q"));
        let id = ids(1).create(&client, &endpoint).unwrap();
        assert_eq!(id.len(), ENCODED_BYTES);
        let owner = Some(ReplicaId::new([1; 8]));
        assert_eq!(ids(2).owner_of(&id, &client, &endpoint), owner);
        assert_eq!(ids(1).owner_of(&id, &client, &endpoint), owner);
        for (principal, endpoint) in [
            (&user, endpoint.clone()),
            (&Principal::Anonymous, endpoint.clone()),
            (&Principal::Client("y".into()), endpoint.clone()),
            (&client, at(Some("p"), None)),
            (&client, at(Some("pq"), None)),
            (&client, at(None, Some("q"))),
            (&client, at(Some("q"), Some("p"))),
        ] {
            assert_eq!(ids(2).owner_of(&id, principal, &endpoint), None, "{principal:?}");
            // Nor at a replica that has opened the id for its own principal and endpoint.
            let opened = ids(2);
            for _ in 0..2 {
                assert_eq!(opened.owner_of(&id, &client, &at(Some("p"), Some("q"))), owner);
                assert_eq!(opened.owner_of(&id, principal, &endpoint), None, "{principal:?}");
            }
        }
        for text in ["", "x", &id[1..], &format!("{id}A"), &id.replace(&id[5..6], "!")] {
            assert_eq!(ids(2).owner_of(text, &client, &endpoint), None, "{text}");
        }
    }

    #[test]
    fn a_bounded_number_of_ids_is_remembered() {
        let (ids, who, endpoint) = (ids(1), Principal::Anonymous, Endpoint::default());
        for _ in 0..=MAX_OPENED_IDS {
            let id = ids.create(&who, &endpoint).unwrap();
            assert!(ids.owner_of(&id, &who, &endpoint).is_some());
        }
        assert_eq!(ids.opened.lock().len(), 1);
    }

    #[test]
    fn ids_do_not_repeat_and_have_one_spelling() {
        let (who, endpoint) = (Principal::Anonymous, Endpoint::default());
        let (one, other) = (ids(1), ids(1));
        let id = one.create(&who, &endpoint).unwrap();
        assert_ne!(id, other.create(&who, &endpoint).unwrap());
        let last = id.chars().next_back().unwrap();
        let spellings = ('A'..='Z').chain('a'..='z').chain('0'..='9').filter(|it| *it != last);
        for spelling in spellings {
            let text = format!("{}{spelling}", &id[..id.len() - 1]);
            assert_eq!(one.owner_of(&text, &who, &endpoint), None, "{spelling}");
        }
    }
}
