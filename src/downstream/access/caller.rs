//! The caller of a request: its identity, its endpoint, and the lifetime of its access.

use std::future::pending;
use std::sync::Arc;
use std::time::SystemTime;

use http::uri::Authority;
use http::{HeaderMap, Request, Response, Uri, header};
use tokio::sync::watch;
use url::Url;

use crate::call::PeerAddress;
use crate::call::{
    Endpoint, Failure, Principal, ProfileName, RequestFault, TokenFault, TokenSource,
};
use crate::identity::{ClientCertificate, Credential, KeyWait, Unidentified, wait_for_expiry};
use crate::pipeline::EntryCredentials;
use crate::pipeline::{Gateway, RefusedRequest, log_refused_request};
use crate::snapshot::Snapshot;

use super::challenge::add_challenge;
use crate::downstream::responses::response;
use crate::downstream::{Authenticated, Body, McpService};

/// The identified sender of a request.
#[derive(Debug, Clone)]
pub(crate) struct VerifiedCaller {
    credential: Credential,
    endpoint: Endpoint,
    /// Source of tokens with more scopes.
    tokens: Option<Arc<TokenSource>>,
    /// Notifies of configurations that were loaded after the sender was identified.
    loads: watch::Receiver<SystemTime>,
}

impl VerifiedCaller {
    pub(crate) fn principal(&self) -> &Principal {
        self.credential.principal()
    }

    /// Returns the caller's identity, and the proof of it.
    pub(crate) fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Returns the endpoint of the request.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the source of tokens with more scopes; `None` without issuers.
    pub(crate) fn tokens(&self) -> Option<&Arc<TokenSource>> {
        self.tokens.as_ref()
    }

    /// Returns true if both are the same principal on the same endpoint.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.principal() == other.principal() && self.endpoint == other.endpoint
    }

    /// Returns true if the caller keeps its sessions and streams under this snapshot, even if its
    /// key or token is no longer valid.
    pub(crate) fn keeps(&self, snapshot: &Snapshot) -> bool {
        snapshot.keeps(&self.credential, &self.endpoint)
    }
}

/// The sender of a request, and the snapshot that it is answered under. Not kept for longer: a
/// snapshot keeps its servers running.
pub(crate) struct RequestSender {
    pub(crate) caller: VerifiedCaller,
    pub(crate) peer: PeerAddress,
    pub(crate) snapshot: Arc<Snapshot>,
}

impl McpService {
    /// Identifies the sender and the endpoint of a request before reading anything else of it. A
    /// client without a valid key or token does not learn which profiles exist.
    pub(crate) fn identify_sender(
        &self,
        uri: &Uri,
        headers: &mut HeaderMap,
        peer: PeerAddress,
        certificate: Option<&Arc<ClientCertificate>>,
    ) -> Result<RequestSender, EntryRefusal> {
        let Some(profile) = profile_of(uri.path()) else {
            return Err(refusal(&Failure::UnknownEndpoint).into());
        };
        // In this order: a configuration that is loaded in between counts as a later one.
        let loads = self.gateway.snapshots.load_count();
        let snapshot = self.gateway.snapshots.load_full();
        // The parent process needs no token.
        let host = || own_url(uri, headers, peer).filter(|_| !peer.stdio);
        let resource = snapshot.identity.resource(profile, host);
        let tokens = resource.as_ref().map(|resource| Arc::clone(&resource.source));
        let refuse = |sender: Option<&Credential>, failure: &Failure| {
            self.audit_entry(sender, peer, profile, failure);
            EntryRefusal::from(refusal_with(failure, tokens.as_ref()))
        };
        let address = peer.addr.ip();
        let credential = if peer.stdio {
            Credential::parent()
        } else if resource.is_some() && has_token(uri.query().unwrap_or_default()) {
            let fault = RequestFault::TokenInQuery.into();
            let mark = || snapshot.identity.mark_credential(headers, certificate);
            let failure = self.gateway.refuse_stranger(&snapshot, address, fault, mark);
            return Err(refuse(None, &failure));
        } else {
            let entry = EntryCredentials { resource: resource.as_deref(), certificate, address };
            match self.gateway.identify(&snapshot, headers, entry) {
                Ok(credential) => credential,
                Err(Unidentified::Refused(failure) | Unidentified::WrongCredential(failure)) => {
                    return Err(refuse(None, &failure));
                }
                Err(Unidentified::Pending(wait)) => return Err(EntryRefusal::Pending(wait)),
            }
        };
        let endpoint =
            self.gateway.endpoint(&snapshot, credential.principal(), profile, uri.query());
        let endpoint = endpoint.and_then(|endpoint| {
            let at = (&endpoint, resource.as_deref());
            self.gateway.admit_entry(&snapshot, &credential, at).map(|()| endpoint)
        });
        let endpoint = endpoint.map_err(|failure| refuse(Some(&credential), &failure))?;
        let caller = VerifiedCaller { credential, endpoint, tokens, loads };
        Ok(RequestSender { caller, peer, snapshot })
    }

    /// Records in the audit log that a request was refused for its sender or its profile.
    pub(crate) fn audit_entry(
        &self,
        sender: Option<&Credential>,
        peer: PeerAddress,
        profile: &str,
        failure: &Failure,
    ) {
        let address = peer.socket().map(|peer| peer.ip());
        let request = RefusedRequest { sender, address, profile, ..RefusedRequest::default() };
        if failure.limit().is_some() {
            log_refused_request(sender.map(Credential::principal), &request, failure);
        }
        self.gateway.audit_refusal(&request, failure);
    }

    /// Watches for the revocation of a caller's access.
    pub(crate) fn watch_access(&self, caller: &VerifiedCaller) -> AccessWatch {
        let (caller, gateway) = (caller.clone(), Arc::clone(&self.gateway));
        AccessWatch { caller, gateway, scope: WatchScope::Stream }
    }

    /// Watches for the revocation of the access of a call's sender. A token that expires meanwhile
    /// does not end the call: it was valid when the call was made, and tokens are short-lived.
    pub(crate) fn watch_call(&self, caller: &VerifiedCaller) -> AccessWatch {
        AccessWatch { scope: WatchScope::Call, ..self.watch_access(caller) }
    }
}

/// Revocation watch: long-lived streams end when the caller loses access.
pub(crate) struct AccessWatch {
    caller: VerifiedCaller,
    gateway: Arc<Gateway>,
    scope: WatchScope,
}

/// Scope of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchScope {
    /// A stream, which ends with the credential.
    Stream,
    /// One call, which continues when its token expires.
    Call,
}

impl AccessWatch {
    /// Returns the failure of a call after its sender has lost access.
    pub(crate) fn revocation(&self) -> Failure {
        match self.caller.principal() {
            Principal::User(_) => Failure::TokenRefused(TokenFault::Issuer),
            Principal::Client(_) | Principal::Anonymous => Failure::KeyUnknown,
        }
    }

    /// Waits until the caller's key or token expires, or a new configuration revokes its access:
    /// usually forever.
    ///
    /// # Cancel safety
    /// Safe: the next call sees changes that were missed.
    pub(crate) async fn revoked(&mut self) {
        loop {
            let snapshot = self.gateway.snapshots.load();
            let (credential, endpoint) = (&self.caller.credential, &self.caller.endpoint);
            let lasts = self.scope == WatchScope::Call && credential.principal().issuer().is_some();
            let admitted = if lasts {
                snapshot.keeps(credential, endpoint)
            } else {
                snapshot.admits(credential, endpoint)
            };
            if !admitted {
                return;
            }
            let expiry = snapshot.identity.expiry(credential).filter(|_| !lasts);
            drop(snapshot);
            tokio::select! {
                loaded = self.caller.loads.changed() => if loaded.is_err() { pending().await },
                () = wait_for_expiry(expiry) => {}
            }
        }
    }
}

/// Returns the profile that a path names; the default one is also `/mcp` itself.
pub(crate) fn profile_of(path: &str) -> Option<&str> {
    match path.strip_prefix(ENDPOINT_PATH)? {
        // Some clients add a slash to every URL.
        "" | "/" => Some(ProfileName::DEFAULT),
        rest => rest.strip_prefix('/').filter(|name| !name.is_empty()),
    }
}

/// Marks a response to a request that was refused before it was served. The listener closes
/// connections that carry nothing else.
#[derive(Debug, Clone, Copy)]
pub struct Refused;

/// Reasons to refuse entry to a request.
pub(crate) enum EntryRefusal {
    /// The response that refuses it.
    Refused(Box<Response<Body>>),
    /// The keys of its token's issuer are being fetched.
    Pending(KeyWait),
}

impl From<Response<Body>> for EntryRefusal {
    fn from(response: Response<Body>) -> Self {
        Self::Refused(Box::new(response))
    }
}

/// A request without a known sender.
pub enum Unauthenticated<B> {
    /// The response that refuses it.
    Refused(Box<Response<Body>>),
    /// The request, and the fetch after which its token can be verified.
    Waiting(Box<WaitingRequest<B>>),
}

/// A request, and the fetch after which its token can be verified.
pub struct WaitingRequest<B> {
    pub(crate) request: Request<B>,
    pub(crate) wait: KeyWait,
}

impl McpService {
    /// Authenticates a request again, after its issuer's keys were fetched.
    ///
    /// # Errors
    /// The response that refuses it.
    pub async fn authenticate_later<B>(
        &self,
        waiting: WaitingRequest<B>,
        peer: PeerAddress,
    ) -> Result<Authenticated<B>, Box<Response<Body>>> {
        let WaitingRequest { request, wait } = waiting;
        wait.wait().await;
        match self.authenticate(request, peer) {
            Ok(authenticated) => Ok(authenticated),
            Err(Unauthenticated::Refused(response)) => Err(response),
            // The fetch takes too long, or another one has begun.
            Err(Unauthenticated::Waiting(_)) => Err(refusal(&Failure::IssuerUnavailable).into()),
        }
    }
}

/// Builds the response to a client that is refused.
pub fn refusal(failure: &Failure) -> Response<Body> {
    refusal_with(failure, None)
}

/// Builds the response to a client that is refused, with a challenge if a key or token may help.
fn refusal_with(failure: &Failure, tokens: Option<&Arc<TokenSource>>) -> Response<Body> {
    let mut response = response::refusal(None, failure);
    response.extensions_mut().insert(Refused);
    add_challenge(response.headers_mut(), failure, tokens);
    response
}

/// Returns the gateway's URL, as the request addresses it. The port is the socket's: otherwise a
/// `Host` header could turn a token for another program of this machine into one for the gateway.
pub(crate) fn own_url(uri: &Uri, headers: &HeaderMap, peer: PeerAddress) -> Option<Url> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = uri.authority().map(Authority::as_str).or(host)?;
    let scheme = if peer.tls { "https" } else { "http" };
    let mut url = Url::parse(&format!("{scheme}://{host}")).ok()?;
    url.set_port(Some(peer.local.port())).ok()?;
    Some(url)
}

/// Returns true if a query contains a token (RFC 6750, 2.3, which OAuth 2.1 forbids).
fn has_token(query: &str) -> bool {
    query.split('&').any(|part| part.split('=').next() == Some("access_token"))
}

/// The path that clients connect to.
const ENDPOINT_PATH: &str = "/mcp";
