//! Requests to a server whose child another replica runs.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response, StatusCode};

use crate::cluster::{
    Envelope, ForwardedRequest, MAX_FORWARDED, PeerLink, RequestLine, ServerLease,
    ServerLeaseFault, server_path,
};
use crate::config::ServerConfig;
use crate::http_client::{HeldValue, OutgoingRequest, RequestTarget, ResponseBody};
use crate::mcp::MediaType;
use crate::shares::{Holder, ShareBounds};
use crate::upstream::UpstreamError;
use crate::upstream::transport::http::headers::ServerHeaders;

/// The way to a server through the replica that runs its child.
pub(crate) struct ReplicaRoute {
    lease: Arc<ServerLease>,
    link: Arc<PeerLink>,
    target: RequestTarget,
    /// Time limit of the head of a response.
    patience: Duration,
    /// The part of the requests to the replica that one client may have.
    each: usize,
}

impl ReplicaRoute {
    /// Creates the way to the child of `server`. One client may use this `share` of a limit.
    pub(crate) fn new(
        lease: &Arc<ServerLease>,
        link: Arc<PeerLink>,
        server: &ServerConfig,
        share: impl FnOnce(usize) -> usize,
    ) -> Option<Self> {
        let uri = format!("https://{}{}", link.address(), server_path(&server.name));
        Some(Self {
            lease: Arc::clone(lease),
            target: RequestTarget::new(uri.parse().ok()?)?,
            link,
            // The replica that has the child ends the call itself.
            patience: server.max_timeout + server.start_timeout + HEAD_PATIENCE,
            each: share(MAX_FORWARDED as usize),
        })
    }

    pub(super) fn target(&self) -> &RequestTarget {
        &self.target
    }

    /// Sends a request once.
    pub(super) async fn send(
        &self,
        request: OutgoingRequest<'_, impl ServerHeaders>,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        let OutgoingRequest { target, method, headers, body } = request;
        let place = match headers.caller() {
            Some(context) => {
                let bounds = ShareBounds { all: MAX_FORWARDED as usize, each: self.each };
                let place = self.link.take_place(&Holder::of_context(context), bounds);
                Some(place.map_err(|_| ServerLeaseFault::Unreachable)?)
            }
            None => None,
        };
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = method.clone();
        head.uri = target.uri().clone();
        head.headers.insert(ACCEPT, MediaType::JSON_OR_EVENTS);
        head.headers.insert(CONTENT_TYPE, MediaType::JSON);
        headers.add_to(&mut head.headers);
        let line = RequestLine { method: &head.method, uri: &head.uri };
        let envelope = Envelope::for_server(line, body.clone(), self.lease.digest());
        let forwarded = ForwardedRequest { head, body, patience: self.patience };
        match self.lease.cluster().forward(&self.link, forwarded, envelope).await {
            Ok(response) if response.status() == StatusCode::MISDIRECTED_REQUEST => {
                self.lease.leave();
                Err(ServerLeaseFault::NotThere.into())
            }
            Ok(response) => {
                let place: HeldValue =
                    place.map(|place| Box::new(place) as Box<dyn Any + Send + Sync>);
                Ok(ResponseBody::receive_holding(response, place))
            }
            Err(error) if error.was_sent() => Err(UpstreamError::Broken(Arc::new(error))),
            Err(_) => {
                self.lease.leave();
                Err(ServerLeaseFault::Unreachable.into())
            }
        }
    }
}

/// Time for the other replica to answer, besides that of a call.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
