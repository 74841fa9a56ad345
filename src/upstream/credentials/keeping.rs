//! What the book of grants keeps in the vault, and takes from it.
//!
//! A grant is written before it is used. A process that is killed in between leaves the grant before
//! it: if its refresh token is used up by then, its owner is asked to log in.

use std::sync::Arc;

use crate::text::error_chain;
use crate::vault::{RowName, Vault, VaultError, VaultRow};

use super::authorizer::ServerAuthorizer;
use super::book::{ClientPlace, GrantBook, GrantKey, GrantSlot};
use super::fault::LoginFault;
use super::grant::OauthGrant;
use super::stored::{StoredClient, StoredGrant};

impl GrantBook {
    /// Keeps grants and registered clients in a vault from now on, and takes those that it has.
    ///
    /// # Errors
    /// [`VaultError`] if it cannot be read.
    pub async fn open_vault(&self, vault: Arc<Vault>) -> Result<(), VaultError> {
        let rows = vault.read_rows().await?;
        tracing::info!(rows = rows.len(), "logins are kept in {}", vault.path().display());
        let _ = self.vault.set(vault);
        self.adopt_rows(rows);
        Ok(())
    }

    /// Takes what another process has written to the vault, if it has.
    ///
    /// # Errors
    /// [`VaultError`] if it cannot be read.
    pub async fn follow_vault(&self) -> Result<(), VaultError> {
        let Some(vault) = self.vault.get().filter(|vault| vault.was_changed()) else {
            return Ok(());
        };
        let rows = vault.read_rows().await?;
        self.adopt_rows(rows);
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
            } else {
                tracing::debug!("a row of the vault has an unknown kind");
            }
        }
    }

    fn adopt_grant(&self, key: GrantKey, value: Vec<u8>) {
        let authorizer = self.authorizers.lock().get(&key.place).and_then(std::sync::Weak::upgrade);
        let Some(authorizer) = authorizer else {
            self.resting.lock().insert(key, value);
            return;
        };
        let Some(grant) = authorizer.revive_grant(&value) else { return };
        let slot = self.slot(key);
        if slot.has_token_of(&grant) {
            return;
        }
        tracing::info!(server = %slot.key.place.server, "a login of another process is used");
        slot.store(grant);
        self.tickets.end_logins(&slot);
        slot.end_login();
    }

    /// Gives a server the grants that were kept for it.
    pub(super) fn meet_authorizer(&self, authorizer: &Arc<ServerAuthorizer>) {
        if self.vault.get().is_none() {
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
            let grant = resting.get(&key).and_then(|value| authorizer.revive_grant(value));
            let Some(grant) = grant else {
                tracing::info!(server = %key.place.server, "a kept login is of another client or issuer");
                continue;
            };
            resting.remove(&key);
            self.slot(key).store(grant);
        }
    }

    /// Stores a grant, in the vault first.
    pub(super) async fn store_grant(&self, slot: &GrantSlot, grant: OauthGrant) -> Arc<OauthGrant> {
        if self.vault.get().is_some() {
            let stored = StoredGrant::of(&grant).and_then(|it| serde_json::to_vec(&it).ok());
            match stored {
                Some(value) => self.write_row(slot.key.row_name(), value).await,
                // Told in the log: what was kept before is of no use.
                None => drop(self.delete_row(slot.key.row_name()).await),
            }
        }
        slot.store(grant)
    }

    /// Drops a grant, from the vault too.
    ///
    /// # Errors
    /// [`LoginFault::Vault`] if the vault still has it.
    pub(super) async fn drop_grant(&self, slot: &GrantSlot) -> Result<(), LoginFault> {
        slot.drop_grant();
        self.delete_row(slot.key.row_name()).await
    }

    /// Another grant than the slot has, which another process has written.
    pub(super) async fn read_newer(
        &self,
        slot: &GrantSlot,
        authorizer: &ServerAuthorizer,
    ) -> Option<Arc<OauthGrant>> {
        let vault = self.vault.get()?;
        let value = vault.read_row(slot.key.row_name()).await.ok().flatten()?;
        let grant = authorizer.revive_grant(&value).filter(|grant| !slot.has_token_of(grant))?;
        Some(slot.store(grant))
    }

    /// Writes a row. What cannot be written is used all the same, until the process ends.
    pub(super) async fn write_row(&self, name: RowName, value: Vec<u8>) {
        let Some(vault) = self.vault.get() else { return };
        if let Err(error) = vault.write_row(name, value).await {
            let reason = error_chain(&error);
            tracing::error!(reason, "a login is not kept: it lasts until the gateway ends");
        }
    }

    pub(super) async fn delete_row(&self, name: RowName) -> Result<(), LoginFault> {
        let Some(vault) = self.vault.get() else { return Ok(()) };
        vault.delete_row(name).await.map_err(|error| {
            tracing::error!(reason = error_chain(&error), "the vault does not delete");
            LoginFault::Vault(Arc::new(error))
        })
    }
}

impl GrantSlot {
    /// Whether a grant has the token that is in use.
    fn has_token_of(&self, grant: &OauthGrant) -> bool {
        let current = self.grant.load();
        current.as_ref().is_some_and(|current| current.authorization == grant.authorization)
    }
}
