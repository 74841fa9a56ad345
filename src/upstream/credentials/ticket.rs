//! The links that the gateway gives out, and what follows when a person has opened one.
//!
//! A link leads to a page of the gateway. Nothing is asked of an authorization server before the
//! person has agreed there; then the login belongs to the browser in which they did, and its answer
//! is used in no other.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use url::Url;

use crate::call::ServerName;
use crate::clock;
use crate::text::error_chain;

use super::authorization::{AnswerRefusal, AuthorizationAnswer, AuthorizationRequest};
use super::book::{GrantBook, GrantSlot};
use super::browser::BrowserId;
use super::endpoints::EndpointClaim;
use super::fault::LoginFault;
use super::grant::{GrantOwner, OauthGrant, TokenSource};
use super::metadata::IssAdvertised;
use super::pkce::{CodeVerifier, draw_text};
use super::token::TokenGrant;

/// The links that are out, and the logins whose answer is awaited.
#[derive(Default)]
pub(super) struct TicketBook {
    /// By the ticket in the link.
    tickets: Mutex<HashMap<String, Ticket>>,
    /// By `state`.
    logins: Mutex<HashMap<String, OpenLogin>>,
}

#[derive(Clone)]
struct Ticket {
    purpose: TicketPurpose,
    until: Instant,
    /// The browser in which somebody has agreed.
    browser: Option<BrowserId>,
}

#[derive(Clone)]
enum TicketPurpose {
    /// Logs in at a server.
    Login(Arc<PreparedLogin>),
    /// Shows an owner's connections.
    Visit(GrantOwner),
}

/// A login that waits for its owner to agree.
pub(super) struct PreparedLogin {
    pub(super) server: ServerName,
    pub(super) slot: Arc<GrantSlot>,
    /// The authorization endpoint.
    pub(super) claim: EndpointClaim,
    pub(super) source: TokenSource,
    pub(super) iss: IssAdvertised,
    pub(super) redirect: Url,
    pub(super) until: Instant,
}

/// A login that waits for the answer of the authorization server.
struct OpenLogin {
    prepared: Arc<PreparedLogin>,
    ticket: String,
    verifier: CodeVerifier,
    /// The browser in which its owner has agreed; `None` for a terminal.
    browser: Option<BrowserId>,
}

/// An answer to a login, as a browser brings it.
#[derive(Debug, Clone, Copy)]
pub struct BrowserAnswer<'a> {
    /// The path that it came to, below the gateway's URL.
    pub path: &'a str,
    /// Its query.
    pub query: &'a str,
    /// The browser; `None` for a terminal.
    pub browser: Option<BrowserId>,
}

/// What a link is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketOffer {
    /// Who was given the link.
    pub owner: GrantOwner,
    /// The login that it begins; `None` if it shows connections only.
    pub login: Option<OfferedLogin>,
}

/// A login, as its owner is asked about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedLogin {
    /// The server.
    pub server: ServerName,
    /// The authorization server.
    pub issuer: String,
    /// What is asked for, with spaces in between.
    pub scopes: String,
    /// Where the browser goes.
    pub endpoint: Url,
}

impl TicketBook {
    pub(super) fn is_open(&self, ticket: &str) -> bool {
        self.tickets.lock().get(ticket).is_some_and(|ticket| ticket.until > clock::now())
    }

    fn find(&self, ticket: &str) -> Result<Ticket, LoginFault> {
        let tickets = self.tickets.lock();
        let found = tickets.get(ticket).filter(|ticket| ticket.until > clock::now());
        found.cloned().ok_or(LoginFault::UnknownLink)
    }

    fn add(&self, ticket: String, new: Ticket) -> Result<(), LoginFault> {
        let now = clock::now();
        let mut tickets = self.tickets.lock();
        tickets.retain(|_, known| known.until > now && !known.is_replaced_by(&new));
        if tickets.len() >= MOST_TICKETS {
            return Err(LoginFault::TooMany { limit: MOST_TICKETS });
        }
        tickets.insert(ticket, new);
        Ok(())
    }

    /// Adds a login that waits for its owner. There is one for each grant.
    pub(super) fn add_login(
        &self,
        ticket: String,
        login: Arc<PreparedLogin>,
    ) -> Result<(), LoginFault> {
        let until = login.until;
        self.add(ticket, Ticket { purpose: TicketPurpose::Login(login), until, browser: None })
    }

    /// Ends the logins of a slot.
    pub(super) fn end_logins(&self, slot: &Arc<GrantSlot>) {
        self.logins.lock().retain(|_, login| !Arc::ptr_eq(&login.prepared.slot, slot));
        self.tickets.lock().retain(|_, ticket| !ticket.is_of(slot));
    }

    fn open_login(&self, state: String, login: OpenLogin) -> Result<(), LoginFault> {
        let now = clock::now();
        let mut logins = self.logins.lock();
        let slot = &login.prepared.slot;
        logins
            .retain(|_, open| open.prepared.until > now && !Arc::ptr_eq(&open.prepared.slot, slot));
        if logins.len() >= MOST_TICKETS {
            return Err(LoginFault::TooMany { limit: MOST_TICKETS });
        }
        logins.insert(state, login);
        Ok(())
    }

    /// Takes a login out: a state is good for one answer.
    fn take_login(&self, state: &str) -> Option<OpenLogin> {
        let login = self.logins.lock().remove(state)?;
        self.tickets.lock().remove(&login.ticket);
        Some(login)
    }
}

impl Ticket {
    fn is_of(&self, slot: &Arc<GrantSlot>) -> bool {
        matches!(&self.purpose, TicketPurpose::Login(login) if Arc::ptr_eq(&login.slot, slot))
    }

    fn is_replaced_by(&self, new: &Self) -> bool {
        match &new.purpose {
            TicketPurpose::Login(login) => self.is_of(&login.slot),
            TicketPurpose::Visit(_) => false,
        }
    }

    fn owner(&self) -> &GrantOwner {
        match &self.purpose {
            TicketPurpose::Login(login) => &login.slot.key.owner,
            TicketPurpose::Visit(owner) => owner,
        }
    }

    /// Whether somebody may go on in this browser.
    fn admit_browser(&self, browser: Option<BrowserId>) -> Result<(), LoginFault> {
        match self.browser {
            Some(first) if Some(first) != browser => Err(LoginFault::OtherBrowser),
            _ => Ok(()),
        }
    }
}

impl GrantBook {
    /// A link that shows its owner's connections, for one browser.
    ///
    /// # Errors
    /// [`LoginFault`] if browsers cannot reach the gateway, or if too many links are out.
    pub fn make_visit_link(&self, owner: GrantOwner) -> Result<Url, LoginFault> {
        let ticket = draw_text()?;
        let link = self.link_of(&ticket)?;
        let until = clock::now() + Self::VISIT_TIME;
        let purpose = TicketPurpose::Visit(owner);
        self.tickets.add(ticket, Ticket { purpose, until, browser: None })?;
        Ok(link)
    }

    /// What a link is for, as it is shown in a browser that somebody has opened it in.
    ///
    /// # Errors
    /// [`LoginFault`] if the link is used up, or in use in another browser.
    pub fn read_ticket(
        &self,
        ticket: &str,
        browser: Option<BrowserId>,
    ) -> Result<TicketOffer, LoginFault> {
        let ticket = self.tickets.find(ticket)?;
        ticket.admit_browser(browser)?;
        let owner = ticket.owner().clone();
        let login = match &ticket.purpose {
            TicketPurpose::Visit(_) => None,
            TicketPurpose::Login(login) => Some(OfferedLogin {
                server: login.server.clone(),
                issuer: login.source.issuer.clone(),
                scopes: login.source.scopes.to_string(),
                endpoint: login.claim.endpoint.clone(),
            }),
        };
        Ok(TicketOffer { owner, login })
    }

    /// Goes on with a link whose owner has agreed in a browser, or at a terminal: from now on it is
    /// good for that browser only. Returns where to log in; `None` if there is nothing to log in to.
    ///
    /// # Errors
    /// [`LoginFault`] if the link is used up, or in use in another browser.
    pub fn accept_ticket(
        &self,
        ticket: &str,
        browser: Option<BrowserId>,
        before: Option<BrowserId>,
    ) -> Result<Option<Url>, LoginFault> {
        let found = self.tickets.find(ticket)?;
        found.admit_browser(before)?;
        let TicketPurpose::Login(prepared) = &found.purpose else {
            self.tickets.tickets.lock().remove(ticket);
            return Ok(None);
        };
        self.check_endpoint(prepared)?;
        if let Some(known) = self.tickets.tickets.lock().get_mut(ticket) {
            known.browser = browser;
        }
        let (verifier, state) = (CodeVerifier::draw()?, draw_text()?);
        let request = AuthorizationRequest {
            client_id: &prepared.source.client.id,
            redirect: &prepared.redirect,
            challenge: &verifier.challenge(),
            state: &state,
            resource: &prepared.source.resource,
            scopes: &prepared.source.scopes,
            key: prepared.source.dpop.as_ref().map(|key| &*key.thumbprint),
        };
        let link = request.link(&prepared.claim.endpoint);
        let (prepared, ticket) = (Arc::clone(prepared), ticket.to_owned());
        self.tickets.open_login(state, OpenLogin { prepared, ticket, verifier, browser })?;
        Ok(Some(link))
    }

    /// Ends a link whose owner has refused in a browser.
    ///
    /// # Errors
    /// [`LoginFault`] if the link is used up, or in use in another browser.
    pub fn decline_ticket(
        &self,
        ticket: &str,
        browser: Option<BrowserId>,
    ) -> Result<(), LoginFault> {
        self.tickets.find(ticket)?.admit_browser(browser)?;
        let removed = self.tickets.tickets.lock().remove(ticket);
        if let Some(TicketPurpose::Login(login)) = removed.map(|ticket| ticket.purpose) {
            login.slot.end_login();
        }
        Ok(())
    }

    /// Takes the answer of an authorization server, which a browser brings, exchanges its code, and
    /// stores the grant. Returns the server that can be used from now on.
    ///
    /// # Errors
    /// [`LoginFault`] if no login of this browser waits for the answer, or if there is no token for
    /// it.
    pub async fn finish_login(&self, brought: BrowserAnswer<'_>) -> Result<ServerName, LoginFault> {
        let answer = AuthorizationAnswer::parse(brought.query)?;
        let state = answer.state.as_deref().unwrap_or_default();
        let login = self.tickets.take_login(state);
        let login = login.filter(|login| login.prepared.until > clock::now());
        let login = login.ok_or(AnswerRefusal::UnknownState)?;
        let PreparedLogin { server, slot, source, iss, redirect, .. } = &*login.prepared;
        let exchange = async {
            // The person who comes back is the one who agreed, and not one who was sent a link.
            if login.browser != brought.browser {
                return Err(LoginFault::OtherBrowser);
            }
            // RFC 9700, 4.4.2: another authorization server has another redirect URI.
            if redirect.path() != self.page_path(brought.path) {
                return Err(AnswerRefusal::OtherCallback.into());
            }
            self.check_endpoint(&login.prepared)?;
            let code = answer.into_code(&source.issuer, *iss)?;
            let (verifier, redirect) = (&login.verifier, redirect.as_str());
            source.ask(TokenGrant::Code { code: &code, verifier, redirect }).await
        };
        let tokens = match exchange.await {
            Ok(tokens) => tokens,
            Err(fault) => {
                let reason = error_chain(&fault);
                tracing::warn!(%server, reason, "a login did not succeed");
                if fault.is_unknown_client() {
                    self.forget_client(source).await;
                }
                slot.end_login();
                return Err(fault);
            }
        };
        self.store_grant(slot, OauthGrant::new(tokens, source.clone())).await;
        slot.end_login();
        tracing::info!(%server, "a login succeeded");
        Ok(server.clone())
    }

    /// Checks once more that the endpoint of a login is its issuer's.
    fn check_endpoint(&self, login: &PreparedLogin) -> Result<(), LoginFault> {
        let checked = self.endpoints.check(&login.claim);
        checked.map_err(LoginFault::in_document(login.claim.issuer.clone()))
    }
}

/// The most links that are out at once, and the most logins.
const MOST_TICKETS: usize = 10_000;
