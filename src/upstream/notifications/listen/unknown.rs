//! Subscriptions of an unknown kind: an extension's, or a later revision's. Each has a stream of
//! its own, with only these members in its filter, so that every notification on it belongs to the
//! subscription.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::jsonrpc::object;
use crate::mcp::ProtocolVersion;
use crate::upstream::UpstreamError;
use crate::upstream::notifications::subscriptions::{Continuity, SubscriptionRefusal};
use crate::upstream::notifications::{Inbox, Topic};
use crate::upstream::peer::modern_params_of;

use super::{
    ChangeStream, ListenTransport, ReopenPace, STREAM_OPEN_TIMEOUT, StreamPurpose, StreamRefused,
};

/// Listens until the task is dropped, or the server refuses.
pub(super) async fn listen<L: ListenTransport>(
    line: Arc<L>,
    version: ProtocolVersion,
    topic: Topic,
    inbox: Arc<Inbox>,
) {
    let mut pace = ReopenPace::new();
    let params = params(version, &topic);
    loop {
        match open(&*line, params.clone()).await {
            Ok((mut stream, agreed)) => {
                pace.opened();
                inbox.subscriptions.agree(&topic, agreed);
                inbox.subscriptions.settle(&topic, Ok(()), Continuity::Kept);
                while let Some((method, params)) = stream.next().await {
                    inbox.subscriptions.deliver_unknown(&topic, &method, params.as_ref());
                }
            }
            Err(StreamRefused::Refused(refusal)) if pace.opened.is_none() => {
                return inbox.subscriptions.settle(&topic, Err(refusal), Continuity::Kept);
            }
            Err(_) => {}
        }
        pace.after_loss().await;
    }
}

async fn open(
    line: &impl ListenTransport,
    params: Bytes,
) -> Result<(ChangeStream, Bytes), StreamRefused> {
    let too_late = StreamRefused::Fault(UpstreamError::Timeout { after: STREAM_OPEN_TIMEOUT });
    let opening = timeout(STREAM_OPEN_TIMEOUT, line.open(params, StreamPurpose::Unknown));
    let mut stream = opening.await.unwrap_or(Err(too_late))?;
    let acknowledged = stream.acknowledged().await?;
    match acknowledged.as_ref().and_then(agreed) {
        Some(agreed) if agreed != "{}" => Ok((stream, agreed)),
        _ => Err(StreamRefused::Refused(SubscriptionRefusal::LeftOut)),
    }
}

fn params(version: ProtocolVersion, topic: &Topic) -> Bytes {
    let filter: Value = serde_json::from_str(&topic.to_string()).unwrap_or_default();
    modern_params_of(version, json!({ "notifications": filter }), &json!({}))
}

/// Returns the raw filter that the server agreed to.
fn agreed(params: &Bytes) -> Option<Bytes> {
    #[derive(Deserialize)]
    struct UnknownFilterAck<'a> {
        #[serde(borrow)]
        notifications: &'a RawValue,
    }
    let acknowledgement: UnknownFilterAck<'_> = object(params).ok()?;
    Some(params.slice_ref(acknowledgement.notifications.get().as_bytes()))
}
