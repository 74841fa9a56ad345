//! Decides where a request with a session is answered: here, at another replica, or here after its
//! session was revived.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use tokio::time::timeout;

use crate::call::Failure;
use crate::cluster::{Cluster, LeaseStatus, PeerLink, ReplicaId, STORE_TIMEOUT, SessionPlace};
use crate::telemetry::metrics::RevivalResult;

use super::ForwardedHere;
use super::forward::session_id;
use crate::downstream::access::caller::{RequestSender, VerifiedCaller};
use crate::downstream::legacy::session_key;
use crate::downstream::requests::dispatch::PendingResponse;
use crate::downstream::responses::response;
use crate::downstream::{Body, McpService};

/// The place where a request is answered.
enum AnswerPlace {
    /// This replica, which has the session, or finds that it is lost.
    Here,
    /// Another replica.
    Replica(Arc<PeerLink>),
    /// This replica has handed the session over.
    HandedOver,
    /// No place is known.
    Nowhere(Failure),
}

impl McpService {
    /// Returns the cluster if it has to be found out where a request is answered. A Modern request has
    /// no session.
    pub(crate) fn needs_placement(
        &self,
        headers: &HeaderMap,
        caller: &VerifiedCaller,
    ) -> Option<Arc<Cluster>> {
        let cluster = self.cluster.as_ref()?;
        let id = session_id(headers)?;
        let is_needed = if self.sessions.has(id, caller) {
            !cluster.holds_lease()
        } else {
            cluster.has_session_id(session_key(id, caller))
        };
        is_needed.then(|| Arc::clone(cluster))
    }

    /// Returns true if it is not known yet which replica counts a request towards the rates.
    pub(crate) fn is_counted_later(&self, headers: &HeaderMap, caller: &VerifiedCaller) -> bool {
        let (Some(cluster), Some(id)) = (&self.cluster, session_id(headers)) else { return false };
        !self.sessions.has(id, caller) && cluster.has_session_id(session_key(id, caller))
    }

    /// Finds the place of a request, and answers it there.
    pub(crate) fn place_and_answer(
        self: Arc<Self>,
        cluster: Arc<Cluster>,
        request: (Parts, Bytes),
        from: RequestSender,
    ) -> PendingResponse {
        Box::pin(async move {
            let (head, body) = request;
            let is_forwarded = head.extensions.get::<ForwardedHere>().is_some();
            let mut unreached = None;
            for _ in 0..MAX_PLACES {
                let owner = match self.find_answer_place(&cluster, &head, &from, unreached).await {
                    AnswerPlace::Here => {
                        self.prepare_rates_here(&head, &from).await;
                        return self.answer_here(head, body, from).await;
                    }
                    // The other replica finds the place again: nothing is forwarded twice.
                    AnswerPlace::Replica(_) | AnswerPlace::HandedOver if is_forwarded => {
                        return misdirected();
                    }
                    AnswerPlace::Replica(owner) => owner,
                    AnswerPlace::HandedOver => return response::refusal(None, &Failure::Draining),
                    AnswerPlace::Nowhere(failure) => return response::refusal(None, &failure),
                };
                match self.forward(&cluster, &owner, (&head, &body), &from).await {
                    Some(response) => return response,
                    None => unreached = Some(owner.id()),
                }
            }
            cluster.count_revival(RevivalResult::Unreachable);
            response::refusal(None, &Failure::ReplicaUnreachable)
        })
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
        // One request at a time looks for a session, and opens it.
        let Ok(_turn) = timeout(STORE_TIMEOUT, cluster.take_turn(id)).await else {
            return AnswerPlace::Nowhere(Failure::StoreUnavailable);
        };
        if let Some(place) = self.find_own_place(cluster, id, from).await {
            return place;
        }
        match cluster.find_place(key, unreached).await {
            Ok(SessionPlace::Replica(owner)) => AnswerPlace::Replica(owner),
            Ok(SessionPlace::Lost) => {
                cluster.count_revival(RevivalResult::Lost);
                AnswerPlace::Here
            }
            Ok(SessionPlace::Unreachable) => {
                cluster.count_revival(RevivalResult::Unreachable);
                AnswerPlace::Nowhere(Failure::ReplicaUnreachable)
            }
            Ok(SessionPlace::Claimed(claimed)) => {
                match self.revive_session(cluster, id, &claimed, (head, from)) {
                    Ok(()) => {
                        cluster.count_revival(RevivalResult::Revived);
                        let place = self.find_own_place(cluster, id, from).await;
                        place.unwrap_or(AnswerPlace::Nowhere(Failure::StoreUnavailable))
                    }
                    Err(failure) => {
                        cluster.count_revival(RevivalResult::Lost);
                        AnswerPlace::Nowhere(failure)
                    }
                }
            }
            Err(_) => {
                cluster.count_revival(RevivalResult::Unreachable);
                AnswerPlace::Nowhere(Failure::StoreUnavailable)
            }
        }
    }

    /// Returns the place of a request for a session that is here; `None` for any other one. A session
    /// that another replica may have revived is not used before the lease is renewed.
    async fn find_own_place(
        &self,
        cluster: &Cluster,
        id: &str,
        from: &RequestSender,
    ) -> Option<AnswerPlace> {
        if !self.sessions.has(id, &from.caller) {
            return None;
        }
        if cluster.holds_lease() || !cluster.session_records().is_recorded(id) {
            return Some(AnswerPlace::Here);
        }
        Some(match cluster.confirm_lease().await {
            // Its record was read meanwhile: another replica may have it.
            LeaseStatus::Held | LeaseStatus::Never if !self.sessions.has(id, &from.caller) => {
                return None;
            }
            LeaseStatus::Held | LeaseStatus::Never => AnswerPlace::Here,
            LeaseStatus::Left => AnswerPlace::HandedOver,
            LeaseStatus::Lapsed if cluster.answers_alone() => AnswerPlace::Here,
            LeaseStatus::Lapsed => AnswerPlace::Nowhere(Failure::StoreUnavailable),
        })
    }
}

/// Answers a request that another replica has forwarded for a session that is not here.
pub(super) fn misdirected() -> Response<Body> {
    response::empty(StatusCode::MISDIRECTED_REQUEST)
}

/// Replicas that a request is offered to.
const MAX_PLACES: usize = 3;
