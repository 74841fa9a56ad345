//! Records that replicas share in the store: grants of logins, locks for their renewal, logins in
//! progress, accepted definitions, last known lists, and disabled servers.
//!
//! The value of a record is sealed with a key of `gateway.state_keys`, and bound to its kind and name:
//! the store can neither read it nor show it under another name. The name is a digest without a key, so
//! that a rotation of the keys changes no name.

use std::sync::Arc;

use async_trait::async_trait;
use data_encoding::HEXLOWER;

use super::store::{MAX_RECORD_BYTES, RecordChange, RecordKey, StoreHealth};
use super::{ClusterStoreError, ValueFault};
use crate::crypto::{Sealer, sha256};
use crate::shared_records::{
    NewRecord, RecordPlace, SharedRecord, SharedRecordKind, SharedRecords, SharingFault,
};

/// Sealed records in the store.
#[derive(Debug)]
pub(crate) struct SealedRecords {
    health: Arc<StoreHealth>,
    sealer: Sealer,
}

impl SealedRecords {
    pub(super) fn new(health: Arc<StoreHealth>, sealer: Sealer) -> Self {
        Self { health, sealer }
    }

    /// Runs an access to a record of this kind.
    async fn access<T>(
        &self,
        kind: SharedRecordKind,
        access: impl Future<Output = Result<T, ClusterStoreError>>,
    ) -> Result<T, SharingFault> {
        let reply = self.health.access_record(collection_of(kind), access).await;
        reply.ok_or(SharingFault::Unavailable)
    }
}

#[cfg(test)]
impl SealedRecords {
    /// Creates the records of a replica with this store.
    pub(crate) fn in_tests(store: &Arc<super::MemoryStore>) -> Arc<dyn SharedRecords> {
        let degrade = crate::config::DegradeChoice::Local;
        let health = StoreHealth::in_tests(Arc::clone(store) as _, degrade);
        let sealer = Sealer::new(SHARED_RECORD_PURPOSE, [&b"key"[..]]);
        Arc::new(Self::new(health, sealer.expect("a key")))
    }
}

#[async_trait]
impl SharedRecords for SealedRecords {
    async fn read(&self, place: RecordPlace<'_>) -> Result<Option<SharedRecord>, SharingFault> {
        let name = name_of(place);
        let reading = self.health.store().read_record(key_of(place, &name));
        let found = self.access(place.kind, reading).await?;
        Ok(found.map(|sealed| {
            let value = self.sealer.open(name.as_bytes(), &sealed);
            if value.is_none() {
                self.health.note_value(collection_of(place.kind), ValueFault::Unsealed);
            }
            SharedRecord { value: value.unwrap_or_default(), sealed }
        }))
    }

    async fn read_version(
        &self,
        place: RecordPlace<'_>,
    ) -> Result<Option<SharedRecord>, SharingFault> {
        let name = name_of(place);
        let reading = self.health.store().read_version(key_of(place, &name));
        let found = self.access(place.kind, reading).await?;
        Ok(found.map(|version| SharedRecord { value: Vec::new(), sealed: version.to_vec() }))
    }

    async fn write(
        &self,
        place: RecordPlace<'_>,
        expected: Option<&SharedRecord>,
        new: NewRecord<'_>,
    ) -> Result<Option<SharedRecord>, SharingFault> {
        let (name, value) = (name_of(place), new.value.to_vec());
        let sealed = self.sealer.seal(name.as_bytes(), value.clone());
        let sealed = sealed.map_err(|_| SharingFault::Unavailable)?;
        let limit = key_of(place, &name).max_bytes;
        if sealed.len() > limit {
            return Err(SharingFault::TooLarge { bytes: sealed.len(), limit });
        }
        let change = RecordChange::Write { bytes: &sealed, lifetime: new.lifetime };
        let expected = expected.map(|record| &*record.sealed);
        let writing = self.health.store().replace_record(key_of(place, &name), expected, change);
        let is_written = self.access(place.kind, writing).await?;
        Ok(is_written.then_some(SharedRecord { value, sealed }))
    }

    async fn remove(
        &self,
        place: RecordPlace<'_>,
        expected: &SharedRecord,
    ) -> Result<bool, SharingFault> {
        let name = name_of(place);
        let change = RecordChange::Remove;
        let key = key_of(place, &name);
        let removing = self.health.store().replace_record(key, Some(&expected.sealed), change);
        self.access(place.kind, removing).await
    }
}

/// Returns the name of a record: a digest, which is also the associated data of its seal.
fn name_of(place: RecordPlace<'_>) -> String {
    let kind = collection_of(place.kind).as_bytes();
    HEXLOWER.encode(&sha256(&[NAME_PURPOSE, kind, b" ", place.name.as_bytes()].concat()))
}

fn key_of<'a>(place: RecordPlace<'_>, name: &'a str) -> RecordKey<'a> {
    let max_bytes = match place.kind {
        SharedRecordKind::Definitions => MAX_BASELINE_BYTES,
        SharedRecordKind::Lists => MAX_LISTS_BYTES,
        SharedRecordKind::DisabledServers => MAX_DISABLED_BYTES,
        _ => MAX_RECORD_BYTES,
    };
    RecordKey { collection: collection_of(place.kind), name, max_bytes }
}

fn collection_of(kind: SharedRecordKind) -> &'static str {
    match kind {
        SharedRecordKind::Grant => "grants",
        SharedRecordKind::Renewal => "renewals",
        SharedRecordKind::Link => "links",
        SharedRecordKind::Login => "logins",
        SharedRecordKind::Browser => "browsers",
        SharedRecordKind::Definitions => "definitions",
        SharedRecordKind::Lists => "lists",
        SharedRecordKind::DisabledServers => "disabled",
        SharedRecordKind::ServerLease => "instances",
    }
}

/// The most bytes of the list of disabled servers.
const MAX_DISABLED_BYTES: usize = 1 << 20;
/// The most bytes of the lists of one server.
const MAX_LISTS_BYTES: usize = 4 << 20;
/// The most bytes of the accepted definitions of one server.
const MAX_BASELINE_BYTES: usize = 1 << 20;
/// Purpose of the keys that seal records.
pub(super) const SHARED_RECORD_PURPOSE: &[u8] = b"trunkline shared record";
/// Purpose of the digests that name records.
const NAME_PURPOSE: &[u8] = b"trunkline shared record ";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cluster::MemoryStore;
    use crate::config::DegradeChoice;

    const PLACE: RecordPlace<'static> = RecordPlace { kind: SharedRecordKind::Grant, name: "ann" };

    fn replica(store: &Arc<MemoryStore>, keys: &[&str]) -> SealedRecords {
        let health = StoreHealth::in_tests(Arc::clone(store) as _, DegradeChoice::Local);
        let keys = keys.iter().map(|key| key.as_bytes());
        SealedRecords::new(health, Sealer::new(SHARED_RECORD_PURPOSE, keys).unwrap())
    }

    fn new(value: &[u8]) -> NewRecord<'_> {
        NewRecord { value, lifetime: None }
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_read_each_others_records_also_while_keys_are_replaced() {
        let store = Arc::new(MemoryStore::default());
        let [a, b] = [replica(&store, &["old"]), replica(&store, &["new", "old"])];
        let first = a.write(PLACE, None, new(b"one")).await.unwrap().unwrap();
        assert_eq!(b.read(PLACE).await.unwrap().as_ref(), Some(&first));
        assert_eq!(b.write(PLACE, None, new(b"two")).await, Ok(None));
        let second = b.write(PLACE, Some(&first), new(b"two")).await.unwrap().unwrap();
        assert_eq!(a.write(PLACE, Some(&first), new(b"three")).await, Ok(None));
        // The replica without the new key cannot read it, and does not take it for missing.
        let unread = a.read(PLACE).await.unwrap().unwrap();
        assert_eq!((&*unread.value, &unread.sealed), (&b""[..], &second.sealed));
        assert_eq!(a.remove(PLACE, &first).await, Ok(false));
        assert_eq!(a.remove(PLACE, &second).await, Ok(true));
        assert_eq!(b.read(PLACE).await, Ok(None));
        tokio::time::advance(Duration::from_hours(24 * 3650)).await;
        a.write(PLACE, None, new(b"four")).await.unwrap().unwrap();
        tokio::time::advance(Duration::from_hours(24 * 3650)).await;
        assert_eq!(a.read(PLACE).await.unwrap().unwrap().value, b"four", "it does not expire");
    }

    #[tokio::test]
    async fn a_record_is_bound_to_its_name_and_kind_and_the_store_cannot_read_it() {
        let store = Arc::new(MemoryStore::default());
        let replica = replica(&store, &["key"]);
        let record = replica.write(PLACE, None, new(b"a secret token")).await.unwrap().unwrap();
        assert!(!record.sealed.windows(6).any(|it| it == b"secret"));
        let others = [
            RecordPlace { name: "bob", ..PLACE },
            RecordPlace { kind: SharedRecordKind::Renewal, ..PLACE },
        ];
        for other in others {
            assert_ne!(name_of(other), name_of(PLACE));
            let (name, change) =
                (name_of(other), RecordChange::Write { bytes: &record.sealed, lifetime: None });
            crate::cluster::RecordStore::replace_record(
                &*store,
                key_of(other, &name),
                None,
                change,
            )
            .await
            .unwrap();
            assert_eq!(replica.read(other).await.unwrap().unwrap().value, b"", "it was moved");
        }
    }

    #[tokio::test]
    async fn large_records_and_a_failing_store_are_faults() {
        let store = Arc::new(MemoryStore::default());
        let replica = replica(&store, &["key"]);
        for (kind, limit) in [
            (SharedRecordKind::Grant, MAX_RECORD_BYTES),
            (SharedRecordKind::Definitions, MAX_BASELINE_BYTES),
            (SharedRecordKind::Lists, MAX_LISTS_BYTES),
            (SharedRecordKind::DisabledServers, MAX_DISABLED_BYTES),
        ] {
            let place = RecordPlace { kind, name: "ann" };
            let large = vec![b'x'; limit - 28];
            assert!(replica.write(place, None, new(&large)).await.unwrap().is_some(), "{kind:?}");
            let larger = vec![b'x'; limit - 27];
            let fault = SharingFault::TooLarge { bytes: limit + 1, limit };
            assert_eq!(replica.write(place, None, new(&larger)).await, Err(fault), "{kind:?}");
        }
        store.fail(true);
        for _ in 0..2 {
            assert_eq!(replica.read(PLACE).await, Err(SharingFault::Unavailable));
        }
    }
}
