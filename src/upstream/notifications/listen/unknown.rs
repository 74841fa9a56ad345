//! What a client asks a Modern server for that the gateway does not know: an
//! extension's, or a later revision's. It has a stream of its own, with these
//! members of the filter and no others, so that whatever comes on it is what
//! was asked for.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::jsonrpc::object;
use crate::mcp::ProtocolVersion;
use crate::upstream::LinkFault;
use crate::upstream::notifications::subscriptions::{Continuity, Refusal};
use crate::upstream::notifications::{Inbox, Topic};
use crate::upstream::transport::peer::modern_params_of;

use super::{Carries, Line, NoStream, PATIENCE, Pace, Stream};

/// Listens for as long as it is wanted.
pub(super) async fn listen<L: Line>(
    line: Arc<L>,
    version: ProtocolVersion,
    topic: Topic,
    inbox: Arc<Inbox>,
) {
    let mut pace = Pace::new();
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
            Err(NoStream::Refused(refusal)) if pace.opened.is_none() => {
                return inbox.subscriptions.settle(&topic, Err(refusal), Continuity::Kept);
            }
            Err(_) => {}
        }
        pace.after_loss().await;
    }
}

async fn open(line: &impl Line, params: Bytes) -> Result<(Stream, Bytes), NoStream> {
    let too_late = NoStream::Fault(LinkFault::Timeout { after: PATIENCE });
    let opening = timeout(PATIENCE, line.open(params, Carries::Unknown));
    let mut stream = opening.await.unwrap_or(Err(too_late))?;
    let acknowledged = stream.acknowledged().await?;
    match acknowledged.as_ref().and_then(agreed) {
        Some(agreed) if agreed != "{}" => Ok((stream, agreed)),
        _ => Err(NoStream::Refused(Refusal::LeftOut)),
    }
}

fn params(version: ProtocolVersion, topic: &Topic) -> Bytes {
    let filter: Value = serde_json::from_str(&topic.to_string()).unwrap_or_default();
    modern_params_of(version, json!({ "notifications": filter }), &json!({}))
}

/// What the server agreed to: the raw filter.
fn agreed(params: &Bytes) -> Option<Bytes> {
    #[derive(Deserialize)]
    struct Acknowledgement<'a> {
        #[serde(borrow)]
        notifications: &'a RawValue,
    }
    let acknowledgement: Acknowledgement<'_> = object(params).ok()?;
    Some(params.slice_ref(acknowledgement.notifications.get().as_bytes()))
}
