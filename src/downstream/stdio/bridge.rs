//! The bridge: reads lines, sends each as a request to its endpoint, writes the responses.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header::HeaderMap};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call::{Failure, GatewayFault, RequestFault};
use crate::codec::lines::{LineError, LineReader};
use crate::jsonrpc::{self, Frame, Id, Response as Answer};
use crate::mcp::{Method, header, notification};
use crate::telemetry::log::SharedFaultLog;
use crate::upstream::SessionCell;

use super::endpoint::McpPeer;
use super::exchange::{Batch, PipedCall};
use super::headers::{self, PipedRequest};
use super::mirror::Mirror;
use super::output::{LineOutput, OutputBudget, OutputLines};
use super::reply::{PipedReply, ReceivedText, broken, find_answer, parse_message, unreadable};
use super::session::OpenPipeSession;
use super::{BridgeBounds, BridgeEnd, MAX_DEPTH};

/// The streams of a client, from the gateway's view.
#[derive(Debug)]
pub struct ClientStreams<I, O> {
    /// The messages of the client.
    pub input: I,
    /// The messages to the client.
    pub output: O,
}

/// Serves a client until one of its streams ends. After the end of the input, pending requests
/// have `patience` to be answered.
///
/// # Cancel safety
/// Dropping the future cuts everything off at once.
pub async fn serve<E: McpPeer>(
    endpoint: E,
    client: ClientStreams<impl AsyncRead + Unpin, impl AsyncWrite + Unpin>,
    bounds: BridgeBounds,
    patience: Duration,
) -> BridgeEnd {
    let ClientStreams { input, output } = client;
    let (bridge, lines) = Bridge::new(endpoint, bounds, None);
    let _cut = bridge.cut.clone().drop_guard();
    let mut writing = pin!(lines.write(output));
    let serving = async {
        bridge.read(input).await;
        bridge.finish(patience).await;
    };
    tokio::select! {
        written = &mut writing => {
            if let Err(error) = written {
                tracing::warn!(%error, "the output is closed");
            }
            return BridgeEnd::Output;
        }
        () = serving => {}
    }
    // A host that no longer reads must not delay the end.
    let _ = timeout(LAST_WORDS, writing).await;
    BridgeEnd::Input
}

/// State shared by all requests in flight.
pub(crate) struct Bridge<E> {
    pub(super) endpoint: E,
    pub(super) bounds: BridgeBounds,
    pub(super) output: LineOutput,
    pub(super) session: SessionCell<OpenPipeSession>,
    pub(super) mirror: Mirror,
    under_way: Mutex<HashMap<Id, PendingRequest>>,
    tasks: TaskTracker,
    /// Faults of the endpoint, in the log.
    faults: SharedFaultLog,
    /// The input has ended: notification streams end.
    pub(super) ending: CancellationToken,
    /// Everything ends.
    pub(crate) cut: CancellationToken,
}

/// A request in flight.
struct PendingRequest {
    method: Method,
    withdrawal: Arc<ClientCancellation>,
}

/// A client's cancellation of a request.
#[derive(Default)]
pub(super) struct ClientCancellation {
    /// Cancelled by the client.
    pub(super) told: CancellationToken,
    /// The client's message.
    pub(super) message: OnceLock<Bytes>,
}

/// Keeps a request in the table of requests in flight.
pub(super) struct BridgeSlot<E> {
    pub(super) bridge: Arc<Bridge<E>>,
    pub(super) id: Id,
    pub(super) withdrawal: Arc<ClientCancellation>,
}

impl<E> Drop for BridgeSlot<E> {
    fn drop(&mut self) {
        self.bridge.under_way().remove(&self.id);
    }
}

impl<E> Bridge<E> {
    fn under_way(&self) -> MutexGuard<'_, HashMap<Id, PendingRequest>> {
        self.under_way.lock()
    }

    /// Registers a request before it is sent: the client may cancel it with the next line.
    fn begin(self: &Arc<Self>, id: &Id, method: &Method) -> Result<BridgeSlot<E>, Failure> {
        self.room()?;
        let mut under_way = self.under_way();
        if under_way.contains_key(id) {
            return Err(RequestFault::DuplicateId.into());
        }
        let withdrawal = Arc::<ClientCancellation>::default();
        let entry = PendingRequest { method: method.clone(), withdrawal: Arc::clone(&withdrawal) };
        under_way.insert(id.clone(), entry);
        drop(under_way);
        Ok(BridgeSlot { bridge: Arc::clone(self), id: id.clone(), withdrawal })
    }

    fn room(&self) -> Result<(), Failure> {
        if self.tasks.len() < self.bounds.in_flight {
            return Ok(());
        }
        Err(Failure::OverLimit { limit: "stdio:in_flight".into(), retry_after: BUSY_RETRY_AFTER })
    }

    /// Handles a client's cancellation of a request.
    fn withdraw(&self, line: Bytes, params: Option<&Bytes>) {
        let Some(id) = params.and_then(notification::cancelled_request) else { return };
        let under_way = self.under_way();
        if let Some((_, entry)) = under_way.iter().find(|(other, _)| other.raw() == id.raw()) {
            // Only the first one counts.
            let _ = entry.withdrawal.message.set(line);
            entry.withdrawal.told.cancel();
        }
    }

    /// Logs a fault of the endpoint, unless a line about it is recent.
    pub(super) fn warn(&self, text: &str) {
        if let Some(line) = self.faults.note_about(text, text) {
            tracing::warn!("{line}");
        }
    }

    /// Spawns a task beside the input, until everything ends.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cut = self.cut.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = cut.cancelled() => {}
                () = task => {}
            }
        });
    }

    pub(super) async fn refuse(&self, id: Option<&Id>, failure: &Failure) {
        self.output.message(jsonrpc::error(id, &failure.to_error())).await;
    }
}

impl<E: McpPeer> Bridge<E> {
    /// Creates a bridge, and the receiver of its output.
    pub(crate) fn new(
        endpoint: E,
        bounds: BridgeBounds,
        budget: Option<OutputBudget>,
    ) -> (Arc<Self>, OutputLines) {
        let (output, lines) = LineOutput::new(budget);
        let bridge = Self {
            mirror: Mirror::new(endpoint.mirroring()),
            endpoint,
            bounds,
            output,
            session: SessionCell::default(),
            under_way: Mutex::default(),
            tasks: TaskTracker::new(),
            faults: SharedFaultLog::new(),
            ending: CancellationToken::new(),
            cut: CancellationToken::new(),
        };
        (Arc::new(bridge), lines)
    }

    async fn read(self: &Arc<Self>, input: impl AsyncRead + Unpin) {
        let mut lines = LineReader::new(input, self.bounds.line);
        loop {
            match lines.next().await {
                Ok(Some(line)) => self.take(line).await,
                Ok(None) => return,
                Err(LineError::TooLong { limit, .. }) => {
                    self.refuse(None, &RequestFault::LineTooLong { limit }.into()).await;
                }
                Err(LineError::Io(error)) => {
                    tracing::warn!(%error, "the input cannot be read");
                    return;
                }
            }
        }
    }

    /// Takes one message. Notifications, responses and `initialize` are sent before this returns:
    /// the order of lines is not kept beyond this point.
    pub(crate) async fn take(self: &Arc<Self>, line: Bytes) {
        if line.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            return self.batch(line).await;
        }
        match jsonrpc::parse(&line, MAX_DEPTH) {
            Ok(Frame::Request { id, method, params }) => {
                let asked = PipedRequest::new(&method, params.map(Bytes::from));
                match asked.method {
                    Method::Initialize => self.initialize(line, id).await,
                    _ => self.request(line, &id, asked).await,
                }
            }
            Ok(Frame::Notification { method, params }) => match method.as_str() {
                notification::CANCELLED => self.withdraw(line, params.as_ref()),
                notification::INITIALIZED => {
                    self.send_aside(line, None).await;
                    self.listen_to_news();
                }
                _ => self.send_aside(line, Some(&PipedRequest::new(&method, params))).await,
            },
            Ok(Frame::Response { .. }) => self.send_aside(line, None).await,
            Err(fault) => self.refuse(None, &fault.into()).await,
        }
    }

    async fn request(self: &Arc<Self>, line: Bytes, id: &Id, asked: PipedRequest) {
        match self.begin(id, &asked.method) {
            Ok(place) => {
                let exchange = PipedCall { place, line, asked };
                self.spawn(exchange.run());
            }
            Err(failure) => self.refuse(Some(id), &failure).await,
        }
    }

    async fn batch(self: &Arc<Self>, line: Bytes) {
        match self.room() {
            Ok(()) => self.spawn(Batch { bridge: Arc::clone(self), line }.run()),
            Err(failure) => self.refuse(None, &failure).await,
        }
    }

    /// Sends a message that needs no answer. Outside of a session it has the headers of a Modern
    /// message.
    pub(super) async fn send_aside(&self, line: Bytes, asked: Option<&PipedRequest>) {
        let headers = match (self.session.current(), asked) {
            (Some(open), _) => open.headers.clone(),
            (None, Some(asked)) => asked.mirrored(),
            (None, None) => {
                tracing::debug!("a message outside of a session is dropped");
                return;
            }
        };
        self.send_with(headers, line).await;
    }

    async fn send_with(&self, headers: HeaderMap, line: Bytes) {
        let sent = timeout(ASIDE_TIMEOUT, self.endpoint.send(headers::post(headers, line))).await;
        match sent {
            Ok(Ok(response)) if response.status().is_success() => {}
            Ok(Ok(response)) => {
                self.warn(&format!("the gateway refused a message: {}", response.status()));
            }
            Ok(Err(failure)) => self.warn(&format!("a message was lost: {failure}")),
            Err(_) => self.warn("a message took too long and was lost"),
        }
    }

    async fn initialize(self: &Arc<Self>, line: Bytes, id: Id) {
        let opened = timeout(OPENING_TIMEOUT, self.open(line, &id)).await;
        match opened.unwrap_or_else(|_| Err(broken())) {
            Ok((answer, open)) => {
                let before = open.and_then(|open| self.session.replace(Arc::new(open)));
                if let Some(before) = before {
                    before.closed.cancel();
                    let bridge = Arc::clone(self);
                    self.spawn(async move { bridge.close(&before).await });
                }
                self.output.message(answer).await;
            }
            Err(failure) => self.refuse(Some(&id), &failure).await,
        }
    }

    /// Sends `initialize`. Returns the answer, and the session if there is one.
    async fn open(
        &self,
        line: Bytes,
        id: &Id,
    ) -> Result<(Bytes, Option<OpenPipeSession>), Failure> {
        let request = headers::post(HeaderMap::new(), line.clone());
        let response = self.endpoint.send(request).await?;
        let session = response.headers().get(header::SESSION_ID).cloned();
        let answer = self.answer_to(response, id).await?;
        let open = match jsonrpc::parse(&answer, MAX_DEPTH) {
            Ok(Frame::Response { response: Answer::Result(raw), .. }) => {
                Some(OpenPipeSession::new((line, id.clone()), session, &raw))
            }
            _ => None,
        };
        Ok((answer, open))
    }

    /// Returns the message that answers a request, and forwards others.
    pub(super) async fn answer_to(
        &self,
        response: Response<E::Body>,
        id: &Id,
    ) -> Result<Bytes, Failure> {
        let mut events = match PipedReply::read(response, self.bounds.answer).await? {
            PipedReply::Whole(status, body) => return find_answer(status, body, id).await,
            PipedReply::Events(events) => events,
        };
        while let Some(data) = events.next_message().await.map_err(unreadable)? {
            match parse_message(&data).await? {
                ReceivedText::Message(Frame::Response { .. }) => {
                    return find_answer(StatusCode::OK, data, id).await;
                }
                ReceivedText::Message(_) => self.output.message(data).await,
                ReceivedText::NoMessage(fault) => {
                    self.warn(&format!("the gateway sent no message: {fault}"));
                }
            }
        }
        Err(broken())
    }

    /// Opens a session in place of a lost one, with the client's own `initialize`. Changes in
    /// between are unknown, so the client is notified that all lists may have changed.
    pub(super) async fn reopen(
        self: &Arc<Self>,
        lost: &Arc<OpenPipeSession>,
    ) -> Result<(), Failure> {
        let opening = async {
            tracing::info!("the gateway has lost the session, a new one is opened");
            let (line, id) = lost.initialize.clone();
            let (_, open) = self.open(line, &id).await?;
            let open = open.ok_or(GatewayFault::NoSession)?;
            if lost.is_ready() {
                let ready = jsonrpc::notification(notification::INITIALIZED, None);
                self.send_with(open.headers.clone(), ready).await;
            }
            Ok::<_, Failure>(open)
        };
        let Some(open) = self.session.reopen(lost, opening).await? else { return Ok(()) };
        lost.closed.cancel();
        if lost.is_ready() {
            self.listen_to_news();
            for changed in open.all_changed() {
                self.output.message(changed).await;
            }
        }
        Ok(())
    }

    /// Returns the headers of a Legacy message: none before `initialize`.
    pub(super) fn session_headers(&self) -> HeaderMap {
        self.session.current().map(|open| open.headers.clone()).unwrap_or_default()
    }

    /// Opens the session's own stream, once its client is ready.
    fn listen_to_news(self: &Arc<Self>) {
        if let Some(open) = self.session.current().filter(|open| open.is_now_ready()) {
            let (bridge, cut) = (Arc::clone(self), self.cut.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = cut.cancelled() => {}
                    () = bridge.ending.cancelled() => {}
                    () = open.closed.cancelled() => {}
                    () = bridge.news(&open) => {}
                }
            });
        }
    }

    /// Handles the end of the input: pending requests may be answered within `patience`.
    pub(crate) async fn finish(&self, patience: Duration) {
        self.ending.cancel();
        for entry in self.under_way().values().filter(|entry| entry.method == Method::Listen) {
            entry.withdrawal.told.cancel();
        }
        self.tasks.close();
        if timeout(patience, self.tasks.wait()).await.is_err() {
            tracing::warn!(requests = self.tasks.len(), "cut at the end of the drain time");
        }
        self.cut.cancel();
        self.close_session().await;
        self.output.last().await;
    }

    /// Ends the session, if there is one.
    pub(crate) async fn close_session(&self) {
        if let Some(open) = self.session.current() {
            self.close(&open).await;
        }
    }

    async fn close(&self, open: &OpenPipeSession) {
        if open.has_id() {
            let request = headers::delete(open.headers.clone());
            // The endpoint's answer does not matter.
            let _ = timeout(SESSION_END_TIMEOUT, self.endpoint.send(request)).await;
        }
    }
}

/// Time limit of a message that needs no answer.
const ASIDE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of opening a session.
const OPENING_TIMEOUT: Duration = Duration::from_mins(1);
/// Time limit of ending a session.
const SESSION_END_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of writing the last lines.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Time after which a request may find room again.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::Full;

    use super::super::endpoint::Mirroring;
    use super::*;
    use crate::captured_log::CapturedLog;

    /// A gateway that does not answer.
    struct LostPeer;

    impl McpPeer for LostPeer {
        type Body = Full<Bytes>;

        async fn send(&self, _: Request<Bytes>) -> Result<Response<Self::Body>, Failure> {
            Err(GatewayFault::NoSession.into())
        }

        fn mirroring(&self) -> Mirroring {
            Mirroring::Needless
        }
    }

    #[tokio::test]
    async fn messages_that_are_lost_one_after_the_other_are_logged_once() {
        let log = CapturedLog::start();
        let (bridge, _lines) = Bridge::new(LostPeer, BridgeBounds::default(), None);
        for _ in 0..3 {
            bridge.take(jsonrpc::notification("notifications/x", Some(b"{}"))).await;
        }
        let text = log.text();
        assert_eq!(text.matches("a message was lost").count(), 1, "{text}");
    }
}
