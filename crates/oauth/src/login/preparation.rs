//! Prepares a login: finds the authorization server, becomes its client, and creates the link.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method};
use url::Url;

use trunkline_config::{CallbackChoice, GrantKind};
use trunkline_core::clock;
use trunkline_http_client::outbound::OutboundRequest;
use trunkline_protocol::mcp::MediaType;
use trunkline_telemetry::audit::RecordRoom;

use super::discovery::{DiscoveredServer, Discovery};
use crate::fault::LoginFault;
use crate::grants::authorizer::ServerAuthorizer;
use crate::grants::book::{ClientPlace, GrantSlot, LoginLink};
use crate::grants::endpoints::{EndpointClaim, IssuerTrust};
use crate::grants::grant::TokenSource;
use crate::grants::ticket_book::{PreparedLogin, Ticket, TicketPurpose};
use crate::metadata::challenge::{BearerChallenge, RequestedScopes};
use crate::metadata::documents::{IssAdvertised, MetadataFault, PkceDemand};
use crate::metadata::provider_error::ProviderError;
use crate::metadata::registration::{
    ClientOrigin, OauthClient, RegistrationFault, choose_client, read_registration,
    registered_auth, registration_request,
};
use crate::metadata::scopes::{KnownScopes, ScopeSet, choose_scopes};
use crate::metadata::token_use::TokenUse;
use crate::proofs::dpop::{DpopFault, DpopKey, choose_use};
use crate::proofs::pkce::draw_text;

impl ServerAuthorizer {
    /// Finds the server's authorization server, and returns its issuer. Only reads metadata: nothing
    /// is registered, and no token is requested.
    ///
    /// # Errors
    /// [`LoginFault`].
    pub async fn find_provider(&self, challenge: &BearerChallenge) -> Result<String, LoginFault> {
        Ok(self.discover(challenge).await?.metadata.issuer)
    }

    /// Finds the server's authorization server.
    pub(crate) async fn discover(
        &self,
        challenge: &BearerChallenge,
    ) -> Result<DiscoveredServer, LoginFault> {
        let pkce = match self.oauth.grant {
            GrantKind::AuthorizationCode => PkceDemand::Required,
            _ => PkceDemand::Unneeded,
        };
        let issuer = self.oauth.issuer.as_deref();
        let discovery = Discovery {
            outbound: &self.outbound,
            server: &self.place.url,
            resource: self.oauth.resource.as_ref(),
            issuer,
            pkce,
        };
        let found = discovery.run(challenge).await?;
        self.pin_issuer(&found.metadata.issuer)?;
        Ok(found)
    }

    /// Pins a configured client to one issuer: the configured one, or the first that is used.
    fn pin_issuer(&self, issuer: &str) -> Result<(), RegistrationFault> {
        if self.oauth.client_id.is_none() {
            return Ok(());
        }
        let expected = self.first_issuer.get_or_init(|| issuer.to_owned());
        if expected == issuer {
            return Ok(());
        }
        let (found, expected) = (issuer.to_owned(), expected.clone());
        Err(RegistrationFault::OtherIssuer { found, expected })
    }

    fn scopes_for(&self, found: &DiscoveredServer, known: RequestedScopes<'_>) -> ScopeSet {
        let RequestedScopes { challenge, asked } = known;
        let none = ScopeSet::default();
        choose_scopes(KnownScopes {
            configured: &self.scopes,
            challenged: &challenge.scope,
            asked_before: asked,
            of_resource: &found.scopes,
            // A client that logs in by itself needs no refresh tokens.
            of_issuer: match self.oauth.grant {
                GrantKind::AuthorizationCode => &found.metadata.scopes,
                _ => &none,
            },
        })
    }

    fn source(
        &self,
        found: &DiscoveredServer,
        client: OauthClient,
        scopes: ScopeSet,
    ) -> Result<TokenSource, DpopFault> {
        let algorithms = found.metadata.proof_algorithms.as_deref();
        let dpop = match choose_use(self.oauth.dpop, found.wants, algorithms)? {
            TokenUse::Bearer => None,
            // Each grant has its own key, so no two owners share one.
            TokenUse::Dpop => Some(Arc::new(DpopKey::generate()?)),
        };
        Ok(TokenSource {
            outbound: self.outbound.clone(),
            issuer: found.metadata.issuer.clone(),
            authorization_endpoint: found.metadata.authorization_endpoint.clone(),
            token_endpoint: found.metadata.token_endpoint.clone(),
            revocation_endpoint: found.metadata.revocation_endpoint.clone(),
            is_configured: self.oauth.client_id.is_some(),
            client,
            key: self.assertion_key(),
            resource: (!self.oauth.drop_resource).then(|| found.resource.clone()),
            scopes,
            dpop,
        })
    }

    /// Returns the source of tokens without a person: for a configured client that logs in by
    /// itself, or for a token or JWT that needs no client.
    pub(crate) fn client_source(
        &self,
        found: &DiscoveredServer,
        known: RequestedScopes<'_>,
    ) -> Result<TokenSource, LoginFault> {
        let scopes = self.scopes_for(found, known);
        if self.oauth.grant == GrantKind::JwtBearer && self.oauth.client_id.is_none() {
            return Ok(self.source(found, OauthClient::unregistered(), scopes)?);
        }
        match choose_client(&self.oauth, &found.metadata)? {
            ClientOrigin::Known(client) => Ok(self.source(found, client, scopes)?),
            ClientOrigin::Registered(_) => {
                Err(RegistrationFault::NoWay { issuer: found.metadata.issuer.clone() }.into())
            }
        }
    }

    /// Creates a link to log in by, and keeps the data that its response will need. Sends nothing
    /// to the authorization server before the owner has agreed. The link is recorded in the room that
    /// was reserved for it.
    pub(crate) async fn start_login(
        &self,
        slot: &Arc<GrantSlot>,
        found: &DiscoveredServer,
        known: RequestedScopes<'_>,
        room: Option<RecordRoom>,
    ) -> Result<LoginLink, LoginFault> {
        let endpoint = found.metadata.authorization_endpoint.as_ref();
        let missing = MetadataFault::Endpoint { member: "authorization_endpoint" };
        let endpoint = endpoint.ok_or(missing);
        let endpoint = endpoint.map_err(LoginFault::in_document(found.metadata.issuer.clone()))?;
        let claim = self.claim_of(&found.metadata.issuer, endpoint);
        let claimed = self.book.endpoints.claim(&self.place, claim.clone());
        claimed.map_err(LoginFault::in_document(found.metadata.issuer.clone()))?;
        let (client, redirect) = self.client(found).await?;
        let scopes = self.scopes_for(found, known);
        let ticket = draw_text()?;
        let url = String::from(self.book.link_of(&ticket)?).into();
        let until = clock::now() + self.oauth.login_time;
        let login = PreparedLogin {
            server: self.place.server.clone(),
            slot: Arc::clone(slot),
            claim,
            source: self.source(found, client, scopes)?,
            iss: if self.oauth.require_iss {
                IssAdvertised::Yes
            } else {
                found.metadata.iss_in_answers
            },
            redirect,
            until,
        };
        let login = Arc::new(login);
        let shared = Ticket { purpose: TicketPurpose::Login(Arc::clone(&login)), browser: None };
        self.book.share_link(&ticket, &shared, until).await?;
        self.book.tickets.add_login(ticket.clone(), login);
        let link = LoginLink { url, ticket, until, challenge: known.challenge.clone() };
        *slot.link.lock() = Some(link.clone());
        self.book.audit_link(slot, room);
        tracing::info!(
            target: "trunkline::upstream::credentials::login::preparation",
            server = %self.place.server,
            "a login is needed: /status has the operator's link"
        );
        Ok(link)
    }

    /// Returns the claim of an issuer to an authorization endpoint.
    pub(crate) fn claim_of(&self, issuer: &str, endpoint: &Url) -> EndpointClaim {
        let trust = match self.oauth.issuer {
            Some(_) => IssuerTrust::Configured,
            None => IssuerTrust::Discovered,
        };
        EndpointClaim { issuer: issuer.to_owned(), endpoint: endpoint.clone(), trust }
    }

    /// Returns the gateway's client at the authorization server, and the callback for browsers. A
    /// client that the gateway did not register itself may have only the callback of all servers.
    async fn client(&self, found: &DiscoveredServer) -> Result<(OauthClient, Url), LoginFault> {
        let own = self.book.callback_of(&self.place.server)?;
        let endpoint = match choose_client(&self.oauth, &found.metadata)? {
            ClientOrigin::Known(client) if self.oauth.callback == CallbackChoice::Server => {
                return Ok((client, own));
            }
            ClientOrigin::Known(client) => {
                let is_named =
                    self.oauth.require_iss || found.metadata.iss_in_answers == IssAdvertised::Yes;
                if !is_named {
                    tracing::warn!(
                        target: "trunkline::upstream::credentials::login::preparation",
                        server = %self.place.server,
                        "{SHARED_CALLBACK}"
                    );
                }
                return Ok((client, (*self.book.callback()?).clone()));
            }
            ClientOrigin::Registered(endpoint) => endpoint,
        };
        let client = self.register(found, &endpoint, &own).await?;
        Ok((client, own))
    }

    /// Returns the client that the gateway has registered, or registers it now.
    async fn register(
        &self,
        found: &DiscoveredServer,
        endpoint: &Url,
        redirect: &Url,
    ) -> Result<OauthClient, LoginFault> {
        let place = ClientPlace {
            server: self.place.server.clone(),
            issuer: found.metadata.issuer.clone(),
            redirect: redirect.clone(),
        };
        if let Some(client) = self.book.find_client(&place) {
            return Ok(client);
        }
        let auth = registered_auth(&found.metadata);
        let headers =
            HeaderMap::from_iter([(CONTENT_TYPE, MediaType::JSON), (ACCEPT, MediaType::JSON)]);
        let body = Bytes::from(registration_request(&found.metadata, redirect, auth));
        let request = OutboundRequest { method: Method::POST, url: endpoint, headers, body };
        let answer = self.outbound.send(request).await?;
        if !answer.status.is_success() {
            let (status, error) = (answer.status, ProviderError::read(answer.status, &answer.body));
            return Err(RegistrationFault::Refused { status, error }.into());
        }
        let client = read_registration(&answer.body, auth)?;
        self.book.keep_client(place, client.clone()).await;
        Ok(client)
    }
}

/// Warning in the log about a client with responses that cannot be distinguished from those of
/// other servers' logins.
const SHARED_CALLBACK: &str = "the authorization server sends no `iss`, and all servers share the \
                               callback: register the callback of this server, and set `callback \
                               = \"server\"`";
