//! Decides where a request with a session is answered: here, at another replica, or here after its
//! session was revived.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use tokio::time::{sleep, timeout};

use crate::call::Failure;
use crate::clock;
use crate::cluster::{Cluster, LeaseStatus, PeerLink, ReplicaId, STORE_TIMEOUT, SessionPlace};
use crate::telemetry::metrics::RevivalResult;
use crate::text::clip;

use super::ForwardedHere;
use super::continuation::{ContinuedAt, begun_elsewhere};
use super::forward::session_id;
use crate::downstream::access::caller::{RequestSender, VerifiedCaller};
use crate::downstream::legacy::session_key;
use crate::downstream::requests::dispatch::PendingResponse;
use crate::downstream::responses::response;
use crate::downstream::{Body, McpService};

/// The place where a request is answered.
enum AnswerPlace {
    /// This replica, which has the session, or knows that it is lost.
    Here,
    /// Another replica.
    Replica(Arc<PeerLink>),
    /// No place is known. It may be found a moment later: an owner that leaves has its lease until it
    /// has removed it, and a new one is listed when it has its first lease.
    Unknown(Failure),
    /// The request is refused.
    Refused(Failure),
}

/// The place of a request that this replica may not answer.
pub(crate) enum OtherPlace {
    /// None: it is answered here.
    None,
    /// The owner of its session, which has to be found.
    Sought(Arc<Cluster>),
    /// The replica where it goes on.
    Replica(ContinuedAt),
}

/// The outcome of offering a request to the places that are known.
enum OfferOutcome {
    /// It is answered here.
    Here,
    /// It was answered by another replica, or is refused.
    Answered(Response<Body>),
    /// No replica has taken it, and none has acted on it.
    NotTaken(Failure),
}

impl McpService {
    /// Finds out whether another replica may have to answer a request. A request of a session goes to its
    /// owner; a Modern one has no session.
    pub(crate) fn find_other_place(
        &self,
        head: &Parts,
        body: &Bytes,
        from: &RequestSender,
    ) -> OtherPlace {
        let Some(cluster) = &self.cluster else { return OtherPlace::None };
        if let Some(id) = session_id(&head.headers) {
            let is_sought = self.needs_placement(cluster, id, from);
            return if is_sought {
                OtherPlace::Sought(Arc::clone(cluster))
            } else {
                OtherPlace::None
            };
        }
        let elsewhere = begun_elsewhere(cluster, head);
        let elsewhere = elsewhere.or_else(|| self.continued_elsewhere(cluster, head, body, from));
        elsewhere.map_or(OtherPlace::None, OtherPlace::Replica)
    }

    /// Returns true if it has to be found out which replica answers a request of this session.
    fn needs_placement(&self, cluster: &Cluster, id: &str, from: &RequestSender) -> bool {
        let caller = &from.caller;
        if self.sessions.has(id, caller) {
            return !cluster.holds_lease();
        }
        let has_opened_it = cluster.has_session_id(session_key(id, caller));
        if !has_opened_it {
            self.warn_of_session_id(from);
        }
        has_opened_it
    }

    /// Warns of the id of a session that its sender has not opened, once a minute for each address.
    fn warn_of_session_id(&self, from: &RequestSender) {
        let (address, principal) =
            (from.peer.addr.ip(), clip(from.caller.principal().as_str(), 128));
        let profile = from.caller.endpoint().profile();
        let text = format!(
            "a request from {address} has the id of a session that {principal:?} has not opened at the \
             profile {profile:?}, or not with these `gateway.state_keys`"
        );
        if let Some(line) = self.session_faults.note_about(&address.to_string(), &text) {
            tracing::warn!("{line}");
        }
    }

    /// Returns true if it is not known yet which replica counts a request towards the rates.
    pub(crate) fn is_counted_later(&self, headers: &HeaderMap, caller: &VerifiedCaller) -> bool {
        let (Some(cluster), Some(id)) = (&self.cluster, session_id(headers)) else { return false };
        !self.sessions.has(id, caller) && cluster.has_session_id(session_key(id, caller))
    }

    /// Finds the place of a request, and answers it there. While no replica takes it, it is held for a
    /// short time, and its place is looked for again.
    pub(crate) fn place_and_answer(
        self: Arc<Self>,
        cluster: Arc<Cluster>,
        request: (Parts, Bytes),
        from: RequestSender,
    ) -> PendingResponse {
        Box::pin(async move {
            let (head, body) = request;
            let until = clock::now() + PLACE_PATIENCE;
            loop {
                let failure = match self.offer(&cluster, (&head, &body), &from).await {
                    OfferOutcome::Here => {
                        self.prepare_rates_here(&head, &from).await;
                        return self.answer_here(head, body, from).await;
                    }
                    OfferOutcome::Answered(response) => return response,
                    OfferOutcome::NotTaken(failure) => failure,
                };
                if cluster.is_store_failing() || clock::now() + PLACE_PAUSE > until {
                    cluster.count_revival(RevivalResult::Unreachable);
                    tracing::debug!(%failure, "no replica takes a request");
                    return response::refusal(None, &failure);
                }
                sleep(PLACE_PAUSE).await;
            }
        })
    }

    /// Offers a request to the replicas that may have its session, one after the other.
    async fn offer(
        &self,
        cluster: &Cluster,
        request: (&Parts, &Bytes),
        from: &RequestSender,
    ) -> OfferOutcome {
        let (head, _) = request;
        let forwarded = head.extensions.get::<ForwardedHere>();
        let mut unreached = forwarded.and_then(|forwarded| forwarded.left);
        for _ in 0..MAX_PLACES {
            let owner = match self.find_answer_place(cluster, head, from, unreached).await {
                AnswerPlace::Here => return OfferOutcome::Here,
                // The other replica finds the place again: nothing is forwarded twice.
                AnswerPlace::Replica(_) if forwarded.is_some() => {
                    return OfferOutcome::Answered(misdirected());
                }
                AnswerPlace::Replica(owner) => owner,
                AnswerPlace::Unknown(failure) => return OfferOutcome::NotTaken(failure),
                AnswerPlace::Refused(failure) => {
                    return OfferOutcome::Answered(response::refusal(None, &failure));
                }
            };
            match self.forward(cluster, &owner, request, from).await {
                Some(response) => return OfferOutcome::Answered(response),
                None => unreached = Some(owner.id()),
            }
        }
        OfferOutcome::NotTaken(Failure::ReplicaUnreachable)
    }

    /// Finds the place of a request. `unreached` is a replica that does not have its session, or
    /// cannot be reached.
    async fn find_answer_place(
        &self,
        cluster: &Cluster,
        head: &Parts,
        from: &RequestSender,
        unreached: Option<ReplicaId>,
    ) -> AnswerPlace {
        let Some(id) = session_id(&head.headers) else { return AnswerPlace::Here };
        let key = session_key(id, &from.caller);
        if let Some(place) = self.find_own_place(cluster, id, from).await {
            return place;
        }
        if let Some(owner) = cluster.known_place(key, unreached) {
            return AnswerPlace::Replica(owner);
        }
        if cluster.has_left() {
            // Another replica claims the session: this one has no lease to do it.
            return match cluster.find_heir(key, unreached).await {
                Some(heir) => AnswerPlace::Replica(heir),
                None => AnswerPlace::Refused(Failure::Draining),
            };
        }
        // One request at a time looks for a session, and opens it.
        let Ok(mut turn) = timeout(STORE_TIMEOUT, cluster.take_turn(id)).await else {
            return AnswerPlace::Unknown(Failure::StoreUnavailable);
        };
        if let Some(place) = self.find_own_place(cluster, id, from).await {
            return place;
        }
        match cluster.find_place(&mut turn, key, unreached).await {
            Ok(SessionPlace::Replica(owner)) => AnswerPlace::Replica(owner),
            Ok(SessionPlace::Lost) => {
                cluster.count_revival(RevivalResult::Lost);
                AnswerPlace::Here
            }
            Ok(SessionPlace::Unreachable) => AnswerPlace::Unknown(Failure::ReplicaUnreachable),
            Ok(SessionPlace::Claimed(claimed)) => {
                match self.revive_session(cluster, id, &claimed, (head, from)) {
                    Ok(()) => {
                        cluster.count_revival(RevivalResult::Revived);
                        let place = self.find_own_place(cluster, id, from).await;
                        place.unwrap_or(AnswerPlace::Unknown(Failure::StoreUnavailable))
                    }
                    Err(failure) => {
                        cluster.count_revival(RevivalResult::Lost);
                        AnswerPlace::Refused(failure)
                    }
                }
            }
            Err(_) => AnswerPlace::Unknown(Failure::StoreUnavailable),
        }
    }

    /// Returns the place of a request for a session that is here; `None` for any other one, and for one
    /// that this replica has handed over. A session that another replica may have revived is not used
    /// before the lease is renewed.
    async fn find_own_place(
        &self,
        cluster: &Cluster,
        id: &str,
        from: &RequestSender,
    ) -> Option<AnswerPlace> {
        // Before the session is looked for: one that moves ends before its record is forgotten.
        let is_recorded = cluster.session_records().is_recorded(id);
        if !self.sessions.has(id, &from.caller) {
            return None;
        }
        if cluster.holds_lease() || !is_recorded {
            return Some(AnswerPlace::Here);
        }
        let lease = cluster.confirm_lease().await;
        // Its record was read meanwhile, whatever has become of the lease: another replica may have it.
        if !self.sessions.has(id, &from.caller) {
            return None;
        }
        match lease {
            LeaseStatus::Held | LeaseStatus::Never => Some(AnswerPlace::Here),
            LeaseStatus::Left => None,
            LeaseStatus::Lapsed if cluster.answers_alone() => Some(AnswerPlace::Here),
            LeaseStatus::Lapsed => Some(AnswerPlace::Refused(Failure::StoreUnavailable)),
        }
    }
}

/// Answers a request that another replica has forwarded for a session that is not here.
pub(super) fn misdirected() -> Response<Body> {
    response::empty(StatusCode::MISDIRECTED_REQUEST)
}

/// Replicas that a request is offered to.
const MAX_PLACES: usize = 3;
/// Time for which a request is held that no replica takes, and the time between two attempts.
const PLACE_PATIENCE: Duration = Duration::from_secs(2);
const PLACE_PAUSE: Duration = Duration::from_millis(100);
