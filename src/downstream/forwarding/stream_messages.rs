//! Messages for event streams of 2024-11-05 that another replica has.
//!
//! The id in the address of a message names the replica. A stream ends with its replica, and its session
//! with it, so there is nothing to revive: the client opens another stream.

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use crate::call::Failure;

use super::ForwardedHere;
use crate::downstream::access::caller::RequestSender;
use crate::downstream::legacy::session_key;
use crate::downstream::responses::response;
use crate::downstream::{Body, McpService};

impl McpService {
    /// Forwards a message to the replica that has the stream with this id. Refuses it if that replica is
    /// gone or cannot be reached, or has no such stream for this caller.
    pub(crate) async fn forward_message(
        &self,
        id: Option<&str>,
        request: (&Parts, &Bytes),
        from: &RequestSender,
    ) -> Response<Body> {
        let refuse = |failure: &Failure| response::refusal(None, failure);
        // Nothing is forwarded twice.
        let (head, _) = request;
        let is_forwarded = head.extensions.get::<ForwardedHere>().is_some();
        let (Some(cluster), Some(id), false) = (&self.cluster, id, is_forwarded) else {
            return refuse(&Failure::SessionLost);
        };
        match cluster.find_stream(session_key(id, &from.caller)).await {
            Ok(Some(owner)) => {
                let response = self.forward(cluster, &owner, request, from).await;
                response.unwrap_or_else(|| refuse(&Failure::SessionLost))
            }
            Ok(None) => refuse(&Failure::SessionLost),
            Err(_) => refuse(&Failure::StoreUnavailable),
        }
    }
}
