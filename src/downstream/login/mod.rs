//! Logins passed on to an authorization server without support for MCP: the gateway's own metadata
//! as an authorization server (RFC 8414), and its authorization, token and registration endpoints,
//! below `/login/NAME` for the issuer `NAME`.
//!
//! They are served before authentication, because clients use them to get a token. `connect`
//! differs: there people log in at the servers behind the gateway.

mod consent;

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::call::{Failure, PeerAddress};
use crate::codec::body::collect;
use crate::identity::LOGIN_PATH;
use crate::mcp::{MediaType, media_type_essence};
use crate::oauth::{FormSender, LoginRelay, LoginRelayFault};
use crate::pipeline::Gateway;
use crate::snapshot::Snapshot;
use crate::telemetry::audit::{
    AuditOperation, OperationActor, OperationOutcome, OperationRecord, RecordRoom,
};
use crate::text::error_chain;

use super::access::caller::own_url;
use super::connect::{find_parameter, foreign_form};
use super::responses::response;
use super::{Body, McpService, refusal};

use consent::{ConsentForm, ConsentVisit};

/// Endpoints of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoginEndpoint {
    Metadata,
    Authorization,
    /// The form of the page that asks the user before a login continues.
    Consent,
    Token,
    Registration,
}

impl McpService {
    /// Returns true if a path belongs to a login that is passed on.
    pub fn has_login(&self, path: &str) -> bool {
        let snapshot = self.gateway.snapshots.load();
        !snapshot.logins.is_empty() && find_endpoint(&snapshot, path).is_some()
    }

    /// Answers a request that is a part of a login.
    pub async fn answer_login<B>(&self, request: Request<B>, peer: PeerAddress) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    {
        let snapshot = self.gateway.snapshots.load_full();
        let found = find_endpoint(&snapshot, request.uri().path());
        let Some((endpoint, relay)) = found else { return refusal(&Failure::UnknownEndpoint) };
        if request.method() != endpoint.method() {
            let mut response = response::empty(StatusCode::METHOD_NOT_ALLOWED);
            let allowed = HeaderValue::from_static(endpoint.method());
            response.headers_mut().insert(ALLOW, allowed);
            return response;
        }
        // Limited like other requests without credentials: each may cause requests to other hosts.
        if let Err(failure) = snapshot.policy.admit_unauthenticated(peer.addr.ip()) {
            return refusal(&failure);
        }
        let ip = peer.addr.ip();
        if endpoint == LoginEndpoint::Token
            && let Err(failure) = snapshot.policy.admit_attempt(ip)
        {
            return refusal(&failure);
        }
        let host = || own_url(request.uri(), request.headers(), peer);
        let own = snapshot.identity.login_url(relay.issuer(), host);
        let Some(own) = own else { return refusal(&Failure::UnknownEndpoint) };
        let is_recorded = endpoint != LoginEndpoint::Metadata;
        let reserved = if is_recorded { self.gateway.reserve_record() } else { Ok(None) };
        let room = match reserved {
            Ok(room) => room,
            Err(failure) => return refusal(&failure),
        };
        let gateway = &self.gateway;
        let (snapshot, own) = (&snapshot, &own);
        let mut visit = LoginVisit { gateway, snapshot, relay, own, address: ip, client_id: None };
        let answered = visit.answer(endpoint, request).await;
        visit.audit(endpoint, answered.as_ref(), room);
        answered.unwrap_or_else(|fault| {
            let (issuer, reason) = (relay.issuer(), error_chain(&fault));
            tracing::debug!(%issuer, client = %peer.addr, reason, "login not relayed");
            fault_response(&fault)
        })
    }
}

/// A request of a login, with its relay.
struct LoginVisit<'a> {
    gateway: &'a Gateway,
    snapshot: &'a Snapshot,
    relay: &'a LoginRelay,
    /// The base URL for passed-on logins of the issuer.
    own: &'a str,
    address: IpAddr,
    /// The client that the request names.
    client_id: Option<String>,
}

impl LoginVisit<'_> {
    async fn answer<B>(
        &mut self,
        endpoint: LoginEndpoint,
        request: Request<B>,
    ) -> Result<Response<Body>, LoginRelayFault>
    where
        B: http_body::Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    {
        match endpoint {
            LoginEndpoint::Metadata => {
                self.relay.metadata(self.own).await.map(|document| metadata_response(&document))
            }
            LoginEndpoint::Authorization => self.redirect(request).await,
            LoginEndpoint::Consent => self.judge_consent(request).await,
            LoginEndpoint::Token => {
                let answered = self.exchange(request).await;
                if answered.as_ref().map_or_else(LoginRelayFault::is_guess, |(_, guess)| *guess) {
                    self.snapshot.policy.record_failed_attempt(self.address);
                }
                answered.map(|(response, _)| response)
            }
            LoginEndpoint::Registration => register(self.relay, request).await,
        }
    }

    /// Records the request and its outcome in the audit log. Codes, tokens and secrets are no part
    /// of it.
    fn audit(
        &self,
        endpoint: LoginEndpoint,
        answered: Result<&Response<Body>, &LoginRelayFault>,
        room: Option<RecordRoom>,
    ) {
        let Some(endpoint) = endpoint.label() else { return };
        let (outcome, reason) = match answered {
            Ok(response) if response.status().as_u16() < 400 => (OperationOutcome::Ok, None),
            Ok(_) => (OperationOutcome::Refused, Some("refused")),
            Err(fault) => match code_of(fault) {
                (StatusCode::SERVICE_UNAVAILABLE, code) => (OperationOutcome::Failed, Some(code)),
                (_, code) => (OperationOutcome::Refused, Some(code)),
            },
        };
        let (issuer, client_id) = (self.relay.issuer().as_str(), self.client_id.as_deref());
        let record = OperationRecord {
            operation: AuditOperation::Relay { issuer, endpoint, client_id },
            actor: OperationActor::Visitor,
            address: Some(self.address),
            outcome,
            reason,
        };
        self.gateway.audit.record_operation_in(room, &record);
    }

    fn note_client(&mut self, form: &str) {
        self.client_id = Some(find_parameter(form, "client_id")).filter(|id| !id.is_empty());
    }

    fn ask_consent<'a>(&'a self, headers: &'a HeaderMap) -> ConsentVisit<'a> {
        ConsentVisit { gateway: self.gateway, relay: self.relay, headers, own: self.own }
    }

    /// Redirects a browser to the authorization server, or shows it the question of the gateway
    /// first.
    async fn redirect<B: Send>(
        &mut self,
        request: Request<B>,
    ) -> Result<Response<Body>, LoginRelayFault> {
        let head = request.map(drop).into_parts().0;
        let query = head.uri.query().unwrap_or_default();
        self.note_client(query);
        let passed = self.relay.pass_authorization(query).await?;
        let visit = self.ask_consent(&head.headers);
        if let Some(consent) = passed.consent.as_ref().filter(|it| !visit.has_agreed(it)) {
            let page = visit.ask(query, &passed.url, consent);
            return Ok(page.unwrap_or_else(|failure| refusal(&failure)));
        }
        let mut response = response::empty(StatusCode::FOUND);
        // A URL consists of visible ASCII characters.
        if let Ok(location) = HeaderValue::from_str(passed.url.as_str()) {
            response.headers_mut().insert(LOCATION, location);
        }
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        Ok(response)
    }

    /// Handles the user's answer to the question of the gateway.
    async fn judge_consent<B>(
        &mut self,
        request: Request<B>,
    ) -> Result<Response<Body>, LoginRelayFault>
    where
        B: http_body::Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    {
        let (head, body) = request.into_parts();
        let body = read_body(body).await.and_then(|body| String::from_utf8(body.into()).ok());
        let form = ConsentForm::parse(&body.unwrap_or_default());
        self.note_client(&form.request);
        let visit = self.ask_consent(&head.headers);
        if !visit.has_sent(&form) {
            return Ok(foreign_form());
        }
        let passed = self.relay.pass_authorization(&form.request).await?;
        Ok(visit.judge(&form, &passed).unwrap_or_else(|failure| refusal(&failure)))
    }

    /// Forwards a token request and its answer. The flag is true if the authorization server has
    /// refused credentials that may be guesses.
    async fn exchange<B>(
        &mut self,
        request: Request<B>,
    ) -> Result<(Response<Body>, bool), LoginRelayFault>
    where
        B: http_body::Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    {
        let (head, body) = request.into_parts();
        let form = read_body(body).await.and_then(|body| String::from_utf8(body.into()).ok());
        let media_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let is_form = media_type.is_some_and(|value| media_type_essence(value) == FORM_MEDIA_TYPE);
        let Some(form) = form.filter(|_| is_form) else {
            let refused = oauth_error(StatusCode::BAD_REQUEST, "invalid_request", FORM_EXPECTED);
            return Ok((refused, false));
        };
        self.note_client(&form);
        let sender = FormSender { headers: &head.headers, address: self.address };
        let answer = self.relay.send_form(&form, sender).await?;
        let is_guess = answer.is_refusal_of_guess();
        let mut response = Response::new(Body::Whole(answer.body));
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, answer.content_type.unwrap_or(MediaType::JSON));
        headers.insert(CACHE_CONTROL, NO_STORE);
        Ok((response, is_guess))
    }
}

impl LoginEndpoint {
    /// Returns the name in the audit log; `None` for requests without a record.
    fn label(self) -> Option<&'static str> {
        match self {
            Self::Metadata => None,
            Self::Authorization => Some("authorize"),
            Self::Consent => Some("consent"),
            Self::Token => Some("token"),
            Self::Registration => Some("register"),
        }
    }

    fn method(self) -> &'static str {
        match self {
            Self::Metadata | Self::Authorization => "GET",
            Self::Consent | Self::Token | Self::Registration => "POST",
        }
    }
}

/// Returns the endpoint at a path, and the relay of its issuer. A proxy may have removed the
/// gateway's base path.
fn find_endpoint<'s>(
    snapshot: &'s Snapshot,
    path: &str,
) -> Option<(LoginEndpoint, &'s LoginRelay)> {
    let base = snapshot.identity.resource_path()?;
    let (is_metadata, place) = match path.strip_prefix(WELL_KNOWN) {
        Some(place) => (true, place),
        None => (false, path),
    };
    let place = place.strip_prefix(base).unwrap_or(place).strip_prefix(LOGIN_PATH)?;
    let (issuer, endpoint) = match place.split_once('/') {
        None if is_metadata => (place, LoginEndpoint::Metadata),
        Some((issuer, "authorize")) if !is_metadata => (issuer, LoginEndpoint::Authorization),
        Some((issuer, "consent")) if !is_metadata => (issuer, LoginEndpoint::Consent),
        Some((issuer, "token")) if !is_metadata => (issuer, LoginEndpoint::Token),
        Some((issuer, "register")) if !is_metadata => (issuer, LoginEndpoint::Registration),
        _ => return None,
    };
    Some((endpoint, snapshot.logins.find(issuer)?))
}

fn metadata_response(document: &Value) -> Response<Body> {
    let mut response = response::json(StatusCode::OK, document.to_string().into());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(METADATA_CACHE_CONTROL));
    response
}

/// Registers a client.
async fn register<B>(
    relay: &LoginRelay,
    request: Request<B>,
) -> Result<Response<Body>, LoginRelayFault>
where
    B: http_body::Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
{
    let body = read_body(request.into_body()).await.unwrap_or_default();
    let Some(registered) = relay.register(&body) else {
        return Ok(refusal(&Failure::UnknownEndpoint));
    };
    let mut response = response::json(StatusCode::CREATED, registered?.to_string().into());
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    Ok(response)
}

/// Reads a body within its limits of size and time.
async fn read_body<B>(body: B) -> Option<Bytes>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    timeout(BODY_TIME, collect(body, MAX_BODY_BYTES)).await.ok()?.ok()
}

/// Builds the answer to a request that is not forwarded. Faults of the authorization server are
/// logged, not sent: they may name hosts that strangers should not learn.
fn fault_response(fault: &LoginRelayFault) -> Response<Body> {
    let (status, code) = code_of(fault);
    oauth_error(status, code, &fault.to_string())
}

fn code_of(fault: &LoginRelayFault) -> (StatusCode, &'static str) {
    match fault {
        LoginRelayFault::Metadata(_)
        | LoginRelayFault::Outbound(_)
        | LoginRelayFault::Busy { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable")
        }
        LoginRelayFault::Grant => (StatusCode::BAD_REQUEST, "unsupported_grant_type"),
        LoginRelayFault::PublicClient => (StatusCode::BAD_REQUEST, "unauthorized_client"),
        LoginRelayFault::Client => (StatusCode::UNAUTHORIZED, "invalid_client"),
        LoginRelayFault::ResponseType => (StatusCode::BAD_REQUEST, "unsupported_response_type"),
        LoginRelayFault::RequestObject { name: "request" } => {
            (StatusCode::BAD_REQUEST, "request_not_supported")
        }
        LoginRelayFault::RequestObject { .. } => {
            (StatusCode::BAD_REQUEST, "request_uri_not_supported")
        }
        LoginRelayFault::Parameters(_) | LoginRelayFault::Pkce | LoginRelayFault::RedirectUri => {
            (StatusCode::BAD_REQUEST, "invalid_request")
        }
        LoginRelayFault::RedirectUris => (StatusCode::BAD_REQUEST, "invalid_redirect_uri"),
    }
}

/// Builds an OAuth error (RFC 6749, 5.2; RFC 7591, 3.2.2).
fn oauth_error(status: StatusCode, code: &str, description: &str) -> Response<Body> {
    let body = json!({ "error": code, "error_description": description });
    let mut response = response::json(status, body.to_string().into());
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// RFC 8414, 3.
const WELL_KNOWN: &str = "/.well-known/oauth-authorization-server";
const FORM_MEDIA_TYPE: &str = "application/x-www-form-urlencoded";
const FORM_EXPECTED: &str = "expected a form of at most 64 KiB (application/x-www-form-urlencoded)";
/// Tokens and codes must not be stored (RFC 6749, 5.1).
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// Short enough for clients to notice a reload.
const METADATA_CACHE_CONTROL: &str = "public, max-age=60";
/// Limits of a request's body: its bytes, and the time to read it.
const MAX_BODY_BYTES: usize = 64 << 10;
const BODY_TIME: Duration = Duration::from_secs(10);
