//! Forwarding of clients' logins, for authorization servers that do not support MCP.
//!
//! Such a server refuses `resource` (RFC 8707), or registers no clients (RFC 7591). Clients then
//! use the gateway as their authorization server. It publishes its own metadata, derived from the
//! server's, and forwards requests to the authorization and token endpoints, without `resource`. A
//! client that registers gets the configured id. No state is kept: the response to an authorization
//! request goes from the authorization server straight to the client's redirect URI, which is
//! checked there, and the tokens are the server's own. `checks` decides which requests are
//! forwarded, and each is written anew from the checked parameters. `login` differs: there the
//! gateway itself logs in at servers.

mod checks;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use trunkline_config::{Config, IssuerConfig, IssuerName};
use trunkline_core::clock;
use trunkline_core::text::error_chain;
use trunkline_http_client::outbound::{
    OutboundAnswer, OutboundClient, OutboundFault, OutboundRequest, Remedy,
};
use trunkline_protocol::call::Principal;
use trunkline_protocol::mcp::MediaType;
use trunkline_shares::{Holder, ShareBounds, SharedAmount};
use trunkline_telemetry::log::SharedFaultLog;

use crate::fault::LoginFault;
use crate::login::discovery::find_auth_server;
use crate::metadata::documents::{AuthServerMetadata, ExpectedIssuer, MetadataFault, PkceDemand};
use crate::metadata::parameters::{OauthParameters, ParameterFault, RESOURCE_PARAMETER};
use crate::proofs::token::FORM_MEDIA_TYPE;

use checks::{RELAYED_GRANTS, check_authorization, check_redirect, check_token_request};

/// Relays of a configuration: one for each issuer with forwarded logins.
#[derive(Default)]
pub struct LoginRelays(Vec<Arc<LoginRelay>>);

/// Forwards the logins of clients to one authorization server.
pub struct LoginRelay {
    settings: RelaySettings,
    outbound: OutboundClient,
    metadata: Mutex<Option<FetchedMetadata>>,
    /// Fault of the last fetch of the metadata, if it failed.
    fault: ArcSwapOption<LoginFault>,
    /// Faults of all fetches, in the log.
    faults: SharedFaultLog,
    /// Requests to the authorization server in progress, by address.
    places: Arc<SharedAmount>,
}

#[derive(Debug, PartialEq, Eq)]
struct RelaySettings {
    issuer: IssuerName,
    /// The authorization server, as the configuration writes it.
    server: String,
    client_id: Option<String>,
    drop_resource: bool,
    ca: Option<PathBuf>,
    /// Time for which its metadata is used.
    refresh: Duration,
}

/// Metadata of the authorization server, or the reason that there is none.
struct FetchedMetadata {
    fetched: Result<Arc<ServerDocument>, Arc<LoginFault>>,
    /// Time of the fetch.
    at: Instant,
}

/// Metadata that the authorization server publishes.
struct ServerDocument {
    authorization_endpoint: Url,
    token_endpoint: Url,
    members: Map<String, Value>,
}

/// Reason to refuse to forward a login.
#[derive(Debug, thiserror::Error)]
pub enum LoginRelayFault {
    /// The metadata of the authorization server is not available.
    #[error("the authorization server cannot be used")]
    Metadata(#[source] Arc<LoginFault>),
    /// The authorization server does not respond.
    #[error("the authorization server does not answer")]
    Outbound(#[from] OutboundFault),
    /// Too many requests to the authorization server are in progress.
    #[error("too many logins are under way, the limit is {limit}: try again later")]
    Busy {
        /// Maximum number of such requests.
        limit: usize,
    },
    /// Grants of this type are not forwarded.
    #[error(
        "the grant type is not one of authorization_code, refresh_token and client_credentials"
    )]
    Grant,
    /// The request comes from a client other than the configured one, or has credentials of
    /// another.
    #[error("unknown client, or wrong client credentials")]
    Client,
    /// The grant is for clients with a secret, but the configured one has none.
    #[error(
        "the grant type client_credentials needs a client with a secret, and this one is public"
    )]
    PublicClient,
    /// The request can be read in more than one way.
    #[error(transparent)]
    Parameters(#[from] ParameterFault),
    /// Parameters in this form cannot be checked.
    #[error("`{name}` is not supported: send the parameters themselves")]
    RequestObject {
        /// The parameter.
        name: &'static str,
    },
    /// The response type is not `code`.
    #[error("the response type is not `code`")]
    ResponseType,
    /// The login lacks PKCE, or uses a method other than S256.
    #[error(
        "PKCE with S256 is required: send `code_challenge` and `code_challenge_method=S256`, and \
         `code_verifier` with the code"
    )]
    Pkce,
    /// No client may have this redirect URI.
    #[error(
        "expected a `redirect_uri` with https, with http on this machine, or with the scheme of a \
         program, and without a fragment"
    )]
    RedirectUri,
    /// A client that registers without redirect URIs.
    #[error("expected a JSON object with `redirect_uris`, a list of URLs")]
    RedirectUris,
}

/// An authorization request that may continue.
pub struct PassedAuthorization {
    /// The next page of the browser.
    pub url: Url,
    /// Consent that the user has to give first. `None` if the client is registered at the
    /// authorization server, which requests consent itself.
    pub consent: Option<LoginConsent>,
}

/// Use of the configured client by one of the programs that share it (MCP 2026-07-28,
/// Authorization, "Confused Deputy Problem").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginConsent {
    /// Id that all programs use.
    pub client_id: String,
    /// Receiver of the code, which distinguishes the programs.
    pub redirect: String,
    /// Requested scopes, separated by spaces.
    pub scopes: String,
}

/// Sender of a token request.
#[derive(Debug, Clone, Copy)]
pub struct FormSender<'a> {
    /// Headers of the request.
    pub headers: &'a HeaderMap,
    /// Address of the sender.
    pub address: IpAddr,
}

/// Response of the authorization server's token endpoint.
pub struct RelayedAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Media type of the body.
    pub content_type: Option<HeaderValue>,
    /// Its body.
    pub body: Bytes,
}

impl RelayedAnswer {
    /// Returns true if the authorization server has refused a code, a refresh token or a client, so
    /// that the request may have been a guess.
    pub fn is_refusal_of_guess(&self) -> bool {
        let is_refused = |body: &Bytes| {
            let answer: Option<Value> = serde_json::from_slice(body).ok();
            let error = answer.as_ref().and_then(|answer| answer.get("error")?.as_str());
            // An unreadable response may be any refusal.
            error.is_none_or(|error| GUESS_ERRORS.contains(&error))
        };
        self.status == StatusCode::UNAUTHORIZED
            || (self.status.is_client_error() && is_refused(&self.body))
    }
}

impl LoginRelayFault {
    /// Returns true if the request may have been a guess of a client, a secret or a password.
    pub fn is_guess(&self) -> bool {
        matches!(self, Self::Client | Self::PublicClient | Self::Grant | Self::Parameters(_))
    }
}

impl LoginRelays {
    /// Creates the relays of a configuration. Keeps relays of `before` with the same settings.
    pub fn new(config: &Config, before: &Self) -> Self {
        let relayed = config.issuers.iter().filter(|issuer| issuer.relays_logins());
        let relays = relayed.map(|issuer| {
            let settings = RelaySettings::of(issuer);
            let known = before.0.iter().find(|relay| relay.settings == settings);
            known.map_or_else(|| Arc::new(LoginRelay::new(settings)), Arc::clone)
        });
        Self(relays.collect())
    }

    /// Returns the relay of an issuer.
    pub fn find(&self, issuer: &str) -> Option<&Arc<LoginRelay>> {
        self.0.iter().find(|relay| relay.settings.issuer.as_str() == issuer)
    }

    /// Returns true if no login is forwarded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl RelaySettings {
    fn of(config: &IssuerConfig) -> Self {
        Self {
            issuer: config.name.clone(),
            server: config.login_server().to_owned(),
            client_id: config.client_id.clone(),
            drop_resource: config.drop_resource,
            ca: config.ca.clone(),
            refresh: config.jwks_refresh,
        }
    }
}

impl LoginRelay {
    fn new(settings: RelaySettings) -> Self {
        let server = Url::parse(&settings.server).ok();
        let outbound = OutboundClient::new(settings.ca.clone(), &server, &[], Remedy::NameIssuer);
        let (metadata, fault) = (Mutex::default(), ArcSwapOption::empty());
        let faults = SharedFaultLog::new();
        Self { settings, outbound, metadata, fault, faults, places: Arc::default() }
    }

    /// Returns the name of the issuer.
    pub fn issuer(&self) -> &IssuerName {
        &self.settings.issuer
    }

    /// Returns the fault that prevents forwarding, as of the last attempt.
    pub fn fault(&self) -> Option<Arc<LoginFault>> {
        self.fault.load_full()
    }

    /// Returns the metadata of the gateway as an authorization server (RFC 8414, 2) with the issuer
    /// `own`.
    ///
    /// # Errors
    /// [`LoginRelayFault`] if the metadata of the authorization server is not available.
    pub async fn metadata(&self, own: &str) -> Result<Value, LoginRelayFault> {
        let server = self.server_document().await?;
        let mut document: Map<String, Value> = COPIED_MEMBERS
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), server.members.get(name)?.clone())))
            .collect();
        let mut set = |name: &str, value: Value| document.insert(name.to_owned(), value);
        set("issuer", own.into());
        set("authorization_endpoint", format!("{own}/authorize").into());
        set("token_endpoint", format!("{own}/token").into());
        // Servers with PKCE do not have to announce it, but MCP clients log in only at servers that
        // do.
        if !server.members.contains_key(PKCE_METHODS) {
            set(PKCE_METHODS, json!(["S256"]));
        }
        // Only the supported types and grants are announced.
        set("response_types_supported", json!(["code"]));
        let is_public = self.settings.client_id.is_some();
        let grants =
            RELAYED_GRANTS.into_iter().filter(|grant| !is_public || *grant != "client_credentials");
        let listed = server.members.get(GRANT_TYPES).and_then(Value::as_array);
        if let Some(listed) = listed {
            let grants = grants.filter(|grant| listed.iter().any(|it| it == grant));
            set(GRANT_TYPES, grants.collect());
        }
        if is_public {
            set("registration_endpoint", format!("{own}/register").into());
            set("token_endpoint_auth_methods_supported", json!(["none"]));
            // The authorization server does not know a client with its own id either.
            document.remove(DOCUMENT_CLIENTS);
        }
        Ok(document.into())
    }

    /// Checks an authorization request (RFC 6749, 4.1.1) with this query.
    ///
    /// # Errors
    /// [`LoginRelayFault`] if it is not forwarded, or if the metadata of the authorization server
    /// is not available.
    pub async fn pass_authorization(
        &self,
        query: &str,
    ) -> Result<PassedAuthorization, LoginRelayFault> {
        let mut request = OauthParameters::parse(query)?;
        let client_id = self.settings.client_id.as_deref();
        check_authorization(&request, client_id)?;
        let mut url = self.server_document().await?.authorization_endpoint.clone();
        self.drop_resource(&mut request);
        request.check_endpoint(&url)?;
        let text = |name: &str| request.find(name).unwrap_or_default().to_owned();
        let consent = client_id.map(|client_id| LoginConsent {
            client_id: client_id.to_owned(),
            redirect: text("redirect_uri"),
            scopes: text("scope"),
        });
        let kept = request.to_text();
        let query = match url.query() {
            Some(own) if !own.is_empty() => format!("{own}&{kept}"),
            _ => kept,
        };
        url.set_query(Some(&query));
        Ok(PassedAuthorization { url, consent })
    }

    /// Forwards a token request (RFC 6749, 4.1.3 and 6), and returns its response.
    ///
    /// # Errors
    /// [`LoginRelayFault`] if it is not forwarded, or has no response. A refusal of the
    /// authorization server is a response.
    pub async fn send_form(
        &self,
        form: &str,
        sender: FormSender<'_>,
    ) -> Result<RelayedAnswer, LoginRelayFault> {
        let mut form = OauthParameters::parse(form)?;
        let client_id = self.settings.client_id.as_deref();
        let credentials = check_token_request(&form, sender.headers, client_id)?;
        let server = self.server_document().await?;
        self.drop_resource(&mut form);
        form.check_endpoint(&server.token_endpoint)?;
        let holder = Holder::identify(&Principal::Anonymous, sender.address);
        let place = self.places.take(&holder, 1, REQUEST_BOUNDS);
        let _place = place
            .map_err(|bound| LoginRelayFault::Busy { limit: REQUEST_BOUNDS.reached(bound) })?;
        let mut passed =
            HeaderMap::from_iter([(CONTENT_TYPE, FORM_MEDIA_TYPE), (ACCEPT, MediaType::JSON)]);
        passed.extend(credentials.map(|credentials| (AUTHORIZATION, credentials.clone())));
        let request = OutboundRequest {
            method: Method::POST,
            url: &server.token_endpoint,
            headers: passed,
            body: form.to_text().into(),
        };
        let OutboundAnswer { status, mut headers, body } = self.outbound.send(request).await?;
        Ok(RelayedAnswer { status, content_type: headers.remove(CONTENT_TYPE), body })
    }

    /// Registers a client (RFC 7591, 3.2), which gets the configured id. Returns `None` if no id is
    /// configured, so that clients register at the authorization server.
    ///
    /// # Errors
    /// [`LoginRelayFault::RedirectUris`].
    pub fn register(&self, request: &[u8]) -> Option<Result<Value, LoginRelayFault>> {
        let client_id = self.settings.client_id.as_deref()?;
        let request = serde_json::from_slice::<RegistrationRequest>(request).ok();
        let request = request.filter(|request| {
            let uris = &request.redirect_uris;
            !uris.is_empty() && uris.iter().all(|uri| check_redirect(uri).is_ok())
        });
        let Some(RegistrationRequest { redirect_uris, client_name }) = request else {
            return Some(Err(LoginRelayFault::RedirectUris));
        };
        let mut answer = json!({
            "client_id": client_id,
            "redirect_uris": redirect_uris,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        });
        if let (Some(name), Some(members)) = (client_name, answer.as_object_mut()) {
            members.insert("client_name".into(), name.into());
        }
        Some(Ok(answer))
    }

    fn drop_resource(&self, parameters: &mut OauthParameters) {
        if self.settings.drop_resource {
            parameters.remove(RESOURCE_PARAMETER);
        }
    }

    /// Returns the authorization server's metadata, and fetches it if it is not known. Requests
    /// that arrive meanwhile wait for the same fetch.
    async fn server_document(&self) -> Result<Arc<ServerDocument>, LoginRelayFault> {
        let mut known = self.metadata.lock().await;
        let now = clock::now();
        let is_fresh = |known: &&FetchedMetadata| {
            let lasts = if known.fetched.is_ok() { self.settings.refresh } else { FAULT_TIME };
            now.saturating_duration_since(known.at) < lasts
        };
        if let Some(known) = known.as_ref().filter(is_fresh) {
            return known.fetched.clone().map_err(LoginRelayFault::Metadata);
        }
        let fetched = self.fetch_document().await.map(Arc::new).map_err(Arc::new);
        if let Err(fault) = &fetched {
            let reason = error_chain(fault);
            if let Some(reason) = self.faults.note_about(&reason, &reason) {
                tracing::warn!(
                    target: "trunkline::upstream::login_relay",
                    issuer = %self.settings.issuer,
                    reason,
                    "logins cannot be relayed"
                );
            }
        }
        self.fault.store(fetched.as_ref().err().cloned());
        *known = Some(FetchedMetadata { fetched: fetched.clone(), at: clock::now() });
        fetched.map_err(LoginRelayFault::Metadata)
    }

    async fn fetch_document(&self) -> Result<ServerDocument, LoginFault> {
        let issuer = &self.settings.server;
        let found = find_auth_server(&self.outbound, issuer).await?;
        let (place, document) =
            found.ok_or_else(|| LoginFault::NoMetadata { issuer: issuer.clone() })?;
        let in_document = LoginFault::in_document(place);
        let known = AuthServerMetadata::parse(
            &document,
            ExpectedIssuer::Configured(issuer),
            PkceDemand::Unneeded,
        );
        let endpoints = known.and_then(|known| {
            let missing = MetadataFault::Endpoint { member: "authorization_endpoint" };
            Ok((known.authorization_endpoint.ok_or(missing)?, known.token_endpoint))
        });
        let (authorization_endpoint, token_endpoint) = endpoints.map_err(in_document)?;
        let members: Map<String, Value> = serde_json::from_slice(&document).unwrap_or_default();
        if members.get(ISS_IN_ANSWERS) == Some(&Value::Bool(true)) {
            tracing::warn!(
                target: "trunkline::upstream::login_relay",
                issuer = %self.settings.issuer,
                "the authorization server sends `iss` in its answers, which clients may refuse \
                 because they expect the gateway: turn it off there if possible"
            );
        }
        Ok(ServerDocument { authorization_endpoint, token_endpoint, members })
    }
}

#[derive(Deserialize)]
struct RegistrationRequest {
    #[serde(default)]
    redirect_uris: Vec<String>,
    client_name: Option<String>,
}

/// Members of the authorization server's metadata that are valid for the gateway as well.
const COPIED_MEMBERS: [&str; 8] = [
    "scopes_supported",
    "response_modes_supported",
    GRANT_TYPES,
    "token_endpoint_auth_methods_supported",
    "registration_endpoint",
    "revocation_endpoint",
    PKCE_METHODS,
    DOCUMENT_CLIENTS,
];
const PKCE_METHODS: &str = "code_challenge_methods_supported";
const DOCUMENT_CLIENTS: &str = "client_id_metadata_document_supported";
const ISS_IN_ANSWERS: &str = "authorization_response_iss_parameter_supported";
const GRANT_TYPES: &str = "grant_types_supported";
/// Errors of a token endpoint for a wrong code, token or client (RFC 6749, 5.2).
const GUESS_ERRORS: [&str; 3] = ["invalid_grant", "invalid_client", "unauthorized_client"];
/// Maximum number of simultaneous requests to one authorization server: from all addresses, and
/// from each.
const REQUEST_BOUNDS: ShareBounds = ShareBounds { all: 64, each: 16 };
/// Time before a failed fetch is repeated.
const FAULT_TIME: Duration = Duration::from_secs(5);
