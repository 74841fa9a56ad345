//! Bounds of the requests that are forwarded to one replica: their number, and their time.

use std::time::Duration;

use http::Method as HttpMethod;
use http::request::Parts;

use crate::call::Failure;
use crate::cluster::{MAX_FORWARDED, PeerLink};
use crate::pipeline::longest_call;
use crate::shares::{Holder, Share, ShareBounds};

use crate::downstream::McpService;
use crate::downstream::access::caller::RequestSender;
use crate::downstream::requests::refused_requests::RefusedMessage;

impl McpService {
    /// Takes a place on the connection to a replica, until the end of the response. A client has at
    /// most its share of them.
    pub(super) fn take_place(
        &self,
        link: &PeerLink,
        head: &Parts,
        from: &RequestSender,
    ) -> Result<Share, Failure> {
        let holder = Holder::identify(from.caller.principal(), from.peer.addr.ip());
        let all = MAX_FORWARDED as usize;
        let bounds = ShareBounds { all, each: from.snapshot.config.gateway.limits.share_of(all) };
        link.take_place(&holder, bounds).map_err(|reached| {
            let failure = Failure::TooManyStreams { limit: bounds.reached(reached) };
            self.log_refused_message(&RefusedMessage::unread(head, from), &failure);
            failure
        })
    }
}

/// Returns the time limit of the head of a forwarded request's response: that of the longest call,
/// which the owner ends itself. Other requests than calls are answered at once.
pub(super) fn head_patience(head: &Parts, from: &RequestSender) -> Duration {
    if head.method != HttpMethod::POST {
        return HEAD_PATIENCE;
    }
    longest_call(&from.snapshot.config).saturating_add(HEAD_PATIENCE)
}

/// Time for an owner to answer, besides that of a call: also that of its requests to the store.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
