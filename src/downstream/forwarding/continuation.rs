//! Modern requests that go on at another replica: retries of parked calls, and reads of kept results.
//!
//! A Modern client has no session. The state that it returns with a retry names the replica that holds
//! the parked call, sealed, and the URI of a kept result names the one that keeps it. All others are
//! answered where they arrive. A replica that leaves has new sessions opened elsewhere.

use std::sync::Arc;

use bytes::Bytes;
use http::Method as HttpMethod;
use http::request::Parts;
use memchr::memmem;

use crate::call::Params;
use crate::cluster::{Cluster, PeerLink};
use crate::jsonrpc::{self, Frame};
use crate::mcp::{self, Era, Method, ProtocolVersion};
use crate::pipeline::{KEPT_RESULT_SCHEME, StateSender};

use super::ForwardedHere;
use crate::downstream::McpService;
use crate::downstream::access::caller::RequestSender;
use crate::downstream::requests::dispatch::PendingResponse;

/// The replica where a Modern request goes on.
pub(crate) struct ContinuedAt {
    cluster: Arc<Cluster>,
    replica: Arc<PeerLink>,
}

impl McpService {
    /// Returns the other replica where a Modern request goes on; `None` if it is answered here.
    pub(super) fn continued_elsewhere(
        &self,
        cluster: &Arc<Cluster>,
        head: &Parts,
        body: &Bytes,
        from: &RequestSender,
    ) -> Option<ContinuedAt> {
        let is_candidate = is_modern_post(head)
            && head.extensions.get::<ForwardedHere>().is_none()
            && CONTINUATION_SIGNS.iter().any(|sign| memmem::find(body, sign.as_bytes()).is_some());
        if !is_candidate {
            return None;
        }
        let depth = from.snapshot.config.gateway.limits.depth;
        // The answer to a faulty message is that of any replica.
        let Ok(Frame::Request { method, params, .. }) = jsonrpc::parse(body, depth) else {
            return None;
        };
        let params = Params::read(params).ok()?;
        let sender =
            StateSender { principal: from.caller.principal(), endpoint: from.caller.endpoint() };
        let replica = self.gateway.find_replica(sender, &Method::parse(&method), &params)?;
        let replica = cluster.find_replica(replica)?;
        Some(ContinuedAt { cluster: Arc::clone(cluster), replica })
    }

    /// Forwards a request to the replica where it goes on. If that is gone, the request is answered here
    /// like one that comes too late, or one that begins a session.
    pub(crate) fn continue_at(
        self: Arc<Self>,
        at: ContinuedAt,
        request: (Parts, Bytes),
        from: RequestSender,
    ) -> PendingResponse {
        Box::pin(async move {
            let (head, body) = request;
            match self.forward(&at.cluster, &at.replica, (&head, &body), &from).await {
                Some(response) => response,
                None => self.answer_here(head, body, from).await,
            }
        })
    }
}

/// Returns the other replica that answers a request of a Legacy client without a session, such as
/// `initialize`, after this one has left: a session that is opened here could not be recorded.
pub(super) fn begun_elsewhere(cluster: &Arc<Cluster>, head: &Parts) -> Option<ContinuedAt> {
    let is_candidate = head.method == HttpMethod::POST
        && !head.headers.contains_key(mcp::header::SESSION_ID)
        && !is_modern_post(head)
        && head.extensions.get::<ForwardedHere>().is_none();
    let replica =
        (is_candidate && cluster.has_left()).then(|| cluster.find_successor()).flatten()?;
    Some(ContinuedAt { cluster: Arc::clone(cluster), replica })
}

/// Returns true for a POST of a Modern client.
pub(super) fn is_modern_post(head: &Parts) -> bool {
    let version = mcp::header::text_value(&head.headers, &mcp::header::PROTOCOL_VERSION);
    let version = version.and_then(ProtocolVersion::parse);
    head.method == HttpMethod::POST && version.is_some_and(|it| it.era() == Era::Modern)
}

/// Texts in the body of each such request. Others are not parsed twice.
const CONTINUATION_SIGNS: [&str; 2] = ["requestState", KEPT_RESULT_SCHEME];
