//! Storage of the grant book's content in the vault.
//!
//! A grant is written before it is used. A process that is killed in between leaves the previous
//! grant. If the refresh token of that grant has been used by then, its owner has to log in.

mod renewals;
mod shared;
#[cfg(test)]
pub(crate) mod test_grants;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trunkline_core::text::error_chain;
use trunkline_protocol::call::Principal;
use trunkline_telemetry::audit::OperationActor;

use crate::vault::{RowName, Vault, VaultError, VaultRow};

use super::authorizer::ServerAuthorizer;
use super::book::{ClientPlace, GrantBook, GrantKey, GrantSlot};
use super::grant::{GrantOwner, OauthGrant};
use super::stored::{RestingGrant, StoredClient, StoredGrant};
use crate::fault::LoginFault;
use crate::proofs::client_keys::ClientKeyBook;

/// Comparison of a grant's row in the vault with the grant in memory.
pub(crate) enum KeptGrant {
    /// The vault has the same grant.
    Same,
    /// Another process has written a different grant, which is in use from now on.
    Newer(Arc<OauthGrant>),
    /// Another process has deleted it, so it is no longer used.
    Revoked,
}

impl GrantBook {
    /// Loads the grants and registered clients of a vault, and stores them there from now on.
    ///
    /// # Errors
    /// [`VaultError`] if it cannot be read.
    pub async fn open_vault(&self, vault: Arc<Vault>) -> Result<(), VaultError> {
        let rows = vault.read_rows().await?;
        tracing::info!(
            target: "trunkline::upstream::credentials::grants::keeping",
            rows = rows.len(),
            "logins are kept in {}",
            vault.path().display()
        );
        let _ = self.vault.set(Arc::clone(&vault));
        let rows = self.move_grants(&vault, rows).await;
        self.adopt_rows(rows);
        Ok(())
    }

    /// Writes the records of clients to the vault, and deletes the grants of removed clients.
    async fn settle_clients(&self) {
        for (name, value) in self.client_keys.take_unsaved() {
            let _ = self.write_row(name, value).await;
        }
        let abandoned: Vec<_> = self.abandoned.lock().iter().cloned().collect();
        for key in abandoned {
            // Not used until it is deleted.
            if self.delete_grant(&key).await.is_ok() {
                self.abandoned.lock().remove(&key);
            }
        }
    }

    /// Loads the changes of other processes from the vault, if there are any.
    ///
    /// # Errors
    /// [`VaultError`] if it cannot be read.
    pub async fn follow_vault(&self) -> Result<(), VaultError> {
        self.settle_clients().await;
        let has_unmoved = self.has_unmoved.swap(false, Ordering::Relaxed);
        let is_due = |vault: &&Arc<Vault>| has_unmoved || vault.was_changed();
        let Some(vault) = self.vault.get().filter(is_due) else { return Ok(()) };
        let rows = vault.read_rows().await?;
        let names: HashSet<RowName> = rows.iter().map(|row| row.name.clone()).collect();
        let rows = self.move_grants(vault, rows).await;
        // Without a pause, because this process may write meanwhile.
        self.adopt_rows(rows);
        if self.shared().is_some() {
            return Ok(());
        }
        self.drop_revoked(vault, &names).await
    }

    /// Drops the grants that are no longer in the vault.
    async fn drop_revoked(
        &self,
        vault: &Arc<Vault>,
        names: &HashSet<RowName>,
    ) -> Result<(), VaultError> {
        self.resting.lock().retain(|key, _| names.contains(&key.row_name()));
        let is_missing = |slot: &&Arc<GrantSlot>| {
            slot.is_kept.load(Ordering::Relaxed) && !names.contains(&slot.key.row_name())
        };
        let missing: Vec<_> = self.slots.lock().values().filter(is_missing).cloned().collect();
        for slot in missing {
            let known = slot.grant.load_full();
            // Read again, because this process may have written it after the rows were read.
            let is_gone = vault.read_row(slot.key.row_name()).await?.is_none();
            if is_gone && self.forget_revoked(&slot, known.as_ref()) {
                self.tickets.end_logins(&slot);
                slot.end_login();
            }
        }
        Ok(())
    }

    fn adopt_rows(&self, rows: Vec<VaultRow>) {
        for VaultRow { name, value } in rows {
            if let Some(place) = ClientPlace::of_row(&name) {
                let stored = serde_json::from_slice::<StoredClient>(&value).ok();
                if let Some(client) = stored.and_then(StoredClient::revive) {
                    self.clients.lock().insert(place, client);
                }
            } else if let Some(key) = GrantKey::of_row(&name) {
                self.adopt_grant(key, value);
            } else if let Some((client, record)) = ClientKeyBook::read_row(&name, &value) {
                self.client_keys.adopt(client, record);
            } else {
                tracing::debug!(
                    target: "trunkline::upstream::credentials::grants::keeping",
                    "a row of the vault has an unknown kind"
                );
            }
        }
    }

    fn adopt_grant(&self, key: GrantKey, value: Vec<u8>) {
        if self.abandoned.lock().contains(&key) {
            return;
        }
        if let GrantOwner::Client(Principal::Client(name)) = &key.owner {
            self.client_keys.note_login(name);
        }
        let authorizer = self.authorizers.lock().get(&key.place).and_then(std::sync::Weak::upgrade);
        let Some(authorizer) = authorizer else {
            // The endpoint belongs to its issuer even before the server is started.
            if let Some(claim) = StoredGrant::read_claim(&value) {
                let _ = self.endpoints.claim(&key.place, claim);
            }
            self.resting.lock().insert(key, RestingGrant::new(value));
            return;
        };
        let Some(grant) = authorizer.revive_grant(&value) else { return };
        let slot = self.slot(key);
        if slot.has_token_of(&grant) {
            slot.is_kept.store(true, Ordering::Relaxed);
            return;
        }
        tracing::info!(
            target: "trunkline::upstream::credentials::grants::keeping",
            server = %slot.key.place.server,
            "a login of another process is used"
        );
        slot.is_kept.store(true, Ordering::Relaxed);
        slot.store(grant);
        self.tickets.end_logins(&slot);
        slot.end_login();
    }

    /// Loads the grants that were stored for a server.
    pub(crate) fn meet_authorizer(&self, authorizer: &Arc<ServerAuthorizer>) {
        if self.vault.get().is_none() && self.shared().is_none() {
            return;
        }
        let mut authorizers = self.authorizers.lock();
        authorizers.retain(|_, known| known.strong_count() > 0);
        authorizers.insert(Arc::clone(&authorizer.place), Arc::downgrade(authorizer));
        drop(authorizers);
        let mut resting = self.resting.lock();
        let is_own = |key: &&GrantKey| key.place == authorizer.place;
        let keys: Vec<_> = resting.keys().filter(is_own).cloned().collect();
        for key in keys {
            let Some(kept) = resting.get_mut(&key) else { continue };
            let Some(grant) = authorizer.revive_grant(&kept.value) else {
                // Its end is of no interest.
                kept.ends = None;
                tracing::info!(
                    target: "trunkline::upstream::credentials::grants::keeping",
                    server = %key.place.server,
                    "a kept login is dropped: it belongs to another client or issuer"
                );
                continue;
            };
            resting.remove(&key);
            let slot = self.slot(key);
            slot.is_kept.store(true, Ordering::Relaxed);
            slot.store(grant);
        }
    }

    /// Stores the grant of a login, in the shared store or the vault first.
    ///
    /// # Errors
    /// [`LoginFault::Shared`]: the grant is not used, and its tokens are revoked.
    pub(crate) async fn store_login(
        &self,
        slot: &Arc<GrantSlot>,
        grant: OauthGrant,
    ) -> Result<Arc<OauthGrant>, LoginFault> {
        let Some(records) = self.shared() else { return Ok(self.store_grant(slot, grant).await) };
        if let GrantOwner::Client(Principal::Client(name)) = &slot.key.owner {
            self.client_keys.note_login(name);
        }
        self.abandoned.lock().remove(&slot.key);
        match self.share_grant(records, &slot.key, &grant).await {
            Ok(record) => Ok(slot.put(grant, record)),
            Err(fault) => {
                revoke_unused(slot, &grant).await;
                Err(fault.into())
            }
        }
    }

    /// Stores a grant, in the vault first.
    async fn store_grant(&self, slot: &GrantSlot, grant: OauthGrant) -> Arc<OauthGrant> {
        if let GrantOwner::Client(Principal::Client(name)) = &slot.key.owner {
            self.client_keys.note_login(name);
        }
        if self.vault.get().is_some() {
            self.abandoned.lock().remove(&slot.key);
            let stored = StoredGrant::of(&grant).and_then(|it| serde_json::to_vec(&it).ok());
            let is_kept = if let Some(value) = stored {
                self.write_row(slot.key.row_name(), value).await
            } else {
                // A failure is logged. The earlier row is of no use.
                drop(self.delete_row(slot.key.row_name()).await);
                false
            };
            slot.is_kept.store(is_kept, Ordering::Relaxed);
        }
        slot.store(grant)
    }

    /// Stores a renewed grant, in the vault first. If another process has revoked the grant
    /// meanwhile, revokes its new tokens and returns `None`.
    pub(crate) async fn store_renewed(
        &self,
        slot: &GrantSlot,
        grant: OauthGrant,
    ) -> Option<Arc<OauthGrant>> {
        let vault = self.vault.get().filter(|_| slot.is_kept.load(Ordering::Relaxed));
        let stored = StoredGrant::of(&grant).and_then(|it| serde_json::to_vec(&it).ok());
        let (Some(vault), Some(value)) = (vault, stored) else {
            return Some(self.store_grant(slot, grant).await);
        };
        let known = slot.grant.load_full();
        match vault.replace_row(slot.key.row_name(), value).await {
            Ok(true) => {}
            Ok(false) => {
                self.forget_revoked(slot, known.as_ref());
                revoke_unused(slot, &grant).await;
                return None;
            }
            Err(error) => log_unkept(&error),
        }
        Some(slot.store(grant))
    }

    /// Drops a grant that another process has revoked, unless it has been replaced.
    fn forget_revoked(&self, slot: &GrantSlot, known: Option<&Arc<OauthGrant>>) -> bool {
        let is_forgotten = slot.forget_revoked(known);
        if is_forgotten {
            // That process has no audit log.
            self.audit_revocation(&slot.key, OperationActor::Operator(None), None, None);
        }
        is_forgotten
    }

    /// Drops a grant, from the vault as well.
    ///
    /// # Errors
    /// [`LoginFault::Vault`] if the vault still has it, [`LoginFault::Shared`] if the shared store has.
    pub(crate) async fn drop_grant(&self, slot: &GrantSlot) -> Result<(), LoginFault> {
        slot.drop_grant();
        match self.shared() {
            Some(records) => Ok(self.unshare_grant(records, slot).await?),
            None => self.delete_row(slot.key.row_name()).await,
        }
    }

    /// Deletes a grant, whichever process has stored it.
    ///
    /// # Errors
    /// Those of [`GrantBook::drop_grant`].
    pub(crate) async fn delete_grant(&self, key: &GrantKey) -> Result<(), LoginFault> {
        match self.shared() {
            Some(_) => Ok(self.revoke_shared(key).await?),
            None => self.delete_row(key.row_name()).await,
        }
    }

    /// Compares a grant with its record or row, because another process may have renewed or revoked it.
    ///
    /// # Errors
    /// [`LoginFault::Shared`] if the shared store cannot be reached.
    pub(crate) async fn compare_kept(
        &self,
        slot: &Arc<GrantSlot>,
        authorizer: &ServerAuthorizer,
    ) -> Result<KeptGrant, LoginFault> {
        if authorizer.shares_grants() {
            return Ok(self.compare_shared(slot, authorizer).await?);
        }
        Ok(self.compare_row(slot, authorizer).await)
    }

    async fn compare_row(&self, slot: &GrantSlot, authorizer: &ServerAuthorizer) -> KeptGrant {
        let Some(vault) = self.vault.get() else { return KeptGrant::Same };
        if self.abandoned.lock().contains(&slot.key) {
            return KeptGrant::Same;
        }
        let known = slot.grant.load_full();
        match vault.read_row(slot.key.row_name()).await {
            Ok(Some(value)) => {
                let grant = authorizer.revive_grant(&value);
                match grant.filter(|grant| !slot.has_token_of(grant)) {
                    Some(grant) => {
                        slot.is_kept.store(true, Ordering::Relaxed);
                        KeptGrant::Newer(slot.store(grant))
                    }
                    None => KeptGrant::Same,
                }
            }
            Ok(None)
                if slot.is_kept.load(Ordering::Relaxed)
                    && self.forget_revoked(slot, known.as_ref()) =>
            {
                KeptGrant::Revoked
            }
            Ok(None) | Err(_) => KeptGrant::Same,
        }
    }

    /// Writes a row. Returns true if it is in the vault. If the write fails, the value is still
    /// used until the process ends.
    pub(crate) async fn write_row(&self, name: RowName, value: Vec<u8>) -> bool {
        let Some(vault) = self.vault.get() else { return false };
        let written = vault.write_row(name, value).await;
        written.inspect_err(log_unkept).is_ok()
    }

    pub(crate) async fn delete_row(&self, name: RowName) -> Result<(), LoginFault> {
        let Some(vault) = self.vault.get() else { return Ok(()) };
        vault.delete_row(name).await.map_err(|error| {
            tracing::error!(
                target: "trunkline::upstream::credentials::grants::keeping",
                reason = error_chain(&error),
                "cannot delete a row of the vault"
            );
            LoginFault::Vault(Arc::new(error))
        })
    }
}

/// Revokes tokens that no process will use.
async fn revoke_unused(slot: &GrantSlot, grant: &OauthGrant) {
    if let Err(fault) = grant.revoke_tokens().await {
        tracing::warn!(
            target: "trunkline::upstream::credentials::grants::keeping",
            server = %slot.key.place.server,
            reason = error_chain(&fault),
            "new tokens are not revoked"
        );
    }
}

fn log_unkept(error: &VaultError) {
    let reason = error_chain(error);
    tracing::error!(
        target: "trunkline::upstream::credentials::grants::keeping",
        reason,
        "a login is not kept: it is lost when the gateway stops"
    );
}

impl GrantSlot {
    /// Returns true if a grant has the token that is in use.
    fn has_token_of(&self, grant: &OauthGrant) -> bool {
        let current = self.grant.load();
        current.as_ref().is_some_and(|current| current.authorization == grant.authorization)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::book::GrantPlace;
    use crate::grants::keeping::test_grants::grant;
    use trunkline_config::Secret;
    use trunkline_protocol::call::ServerName;

    fn key() -> GrantKey {
        let (server, url) = (ServerName::new("s").unwrap(), "https://a.test/mcp".parse().unwrap());
        let owner = GrantOwner::Client(Principal::Client("ann".into()));
        GrantKey { place: Arc::new(GrantPlace { server, url }), owner }
    }

    #[tokio::test]
    async fn a_login_that_the_vault_lost_is_dropped_but_not_one_that_it_never_had_or_has_again() {
        let folder = tempfile::tempdir().unwrap();
        let secret = Secret::new("a key that has more than 32 bytes in it".to_owned());
        let vault = Arc::new(Vault::open(&folder.path().join("v"), &[secret]).unwrap());
        for (is_kept, is_in_vault, stays) in
            [(true, false, false), (false, false, true), (true, true, true)]
        {
            let book = GrantBook::default();
            let slot = book.slot(key());
            slot.store(grant("t"));
            slot.is_kept.store(is_kept, Ordering::Relaxed);
            if is_in_vault {
                vault.write_row(key().row_name(), b"{}".to_vec()).await.unwrap();
            }
            // The rows as they were before this process wrote.
            book.drop_revoked(&vault, &HashSet::new()).await.unwrap();
            assert_eq!(slot.grant.load().is_some(), stays, "{is_kept} {is_in_vault}");
        }
    }

    #[test]
    fn the_login_of_a_client_that_is_gone_is_not_taken_from_the_vault_before_it_is_deleted() {
        let key = key();
        let row = || VaultRow { name: key.row_name(), value: b"{}".to_vec() };
        let book = GrantBook::default();
        book.abandoned.lock().insert(key.clone());
        book.adopt_rows(vec![row()]);
        assert!(book.resting.lock().is_empty());
        book.abandoned.lock().remove(&key);
        book.adopt_rows(vec![row()]);
        assert!(book.resting.lock().contains_key(&key));
    }
}
