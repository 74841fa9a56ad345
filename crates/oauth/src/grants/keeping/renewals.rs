//! Renewal of a grant by one replica at a time.
//!
//! A refresh token is valid for one request. The replica that writes the lock of a grant renews it; the
//! others wait until the record of the grant has changed. A lock expires, so that a replica that was
//! killed holds up no other for long.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use trunkline_core::clock;
use trunkline_core::shared_records::{
    NewRecord, RecordPlace, SharedRecord, SharedRecordKind, SharedRecords, SharingFault,
};

use crate::fault::LoginFault;
use crate::grants::authorizer::ServerAuthorizer;
use crate::grants::book::GrantSlot;
use crate::grants::grant::OauthGrant;

use super::{KeptGrant, revoke_unused};

/// The lock of a grant, held during its renewal.
struct RenewalLock<'a> {
    records: &'a Arc<dyn SharedRecords>,
    name: String,
    record: SharedRecord,
}

impl<'a> RenewalLock<'a> {
    /// Takes the lock; `None` if another replica has it.
    async fn take(
        records: &'a Arc<dyn SharedRecords>,
        name: String,
    ) -> Result<Option<Self>, SharingFault> {
        let new = NewRecord { value: LOCK_VALUE, lifetime: Some(LOCK_LIFETIME) };
        let written = records.write(place_of(&name), None, new).await?;
        Ok(written.map(|record| Self { records, name, record }))
    }

    /// Releases the lock, unless it has expired.
    async fn release(self) {
        // Without the store, it expires.
        let _ = self.records.remove(place_of(&self.name), &self.record).await;
    }
}

impl ServerAuthorizer {
    /// Renews a grant with its refresh token, and stores it. With several replicas, one of them does
    /// so. Returns the grant that is used from now on; `None` if it was revoked meanwhile.
    ///
    /// # Errors
    /// [`LoginFault`] if there is no newer grant.
    ///
    /// # Cancel safety
    /// Not safe: the authorization server's response would be lost. Called in a task of its own.
    pub(crate) async fn refresh_kept(
        &self,
        slot: &Arc<GrantSlot>,
        grant: &OauthGrant,
    ) -> Result<Option<Arc<OauthGrant>>, LoginFault> {
        let records = self.book.shared().filter(|_| self.shares_grants());
        let Some(records) = records else {
            let renewed = grant.refresh().await?;
            return Ok(self.keep_renewed(slot, renewed).await);
        };
        let deadline = clock::now() + MAX_LOCK_WAIT;
        let lock = loop {
            match self.book.compare_shared(slot, self).await? {
                KeptGrant::Newer(newer) => return Ok(Some(newer)),
                KeptGrant::Revoked => return Ok(None),
                KeptGrant::Same => {}
            }
            match RenewalLock::take(records, slot.key.record_name()).await? {
                Some(lock) => break lock,
                None if clock::now() >= deadline => return Err(SharingFault::Busy.into()),
                None => sleep(LOCK_PAUSE).await,
            }
        };
        let renewed = self.refresh_locked(records, slot, grant).await;
        lock.release().await;
        renewed
    }

    pub(super) async fn refresh_locked(
        &self,
        records: &Arc<dyn SharedRecords>,
        slot: &Arc<GrantSlot>,
        grant: &OauthGrant,
    ) -> Result<Option<Arc<OauthGrant>>, LoginFault> {
        // Another replica may have renewed it before this one took the lock.
        match self.book.compare_shared(slot, self).await? {
            KeptGrant::Newer(newer) => return Ok(Some(newer)),
            KeptGrant::Revoked => return Ok(None),
            KeptGrant::Same => {}
        }
        let renewed = grant.refresh().await?;
        let unused = match self.book.share_renewed(records, slot, renewed).await {
            Ok(stored) => return Ok(Some(stored)),
            Err(unused) => unused,
        };
        match self.book.compare_shared(slot, self).await? {
            // The owner has logged in again.
            KeptGrant::Newer(newer) => Ok(Some(newer)),
            KeptGrant::Revoked | KeptGrant::Same => {
                revoke_unused(slot, &unused).await;
                Ok(None)
            }
        }
    }
}

fn place_of(name: &str) -> RecordPlace<'_> {
    RecordPlace { kind: SharedRecordKind::Renewal, name }
}

/// The value of a lock. The seals of two locks differ.
const LOCK_VALUE: &[u8] = b"renewal";
/// Lifetime of a lock: longer than two requests to the authorization server, of 15 seconds each, and
/// the attempts to write the grant.
const LOCK_LIFETIME: Duration = Duration::from_secs(45);
/// Limit of the wait for the renewal of another replica: longer than a lock lives.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(50);
/// Pause between two attempts to take a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_core::shared_records::test_records::TestRecords;

    #[tokio::test]
    async fn one_replica_at_a_time_has_the_lock_of_a_grant() {
        let records: Arc<dyn SharedRecords> = Arc::new(TestRecords::default());
        let take = async |name: &str| RenewalLock::take(&records, name.to_owned()).await.unwrap();
        let first = take("ann").await.unwrap();
        assert!(take("ann").await.is_none());
        take("bob").await.unwrap().release().await;
        let stale = RenewalLock { record: first.record.clone(), name: "ann".into(), ..first };
        records.remove(place_of("ann"), &stale.record).await.unwrap();
        let second = take("ann").await.unwrap();
        // The lock of the first has expired: it does not release that of the second.
        stale.release().await;
        assert!(take("ann").await.is_none());
        second.release().await;
        assert!(take("ann").await.is_some());
    }
}
