//! Protected Resource Metadata (RFC 9728): the authorization servers that issue tokens for an
//! endpoint.
//!
//! Served before authentication, to every client that the guard admits: a client needs it to log
//! in.

use http::header::{ALLOW, CACHE_CONTROL};
use http::{HeaderValue, Method, Request, Response, StatusCode};

use crate::call::{Failure, PeerAddress, ProfileName};
use crate::identity::WELL_KNOWN;
use crate::snapshot::Snapshot;

use super::caller::own_url;
use crate::downstream::responses::response;
use crate::downstream::{Body, McpService, refusal};

impl McpService {
    /// Answers a request for metadata; `None` for any other request, and without issuers.
    pub fn answer_metadata<B>(
        &self,
        request: &Request<B>,
        peer: PeerAddress,
    ) -> Option<Response<Body>> {
        let place = request.uri().path().strip_prefix(WELL_KNOWN)?;
        let snapshot = self.gateway.snapshots.load();
        let place = place.strip_prefix(snapshot.identity.resource_path()?).unwrap_or(place);
        if request.method() != Method::GET {
            let mut response = response::empty(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
            return Some(response);
        }
        // Limited like other requests without credentials.
        if let Err(failure) = snapshot.policy.admit_unauthenticated(peer.addr.ip()) {
            return Some(refusal(&failure));
        }
        let profile = profile_at(place).filter(|profile| exists(&snapshot, profile));
        let resource = profile.and_then(|profile| {
            snapshot.identity.resource(profile, || own_url(request.uri(), request.headers(), peer))
        });
        let document = resource.and_then(|resource| resource.metadata());
        let Some(document) = document else { return Some(refusal(&Failure::UnknownEndpoint)) };
        let mut response = response::json(StatusCode::OK, document.to_string().into());
        response
            .headers_mut()
            .insert(CACHE_CONTROL, HeaderValue::from_static(METADATA_CACHE_CONTROL));
        Some(response)
    }
}

/// Returns the profile at a path below the well-known one; the root is `/mcp` itself.
fn profile_at(place: &str) -> Option<&str> {
    match place {
        "" | "/" => Some(ProfileName::DEFAULT),
        place => super::caller::profile_of(place),
    }
}

fn exists(snapshot: &Snapshot, profile: &str) -> bool {
    profile == ProfileName::DEFAULT || snapshot.profile(profile).is_some()
}

/// Short enough for clients to notice a reload.
const METADATA_CACHE_CONTROL: &str = "public, max-age=60";
