//! Forwarding of a request to the replica that owns its session.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method as HttpMethod, header};
use http_body_util::BodyDataStream;
use hyper::body::Incoming;

use crate::call::{Drain, Failure};
use crate::cluster::{
    Cluster, Envelope, ForwardedRequest, PeerLink, RequestLine, SessionOwner, ShownCredentials,
};
use crate::identity::{API_KEY, ClientCertificate};
use crate::mcp::{self, Era, ProtocolVersion};
use crate::shares::Share;
use crate::text::error_chain;

use super::ForwardedHere;
use super::bounds::head_patience;
use super::continuation::is_modern_post;
use crate::downstream::access::caller::{RequestSender, VerifiedCaller};
use crate::downstream::requests::dispatch::PendingResponse;
use crate::downstream::responses::body::BrokenBodyError;
use crate::downstream::responses::response;
use crate::downstream::{Body, McpService};

/// A session, call or result of another replica.
pub(crate) struct SessionElsewhere {
    cluster: Arc<Cluster>,
    owner: Arc<PeerLink>,
}

impl SessionElsewhere {
    pub(super) fn new(cluster: &Arc<Cluster>, owner: Arc<PeerLink>) -> Self {
        Self { cluster: Arc::clone(cluster), owner }
    }
}

impl McpService {
    /// Returns the other replica that owns the session of a request. A Modern request has no session,
    /// and one that another replica has forwarded is not forwarded again.
    pub(crate) fn session_elsewhere(
        &self,
        head: &Parts,
        caller: &VerifiedCaller,
    ) -> Option<SessionElsewhere> {
        let cluster = self.cluster.as_ref()?;
        if head.extensions.get::<ForwardedHere>().is_some() {
            return None;
        }
        let id = session_id(&head.headers)?;
        match cluster.find_owner(id, caller.principal(), caller.endpoint()) {
            SessionOwner::Here => None,
            SessionOwner::Gone => {
                cluster.count_lost();
                None
            }
            SessionOwner::Replica(owner) => Some(SessionElsewhere::new(cluster, owner)),
        }
    }

    /// Returns true if another replica owns the session of a request, and counts it towards the rates.
    pub(crate) fn is_counted_elsewhere(
        &self,
        headers: &HeaderMap,
        caller: &VerifiedCaller,
    ) -> bool {
        let (Some(cluster), Some(id)) = (&self.cluster, session_id(headers)) else { return false };
        let owner = cluster.find_owner(id, caller.principal(), caller.endpoint());
        matches!(owner, SessionOwner::Replica(_))
    }

    /// Forwards a request, and answers it here if its owner is gone: then its session is lost.
    pub(crate) fn forward(
        self: Arc<Self>,
        to: SessionElsewhere,
        request: (Parts, Bytes),
        from: RequestSender,
    ) -> PendingResponse {
        Box::pin(async move {
            let (head, body) = request;
            let place = match self.take_place(&to.owner, &head, &from) {
                Ok(place) => place,
                Err(failure) => return response::refusal(None, &failure),
            };
            let envelope = seal_in(&head, &body, &from);
            let patience = head_patience(&head, &from);
            let forwarded = ForwardedRequest { head: head.clone(), body: body.clone(), patience };
            match to.cluster.forward(&to.owner, forwarded, envelope).await {
                Ok(response) => {
                    let ends = (head.method == HttpMethod::GET).then(|| self.drain.clone());
                    response.map(|body| stream_body(body, ends, place))
                }
                Err(error) if error.was_sent() => {
                    tracing::debug!(
                        owner = %to.owner.id(),
                        error = error_chain(&error),
                        "a forwarded request was not answered"
                    );
                    response::refusal(None, &Failure::ReplicaLost)
                }
                Err(error) => {
                    tracing::debug!(
                        owner = %to.owner.id(),
                        error = error_chain(&error),
                        "a session is lost with its replica"
                    );
                    drop(place);
                    self.answer_here(head, body, from).await
                }
            }
        })
    }
}

/// Returns the session that a request names. A duplicate header is refused later.
fn session_id(headers: &HeaderMap) -> Option<&str> {
    let id = mcp::header::single_value(headers, &mcp::header::SESSION_ID).ok()??;
    let version = mcp::header::text_value(headers, &mcp::header::PROTOCOL_VERSION);
    let version = version.and_then(ProtocolVersion::parse);
    let is_modern = version.is_some_and(|version| version.era() == Era::Modern);
    id.to_str().ok().filter(|_| !is_modern)
}

/// Copies the credentials of a request that may be forwarded, before authentication removes them.
pub(crate) fn keep_credentials(head: &Parts) -> Option<ShownCredentials> {
    if session_id(&head.headers).is_none() && !is_modern_post(head) {
        return None;
    }
    let shown = ShownCredentials::read(&head.headers, &CREDENTIAL_HEADERS);
    Some(shown).filter(|shown| !shown.is_empty())
}

fn seal_in(head: &Parts, body: &[u8], from: &RequestSender) -> Envelope {
    let line = RequestLine { method: &head.method, uri: &head.uri };
    let certificate = head.extensions.get::<Arc<ClientCertificate>>();
    let envelope = Envelope::new(line, body, from.peer, from.caller.principal().as_str())
        .with_certificates(certificate.into_iter().flat_map(|certificate| certificate.chain()));
    match head.extensions.get::<ShownCredentials>() {
        Some(shown) => envelope.with_credentials(shown),
        None => envelope,
    }
}

/// Streams the owner's response on. A session's own stream ends with this replica's drain: its client
/// opens another one elsewhere. The request has its place until the end of the stream.
fn stream_body(body: Incoming, ends: Option<Drain>, place: Share) -> Body {
    let pieces = BodyDataStream::new(body).map(move |piece| {
        let _held = &place;
        piece.map_err(|_| BrokenBodyError)
    });
    match ends {
        Some(drain) => Body::fragile(until_drain(pieces, drain)),
        None => Body::fragile(pieces),
    }
}

fn until_drain<S: Stream>(stream: S, drain: Drain) -> impl Stream<Item = S::Item> {
    stream.take_until(Box::pin(async move { drain.started().await }))
}

/// Headers with credentials.
const CREDENTIAL_HEADERS: [HeaderName; 2] = [API_KEY, header::AUTHORIZATION];
