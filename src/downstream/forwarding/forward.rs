//! Forwarding of a request to the replica that owns its session.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method as HttpMethod, Request, Response, StatusCode, header};
use http_body_util::BodyDataStream;
use hyper::body::Incoming;

use crate::call::{Drain, Failure};
use crate::cluster::{
    Cluster, Envelope, ForwardedRequest, PeerLink, RequestLine, ShownCredentials,
};
use crate::identity::{API_KEY, ClientCertificate};
use crate::mcp::{self, Era, ProtocolVersion};
use crate::shares::Share;
use crate::text::error_chain;

use super::bounds::head_patience;
use crate::downstream::access::caller::RequestSender;
use crate::downstream::http_sse::OldTransport;
use crate::downstream::requests::budget::CountedEarly;
use crate::downstream::responses::body::BrokenBodyError;
use crate::downstream::responses::response;
use crate::downstream::{Body, McpService};

impl McpService {
    /// Forwards a request to the replica that should have its session. Returns `None` if the replica
    /// cannot be reached or does not have the session: then the request was not served.
    pub(super) async fn forward(
        &self,
        cluster: &Cluster,
        owner: &PeerLink,
        request: (&Parts, &Bytes),
        from: &RequestSender,
    ) -> Option<Response<Body>> {
        let (head, body) = request;
        let place = match self.take_place(owner, head, from) {
            Ok(place) => place,
            Err(failure) => return Some(response::refusal(None, &failure)),
        };
        let envelope = seal_in(cluster, (head, body), from);
        let patience = head_patience(head, from);
        let forwarded = ForwardedRequest { head: copy_head(head), body: body.clone(), patience };
        match cluster.forward(owner, forwarded, envelope).await {
            Ok(response) if response.status() == StatusCode::MISDIRECTED_REQUEST => None,
            Ok(response) => {
                let ends = (head.method == HttpMethod::GET).then(|| self.drain.clone());
                Some(response.map(|body| stream_body(body, ends, place)))
            }
            Err(error) if error.was_sent() => {
                tracing::debug!(
                    owner = %owner.id(),
                    error = error_chain(&error),
                    "a forwarded request was not answered"
                );
                Some(response::refusal(None, &Failure::ReplicaLost))
            }
            Err(error) => {
                tracing::debug!(
                    owner = %owner.id(),
                    error = error_chain(&error),
                    "the replica of a session cannot be reached"
                );
                None
            }
        }
    }
}

/// Returns the session that a request names. A duplicate header is refused later.
pub(super) fn session_id(headers: &HeaderMap) -> Option<&str> {
    let id = mcp::header::single_value(headers, &mcp::header::SESSION_ID).ok()??;
    let version = mcp::header::text_value(headers, &mcp::header::PROTOCOL_VERSION);
    let version = version.and_then(ProtocolVersion::parse);
    let is_modern = version.is_some_and(|version| version.era() == Era::Modern);
    std::str::from_utf8(id.as_bytes()).ok().filter(|_| !is_modern)
}

/// Copies the credentials of a request that may be forwarded, before authentication removes them.
pub(crate) fn keep_credentials(
    head: &Parts,
    old: Option<&OldTransport>,
) -> Option<ShownCredentials> {
    let has_some = CREDENTIAL_HEADERS.iter().any(|name| head.headers.contains_key(name));
    let may_be_forwarded = || match old {
        Some(old) => old.is_for_absent_stream(),
        None => session_id(&head.headers).is_some() || head.method == HttpMethod::POST,
    };
    let is_kept = has_some && may_be_forwarded();
    is_kept.then(|| ShownCredentials::read(&head.headers, &CREDENTIAL_HEADERS))
}

/// Copies the head of a request without its extensions, which have no meaning at another replica.
fn copy_head(head: &Parts) -> Parts {
    let (mut copy, ()) = Request::new(()).into_parts();
    copy.method = head.method.clone();
    copy.uri = head.uri.clone();
    copy.headers = head.headers.clone();
    copy
}

fn seal_in(cluster: &Cluster, request: (&Parts, &Bytes), from: &RequestSender) -> Envelope {
    let (head, body) = request;
    let line = RequestLine { method: &head.method, uri: &head.uri };
    let certificate = head.extensions.get::<Arc<ClientCertificate>>();
    let envelope = Envelope::new(line, body.clone(), from.peer, from.caller.principal().as_str())
        .with_certificates(certificate.into_iter().flat_map(|certificate| certificate.chain()));
    let envelope = match head.extensions.get::<ShownCredentials>() {
        Some(shown) => envelope.with_credentials(shown),
        None => envelope,
    };
    let envelope =
        if cluster.has_left() { envelope.handed_over_by(cluster.id()) } else { envelope };
    // The owner became known while the body was read.
    let is_counted = head.extensions.get::<CountedEarly>().is_some();
    if is_counted { envelope.counted() } else { envelope }
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
