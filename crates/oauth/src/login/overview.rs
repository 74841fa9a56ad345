//! The logins of the gateway and its users, for operators: never a token.

use std::sync::Arc;

use data_encoding::HEXLOWER;

use trunkline_core::crypto::sha256;
use trunkline_protocol::call::ServerName;

use crate::fault::LoginFault;
use crate::grants::book::{GrantBook, GrantKey};
use crate::grants::grant::{GrantOwner, OauthGrant};
use crate::grants::stored::{GrantOverview, StoredGrant};
use crate::login::connection::LoginRevoker;

/// A login at a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginOverview {
    /// Digits that identify it.
    pub digest: String,
    /// The server.
    pub server: ServerName,
    /// Its owner.
    pub owner: GrantOwner,
    /// True if it waits in the vault for the start of its server.
    pub is_resting: bool,
    /// Its content; `None` if the vault's row cannot be read.
    pub grant: Option<GrantOverview>,
}

impl GrantKey {
    /// Returns the digits that identify the login to operators.
    fn digest(&self) -> String {
        let digest = sha256(self.row_name().parts().join("\0").as_bytes());
        HEXLOWER.encode(digest.first_chunk::<LOGIN_DIGEST_BYTES>().unwrap_or(&[0; 8]))
    }
}

impl GrantBook {
    /// Returns every login of a person, by server and owner. Tokens that the gateway obtains by
    /// itself are not among them.
    pub fn logins(&self) -> Vec<LoginOverview> {
        let mut logins = Vec::new();
        let mut add = |key: &GrantKey, is_resting: bool, grant: Option<GrantOverview>| {
            let (server, owner) = (key.place.server.clone(), key.owner.clone());
            logins.push(LoginOverview { digest: key.digest(), server, owner, is_resting, grant });
        };
        for (key, slot) in self.slots.lock().iter() {
            let grant = slot.grant.load();
            let is_login = |grant: &&Arc<OauthGrant>| grant.source.authorization_endpoint.is_some();
            if let Some(grant) = grant.as_ref().filter(is_login) {
                add(key, false, Some(GrantOverview::of(grant)));
            }
        }
        for (key, kept) in self.resting.lock().iter() {
            add(key, true, StoredGrant::read_overview(&kept.value));
        }
        logins.sort_by_cached_key(|it| {
            (it.server.clone(), it.owner.client_name().cloned(), it.digest.clone())
        });
        logins
    }

    /// Deletes a login that waits in the vault for its server. Returns false if there is none.
    ///
    /// # Errors
    /// [`LoginFault::Vault`] if the vault still has it.
    pub async fn delete_resting_login(
        &self,
        digest: &str,
        by: LoginRevoker<'_>,
    ) -> Result<bool, LoginFault> {
        let found = self.resting.lock().keys().find(|key| key.digest() == digest).cloned();
        let Some(key) = found else { return Ok(false) };
        self.resting.lock().remove(&key);
        let deleted = self.delete_grant(&key).await;
        self.audit_revocation(&key, by.actor, by.address, deleted.as_ref().err());
        deleted.map(|()| true)
    }
}

/// Bytes of the digest that identifies a login.
const LOGIN_DIGEST_BYTES: usize = 8;
