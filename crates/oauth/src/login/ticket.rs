//! Links that the gateway issues, and their use in a browser.
//!
//! A link leads to a page of the gateway. Nothing is sent to an authorization server before the
//! person has agreed there. From then on the login is bound to the browser of that person, and its
//! response is used in no other.

use std::net::IpAddr;
use std::sync::Arc;

use url::Url;

use trunkline_core::clock;
use trunkline_core::text::error_chain;
use trunkline_protocol::call::ServerName;
use trunkline_telemetry::audit::RecordRoom;
use trunkline_telemetry::log::SharedFaultLog;

use crate::fault::LoginFault;
use crate::grants::book::GrantBook;
use crate::grants::browser::BrowserId;
use crate::grants::grant::{GrantOwner, OauthGrant};
use crate::grants::ticket_book::{OWNER_SHARE, OpenLogin, PreparedLogin, Ticket, TicketPurpose};
use crate::proofs::authorization::{
    AuthorizationAnswer, AuthorizationAnswerError, AuthorizationRequest,
};
use crate::proofs::pkce::{CodeVerifier, draw_text};
use crate::proofs::token::TokenGrant;

/// A response to a login, as a browser delivers it.
#[derive(Debug)]
pub struct BrowserAnswer<'a> {
    /// Path of the request, below the gateway's URL.
    pub path: &'a str,
    /// Its query.
    pub query: &'a str,
    /// The browser; `None` for a terminal.
    pub browser: Option<BrowserId>,
    /// Address of the browser, if it is known.
    pub address: Option<IpAddr>,
    /// Room for the record of the login.
    pub room: Option<RecordRoom>,
}

/// A request for a link.
#[derive(Debug)]
pub struct LinkRequest {
    /// The address that it comes from.
    pub address: IpAddr,
    /// Room for the record of the link.
    pub room: Option<RecordRoom>,
}

/// Purpose of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketOffer {
    /// Recipient of the link.
    pub owner: GrantOwner,
    /// The login that it begins. `None` if it only shows connections.
    pub login: Option<OfferedLogin>,
}

/// A login, as it is presented to its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedLogin {
    /// The server.
    pub server: ServerName,
    /// The authorization server.
    pub issuer: String,
    /// Scopes to request, separated by spaces.
    pub scopes: String,
    /// URL to which the browser goes.
    pub endpoint: Url,
}

impl GrantBook {
    /// Creates a link that shows its owner's connections in one browser. It counts for the address
    /// of the request.
    ///
    /// # Errors
    /// [`LoginFault`] if browsers cannot reach the gateway.
    pub async fn make_visit_link(
        &self,
        owner: GrantOwner,
        request: LinkRequest,
    ) -> Result<Url, LoginFault> {
        let ticket = draw_text()?;
        let link = self.link_of(&ticket)?;
        let entry = owner.entry_at(request.address, OWNER_SHARE);
        let new = Ticket { purpose: TicketPurpose::Visit(owner), browser: None };
        let until = clock::now() + Self::VISIT_TIME;
        self.share_link(&ticket, &new, until).await?;
        self.audit_visit_link(new.owner(), request);
        self.tickets.add(ticket, new, entry, until);
        Ok(link)
    }

    /// Returns the purpose of a link, for display in the browser that has opened it.
    ///
    /// # Errors
    /// [`LoginFault`] if the link is used up, or in use in another browser.
    pub async fn read_ticket(
        &self,
        ticket: &str,
        browser: Option<BrowserId>,
    ) -> Result<TicketOffer, LoginFault> {
        self.fetch_link(ticket).await?;
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

    /// Continues with a link after its owner has agreed in a browser, or at a terminal. From now on
    /// the link is valid for that browser only. Returns the URL at which to log in, or `None` if
    /// there is no login.
    ///
    /// # Errors
    /// [`LoginFault`] if the link is used up, or in use in another browser.
    pub async fn accept_ticket(
        &self,
        ticket: &str,
        browser: Option<BrowserId>,
        before: Option<BrowserId>,
    ) -> Result<Option<Url>, LoginFault> {
        let record = self.fetch_link(ticket).await?;
        let found = self.tickets.find(ticket)?;
        found.admit_browser(before)?;
        let TicketPurpose::Login(prepared) = &found.purpose else {
            self.use_link(ticket, record).await?;
            self.tickets.remove(ticket);
            return Ok(None);
        };
        self.check_endpoint(prepared)?;
        self.bind_link(ticket, record, browser).await?;
        self.tickets.bind(ticket, browser);
        let (verifier, state) = (CodeVerifier::draw()?, draw_text()?);
        let request = AuthorizationRequest {
            client_id: &prepared.source.client.id,
            redirect: &prepared.redirect,
            challenge: &verifier.challenge(),
            state: &state,
            resource: prepared.source.resource.as_deref(),
            scopes: &prepared.source.scopes,
            key: prepared.source.dpop.as_ref().map(|key| &*key.thumbprint),
        };
        let link = request.link(&prepared.claim.endpoint);
        let (prepared, ticket) = (Arc::clone(prepared), ticket.to_owned());
        let login = OpenLogin { prepared, ticket, verifier, browser };
        self.share_login(&state, &login).await?;
        self.tickets.open_login(state, login);
        Ok(Some(link))
    }

    /// Ends a link after its owner has refused in a browser.
    ///
    /// # Errors
    /// [`LoginFault`] if the link is used up, or in use in another browser.
    pub async fn decline_ticket(
        &self,
        ticket: &str,
        browser: Option<BrowserId>,
    ) -> Result<(), LoginFault> {
        let record = self.fetch_link(ticket).await?;
        self.tickets.find(ticket)?.admit_browser(browser)?;
        self.use_link(ticket, record).await?;
        if let Some(removed) = self.tickets.remove(ticket) {
            removed.end_login();
        }
        Ok(())
    }

    /// Accepts an authorization server's response from a browser, exchanges its code, and stores
    /// the grant. Returns the server that can be used from now on.
    ///
    /// # Errors
    /// [`LoginFault`] if no login of this browser waits for the response, or if there is no token
    /// for it.
    pub async fn finish_login(&self, brought: BrowserAnswer<'_>) -> Result<ServerName, LoginFault> {
        let (answer, login) = match self.take_answered(brought.query).await {
            Ok(answered) => answered,
            Err(fault) => {
                self.audit_login(None, brought, Some(&fault));
                return Err(fault);
            }
        };
        let finished = self.exchange_answer(answer, &login, &brought).await;
        self.drop_link(&login.ticket).await;
        self.audit_login(Some(&login.prepared.slot), brought, finished.as_ref().err());
        finished
    }

    /// Returns the login that waits for a response. No other response ends it.
    async fn take_answered(
        &self,
        query: &str,
    ) -> Result<(AuthorizationAnswer, OpenLogin), LoginFault> {
        let answer = AuthorizationAnswer::parse(query)?;
        let state = answer.state.as_deref().unwrap_or_default();
        let login = self.take_login(state).await?;
        let login = login.filter(|login| login.prepared.until > clock::now());
        Ok((answer, login.ok_or(AuthorizationAnswerError::UnknownState)?))
    }

    /// Exchanges the code of a response, and stores the grant.
    async fn exchange_answer(
        &self,
        answer: AuthorizationAnswer,
        login: &OpenLogin,
        brought: &BrowserAnswer<'_>,
    ) -> Result<ServerName, LoginFault> {
        let PreparedLogin { server, slot, source, iss, redirect, .. } = &*login.prepared;
        let exchange = async {
            // The browser must be the one in which the person agreed, not that of a person who
            // received a link from an attacker.
            if login.browser != brought.browser {
                return Err(LoginFault::OtherBrowser);
            }
            // RFC 9700, 4.4.2: each authorization server has its own redirect URI.
            if redirect.path() != self.page_path(brought.path) {
                return Err(AuthorizationAnswerError::OtherCallback.into());
            }
            self.check_endpoint(&login.prepared)?;
            let code = answer.into_code(&source.issuer, *iss)?;
            let (verifier, redirect) = (&login.verifier, redirect.as_str());
            source.ask(TokenGrant::Code { code: &code, verifier, redirect }).await
        };
        let tokens = match exchange.await {
            Ok(tokens) => tokens,
            Err(fault) => {
                if let Some(line) = describe_failure(server, &fault) {
                    tracing::warn!(
                        target: "trunkline::upstream::credentials::login::ticket",
                        %server,
                        "{line}"
                    );
                }
                if fault.is_unknown_client() {
                    self.forget_client(source).await;
                }
                slot.end_login();
                return Err(fault);
            }
        };
        let stored = self.store_login(slot, OauthGrant::new(tokens, source.clone())).await;
        slot.end_login();
        stored?;
        tracing::info!(
            target: "trunkline::upstream::credentials::login::ticket",
            %server,
            "a login succeeded"
        );
        Ok(server.clone())
    }

    /// Checks once more that the endpoint of a login belongs to its issuer.
    fn check_endpoint(&self, login: &PreparedLogin) -> Result<(), LoginFault> {
        let checked = self.endpoints.check(&login.claim);
        checked.map_err(LoginFault::in_document(login.claim.issuer.clone()))
    }
}

/// Returns the line about a login that did not succeed, unless one about this server and this kind of
/// fault is recent. A person's failed logins do not hide a fault that an operator has to mend.
fn describe_failure(server: &ServerName, fault: &LoginFault) -> Option<String> {
    let text = format!("a login did not succeed: {}", error_chain(fault));
    FAILED_LOGINS.note_about(&format!("{server} {}", fault.label()), &text)
}

/// Servers at which logins did not succeed, with the kind of fault, in the log.
static FAILED_LOGINS: SharedFaultLog = SharedFaultLog::holding(MAX_FAILED_LOGINS);
/// Maximum number of servers and kinds of fault that are counted.
const MAX_FAILED_LOGINS: usize = 64;

#[cfg(test)]
mod tests;
