//! The stream on which an HTTP server says that its tools changed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method as HttpMethod, StatusCode};
use tokio::time::Instant;

use crate::jsonrpc::{self, Frame};
use crate::link::LinkFault;
use crate::link::peer::modern_params;
use crate::mcp::{Era, Method, notification};

use super::reception::{Events, Reception};
use super::{Shared, modern_headers};

/// Keeps the stream open for as long as the connection is used. Ends where the
/// server offers none.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut wait = FIRST_WAIT;
    let mut first = true;
    loop {
        let opened = match shared.peer.era() {
            Era::Modern => listen(&shared).await,
            Era::Legacy => get(&shared).await,
        };
        match opened {
            Ok(Some(events)) => {
                if !first {
                    // What changed while nobody listened was not heard.
                    shared.changed.notify_one();
                }
                first = false;
                let since = Instant::now();
                follow(&shared, events).await;
                // A stream that always ends at once is opened ever more rarely:
                // each opening costs a listing.
                if since.elapsed() >= LAST_WAIT {
                    wait = FIRST_WAIT;
                }
            }
            Ok(None) => return,
            // There never was a stream, and what the server says is not about
            // this moment.
            Err(LinkFault::Status { status }) if first && status.is_client_error() => return,
            Err(fault) => {
                if !first {
                    // It may be another server by now, one that does not know
                    // the session: a listing finds out.
                    shared.changed.notify_one();
                }
                tracing::debug!(server = %shared.server, fault = %fault.chain(), "no change stream");
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LAST_WAIT);
    }
}

async fn listen(shared: &Shared) -> Result<Option<Events>, LinkFault> {
    let members = serde_json::json!({ "notifications": { "toolsListChanged": true } });
    let params = modern_params(shared.peer.version, members);
    let body = jsonrpc::request(&shared.number(), Method::Listen.as_str(), &params);
    let headers = modern_headers(shared.peer.version, &Method::Listen, None);
    events(Reception::read(shared.client.post(&headers, body).await?, shared.limit).await?)
}

async fn get(shared: &Shared) -> Result<Option<Events>, LinkFault> {
    let mut headers = HeaderMap::new();
    shared.session.add_to(&mut headers);
    let accept = http::HeaderValue::from_static("text/event-stream");
    headers.insert(http::header::ACCEPT, accept);
    let response = shared.client.send(&HttpMethod::GET, &headers, Bytes::new()).await?;
    let reception = Reception::read(response, shared.limit).await?;
    events(reception)
}

/// The stream; `None` where the server has none to offer.
fn events(reception: Reception) -> Result<Option<Events>, LinkFault> {
    match reception {
        Reception::Events(events) => Ok(Some(events)),
        Reception::Refused { status, .. } if status != StatusCode::METHOD_NOT_ALLOWED => {
            Err(LinkFault::Status { status })
        }
        _ => Ok(None),
    }
}

async fn follow(shared: &Arc<Shared>, mut events: Events) {
    loop {
        match events.next().await {
            Ok(Some(Frame::Notification { method, .. }))
                if method == notification::TOOLS_CHANGED =>
            {
                shared.changed.notify_one();
            }
            Ok(Some(Frame::Request { id, method, .. })) => shared.answer_server(&id, &method),
            // The answer to `listen` is its graceful end.
            Ok(Some(Frame::Response { .. }) | None) | Err(_) => return,
            Ok(Some(Frame::Notification { .. })) => {}
        }
    }
}

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_mins(1);
