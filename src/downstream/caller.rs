//! Who sent a request, to which endpoint, and for how long that holds.

use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, HeaderValue, Response, Uri, header};
use tokio::sync::watch;

use crate::call::PeerAddress;
use crate::call::{Endpoint, Failure, Principal, ProfileName};
use crate::identity::Credential;
use crate::mcp::Era;
use crate::pipeline::Gateway;
use crate::snapshot::Snapshot;

use super::{Body, McpService, answer};

/// Whoever sent a request.
#[derive(Debug, Clone)]
pub(super) struct VerifiedCaller {
    credential: Credential,
    endpoint: Endpoint,
    /// Tells of the configurations that came after the one that they were
    /// identified by.
    loads: watch::Receiver<SystemTime>,
}

impl VerifiedCaller {
    pub(super) fn principal(&self) -> &Principal {
        self.credential.principal()
    }

    /// Where the request came in.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether what is one's is the other's.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.principal() == other.principal() && self.endpoint == other.endpoint
    }

    /// Whether what is the caller's may go on being there, even if the key of
    /// the time is good no longer.
    pub(super) fn keeps(&self, snapshot: &Snapshot) -> bool {
        snapshot.keeps(&self.credential, &self.endpoint)
    }
}

impl McpService {
    /// Who sent a request and to which endpoint, before anything else of it is
    /// looked at. A stranger does not learn which profiles there are.
    pub(super) fn caller(
        &self,
        uri: &Uri,
        headers: &mut HeaderMap,
        peer: PeerAddress,
    ) -> Result<VerifiedCaller, Failure> {
        if profile_of(uri.path()).is_none() {
            return Err(Failure::UnknownEndpoint);
        }
        let loads = self.gateway.snapshots.load_count();
        let credential = if peer.stdio {
            Credential::parent()
        } else {
            self.gateway.identify(headers, peer.addr.ip())?
        };
        let profile = profile_of(uri.path()).unwrap_or_default();
        let query = uri.query();
        let endpoint = self.gateway.endpoint(credential.principal(), profile, query)?;
        Ok(VerifiedCaller { credential, endpoint, loads })
    }

    /// Watches whether a caller keeps what it has now.
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
    /// Waits until a new configuration takes from the caller what it had:
    /// mostly for ever.
    ///
    /// # Cancel safety
    /// Safe: what was missed is seen by the next.
    pub(super) async fn revoked(&mut self) {
        while self.caller.loads.changed().await.is_ok() {
            let snapshot = self.gateway.snapshots.load();
            if !snapshot.admits(&self.caller.credential, &self.caller.endpoint) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

/// The profile that a path names; the default one's is `/mcp` itself, too.
fn profile_of(path: &str) -> Option<&str> {
    match path.strip_prefix(ENDPOINT)? {
        "" => Some(ProfileName::DEFAULT),
        rest => rest.strip_prefix('/').filter(|name| !name.is_empty()),
    }
}

/// A refusal of whoever may not come in, with the way to do so where a key
/// may help.
pub fn refusal(failure: &Failure) -> Response<Body> {
    let mut response = answer::refusal(None, failure, Era::Modern);
    let challenge = match failure {
        Failure::KeyMissing => Some(CHALLENGE),
        Failure::KeyUnknown => Some(CHALLENGE_AGAIN),
        _ => None,
    };
    if let Some(challenge) = challenge {
        let value = HeaderValue::from_static(challenge);
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
    response
}

/// The path that clients connect to.
const ENDPOINT: &str = "/mcp";
/// RFC 6750, 3: without an error where no credentials came.
const CHALLENGE: &str = "Bearer realm=\"mcp\"";
const CHALLENGE_AGAIN: &str = "Bearer realm=\"mcp\", error=\"invalid_token\"";
