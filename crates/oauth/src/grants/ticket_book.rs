//! Links that the gateway has issued, and logins that wait for a response.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use url::Url;

use trunkline_core::clock;
use trunkline_protocol::call::ServerName;
use trunkline_shares::{EntryLifetime, EntryOwner, FairTable, Holder, TableBounds};

use super::book::GrantSlot;
use super::browser::BrowserId;
use super::endpoints::EndpointClaim;
use super::grant::{GrantOwner, TokenSource};
use crate::fault::LoginFault;
use crate::metadata::documents::IssAdvertised;
use crate::proofs::pkce::CodeVerifier;

/// Open links, and logins that wait for a response.
pub(crate) struct TicketBook {
    /// Links by the ticket in them.
    tickets: Mutex<FairTable<String, Ticket>>,
    /// Logins by `state`.
    logins: Mutex<FairTable<String, OpenLogin>>,
}

impl Default for TicketBook {
    fn default() -> Self {
        let (tickets, logins) = (FairTable::new(TICKET_BOUNDS), FairTable::new(TICKET_BOUNDS));
        Self { tickets: Mutex::new(tickets), logins: Mutex::new(logins) }
    }
}

#[derive(Clone)]
pub(crate) struct Ticket {
    pub(crate) purpose: TicketPurpose,
    /// The browser in which a person has agreed.
    pub(crate) browser: Option<BrowserId>,
}

#[derive(Clone)]
pub(crate) enum TicketPurpose {
    /// Logs in at a server.
    Login(Arc<PreparedLogin>),
    /// Shows an owner's connections.
    Visit(GrantOwner),
}

/// A login that waits for its owner's agreement.
pub(crate) struct PreparedLogin {
    pub(crate) server: ServerName,
    pub(crate) slot: Arc<GrantSlot>,
    /// The authorization endpoint.
    pub(crate) claim: EndpointClaim,
    pub(crate) source: TokenSource,
    pub(crate) iss: IssAdvertised,
    pub(crate) redirect: Url,
    pub(crate) until: Instant,
}

/// A login that waits for the authorization server's response.
pub(crate) struct OpenLogin {
    pub(crate) prepared: Arc<PreparedLogin>,
    pub(crate) ticket: String,
    pub(crate) verifier: CodeVerifier,
    /// The browser in which the owner has agreed. `None` for a terminal.
    pub(crate) browser: Option<BrowserId>,
}

impl TicketBook {
    pub(crate) fn is_open(&self, ticket: &str) -> bool {
        self.tickets.lock().get(&ticket.to_owned(), clock::now()).is_some()
    }

    pub(crate) fn find(&self, ticket: &str) -> Result<Ticket, LoginFault> {
        let tickets = self.tickets.lock();
        let found = tickets.get(&ticket.to_owned(), clock::now());
        found.cloned().ok_or(LoginFault::UnknownLink)
    }

    pub(crate) fn remove(&self, ticket: &str) -> Option<Ticket> {
        self.tickets.lock().remove(&ticket.to_owned())
    }

    pub(crate) fn add(&self, key: String, ticket: Ticket, owner: EntryOwner, until: Instant) {
        let lifetime = EntryLifetime { now: clock::now(), until };
        let removed = self.tickets.lock().insert(key, ticket, owner, lifetime);
        for old in removed {
            old.end_login();
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.tickets.lock().len()
    }

    /// Binds a link to the browser in which its owner has agreed.
    pub(crate) fn bind(&self, ticket: &str, browser: Option<BrowserId>) {
        if let Some(known) = self.tickets.lock().get_mut(&ticket.to_owned(), clock::now()) {
            known.browser = browser;
        }
    }

    /// Adds a login that waits for its owner. Each grant has at most one.
    pub(crate) fn add_login(&self, ticket: String, login: Arc<PreparedLogin>) {
        let (until, owner) = (login.until, entry_of(&login.slot));
        let slot = Arc::clone(&login.slot);
        self.tickets.lock().retain_of(&owner.holder, |known| !known.is_of(&slot));
        let new = Ticket { purpose: TicketPurpose::Login(login), browser: None };
        self.add(ticket, new, owner, until);
    }

    /// Takes over a link of another replica, unless it is known.
    pub(crate) fn take_over(&self, key: &str, ticket: Ticket, until: Instant) {
        if self.is_open(key) {
            return self.bind(key, ticket.browser);
        }
        let owner = match &ticket.purpose {
            TicketPurpose::Login(login) => entry_of(&login.slot),
            TicketPurpose::Visit(owner) => entry_for(owner, None),
        };
        self.add(key.to_owned(), ticket, owner, until);
    }

    /// Ends the logins of a slot.
    pub(crate) fn end_logins(&self, slot: &Arc<GrantSlot>) {
        let holder = entry_of(slot).holder;
        let is_other = |login: &OpenLogin| !Arc::ptr_eq(&login.prepared.slot, slot);
        self.logins.lock().retain_of(&holder, is_other);
        self.tickets.lock().retain_of(&holder, |ticket| !ticket.is_of(slot));
    }

    pub(crate) fn open_login(&self, state: String, login: OpenLogin) {
        let slot = Arc::clone(&login.prepared.slot);
        let (owner, until) = (entry_of(&slot), login.prepared.until);
        let mut logins = self.logins.lock();
        logins.retain_of(&owner.holder, |open| !Arc::ptr_eq(&open.prepared.slot, &slot));
        logins.insert(state, login, owner, EntryLifetime { now: clock::now(), until });
    }

    /// Takes a login. A state is valid for one response only.
    pub(crate) fn take_login(&self, state: &str) -> Option<OpenLogin> {
        let login = self.logins.lock().remove(&state.to_owned())?;
        self.remove(&login.ticket);
        Some(login)
    }
}

impl Ticket {
    pub(crate) fn is_of(&self, slot: &Arc<GrantSlot>) -> bool {
        matches!(&self.purpose, TicketPurpose::Login(login) if Arc::ptr_eq(&login.slot, slot))
    }

    /// Ends the login of a ticket that another one displaced. Its owner gets another link.
    pub(crate) fn end_login(self) {
        if let TicketPurpose::Login(login) = self.purpose {
            login.slot.end_login();
        }
    }

    pub(crate) fn owner(&self) -> &GrantOwner {
        match &self.purpose {
            TicketPurpose::Login(login) => &login.slot.key.owner,
            TicketPurpose::Visit(owner) => owner,
        }
    }

    /// Refuses a browser if the login belongs to another one.
    pub(crate) fn admit_browser(&self, browser: Option<BrowserId>) -> Result<(), LoginFault> {
        match self.browser {
            Some(first) if Some(first) != browser => Err(LoginFault::OtherBrowser),
            _ => Ok(()),
        }
    }
}

/// Returns the table entry of a login. Clients and addresses have their share. The gateway itself,
/// which logs in at many servers, has a larger one.
fn entry_of(slot: &GrantSlot) -> EntryOwner {
    entry_for(&slot.key.owner, *slot.address.lock())
}

fn entry_for(owner: &GrantOwner, address: Option<IpAddr>) -> EntryOwner {
    let (holder, share) = match owner.client_name() {
        Some(name) => (Holder::Client(Arc::clone(name)), OWNER_SHARE),
        None => (Holder::Client("".into()), GATEWAY_SHARE),
    };
    EntryOwner { holder, share, address }
}

/// Maximum number of open links, and of logins.
pub(crate) const TICKET_BOUNDS: TableBounds = TableBounds { all: 20_000, each_address: 5000 };
/// Maximum number of links, and of logins, of one client.
pub(crate) const OWNER_SHARE: usize = 256;
/// Maximum number of links, and of logins, of the gateway itself: one for each server.
const GATEWAY_SHARE: usize = 5000;
