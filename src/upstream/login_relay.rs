//! Logins of clients that are passed on, for authorization servers that do not know MCP.
//!
//! Such a server refuses `resource` (RFC 8707), or registers no clients (RFC 7591). Clients then take
//! the gateway for their authorization server: it has metadata of its own, made of the server's, and
//! passes on what they send to the authorization and token endpoints, without `resource`. A client
//! that registers gets the id that is configured. Nothing is kept: the answer to an authorization
//! request goes from the authorization server straight to the client's redirect URI, which is
//! checked there, and the tokens are the server's own. `credentials` differs: there the gateway
//! itself logs in at servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use url::{Url, form_urlencoded};

use crate::clock;
use crate::config::{Config, IssuerConfig, IssuerName};
use crate::mcp::MediaType;
use crate::text::error_chain;

use super::credentials::{
    AuthServerMetadata, FORM, LoginFault, MetadataFault, PkceDemand, find_auth_server,
};
use super::outbound::{OutboundAnswer, OutboundClient, OutboundFault, OutboundRequest, Remedy};

/// The relays of a configuration: one for each issuer whose logins the gateway passes on.
#[derive(Default)]
pub struct LoginRelays(Vec<Arc<LoginRelay>>);

/// Passes the logins of clients on to one authorization server.
pub struct LoginRelay {
    settings: RelaySettings,
    outbound: OutboundClient,
    metadata: Mutex<Option<FetchedMetadata>>,
    /// Why the last fetch of the metadata failed, if it did.
    fault: ArcSwapOption<LoginFault>,
    /// Requests to the authorization server that may be under way.
    places: Semaphore,
}

#[derive(Debug, PartialEq, Eq)]
struct RelaySettings {
    issuer: IssuerName,
    /// The authorization server, as the configuration writes it.
    server: String,
    client_id: Option<String>,
    drop_resource: bool,
    ca: Option<PathBuf>,
    /// How long its metadata is used.
    refresh: Duration,
}

/// The metadata of the authorization server, or why there is none.
struct FetchedMetadata {
    fetched: Result<Arc<ServerDocument>, Arc<LoginFault>>,
    /// When it was fetched.
    at: Instant,
}

/// What the authorization server says of itself.
struct ServerDocument {
    authorization_endpoint: Url,
    token_endpoint: Url,
    members: Map<String, Value>,
}

/// Why a login is not passed on.
#[derive(Debug, thiserror::Error)]
pub enum LoginRelayFault {
    /// The metadata of the authorization server cannot be had.
    #[error("the authorization server cannot be used")]
    Metadata(#[source] Arc<LoginFault>),
    /// The authorization server does not answer.
    #[error("the authorization server does not answer")]
    Outbound(#[from] OutboundFault),
    /// Too many requests to the authorization server are under way.
    #[error("too many logins are under way, the limit is {limit}: try again later")]
    Busy {
        /// How many may be.
        limit: usize,
    },
    /// The form has another grant than those that are passed on.
    #[error(
        "the grant type is not one of authorization_code, refresh_token and client_credentials"
    )]
    Grant,
    /// The form is of another client than the one that is configured.
    #[error("the client is not the one that is registered for this gateway")]
    Client,
    /// A client that registers without redirect URIs.
    #[error("expected a JSON object with `redirect_uris`, a list of URLs")]
    RedirectUris,
}

/// The answer of the authorization server's token endpoint.
pub struct RelayedAnswer {
    /// Its status.
    pub status: StatusCode,
    /// What its body is.
    pub content_type: Option<HeaderValue>,
    /// Its body.
    pub body: Bytes,
}

impl LoginRelays {
    /// The relays of a configuration. Those of `before` that have the same settings stay.
    pub fn new(config: &Config, before: &Self) -> Self {
        let relayed = config.issuers.iter().filter(|issuer| issuer.relays_logins());
        let relays = relayed.map(|issuer| {
            let settings = RelaySettings::of(issuer);
            let known = before.0.iter().find(|relay| relay.settings == settings);
            known.map_or_else(|| Arc::new(LoginRelay::new(settings)), Arc::clone)
        });
        Self(relays.collect())
    }

    /// The relay of an issuer.
    pub fn find(&self, issuer: &str) -> Option<&Arc<LoginRelay>> {
        self.0.iter().find(|relay| relay.settings.issuer.as_str() == issuer)
    }

    /// Whether no login is passed on.
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
        let outbound = OutboundClient::new(settings.ca.clone(), &server, (&[], Remedy::NameIssuer));
        let (metadata, fault) = (Mutex::default(), ArcSwapOption::empty());
        Self { settings, outbound, metadata, fault, places: Semaphore::new(MOST_REQUESTS) }
    }

    /// The name of the issuer.
    pub fn issuer(&self) -> &IssuerName {
        &self.settings.issuer
    }

    /// Why logins cannot be passed on, as far as was tried.
    pub fn fault(&self) -> Option<Arc<LoginFault>> {
        self.fault.load_full()
    }

    /// The metadata of the gateway as an authorization server (RFC 8414, 2) whose issuer is `own`.
    ///
    /// # Errors
    /// [`LoginRelayFault`] if that of the authorization server cannot be had.
    pub async fn metadata(&self, own: &str) -> Result<Value, LoginRelayFault> {
        let server = self.server_document().await?;
        let mut document: Map<String, Value> = COPIED
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), server.members.get(name)?.clone())))
            .collect();
        let mut set = |name: &str, value: Value| document.insert(name.to_owned(), value);
        set("issuer", own.into());
        set("authorization_endpoint", format!("{own}/authorize").into());
        set("token_endpoint", format!("{own}/token").into());
        // Servers with PKCE need not say so, and clients of MCP log in nowhere else.
        if !server.members.contains_key(PKCE_METHODS) {
            set(PKCE_METHODS, json!(["S256"]));
        }
        if self.settings.client_id.is_some() {
            set("registration_endpoint", format!("{own}/register").into());
            set("token_endpoint_auth_methods_supported", json!(["none"]));
            // A client with an id of its own is unknown there as well.
            document.remove(DOCUMENT_CLIENTS);
        }
        Ok(document.into())
    }

    /// Where a browser goes on with an authorization request (RFC 6749, 4.1.1) that has this query.
    ///
    /// # Errors
    /// [`LoginRelayFault`] if the metadata of the authorization server cannot be had.
    pub async fn authorization_url(&self, query: &str) -> Result<Url, LoginRelayFault> {
        let mut url = self.server_document().await?.authorization_endpoint.clone();
        let kept = self.without_resource(query);
        let query = match url.query() {
            Some(own) if !own.is_empty() => format!("{own}&{kept}"),
            _ => kept,
        };
        url.set_query(Some(&query));
        Ok(url)
    }

    /// Passes a token request on (RFC 6749, 4.1.3 and 6), and its answer back.
    ///
    /// # Errors
    /// [`LoginRelayFault`] if it is not passed on, or has no answer. A refusal of the authorization
    /// server is an answer.
    pub async fn send_form(
        &self,
        headers: &HeaderMap,
        form: &str,
    ) -> Result<RelayedAnswer, LoginRelayFault> {
        self.check_form(form)?;
        let server = self.server_document().await?;
        let Ok(_place) = self.places.try_acquire() else {
            return Err(LoginRelayFault::Busy { limit: MOST_REQUESTS });
        };
        let mut passed = HeaderMap::from_iter([(CONTENT_TYPE, FORM), (ACCEPT, MediaType::JSON)]);
        // The configured client is public: credentials beside its id would be another client's.
        let credentials = headers.get(AUTHORIZATION);
        if let Some(credentials) = credentials.filter(|_| self.settings.client_id.is_none()) {
            passed.insert(AUTHORIZATION, credentials.clone());
        }
        let request = OutboundRequest {
            method: Method::POST,
            url: &server.token_endpoint,
            headers: passed,
            body: self.without_resource(form).into(),
        };
        let OutboundAnswer { status, mut headers, body } = self.outbound.send(request).await?;
        Ok(RelayedAnswer { status, content_type: headers.remove(CONTENT_TYPE), body })
    }

    /// Registers a client (RFC 7591, 3.2): it gets the configured id. `None` if there is none, and
    /// clients register at the authorization server.
    ///
    /// # Errors
    /// [`LoginRelayFault::RedirectUris`].
    pub fn register(&self, request: &[u8]) -> Option<Result<Value, LoginRelayFault>> {
        let client_id = self.settings.client_id.as_deref()?;
        let request = serde_json::from_slice::<RegistrationRequest>(request).ok();
        let request = request.filter(|request| {
            let uris = &request.redirect_uris;
            !uris.is_empty() && uris.iter().all(|uri| Url::parse(uri).is_ok())
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

    /// A gateway that passed on any form would lend its address to those who guess passwords or
    /// secrets of other clients.
    fn check_form(&self, form: &str) -> Result<(), LoginRelayFault> {
        let field = |name: &str| {
            let mut pairs = form_urlencoded::parse(form.as_bytes());
            pairs.find(|(field, _)| field == name).map(|(_, value)| value)
        };
        if !field("grant_type").is_some_and(|grant| GRANTS.contains(&&*grant)) {
            return Err(LoginRelayFault::Grant);
        }
        match &self.settings.client_id {
            Some(client_id) if field("client_id").as_deref() != Some(client_id) => {
                Err(LoginRelayFault::Client)
            }
            _ => Ok(()),
        }
    }

    /// Pairs of a query or a form, byte for byte, but for `resource` where that is dropped.
    fn without_resource(&self, pairs: &str) -> String {
        if !self.settings.drop_resource {
            return pairs.to_owned();
        }
        let is_kept = |pair: &&str| {
            form_urlencoded::parse(pair.as_bytes()).all(|(name, _)| name != "resource")
        };
        pairs.split('&').filter(is_kept).collect::<Vec<_>>().join("&")
    }

    /// What the authorization server says of itself, fetched when it is not known. Requests that come
    /// meanwhile wait for the same fetch.
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
            let (issuer, reason) = (&self.settings.issuer, error_chain(fault));
            tracing::warn!(%issuer, reason, "logins cannot be passed on");
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
        let known = AuthServerMetadata::parse(&document, issuer, PkceDemand::Unneeded);
        let endpoints = known.and_then(|known| {
            let missing = MetadataFault::Endpoint { member: "authorization_endpoint" };
            Ok((known.authorization_endpoint.ok_or(missing)?, known.token_endpoint))
        });
        let (authorization_endpoint, token_endpoint) = endpoints.map_err(in_document)?;
        let members: Map<String, Value> = serde_json::from_slice(&document).unwrap_or_default();
        if members.get(ISS_IN_ANSWERS) == Some(&Value::Bool(true)) {
            tracing::warn!(
                issuer = %self.settings.issuer,
                "the authorization server names itself in its answers (`iss`), which clients that \
                 took the gateway for it may refuse: it may have a setting to leave that out"
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

/// The members of the authorization server's metadata that hold for the gateway as well.
const COPIED: [&str; 9] = [
    "scopes_supported",
    "response_types_supported",
    "response_modes_supported",
    "grant_types_supported",
    "token_endpoint_auth_methods_supported",
    "registration_endpoint",
    "revocation_endpoint",
    PKCE_METHODS,
    DOCUMENT_CLIENTS,
];
const PKCE_METHODS: &str = "code_challenge_methods_supported";
const DOCUMENT_CLIENTS: &str = "client_id_metadata_document_supported";
const ISS_IN_ANSWERS: &str = "authorization_response_iss_parameter_supported";
/// The grants of programs that log in for a person, and of those that are their own user.
const GRANTS: [&str; 3] = ["authorization_code", "refresh_token", "client_credentials"];
/// The most requests to one authorization server at a time.
const MOST_REQUESTS: usize = 64;
/// How long a failed fetch is not tried again.
const FAULT_TIME: Duration = Duration::from_secs(5);
