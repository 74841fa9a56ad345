//! Grants in the store that replicas share.
//!
//! With such a store, it has all grants of persons, and each replica caches those that it uses. A cached
//! grant is compared with its record before a renewal, after a refusal of the server, and before a
//! request if the last comparison is older than [`COMPARISON_INTERVAL`]: a login, a renewal or a
//! revocation at another replica takes effect by then. A replica uses a grant that it has while the
//! store cannot be reached.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use trunkline_core::clock;
use trunkline_core::shared_records::{
    NewRecord, RecordEdit, RecordPlace, SharedRecord, SharedRecordKind, SharedRecords, SharingFault,
};
use trunkline_core::text::error_chain;
use trunkline_protocol::call::Principal;

use crate::grants::authorizer::ServerAuthorizer;
use crate::grants::book::{GrantBook, GrantKey, GrantSlot};
use crate::grants::grant::{GrantOwner, OauthGrant};
use crate::grants::stored::StoredGrant;
use crate::vault::{Vault, VaultRow};

use super::KeptGrant;

impl GrantBook {
    /// Keeps the grants of persons in a store that replicas share. Called once, before the vault is
    /// opened.
    pub fn share_grants(&self, records: Arc<dyn SharedRecords>) {
        // A second store would split the grants.
        let _ = self.shared.set(records);
    }

    /// Returns true if grants of persons are in a store that replicas share.
    pub fn shares_grants(&self) -> bool {
        self.shared.get().is_some()
    }

    /// Returns the shared store; `None` if the gateway is alone.
    pub(crate) fn shared(&self) -> Option<&Arc<dyn SharedRecords>> {
        self.shared.get()
    }

    /// Compares a grant with its record, because another replica may have renewed or revoked it.
    ///
    /// # Errors
    /// [`SharingFault`] if the store cannot be reached.
    pub(crate) async fn compare_shared(
        &self,
        slot: &Arc<GrantSlot>,
        authorizer: &ServerAuthorizer,
    ) -> Result<KeptGrant, SharingFault> {
        let Some(records) = self.shared() else { return Ok(KeptGrant::Same) };
        let (known, before) = (slot.grant.load_full(), slot.record.lock().clone());
        *slot.compared_at.lock() = Some(clock::now());
        let found = records.read(place_of(&slot.key.record_name())).await?;
        let Some(record) = found else {
            // That replica has recorded the revocation.
            if before.is_some() && slot.forget_revoked(known.as_ref()) {
                return Ok(KeptGrant::Revoked);
            }
            return Ok(KeptGrant::Same);
        };
        if before.as_ref() == Some(&record) {
            if slot.is_unshared.load(Ordering::Relaxed) {
                self.share_again(records, slot, known).await;
            }
            return Ok(KeptGrant::Same);
        }
        let grant = self.revive_shared(&slot.key, authorizer, &record);
        Ok(match grant.and_then(|grant| slot.adopt(before.as_ref(), grant, record)) {
            Some(grant) => {
                tracing::debug!(
                    target: "trunkline::upstream::credentials::grants::keeping::shared",
                    server = %slot.key.place.server,
                    "a login of another replica is used"
                );
                KeptGrant::Newer(grant)
            }
            None => KeptGrant::Same,
        })
    }

    /// Restores a grant from a record; `None` if it is of another client or issuer, or of an earlier
    /// client with the same name.
    fn revive_shared(
        &self,
        key: &GrantKey,
        authorizer: &ServerAuthorizer,
        record: &SharedRecord,
    ) -> Option<OauthGrant> {
        if let GrantOwner::Client(Principal::Client(name)) = &key.owner {
            let proofs = StoredGrant::read_proofs(&record.value).unwrap_or_default();
            if !self.client_keys.is_known_by(name, &proofs) {
                return None;
            }
            self.client_keys.note_login(name);
        }
        authorizer.revive_grant(&record.value)
    }

    /// Writes a grant that the store did not take when it was renewed.
    async fn share_again(
        &self,
        records: &Arc<dyn SharedRecords>,
        slot: &Arc<GrantSlot>,
        known: Option<Arc<OauthGrant>>,
    ) {
        let Some(known) = known else { return };
        let before = slot.record.lock().clone();
        let Some(value) = self.write_stored(&slot.key, &known) else { return };
        let new = NewRecord { value: &value, lifetime: None };
        let name = slot.key.record_name();
        let written = records.write(place_of(&name), before.as_ref(), new).await;
        if let Ok(Some(record)) = written {
            *slot.record.lock() = Some(record);
            slot.is_unshared.store(false, Ordering::Relaxed);
        }
    }

    /// Returns the stored form of a grant, with the keys of its client.
    fn write_stored(&self, key: &GrantKey, grant: &OauthGrant) -> Option<Vec<u8>> {
        let mut stored = StoredGrant::of(grant)?;
        stored.client_proofs = self.proofs_of(key);
        serde_json::to_vec(&stored).ok()
    }

    fn proofs_of(&self, key: &GrantKey) -> Option<BTreeSet<String>> {
        match &key.owner {
            GrantOwner::Client(Principal::Client(name)) => Some(self.client_keys.proofs_of(name)),
            _ => None,
        }
    }

    /// Writes the grant of a login. It replaces any other.
    ///
    /// # Errors
    /// [`SharingFault`].
    pub(super) async fn share_grant(
        &self,
        records: &Arc<dyn SharedRecords>,
        key: &GrantKey,
        grant: &OauthGrant,
    ) -> Result<SharedRecord, SharingFault> {
        let value = self.write_stored(key, grant).ok_or(SharingFault::Unavailable)?;
        let replace = |_: Option<&SharedRecord>| {
            Ok((RecordEdit::Write { value: value.clone(), lifetime: None }, ()))
        };
        let (written, ()) = records.edit(place_of(&key.record_name()), replace).await?;
        written.ok_or(SharingFault::Unavailable)
    }

    /// Stores a renewed grant, in the shared store first, over the record of the one that was renewed.
    ///
    /// # Errors
    /// The renewed grant, if another replica has revoked or replaced that one meanwhile.
    pub(super) async fn share_renewed(
        &self,
        records: &Arc<dyn SharedRecords>,
        slot: &Arc<GrantSlot>,
        grant: OauthGrant,
    ) -> Result<Arc<OauthGrant>, Box<OauthGrant>> {
        let (before, name) = (slot.record.lock().clone(), slot.key.record_name());
        let (place, value) = (place_of(&name), self.write_stored(&slot.key, &grant));
        for attempt in 1..=WRITE_ATTEMPTS {
            let new = NewRecord { value: value.as_deref().unwrap_or_default(), lifetime: None };
            match records.write(place, before.as_ref(), new).await {
                Ok(Some(record)) => return Ok(slot.put(grant, record)),
                Ok(None) => return Err(Box::new(grant)),
                Err(SharingFault::Unavailable) if attempt < WRITE_ATTEMPTS => {
                    sleep(WRITE_PAUSE).await;
                }
                Err(fault) => {
                    tracing::error!(
                        target: "trunkline::upstream::credentials::grants::keeping::shared",
                        server = %slot.key.place.server,
                        reason = error_chain(&fault),
                        "a renewed login is not shared: only this replica can use it"
                    );
                    break;
                }
            }
        }
        // The refresh token in the store is used up. The renewed one is written as soon as possible.
        slot.is_unshared.store(true, Ordering::Relaxed);
        Ok(slot.store(grant))
    }

    /// Removes the record of a grant that is of no use, unless another replica has replaced it.
    pub(super) async fn unshare_grant(
        &self,
        records: &Arc<dyn SharedRecords>,
        slot: &GrantSlot,
    ) -> Result<(), SharingFault> {
        let Some(record) = slot.record.lock().take() else { return Ok(()) };
        records.remove(place_of(&slot.key.record_name()), &record).await.map(drop)
    }

    /// Removes the record of a grant, whichever replica has written it.
    pub(crate) async fn revoke_shared(&self, key: &GrantKey) -> Result<(), SharingFault> {
        let Some(records) = self.shared() else { return Ok(()) };
        let remove = |_: Option<&SharedRecord>| Ok::<_, SharingFault>((RecordEdit::Remove, ()));
        records.edit(place_of(&key.record_name()), remove).await.map(drop)
    }

    /// Moves grants from the vault to the shared store, such as those of `trunkline login`. Returns the
    /// other rows. A grant in the store stays if its login is later.
    pub(super) async fn move_grants(
        &self,
        vault: &Arc<Vault>,
        rows: Vec<VaultRow>,
    ) -> Vec<VaultRow> {
        let Some(records) = self.shared() else { return rows };
        let mut others = Vec::new();
        for row in rows {
            let Some(key) = GrantKey::of_row(&row.name) else {
                others.push(row);
                continue;
            };
            let moved = self.move_grant(records, &key, &row.value).await;
            let deleted = match moved {
                Ok(()) => vault.delete_row(row.name).await.map_err(|error| error_chain(&error)),
                Err(fault) => Err(fault.to_string()),
            };
            self.has_unmoved.fetch_or(deleted.is_err(), Ordering::Relaxed);
            if let Err(reason) = deleted {
                tracing::warn!(
                    target: "trunkline::upstream::credentials::grants::keeping::shared",
                    server = %key.place.server,
                    reason,
                    "a login is not moved from the vault to the store of the replicas"
                );
            }
        }
        others
    }

    async fn move_grant(
        &self,
        records: &Arc<dyn SharedRecords>,
        key: &GrantKey,
        value: &[u8],
    ) -> Result<(), SharingFault> {
        let since = |value: &[u8]| StoredGrant::read_overview(value).and_then(|grant| grant.since);
        let Some(moved) = StoredGrant::with_proofs(value, self.proofs_of(key)) else {
            return Ok(());
        };
        let add = |found: Option<&SharedRecord>| {
            let is_older = found.is_some_and(|found| since(&found.value) >= since(value));
            let write = RecordEdit::Write { value: moved.clone(), lifetime: None };
            Ok::<_, SharingFault>((if is_older { RecordEdit::Keep } else { write }, is_older))
        };
        let (_, is_older) = records.edit(place_of(&key.record_name()), add).await?;
        if !is_older && let Some(slot) = self.find_slot(key) {
            *slot.compared_at.lock() = None;
        }
        Ok(())
    }
}

impl ServerAuthorizer {
    /// Compares an owner's grant with the store that replicas share, if the last comparison is old.
    pub async fn follow_login(&self, owner: &GrantOwner) {
        if !self.shares_grants() {
            return;
        }
        let slot = self.book.slot(self.key_of(owner));
        if !slot.needs_comparison(clock::now()) {
            return;
        }
        // Without the store, the grant that is known stays in use.
        if let Ok(KeptGrant::Newer(_)) = self.book.compare_shared(&slot, self).await {
            self.book.tickets.end_logins(&slot);
            slot.end_login();
        }
    }
}

impl GrantSlot {
    /// Returns true if the last comparison with the store is old, and begins another one.
    fn needs_comparison(&self, now: Instant) -> bool {
        let mut compared_at = self.compared_at.lock();
        let is_old =
            compared_at.is_none_or(|at| now.saturating_duration_since(at) >= COMPARISON_INTERVAL);
        if is_old {
            *compared_at = Some(now);
        }
        is_old
    }

    /// Uses a grant with its record in the store.
    pub(super) fn put(&self, grant: OauthGrant, record: SharedRecord) -> Arc<OauthGrant> {
        let mut known = self.record.lock();
        *known = Some(record);
        *self.compared_at.lock() = Some(clock::now());
        self.is_unshared.store(false, Ordering::Relaxed);
        self.store(grant)
    }

    /// Uses a grant of another replica, unless this one has stored another meanwhile.
    fn adopt(
        &self,
        before: Option<&SharedRecord>,
        grant: OauthGrant,
        record: SharedRecord,
    ) -> Option<Arc<OauthGrant>> {
        let mut known = self.record.lock();
        if known.as_ref() != before {
            return None;
        }
        *known = Some(record);
        self.is_unshared.store(false, Ordering::Relaxed);
        Some(self.store(grant))
    }
}

impl GrantKey {
    /// Returns the name of its record.
    pub(crate) fn record_name(&self) -> String {
        self.row_name().parts().join("\0")
    }
}

fn place_of(name: &str) -> RecordPlace<'_> {
    RecordPlace { kind: SharedRecordKind::Grant, name }
}

/// Age of a comparison after which the next request repeats it.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(10);
/// Attempts to write a renewed grant, and the pause between them.
const WRITE_ATTEMPTS: u32 = 3;
const WRITE_PAUSE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
