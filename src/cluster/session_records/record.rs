//! The record of one session, sealed.

use data_encoding::HEXLOWER;

use crate::call::{Endpoint, Principal};
use crate::cluster::session_ids::bind;
use crate::cluster::store::MAX_SESSION_RECORD;
use crate::cluster::{ClusterStoreError, ReplicaId};
use crate::crypto::{NONCE_LEN, Sealer, derive_key};

/// A session: its id, and the principal and endpoint that it was opened for.
#[derive(Debug, Clone, Copy)]
pub struct SessionKey<'a> {
    /// The id.
    pub id: &'a str,
    /// The principal of the session's client.
    pub principal: &'a Principal,
    /// The endpoint that the session was opened at.
    pub endpoint: &'a Endpoint,
}

/// The place of a session's record in the store, and the data that it is sealed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordPlace {
    /// The name in the store: a digest of the id, which is random.
    pub(super) name: String,
    associated: Vec<u8>,
}

/// The record of a session in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Number of owners so far: 1 for the replica that opened the session.
    pub generation: u64,
    /// The replica that owns the session.
    pub owner: ReplicaId,
    /// The state that a new owner needs, of at most [`MAX_SESSION_STATE`].
    pub state: Vec<u8>,
}

impl RecordPlace {
    pub(super) fn of(key: SessionKey<'_>) -> Self {
        let mut associated = bind(key.principal, key.endpoint);
        associated.extend(key.id.as_bytes());
        Self { name: HEXLOWER.encode(&derive_key(NAME_PURPOSE, key.id.as_bytes())), associated }
    }
}

impl SessionRecord {
    /// Seals the record: a store cannot return it as that of another session.
    pub(super) fn seal(
        &self,
        sealer: &Sealer,
        place: &RecordPlace,
    ) -> Result<Vec<u8>, ClusterStoreError> {
        if self.state.len() > MAX_SESSION_STATE {
            return Err(ClusterStoreError::Seal);
        }
        let mut plain = vec![RECORD_FORMAT];
        plain.extend(self.generation.to_be_bytes());
        plain.extend(self.owner.as_bytes());
        plain.extend(&self.state);
        sealer.seal(&place.associated, plain).map_err(|_| ClusterStoreError::Seal)
    }

    /// Opens a record; `None` if it was not sealed for this session with the shared keys.
    pub(super) fn open(sealer: &Sealer, place: &RecordPlace, bytes: &[u8]) -> Option<Self> {
        let plain = sealer.open(&place.associated, bytes)?;
        let (format, rest) = plain.split_first()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let (owner, state) = rest.split_first_chunk()?;
        (*format == RECORD_FORMAT).then(|| Self {
            generation: u64::from_be_bytes(*generation),
            owner: ReplicaId::new(*owner),
            state: state.to_vec(),
        })
    }
}

/// Purpose of the digests that name records.
const NAME_PURPOSE: &[u8] = b"trunkline session record name";
/// The first byte of a record.
const RECORD_FORMAT: u8 = 1;
/// Bytes of a record besides the state: nonce, tag, format, generation and owner.
const RECORD_OVERHEAD: usize = NONCE_LEN + 16 + 1 + 8 + ReplicaId::ID_BYTES;
/// The most bytes of the state in a record.
pub const MAX_SESSION_STATE: usize = MAX_SESSION_RECORD - RECORD_OVERHEAD;

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(key: &str) -> Sealer {
        Sealer::new(b"test", [key.as_bytes()]).unwrap()
    }

    fn record(state: usize) -> SessionRecord {
        let owner = ReplicaId::new([7; 8]);
        SessionRecord { generation: 3, owner, state: vec![b'x'; state] }
    }

    #[test]
    fn a_record_opens_for_its_session_alone_and_only_whole() {
        let (client, user) = (Principal::Client("x".into()), Principal::User("x".into()));
        let endpoint = Endpoint::default();
        let narrow = Endpoint { narrowing: Some("n".into()), ..Endpoint::default() };
        let key = SessionKey { id: "id", principal: &client, endpoint: &endpoint };
        let place = RecordPlace::of(key);
        let sealed = record(40).seal(&sealer("shared"), &place).unwrap();
        let open = |place: &RecordPlace| SessionRecord::open(&sealer("shared"), place, &sealed);
        assert_eq!(open(&place), Some(record(40)));
        for other in [
            SessionKey { id: "other", ..key },
            SessionKey { principal: &user, ..key },
            SessionKey { principal: &Principal::Anonymous, ..key },
            SessionKey { endpoint: &narrow, ..key },
        ] {
            assert_eq!(open(&RecordPlace::of(other)), None, "{other:?}");
        }
        assert_eq!(SessionRecord::open(&sealer("other"), &place, &sealed), None);
        for length in 0..sealed.len() {
            assert_eq!(SessionRecord::open(&sealer("shared"), &place, &sealed[..length]), None);
        }
    }

    #[test]
    fn a_shorter_plaintext_or_one_of_another_format_is_no_record() {
        let endpoint = Endpoint::default();
        let key = SessionKey { id: "id", principal: &Principal::Anonymous, endpoint: &endpoint };
        let place = RecordPlace::of(key);
        for plain in [vec![], vec![RECORD_FORMAT; 16], vec![RECORD_FORMAT + 1; 40]] {
            let sealed = sealer("shared").seal(&place.associated, plain).unwrap();
            assert_eq!(SessionRecord::open(&sealer("shared"), &place, &sealed), None);
        }
    }

    #[test]
    fn a_record_has_a_limited_size_and_a_name_that_reveals_no_id() {
        let endpoint = Endpoint::default();
        let key = SessionKey { id: "id", principal: &Principal::Anonymous, endpoint: &endpoint };
        let place = RecordPlace::of(key);
        let largest = record(MAX_SESSION_STATE).seal(&sealer("shared"), &place).unwrap();
        assert_eq!(largest.len(), MAX_SESSION_RECORD);
        assert!(record(MAX_SESSION_STATE + 1).seal(&sealer("shared"), &place).is_err());
        assert_eq!(place.name.len(), 64);
        assert_ne!(place.name, RecordPlace::of(SessionKey { id: "ie", ..key }).name);
    }
}
