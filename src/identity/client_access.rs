//! The access of a configured client, without a request of it.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Grants, Principal};

use super::Identity;

/// The access of a client of `[clients.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAccess {
    /// Its grants, if there are any.
    pub grants: Option<Arc<Grants>>,
    /// False if all of its keys have expired, and no certificate identifies it.
    pub has_credential: bool,
}

impl Identity {
    /// Returns the access of a client at this time since 1970; `None` if there is no such client.
    pub fn client_access(&self, name: &str, now: Duration) -> Option<ClientAccess> {
        if !self.lists(name) {
            return None;
        }
        let certified = self.certificates.find_client(name);
        let keys: Vec<_> = self.keys.all().filter(|key| *key.client == *name).collect();
        let has_credential = certified.is_some() || keys.iter().any(|key| !key.is_expired(now));
        let of_key = keys.first().and_then(|key| key.grants.clone());
        let grants = of_key.or_else(|| certified.and_then(|client| client.grants.clone()));
        Some(ClientAccess { grants, has_credential })
    }

    /// Returns the access of any principal at this time since 1970; `None` for one that may not call
    /// at all. The grants of a user are in its token.
    pub fn find_access(&self, principal: &Principal, now: Duration) -> Option<ClientAccess> {
        let exists = match principal {
            Principal::Client(name) => return self.client_access(name, now),
            Principal::User(_) => self.has_principal(principal),
            Principal::Anonymous => self.is_open(),
        };
        exists.then_some(ClientAccess { grants: None, has_credential: false })
    }
}
