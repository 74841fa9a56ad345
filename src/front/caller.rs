//! Who sent a request, and for how long that holds.

use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderValue, Request, Response, header};
use tokio::sync::watch;

use crate::call::{Failure, Principal};
use crate::identity::{Credential, Identity, Peer};
use crate::mcp::Era;
use crate::pipeline::Gateway;

use super::{Body, Front, answer};

/// Whoever sent a request.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    credential: Credential,
}

impl Caller {
    pub(super) fn principal(&self) -> &Principal {
        self.credential.principal()
    }

    /// Whether what is one's is the other's.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.principal() == other.principal()
    }

    /// Whether what is the caller's may go on being there, even if the key of
    /// the time is good no longer.
    pub(super) fn is_known(&self, identity: &Identity) -> bool {
        identity.has(&self.credential)
    }
}

impl Front {
    /// Who sent a request, before anything else of it is looked at. What comes
    /// back instead is the answer to a stranger.
    pub(super) fn caller<B>(
        &self,
        request: &mut Request<B>,
        peer: Peer,
    ) -> Result<Caller, Box<Response<Body>>> {
        if peer.stdio {
            return Ok(Caller { credential: Credential::parent() });
        }
        let identified = self.gateway.identify(request.headers_mut(), peer.addr.ip());
        let credential = identified.map_err(|failure| Box::new(refusal(&failure)))?;
        Ok(Caller { credential })
    }

    /// Watches whether a caller keeps what it has now.
    pub(super) fn standing(&self, caller: &Caller) -> Standing {
        let mut loads = self.gateway.snapshots.loads();
        // One may have come since the caller was identified.
        loads.mark_changed();
        Standing { caller: caller.clone(), gateway: Arc::clone(&self.gateway), loads }
    }
}

/// What lasts for longer than a request lasts as long as this.
pub(super) struct Standing {
    caller: Caller,
    gateway: Arc<Gateway>,
    loads: watch::Receiver<SystemTime>,
}

impl Standing {
    /// Waits until a new configuration takes from the caller what it had:
    /// mostly for ever.
    ///
    /// # Cancel safety
    /// Safe: what was missed is seen by the next.
    pub(super) async fn lost(&mut self) {
        while self.loads.changed().await.is_ok() {
            let snapshot = self.gateway.snapshots.load();
            if !snapshot.identity.knows(&self.caller.credential) {
                return;
            }
        }
        std::future::pending().await
    }
}

/// A refusal of whoever is not known, with the way to become so.
fn refusal(failure: &Failure) -> Response<Body> {
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

/// RFC 6750, 3: without an error where no credentials came.
const CHALLENGE: &str = "Bearer realm=\"mcp\"";
const CHALLENGE_AGAIN: &str = "Bearer realm=\"mcp\", error=\"invalid_token\"";
