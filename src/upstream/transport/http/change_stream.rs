//! The change streams of HTTP servers: GET for Legacy, `subscriptions/listen`
//! for Modern.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::call::{Answer, Question};
use crate::clock;
use crate::codec::sse::Reconnection;
use crate::jsonrpc::{self, Frame};
use crate::mcp::{Era, Method, add_stream_headers, notification};
use crate::upstream::UpstreamError;
use crate::upstream::interaction::sizes::admit;
use crate::upstream::notifications::listen::{
    ChangeStream, ListenTransport, StreamPurpose, StreamRefused, StreamSignal, listen,
};
use crate::upstream::notifications::routing;
use crate::upstream::notifications::subscribe::{SubscribeTransport, subscribe};

use super::calls::reply::{HttpReply, MessageStream, refusal};
use super::headers::modern_headers;
use super::{HttpShared, session};

/// Starts the tasks that listen for changes, until the returned set is dropped. For an instance of
/// a single client it waits briefly for the stream, so that server requests on it during the first
/// call are not missed: some servers begin the response with the first message only. `opening_time`
/// is the time that the server took to open the session.
pub(super) async fn start(shared: &Arc<HttpShared>, opening_time: Duration) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let (peer, inbox) = (&shared.peer, Arc::clone(&shared.inbox));
    let open = HttpListener(Arc::clone(shared));
    match peer.era() {
        Era::Modern => {
            tasks.spawn(listen(open, peer.clone(), inbox));
            tasks.spawn(Arc::clone(shared).settle_doubts());
        }
        Era::Legacy => {
            let (first, stands) = oneshot::channel();
            tasks.spawn(get_on(Arc::clone(shared), first));
            tasks.spawn(subscribe(open, peer.tells, inbox));
            if !shared.owner.lists() {
                let wait = (2 * opening_time).clamp(MIN_STREAM_WAIT, MAX_STREAM_WAIT);
                let _ = timeout(wait, stands).await;
            }
        }
    }
    tasks
}

struct HttpListener(Arc<HttpShared>);

impl ListenTransport for HttpListener {
    async fn open(
        &self,
        params: Bytes,
        carries: StreamPurpose,
    ) -> Result<ChangeStream, StreamRefused> {
        let shared = &self.0;
        let id = shared.number();
        let body = jsonrpc::request(&id, Method::Listen.as_str(), &params);
        let headers = modern_headers(shared.peer.version, &Method::Listen);
        let reception = async {
            HttpReply::read(shared.client.post(&headers, body).await?, shared.limit).await
        };
        let events = match reception.await.map_err(StreamRefused::Fault)? {
            HttpReply::Events(events) => events,
            HttpReply::Refused { status, frame, .. } => {
                let answer = refusal(status, frame, &id);
                return Err(
                    answer.map_or_else(StreamRefused::of, |it| StreamRefused::answered(Some(it)))
                );
            }
            HttpReply::Message(_) | HttpReply::Begun(_) | HttpReply::Empty => {
                return Err(StreamRefused::answered(None));
            }
        };
        let (sender, signals) = ChangeStream::channel();
        let mut following = JoinSet::new();
        let shared = Arc::clone(shared);
        following.spawn(async move {
            let mut events = events;
            let answer = follow(&shared, &mut events, Some((&sender, carries))).await;
            let _ = sender.send(StreamSignal::Ended(answer)).await;
        });
        Ok(ChangeStream::new(signals, following))
    }
}

impl SubscribeTransport for HttpListener {
    async fn ask(&self, method: &Method, params: Bytes) -> Result<Answer, UpstreamError> {
        self.0.request(method, params).await
    }

    fn sessions(&self) -> watch::Receiver<u64> {
        self.0.session.numbers()
    }
}

/// Keeps the stream of a Legacy session open, once there is a reason to listen.
/// Ends if the server offers no stream.
async fn get_on(shared: Arc<HttpShared>, stands: oneshot::Sender<()>) {
    let mut wanted = shared.inbox.subscriptions.changes();
    // An instance of a single client always listens: some servers send messages
    // about a call on this stream.
    while shared.owner.lists()
        && !shared.peer.tells.changes()
        && !shared.inbox.subscriptions.are_wanted()
    {
        if wanted.changed().await.is_err() {
            return;
        }
    }
    let mut sessions = shared.session.numbers();
    let mut session = *sessions.borrow();
    let mut reconnection = Reconnection::new();
    let mut relisted_at: Option<Instant> = None;
    let mut first = true;
    let mut stands = Some(stands);
    loop {
        let current = *sessions.borrow_and_update();
        if std::mem::replace(&mut session, current) != current {
            // The ids of events and the delay are those of a session.
            reconnection = Reconnection::new();
        }
        let last_event_id = reconnection.last_event_id();
        let resumes = last_event_id.is_some();
        let got = get(&shared, first, last_event_id).await;
        // The stream is open, or unavailable for now.
        stands.take();
        match got {
            Ok(Some(mut events)) => {
                // Changes during the interruption were missed. After an event id the server sends
                // the missed messages, but not every server does. A server that is polled every few
                // seconds is not asked for its lists as often.
                if resumes {
                    let is_due = |at: Instant| at.elapsed() >= RESUMED_LIST_INTERVAL;
                    if relisted_at.is_none_or(is_due) {
                        relisted_at = Some(clock::now());
                        shared.inbox.missed_lists();
                    }
                } else if !first {
                    shared.inbox.missed();
                }
                first = false;
                let since = clock::now();
                tokio::select! {
                    _ = follow(&shared, &mut events, None) => {}
                    // The stream belongs to a session that has ended.
                    Ok(()) = sessions.changed() => continue,
                }
                // A stream that keeps ending at once is reopened with backoff,
                // because each time costs a list request.
                reconnection.connection_ended(&events.events, since.elapsed());
            }
            Ok(None) => return,
            // There has never been a stream, and a client error is permanent for this session. The
            // server may have lost the session before the stream was opened, so the next session
            // gets another attempt.
            Err(UpstreamError::Status { status, .. }) if first && status.is_client_error() => {
                if sessions.changed().await.is_err() {
                    return;
                }
                continue;
            }
            Err(fault) => {
                if !first {
                    // The server may have been replaced by one that does not
                    // know the session: a list request detects this.
                    shared.inbox.relist();
                }
                if matches!(fault, UpstreamError::Status { status, .. } if status.is_client_error())
                {
                    // The server may only refuse the id of an event that it has dropped.
                    reconnection.forget_last_event();
                }
                tracing::debug!(server = %shared.server, fault = shared.inbox.describe(&fault), "no change stream");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(reconnection.next_wait()) => {}
            Ok(()) = sessions.changed() => {}
        }
    }
}

/// Opens the stream, after this event if there is one. Returns `None` if the server offers none. A
/// lost session is reopened if there was a stream before.
async fn get(
    shared: &Arc<HttpShared>,
    first: bool,
    last_event_id: Option<HeaderValue>,
) -> Result<Option<MessageStream>, UpstreamError> {
    let mut headers = HeaderMap::new();
    let used = shared.session.add_to(&mut headers);
    add_stream_headers(&mut headers, last_event_id);
    let response = shared.client.send_empty(&HttpMethod::GET, &headers).await?;
    let reception = HttpReply::read(response, shared.limit).await?;
    if let Some(lost) = used
        && !first
        && session::is_lost(&reception, &shared.number())
    {
        shared.reopen(&lost).await?;
    }
    match reception {
        HttpReply::Events(events) => Ok(Some(*events)),
        HttpReply::Refused { status, .. } if status != StatusCode::METHOD_NOT_ALLOWED => {
            Err(UpstreamError::of_status(status))
        }
        _ => Ok(None),
    }
}

/// Handles the messages of a stream to its end, and returns the response that ends it.
async fn follow(
    shared: &Arc<HttpShared>,
    events: &mut MessageStream,
    signals: Option<(&mpsc::Sender<StreamSignal>, StreamPurpose)>,
) -> Option<Answer> {
    while let Ok(Some(frame)) = events.next().await {
        match admit(shared, frame) {
            Some(Frame::Notification { method, params }) => match (signals, params) {
                (Some((signals, _)), Some(params)) if method == notification::ACKNOWLEDGED => {
                    let _ = signals.try_send(StreamSignal::Acknowledged(params));
                }
                (_, Some(params)) if method == notification::MESSAGE => {
                    shared.wrote(&method, &params);
                }
                (Some((signals, StreamPurpose::Unknown)), params) => {
                    let _ = signals.try_send(StreamSignal::Told(method, params));
                }
                (_, Some(params)) if method == notification::CANCELLED => shared.took_back(&params),
                (_, params) => shared.inbox.hear(&method, params.as_ref()),
            },
            Some(Frame::Request { id, method, params }) => {
                routing::asked(shared, id, Question { method, params: params.map(Bytes::from) });
            }
            // The response to `listen` ends the stream gracefully.
            Some(Frame::Response { response, .. }) if signals.is_some() => {
                return Answer::parse(response).ok();
            }
            // A server may repeat responses when a stream is resumed.
            Some(Frame::Response { .. }) | None => {}
        }
    }
    None
}

/// Time that the first call waits for the stream of an instance with a single client.
const MIN_STREAM_WAIT: Duration = Duration::from_millis(100);
const MAX_STREAM_WAIT: Duration = Duration::from_millis(500);
/// The least time between the lists that follow resumed connections.
const RESUMED_LIST_INTERVAL: Duration = Duration::from_mins(1);
