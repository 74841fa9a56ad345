//! Who sent a request, for which endpoint, and until when their access lasts.

use std::future::pending;
use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, HeaderValue, Response, Uri, header};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::call::PeerAddress;
use crate::call::{Endpoint, Failure, Principal, ProfileName};
use crate::clock;
use crate::identity::Credential;
use crate::pipeline::{Gateway, RefusedRequest};
use crate::snapshot::Snapshot;

use super::{Body, McpService, response};

/// The identified sender of a request.
#[derive(Debug, Clone)]
pub(super) struct VerifiedCaller {
    credential: Credential,
    endpoint: Endpoint,
    /// Notifies of configurations that were loaded after the sender was identified.
    loads: watch::Receiver<SystemTime>,
}

impl VerifiedCaller {
    pub(super) fn principal(&self) -> &Principal {
        self.credential.principal()
    }

    /// Who it is, and how that was proved.
    pub(super) fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Where the request came in.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether both are the same principal on the same endpoint.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.principal() == other.principal() && self.endpoint == other.endpoint
    }

    /// Whether the caller keeps its sessions and streams under this snapshot, even if the key that
    /// it used is no longer valid.
    pub(super) fn keeps(&self, snapshot: &Snapshot) -> bool {
        snapshot.keeps(&self.credential, &self.endpoint)
    }
}

/// Who sent a request, and the snapshot that it is answered under. Not for longer: a snapshot
/// keeps its servers running.
pub(super) struct RequestSender {
    pub(super) caller: VerifiedCaller,
    pub(super) peer: PeerAddress,
    pub(super) snapshot: Arc<Snapshot>,
}

impl McpService {
    /// Identifies the sender and the endpoint of a request before anything else of it is read. A
    /// client without a valid key does not learn which profiles exist.
    pub(super) fn identify_sender(
        &self,
        uri: &Uri,
        headers: &mut HeaderMap,
        peer: PeerAddress,
    ) -> Result<RequestSender, Failure> {
        let Some(profile) = profile_of(uri.path()) else { return Err(Failure::UnknownEndpoint) };
        // In this order: a configuration that is loaded in between counts as a later one.
        let loads = self.gateway.snapshots.load_count();
        let snapshot = self.gateway.snapshots.load_full();
        let credential = if peer.stdio {
            Credential::parent()
        } else {
            let identified = self.gateway.identify(&snapshot, headers, peer.addr.ip());
            identified.inspect_err(|failure| self.audit_entry((None, peer), profile, failure))?
        };
        let at = (profile, uri.query());
        let endpoint = self.gateway.endpoint(&snapshot, credential.principal(), at);
        let endpoint = endpoint
            .inspect_err(|failure| self.audit_entry((Some(&credential), peer), profile, failure))?;
        Ok(RequestSender { caller: VerifiedCaller { credential, endpoint, loads }, peer, snapshot })
    }

    /// Records that a request was refused for its sender or its profile.
    fn audit_entry(
        &self,
        (sender, peer): (Option<&Credential>, PeerAddress),
        profile: &str,
        failure: &Failure,
    ) {
        let address = peer.socket().map(|peer| peer.ip());
        let request = RefusedRequest { sender, address, profile, ..RefusedRequest::default() };
        self.gateway.audit_refusal(&request, failure);
    }

    /// Watches for the revocation of a caller's access.
    pub(super) fn watch_access(&self, caller: &VerifiedCaller) -> AccessWatch {
        AccessWatch { caller: caller.clone(), gateway: Arc::clone(&self.gateway) }
    }
}

/// Revocation watch: long-lived streams end when the caller loses access.
pub(super) struct AccessWatch {
    caller: VerifiedCaller,
    gateway: Arc<Gateway>,
}

impl AccessWatch {
    /// Waits until the caller's key expires, or a new configuration revokes its access: usually
    /// forever.
    ///
    /// # Cancel safety
    /// Safe: what was missed is seen by the next.
    pub(super) async fn revoked(&mut self) {
        loop {
            let snapshot = self.gateway.snapshots.load();
            if !snapshot.admits(&self.caller.credential, &self.caller.endpoint) {
                return;
            }
            let expiry = snapshot.identity.expiry(&self.caller.credential);
            drop(snapshot);
            let expired = async {
                match expiry {
                    Some(expiry) => sleep(expiry.saturating_sub(clock::unix_now())).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                loaded = self.caller.loads.changed() => if loaded.is_err() { pending().await },
                () = expired => {}
            }
        }
    }
}

/// The profile that a path names; the default one's is `/mcp` itself, too.
fn profile_of(path: &str) -> Option<&str> {
    match path.strip_prefix(ENDPOINT)? {
        "" => Some(ProfileName::DEFAULT),
        rest => rest.strip_prefix('/').filter(|name| !name.is_empty()),
    }
}

/// Marks a response to a request that was refused before it was served. The listener closes
/// connections that carry nothing else.
#[derive(Debug, Clone, Copy)]
pub struct Refused;

/// The response to a client that is refused, with a challenge where a key may help.
pub fn refusal(failure: &Failure) -> Response<Body> {
    let mut response = response::refusal(None, failure);
    let challenge = match failure {
        Failure::KeyMissing => Some(CHALLENGE),
        Failure::KeyUnknown | Failure::KeyExpired => Some(CHALLENGE_AGAIN),
        _ => None,
    };
    response.extensions_mut().insert(Refused);
    if let Some(challenge) = challenge {
        // Some clients show their users this, and not the body.
        let described =
            HeaderValue::try_from(format!("{challenge}, error_description=\"{failure}\""));
        let value = described.unwrap_or(HeaderValue::from_static(challenge));
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
    response
}

/// The path that clients connect to.
const ENDPOINT: &str = "/mcp";
/// RFC 6750, 3: without an error where no credentials came.
const CHALLENGE: &str = "Bearer realm=\"mcp\"";
const CHALLENGE_AGAIN: &str = "Bearer realm=\"mcp\", error=\"invalid_token\"";
