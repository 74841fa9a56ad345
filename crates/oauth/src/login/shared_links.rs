//! Links and logins in progress in the store that replicas share.
//!
//! With such a store, its record decides about each step of a link, so that a person can open it at any
//! replica, and one of several persons or replicas that use it at once succeeds. The tables of a replica
//! hold the links that it has issued or seen. A state is removed with the first response to it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use url::Url;

use trunkline_core::clock;
use trunkline_core::shared_records::{
    NewRecord, RecordPlace, SharedRecord, SharedRecordKind, SharedRecords,
};
use trunkline_protocol::call::ServerName;

use crate::fault::LoginFault;
use crate::grants::book::{GrantBook, GrantKey, GrantPlace, GrantSlot};
use crate::grants::browser::BrowserId;
use crate::grants::grant::GrantOwner;
use crate::grants::keeping::KeptGrant;
use crate::grants::stored::StoredGrant;
use crate::grants::ticket_book::{OpenLogin, PreparedLogin, Ticket, TicketPurpose};
use crate::metadata::documents::IssAdvertised;
use crate::proofs::pkce::CodeVerifier;

/// Stored form of a link.
#[derive(Serialize, Deserialize)]
struct StoredLink {
    /// Kind and name of the owner.
    owner: [String; 2],
    /// `None` for a link that shows connections.
    login: Option<StoredLogin>,
    browser: Option<BrowserId>,
    /// True during the exchange of its login's code.
    is_used: bool,
    /// The expiry, in seconds since 1970.
    until: u64,
}

/// Stored form of a prepared login.
#[derive(Serialize, Deserialize)]
struct StoredLogin {
    server: String,
    url: String,
    /// The source of the tokens, as a grant without tokens.
    source: StoredGrant,
    names_issuer: bool,
    redirect: String,
}

/// Stored form of a login that waits for a response.
#[derive(Serialize, Deserialize)]
struct StoredOpenLogin {
    link: StoredLink,
    ticket: String,
    verifier: String,
}

impl StoredLink {
    fn of(ticket: &Ticket, until: Instant) -> Self {
        let login = match &ticket.purpose {
            TicketPurpose::Visit(_) => None,
            TicketPurpose::Login(login) => Some(StoredLogin {
                server: login.server.as_str().to_owned(),
                url: login.slot.key.place.url.to_string(),
                source: StoredGrant::of_source(&login.source),
                names_issuer: login.iss == IssAdvertised::Yes,
                redirect: login.redirect.to_string(),
            }),
        };
        let wait = until.saturating_duration_since(clock::now());
        Self {
            owner: ticket.owner().parts().map(str::to_owned),
            login,
            browser: ticket.browser,
            is_used: false,
            until: (clock::unix_now() + wait).as_secs(),
        }
    }

    /// Returns the time until it expires.
    fn left(&self) -> Duration {
        Duration::from_secs(self.until).saturating_sub(clock::unix_now())
    }
}

impl GrantBook {
    /// Offers a link to the other replicas.
    ///
    /// # Errors
    /// [`LoginFault::Shared`]: the link must not be issued.
    pub(crate) async fn share_link(
        &self,
        ticket: &str,
        link: &Ticket,
        until: Instant,
    ) -> Result<(), LoginFault> {
        let Some(records) = self.shared() else { return Ok(()) };
        let stored = StoredLink::of(link, until);
        write(records, place_of(SharedRecordKind::Link, ticket), None, (&stored, stored.left()))
            .await?;
        Ok(())
    }

    /// Takes over the state of a link from the shared store. Returns its record; `None` if the gateway
    /// is alone.
    ///
    /// # Errors
    /// [`LoginFault::UnknownLink`] if the link is used up, and [`LoginFault::Shared`].
    pub(super) async fn fetch_link(
        &self,
        ticket: &str,
    ) -> Result<Option<SharedRecord>, LoginFault> {
        let Some(records) = self.shared() else { return Ok(None) };
        if ticket.len() > MAX_NAME_BYTES {
            return Err(LoginFault::UnknownLink);
        }
        let found = records.read(place_of(SharedRecordKind::Link, ticket)).await?;
        let stored = found.as_ref().and_then(|it| serde_json::from_slice(&it.value).ok());
        let stored = stored.filter(|stored: &StoredLink| !stored.is_used);
        let (Some(record), Some(stored)) = (found, stored) else {
            // Another replica has used it.
            self.tickets.remove(ticket);
            return Err(LoginFault::UnknownLink);
        };
        let until = clock::now() + stored.left();
        let link = self.revive_link(stored).ok_or(LoginFault::UnknownLink)?;
        self.tickets.take_over(ticket, link, until);
        Ok(Some(record))
    }

    /// Uses up a link.
    ///
    /// # Errors
    /// [`LoginFault::UnknownLink`] if another replica has used it, and [`LoginFault::Shared`].
    pub(super) async fn use_link(
        &self,
        ticket: &str,
        record: Option<SharedRecord>,
    ) -> Result<(), LoginFault> {
        let (Some(records), Some(record)) = (self.shared(), record) else { return Ok(()) };
        let is_used = records.remove(place_of(SharedRecordKind::Link, ticket), &record).await?;
        if is_used { Ok(()) } else { Err(LoginFault::UnknownLink) }
    }

    /// Binds a link to the browser in which its owner has agreed.
    ///
    /// # Errors
    /// [`LoginFault::OtherBrowser`] if another replica has bound or used it, and
    /// [`LoginFault::Shared`].
    pub(super) async fn bind_link(
        &self,
        ticket: &str,
        record: Option<SharedRecord>,
        browser: Option<BrowserId>,
    ) -> Result<(), LoginFault> {
        let (Some(records), Some(record)) = (self.shared(), record) else { return Ok(()) };
        let stored: StoredLink =
            serde_json::from_slice(&record.value).map_err(|_| LoginFault::UnknownLink)?;
        let bound = StoredLink { browser, ..stored };
        let place = place_of(SharedRecordKind::Link, ticket);
        let is_bound = write(records, place, Some(&record), (&bound, bound.left())).await?;
        if is_bound { Ok(()) } else { Err(LoginFault::OtherBrowser) }
    }

    /// Offers a login that waits for a response to the other replicas.
    ///
    /// # Errors
    /// [`LoginFault::Shared`].
    pub(super) async fn share_login(
        &self,
        state: &str,
        login: &OpenLogin,
    ) -> Result<(), LoginFault> {
        let Some(records) = self.shared() else { return Ok(()) };
        let ticket = Ticket {
            purpose: TicketPurpose::Login(Arc::clone(&login.prepared)),
            browser: login.browser,
        };
        let stored = StoredOpenLogin {
            link: StoredLink::of(&ticket, login.prepared.until),
            ticket: login.ticket.clone(),
            verifier: login.verifier.expose().to_owned(),
        };
        let left = stored.link.left();
        write(records, place_of(SharedRecordKind::Login, state), None, (&stored, left)).await?;
        Ok(())
    }

    /// Takes the login that waits for the response with a state. A state is valid for one response, at
    /// all replicas.
    ///
    /// # Errors
    /// [`LoginFault::Shared`].
    pub(super) async fn take_login(&self, state: &str) -> Result<Option<OpenLogin>, LoginFault> {
        let Some(records) = self.shared() else { return Ok(self.tickets.take_login(state)) };
        // No state that the gateway has drawn.
        if state.is_empty() || state.len() > MAX_NAME_BYTES {
            return Ok(None);
        }
        let own = self.tickets.take_login(state);
        let place = place_of(SharedRecordKind::Login, state);
        let Some(record) = records.read(place).await? else { return Ok(None) };
        if !records.remove(place, &record).await? {
            return Ok(None);
        }
        let login = own.or_else(|| {
            let stored: StoredOpenLogin = serde_json::from_slice(&record.value).ok()?;
            let browser = stored.link.browser;
            let TicketPurpose::Login(prepared) = self.revive_link(stored.link)?.purpose else {
                return None;
            };
            let verifier = CodeVerifier::restore(stored.verifier);
            Some(OpenLogin { prepared, ticket: stored.ticket, verifier, browser })
        });
        if let Some(login) = &login {
            self.tickets.remove(&login.ticket);
            self.mark_used(records, &login.ticket).await?;
        }
        Ok(login)
    }

    /// Refuses further uses of a link. Its record stays until the login has ended, so that other
    /// replicas do not take that for ended.
    async fn mark_used(
        &self,
        records: &Arc<dyn SharedRecords>,
        ticket: &str,
    ) -> Result<(), LoginFault> {
        let place = place_of(SharedRecordKind::Link, ticket);
        let Some(record) = records.read(place).await? else { return Ok(()) };
        let stored = serde_json::from_slice(&record.value).map_err(|_| LoginFault::UnknownLink)?;
        let used = StoredLink { is_used: true, ..stored };
        write(records, place, Some(&record), (&used, used.left())).await?;
        Ok(())
    }

    /// Removes the record of a link after the end of its login.
    pub(super) async fn drop_link(&self, ticket: &str) {
        let Some(records) = self.shared() else { return };
        let place = place_of(SharedRecordKind::Link, ticket);
        // Without the store, it expires.
        if let Ok(Some(record)) = records.read(place).await {
            let _ = records.remove(place, &record).await;
        }
    }

    /// Restores a link; `None` if its server is no longer configured as it was.
    fn revive_link(&self, stored: StoredLink) -> Option<Ticket> {
        let until = clock::now() + stored.left();
        let StoredLink { owner, login, browser, .. } = stored;
        let owner = GrantOwner::of_parts([&owner[0], &owner[1]])?;
        let Some(login) = login else {
            return Some(Ticket { purpose: TicketPurpose::Visit(owner), browser });
        };
        let (server, url) = (ServerName::new(&login.server).ok()?, login.url.parse().ok()?);
        let place = Arc::new(GrantPlace { server: server.clone(), url });
        let authorizer = self.authorizers.lock().get(&place).and_then(std::sync::Weak::upgrade)?;
        let source = serde_json::to_vec(&login.source).ok()?;
        let source = authorizer.revive_grant(&source)?.source;
        let endpoint: Url = source.authorization_endpoint.clone()?;
        let prepared = PreparedLogin {
            server,
            slot: self.slot(GrantKey { place, owner }),
            claim: authorizer.claim_of(&source.issuer, &endpoint),
            source,
            iss: if login.names_issuer { IssAdvertised::Yes } else { IssAdvertised::No },
            redirect: login.redirect.parse().ok()?,
            until,
        };
        Some(Ticket { purpose: TicketPurpose::Login(Arc::new(prepared)), browser })
    }

    /// Compares the grants of owners with an open link: their logins may end at another replica. The
    /// longest without a comparison come first, a bounded number at a time.
    pub async fn follow_shared(&self) {
        if self.shared().is_none() {
            return;
        }
        let has_login = |slot: &&Arc<GrantSlot>| slot.has_login();
        let mut waiting: Vec<_> = self.slots.lock().values().filter(has_login).cloned().collect();
        waiting.sort_by_cached_key(|slot| *slot.compared_at.lock());
        for slot in waiting.into_iter().take(MAX_FOLLOWED) {
            let authorizer = self.authorizers.lock().get(&slot.key.place).cloned();
            let Some(authorizer) = authorizer.and_then(|known| known.upgrade()) else { continue };
            match self.compare_shared(&slot, &authorizer).await {
                Ok(KeptGrant::Newer(_)) => {
                    self.tickets.end_logins(&slot);
                    slot.end_login();
                }
                Ok(_) if self.follow_link(&slot).await.is_ok() => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Ends the logins of a slot if another replica has used up its link, with a grant or without.
    async fn follow_link(&self, slot: &Arc<GrantSlot>) -> Result<(), LoginFault> {
        let Some(records) = self.shared() else { return Ok(()) };
        let Some(link) = slot.link.lock().clone() else { return Ok(()) };
        if records.read(place_of(SharedRecordKind::Link, &link.ticket)).await?.is_none() {
            self.tickets.end_logins(slot);
            slot.end_login();
        }
        Ok(())
    }
}

async fn write<T: Serialize + Sync>(
    records: &Arc<dyn SharedRecords>,
    place: RecordPlace<'_>,
    expected: Option<&SharedRecord>,
    new: (&T, Duration),
) -> Result<bool, LoginFault> {
    let value = serde_json::to_vec(new.0).map_err(|_| LoginFault::UnknownLink)?;
    let new = NewRecord { value: &value, lifetime: Some(new.1) };
    Ok(records.write(place, expected, new).await?.is_some())
}

fn place_of(kind: SharedRecordKind, name: &str) -> RecordPlace<'_> {
    RecordPlace { kind, name }
}

/// Limit of the grants that are compared at a time because their owners log in.
const MAX_FOLLOWED: usize = 64;
/// Limit of the bytes of a ticket or state that is looked up.
const MAX_NAME_BYTES: usize = 128;

#[cfg(test)]
mod tests;
