//! Sessions of replicas that are gone, opened again from their records.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::call::{Context, Failure, Meta};
use crate::cluster::{ClaimedSession, Cluster, RecordedSessions, SessionKey};
use crate::downstream::McpService;
use crate::downstream::access::caller::{RequestSender, VerifiedCaller};
use crate::downstream::requests::request::Posted;
use crate::jsonrpc;
use crate::mcp::notification;
use crate::pipeline::{Gateway, SubscribeAnswer};
use crate::shares::Holder;
use crate::snapshot::Digests;

use super::in_session;
use super::outbox::Merge;
use super::registry::Sessions;
use super::session::{ClientSession, NewSession};
use super::session_state::SessionState;

impl McpService {
    /// Opens a session that this replica has claimed, with the identity of the request at hand.
    ///
    /// # Errors
    /// [`Failure::SessionLost`] if its record cannot be read, and [`Failure::TooManySessions`]: another
    /// request may revive it later.
    pub(crate) fn revive_session(
        &self,
        cluster: &Cluster,
        id: &str,
        claimed: &ClaimedSession,
        request: (&Parts, &RequestSender),
    ) -> Result<(), Failure> {
        let (head, from) = request;
        let state = SessionState::decode(&claimed.state).ok_or(Failure::SessionLost)?;
        let address = from.peer.addr.ip();
        let session = self.sessions.create(NewSession {
            id: id.into(),
            client: state.client,
            holder: Holder::identify(from.caller.principal(), address),
            owner: from.caller.clone(),
            address,
            generation: claimed.generation,
        });
        let sender = RequestSender {
            caller: from.caller.clone(),
            peer: from.peer,
            snapshot: Arc::clone(&from.snapshot),
        };
        let posted = Posted::without_body(head.clone(), sender);
        let context = in_session(&session, &posted, Meta::default());
        self.gateway.meet_client(&context.client);
        session.introduced(&context, self.unseen_digests(&context));
        if let Some(level) = state.log {
            session.set_log_level(level);
        }
        session.note_request();
        session.inherited().set_unrenewed(state.subscriptions);
        let records = cluster.session_records();
        records.keep_claimed(session.id(), claimed);
        if let Err(failure) = self.sessions.admit(&session) {
            records.forget_session(id);
            return Err(failure);
        }
        tracing::info!(
            principal = %from.caller.principal().as_str(),
            generation = claimed.generation,
            "a session of a replica that is gone is revived"
        );
        if !session.inherited().unrenewed().is_empty() {
            let gateway = Arc::clone(&self.gateway);
            tokio::spawn(renew_subscriptions(gateway, session, context));
        }
        Ok(())
    }

    /// Returns digests of lists that differ from those of the client's view, so that its next stream
    /// begins with a notification for each kind of list that it has.
    fn unseen_digests(&self, context: &Context) -> Digests {
        let shown = self.gateway.shown(context);
        let [tools, prompts, resources] = self.gateway.tells(context);
        let unseen = [0; 32];
        Digests {
            tools: if tools { unseen } else { shown.tools },
            prompts: if prompts { unseen } else { shown.prompts },
            resources: if resources { [unseen; 2] } else { shown.resources },
        }
    }
}

/// Subscribes to the resources of a revived session. A resource that no server offers yet, because its
/// server is down, stays a part of the session.
async fn renew_subscriptions(gateway: Arc<Gateway>, session: Arc<ClientSession>, context: Context) {
    let mut changes: watch::Receiver<u64> = gateway.changes();
    loop {
        changes.mark_unchanged();
        for uri in session.inherited().unrenewed() {
            let subscribing = gateway.subscribe(session.subscriber(), &context, &uri);
            let answer = tokio::select! {
                answer = subscribing => answer,
                () = session.closed().cancelled() => return,
            };
            match answer {
                Ok(SubscribeAnswer::Subscribed) => {
                    // The client may have unsubscribed meanwhile.
                    if session.inherited().settle(&uri) {
                        tell_missed(&session, &uri);
                    } else {
                        session.subscriber().unsubscribe(&uri);
                    }
                }
                Ok(SubscribeAnswer::RefusedByServer(_)) => _ = session.inherited().settle(&uri),
                Err(Failure::UnknownResource { .. } | Failure::NoUpdates { .. }) => {}
                Err(failure) => {
                    tracing::debug!(%failure, "a subscription of a revived session is not renewed");
                }
            }
        }
        if session.inherited().unrenewed().is_empty() {
            return;
        }
        tokio::select! {
            () = session.closed().cancelled() => return,
            noticed = changes.changed() => if noticed.is_err() { return },
        }
        sleep(RENEWAL_PAUSE).await;
    }
}

/// Notifies the client of a resource whose changes it may have missed.
fn tell_missed(session: &ClientSession, uri: &str) {
    let params = json!({ "uri": uri }).to_string();
    let message = jsonrpc::notification(notification::RESOURCE_UPDATED, Some(params.as_bytes()));
    session.outbox().push(&message, Merge::Never);
}

impl RecordedSessions for Sessions {
    fn describe(&self, id: &str) -> Option<Vec<u8>> {
        let session = self.by_id(id)?;
        let mut subscriptions = session.subscriber().resources();
        subscriptions.extend(session.inherited().unrenewed());
        subscriptions.sort_unstable();
        subscriptions.dedup();
        let client = session.client().as_ref().clone();
        SessionState { client, log: session.log_level(), subscriptions }.encode()
    }

    fn end_moved(&self, id: &str) {
        if let Some(session) = self.by_id(id) {
            self.close(&session);
        }
    }

    fn lifetime(&self) -> Duration {
        self.idle_time()
    }
}

/// Returns the name of a caller's session among the replicas.
pub(crate) fn session_key<'a>(id: &'a str, caller: &'a VerifiedCaller) -> SessionKey<'a> {
    SessionKey { id, principal: caller.principal(), endpoint: caller.endpoint() }
}

/// Time between two attempts to renew subscriptions.
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);
