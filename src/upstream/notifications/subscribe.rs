//! `resources/subscribe` at a Legacy server: one request for each resource that
//! has subscribers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::call::Answer;
use crate::mcp::Method;
use crate::upstream::UpstreamError;
use crate::upstream::peer::ChangeCapabilities;

use super::subscriptions::{Continuity, SubscriptionRefusal};
use super::{Inbox, Topic};

/// Sends the gateway's own requests over a transport.
pub(crate) trait SubscribeTransport: Send + Sync + 'static {
    /// Sends a request and waits for the response.
    fn ask(
        &self,
        method: &Method,
        params: Bytes,
    ) -> impl Future<Output = Result<Answer, UpstreamError>> + Send;

    /// Notifies of new sessions. The server knows no subscriptions in a new session.
    fn sessions(&self) -> watch::Receiver<u64>;
}

/// Keeps the server's subscriptions in line with the clients' while the connection lives.
pub(crate) async fn subscribe(
    asks: impl SubscribeTransport,
    tells: ChangeCapabilities,
    inbox: Arc<Inbox>,
) {
    let mut wanting = inbox.subscriptions.changes();
    let mut sessions = asks.sessions();
    let mut standing = HashSet::new();
    inbox.subscriptions.forget_refusals();
    loop {
        wanting.mark_unchanged();
        if sessions.has_changed().unwrap_or(false) {
            sessions.mark_unchanged();
            standing.clear();
            inbox.subscriptions.forget_refusals();
        }
        let wanted: HashSet<_> = inbox.subscriptions.wanted().into_iter().collect();
        let mut due = Vec::new();
        for topic in wanted.difference(&standing) {
            match topic {
                Topic::Resource(_) if tells.updates => {
                    due.push((topic.clone(), SubscribeStep::Begin));
                }
                // A Legacy server sends task notifications to the task's
                // creator without a subscription.
                Topic::Task(_) => inbox.subscriptions.settle(topic, Ok(()), Continuity::Kept),
                Topic::Resource(_) | Topic::Unknown(_) => {
                    let refused = Err(SubscriptionRefusal::Unsupported);
                    inbox.subscriptions.settle(topic, refused, Continuity::Kept);
                }
            }
        }
        due.extend(standing.difference(&wanted).map(|topic| (topic.clone(), SubscribeStep::End)));
        let steps = due.into_iter().map(|(topic, step)| take(&asks, topic, step));
        let mut steps = stream::iter(steps).buffer_unordered(AT_ONCE);
        let mut failed = false;
        while let Some((topic, step, answer)) = steps.next().await {
            match (step, answer) {
                (SubscribeStep::Begin, Ok(Answer::Result(_))) => {
                    inbox.subscriptions.settle(&topic, Ok(()), Continuity::Broken);
                    standing.insert(topic);
                }
                (SubscribeStep::Begin, Ok(Answer::Error(error))) => {
                    let refused = Err(SubscriptionRefusal::Said(error));
                    inbox.subscriptions.settle(&topic, refused, Continuity::Kept);
                }
                (SubscribeStep::Begin, Err(fault)) => {
                    tracing::debug!(%topic, fault = inbox.describe(&fault), "not subscribed");
                    failed = true;
                }
                // The response does not matter, because there are no subscribers left.
                (SubscribeStep::End, _) => {
                    standing.remove(&topic);
                }
            }
        }
        drop(steps);
        tokio::select! {
            changed = wanting.changed() => if changed.is_err() { return },
            Ok(()) = sessions.changed() => sessions.mark_changed(),
            () = sleep(SUBSCRIBE_RETRY_PAUSE), if failed => {}
        }
    }
}

#[derive(Clone, Copy)]
enum SubscribeStep {
    Begin,
    End,
}

async fn take(
    asks: &impl SubscribeTransport,
    topic: Topic,
    step: SubscribeStep,
) -> (Topic, SubscribeStep, Result<Answer, UpstreamError>) {
    let method = match step {
        SubscribeStep::Begin => Method::ResourcesSubscribe,
        SubscribeStep::End => Method::ResourcesUnsubscribe,
    };
    let params = json!({ "uri": topic.to_string() }).to_string();
    let answer = timeout(SUBSCRIBE_TIMEOUT, asks.ask(&method, params.into())).await;
    (topic, step, answer.unwrap_or(Err(UpstreamError::Timeout { after: SUBSCRIBE_TIMEOUT })))
}

/// Maximum number of requests in flight at once.
const AT_ONCE: usize = 8;
/// Time limit for a request.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time before a failed request is repeated.
const SUBSCRIBE_RETRY_PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
