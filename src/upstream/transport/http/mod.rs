//! Servers over Streamable HTTP.
//!
//! Each call is an HTTP request of its own, so its response, progress and cancellation need no
//! bookkeeping: dropping the response cancels the call. Calls share only a Legacy server's session,
//! which is reopened when the server has lost it.

mod aside;
mod authorized;
mod calls;
mod client;
mod doubtful_session;
mod headers;
mod probe;
mod session;
pub(crate) mod sse;
mod change_stream;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch as cell};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::call::{Answer, Call, Reply, ServerFault, ServerName, VersionFault};
use crate::clock;
use crate::config::EraChoice;
use crate::era::{lift, lower};
use crate::jsonrpc::{self, Frame, Id};
use crate::mcp::{Era, LogLevel, Method};
use crate::policy::CallTarget;
use crate::shares::Holder;
use crate::upstream::interaction::deadline::Deadline;
use crate::upstream::notifications::Inbox;
use crate::upstream::notifications::levels::LogLevelControl;
use crate::upstream::peer::{Peer, answer_to_server};
use crate::upstream::response_memory::ResponseMemory;
use crate::upstream::transport::caller_headers::CallerHeaders;
use crate::upstream::transport::request_ids::RequestIds;
use crate::upstream::{InstanceKey, UpstreamError};
use aside::{ASIDE_TIMEOUT, MAX_ASIDES};
pub(crate) use authorized::RequestCredentials;
use calls::large_result::{AnswerBounds, LargeResponse, PartialAnswer};
pub(super) use calls::large_result::{ReadBody, read as read_small_body};
use calls::reply::{HttpReply, MessageStream, find_answer};
use calls::resume::{Resumable, StreamItem};
use calls::streamed_call::{Head, LegacyCalls, ReplyStage, SentCall, StreamedCall};
pub(crate) use client::{ReplicaRoute, ServerClient};
pub(super) use headers::ApiHeaders;
use headers::{CallHeaders, ServerHeaders, modern_headers};
use probe::{discover, probe};
use session::{LegacySession, OpenSession};
pub use session::{SessionCell, is_session_lost};

/// A connection to an HTTP server of known era and capabilities.
pub(crate) struct HttpServer {
    shared: Arc<HttpShared>,
    /// Tasks that listen for changes while the connection lives.
    _listening: JoinSet<()>,
}

/// State shared by the calls and the listening tasks.
pub(crate) struct HttpShared {
    server: ServerName,
    /// The instance to which the connection belongs.
    owner: Arc<InstanceKey>,
    client: Arc<ServerClient>,
    peer: Peer,
    session: LegacySession,
    pub(super) ids: RequestIds,
    limit: usize,
    memory: Arc<ResponseMemory>,
    caller_headers: CallerHeaders,
    inbox: Arc<Inbox>,
    levels: LogLevelControl,
    /// Reason for the loss of the connection. `None` while it is in use.
    lost: cell::Sender<Option<UpstreamError>>,
    /// The last error that may indicate a change of the server's era.
    doubts: cell::Sender<Option<UpstreamError>>,
    /// Calls in flight to a Legacy server, to which its requests can belong.
    calls: LegacyCalls,
    /// Permits for messages outside client calls.
    asides: Arc<Semaphore>,
    /// The time of the last `ping` that checked the session.
    pinged: Mutex<Option<Instant>>,
}

/// Parameters for opening a connection to an HTTP server.
pub(crate) struct HttpOpening {
    pub(crate) server: ServerName,
    pub(crate) owner: Arc<InstanceKey>,
    pub(crate) client: Arc<ServerClient>,
    pub(crate) era: EraChoice,
    /// Time limit for a probe, after which the server counts as Legacy.
    pub(crate) patience: Duration,
    /// Maximum size in bytes of a response or of one event.
    pub(crate) limit: usize,
    /// Counts the memory of large responses.
    pub(crate) memory: Arc<ResponseMemory>,
    /// Call headers that come from the clients.
    pub(crate) caller_headers: CallerHeaders,
    /// Receives the server's messages outside responses.
    pub(crate) inbox: Arc<Inbox>,
}

impl HttpServer {
    /// Detects the server's era, and opens a session if it is Legacy. The caller sets a time limit.
    pub(crate) async fn open(opening: HttpOpening) -> Result<Self, UpstreamError> {
        let client = opening.client;
        let modern = match opening.era {
            EraChoice::Legacy => None,
            EraChoice::Modern => Some(
                discover(&client, opening.limit)
                    .await?
                    .ok_or(UpstreamError::Versions(VersionFault::NotModern))?,
            ),
            EraChoice::Auto => probe(&client, opening.limit, opening.patience).await?,
        };
        let began = clock::now();
        let (peer, session) = match modern {
            Some(peer) => (peer, LegacySession::default()),
            None => {
                LegacySession::open(&client, &opening.owner.told.capabilities, opening.limit)
                    .await?
            }
        };
        let shared = Arc::new(HttpShared {
            server: opening.server,
            owner: opening.owner,
            client,
            peer,
            session,
            ids: RequestIds::default(),
            limit: opening.limit,
            memory: opening.memory,
            caller_headers: opening.caller_headers,
            inbox: opening.inbox,
            levels: LogLevelControl::default(),
            lost: cell::Sender::new(None),
            doubts: cell::Sender::new(None),
            calls: LegacyCalls::default(),
            asides: Arc::new(Semaphore::new(MAX_ASIDES)),
            pinged: Mutex::new(None),
        });
        let listening = change_stream::start(&shared, began.elapsed()).await;
        Ok(Self { shared, _listening: listening })
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.shared.peer
    }

    /// Sends one of the gateway's own requests.
    pub(crate) async fn request(
        &self,
        method: &Method,
        params: Bytes,
    ) -> Result<Answer, UpstreamError> {
        // Boxed, because it would enlarge the future of a server's whole life.
        Box::pin(self.shared.request(method, params)).await
    }

    /// Sends a client's call. `mirrored` holds the tool parameters sent as headers.
    pub(crate) async fn call(
        &self,
        call: &Call,
        target: &CallTarget,
        mirrored: Vec<(HeaderName, HeaderValue)>,
        deadline: Deadline,
    ) -> Result<Reply, UpstreamError> {
        let shared = &self.shared;
        let id = shared.number();
        let message = shared.message(call, target, &id);
        let headers = CallHeaders { shared, call, target, mirrored };
        match shared.peer.era() {
            Era::Modern => shared.call_modern(id, message, headers, deadline).await,
            // Boxed, because it would enlarge the future of every call.
            Era::Legacy => Box::pin(shared.call_legacy(id, message, headers, deadline)).await,
        }
    }

    /// Waits until the connection is lost, and returns the reason.
    pub(crate) async fn closed(&self) -> UpstreamError {
        let mut lost = self.shared.lost.subscribe();
        let fault = lost.wait_for(Option::is_some).await;
        let fault = fault.ok().and_then(|fault| fault.clone());
        fault.unwrap_or_else(|| UpstreamError::Down(Box::new(ServerFault::NotRunning)))
    }

    /// Ends the Legacy session, if there is one. Waits for the server only for a limited time.
    pub(crate) async fn close(&self) {
        let closing = self.shared.session.close(&self.shared.client);
        let _ = tokio::time::timeout(ASIDE_TIMEOUT, closing).await;
    }
}

impl HttpShared {
    fn number(&self) -> Id {
        Id::number(self.ids.draw())
    }

    /// Sends a call to a Modern server. Dropping the future, and with it the
    /// response, cancels the call.
    async fn call_modern(
        self: &Arc<Self>,
        id: Id,
        message: Bytes,
        headers: CallHeaders<'_>,
        mut deadline: Deadline,
    ) -> Result<Reply, UpstreamError> {
        let reception = tokio::select! {
            biased;
            reception = self.exchange(&id, message, &headers) => reception?,
            after = deadline.passed() => return Err(UpstreamError::Timeout { after }),
        };
        match reception {
            HttpReply::Events(events) => {
                let CallHeaders { call, target, .. } = headers;
                let (mut coming, _) =
                    StreamedCall::of(self, SentCall { id: &id, call, target }, deadline);
                let events = self.resumable(&id, events, HeaderMap::new());
                let events = events.charged_to(&coming.holder);
                coming.stage = ReplyStage::Streaming(events);
                Ok(coming.reply())
            }
            HttpReply::Begun(begun) => {
                let context = &headers.call.context;
                let holder = Holder::of_context(context);
                self.reply_in_pieces(begun, &id, self.bound(deadline, &holder)).await
            }
            whole => Ok(Reply::ready(Ok(self.answer(whole, &id)?))),
        }
    }

    /// Sends a call to a Legacy server.
    async fn call_legacy(
        self: &Arc<Self>,
        id: Id,
        message: Bytes,
        headers: CallHeaders<'_>,
        deadline: Deadline,
    ) -> Result<Reply, UpstreamError> {
        let CallHeaders { call, target, .. } = headers;
        let log = call.context.log;
        // In flight from here on. A server that responds with plain JSON sends no head until it has
        // finished, and must still receive a cancellation.
        let (mut coming, answers) =
            StreamedCall::of(self, SentCall { id: &id, call, target }, deadline);
        if coming.questions.can_be() {
            let sent = Arc::clone(self).send(id, message, self.clients_own(call), log);
            coming.stage = ReplyStage::Sent(sent, self.clients_own(call));
            return Ok(coming.reply().with_answers(answers));
        }
        let reception = if coming.hearing.elsewhere() {
            let own = self.clients_own(call);
            let mut sent = Arc::clone(self).send(id.clone(), message, own, log);
            tokio::select! {
                reception = &mut sent => reception,
                () = coming.hearing.arrived() => {
                    coming.stage = ReplyStage::Sent(sent, self.clients_own(call));
                    return Ok(coming.reply());
                }
                after = coming.deadline.passed() => return Err(UpstreamError::Timeout { after }),
            }
        } else {
            let sent = async {
                self.set_level(log).await;
                self.exchange(&id, message, &headers).await
            };
            tokio::select! {
                reception = sent => reception,
                after = coming.deadline.passed() => return Err(UpstreamError::Timeout { after }),
            }
        };
        // Answered or rejected. After a lost connection the server may still be
        // working on the call.
        if !matches!(reception, Ok(HttpReply::Events(_)) | Err(UpstreamError::Broken(_))) {
            coming.under_way.end();
        }
        match reception? {
            HttpReply::Events(events) => {
                let events = self.resumable(&id, events, self.clients_own(call));
                let events = events.charged_to(&coming.holder);
                coming.stage = ReplyStage::Streaming(events);
                Ok(coming.reply())
            }
            HttpReply::Begun(begun) => {
                let bounds = self.bound(coming.deadline, &coming.holder);
                self.reply_in_pieces(begun, &id, bounds).await
            }
            whole => Ok(Reply::ready(Ok(self.answer(whole, &id)?))),
        }
    }

    /// Returns the reply to a call with a large result.
    async fn reply_in_pieces(
        &self,
        begun: PartialAnswer,
        id: &Id,
        bounds: AnswerBounds,
    ) -> Result<Reply, UpstreamError> {
        Ok(match self.pass(begun, id, bounds).await? {
            LargeResponse::Passing(passing) => Reply::passing(passing),
            LargeResponse::Whole(answer) => Reply::ready(Ok(answer)),
        })
    }

    /// Sends one of the gateway's own requests.
    async fn request(
        self: &Arc<Self>,
        method: &Method,
        params: Bytes,
    ) -> Result<Answer, UpstreamError> {
        let id = self.number();
        let headers = match self.peer.era() {
            Era::Modern => modern_headers(self.peer.version, method),
            Era::Legacy => HeaderMap::new(),
        };
        let message = jsonrpc::request(&id, method.as_str(), &params);
        let reception = match self.exchange_repeatable(&id, method, message, &headers).await? {
            HttpReply::Events(events) => events,
            whole => {
                return whole.answer(&id).await.inspect_err(|fault| self.doubt(fault));
            }
        };
        let mut events = self.resumable(&id, reception, HeaderMap::new());
        while let Some(said) = events.next().await? {
            match said {
                StreamItem::Frame(frame @ Frame::Response { .. }) => {
                    events.finish();
                    return find_answer(frame, &id).await;
                }
                StreamItem::Frame(Frame::Notification { method, params }) => {
                    self.inbox.hear(&method, params.as_ref());
                }
                // The request belongs to no client call.
                StreamItem::Frame(Frame::Request { id, method, .. }) => {
                    self.send_aside(answer_to_server(&id, &method));
                }
                StreamItem::Pause(_) => {}
            }
        }
        Err(UpstreamError::NoAnswer)
    }

    /// Returns an event stream that is resumed when its connection ends. Resumptions carry the
    /// client's `own` headers.
    fn resumable(
        self: &Arc<Self>,
        id: &Id,
        events: Box<MessageStream>,
        mut own: HeaderMap,
    ) -> Resumable {
        if self.peer.era() == Era::Legacy {
            self.session.add_to(&mut own);
        }
        Resumable::new(self, id, events, own)
    }

    /// Builds a call's message in the server's era.
    fn message(&self, call: &Call, target: &CallTarget, id: &Id) -> Bytes {
        let wanted = call.context.progress_token.as_ref();
        let params = match self.peer.era() {
            // Each call has its own stream, so the client's progress token cannot collide.
            Era::Modern => lift::request(
                call,
                &target.edits,
                self.peer.version,
                wanted.map(|token| &token[..]),
            ),
            Era::Legacy => lower::request(call, &target.edits, wanted.map(|_| id.raw())),
        };
        jsonrpc::request_with(id, call.method.as_str(), params)
    }

    /// Sends a call. The future resolves to the head of the response.
    fn send(
        self: Arc<Self>,
        id: Id,
        message: Bytes,
        headers: HeaderMap,
        log: Option<LogLevel>,
    ) -> Head {
        Box::pin(async move {
            self.set_level(log).await;
            self.exchange(&id, message, &headers).await
        })
    }

    /// Sends one of the gateway's own requests. A list request is repeated once on a new connection
    /// if a kept one is lost.
    async fn exchange_repeatable(
        self: &Arc<Self>,
        id: &Id,
        method: &Method,
        message: Bytes,
        headers: &HeaderMap,
    ) -> Result<HttpReply, UpstreamError> {
        match self.exchange(id, message.clone(), headers).await {
            Err(fault) if method.is_list() && client::is_kept_connection_lost(&fault) => {
                self.client.close_idle_connections();
                // Boxed to keep the usual request small: this is rare.
                Box::pin(self.exchange(id, message, headers)).await
            }
            reply => reply,
        }
    }

    /// Sends one request and reads the head of the response. Reopens a session that the server has
    /// lost, once. If an earlier response has shown the loss, reopens the session first.
    async fn exchange(
        self: &Arc<Self>,
        id: &Id,
        message: Bytes,
        headers: &impl ServerHeaders,
    ) -> Result<HttpReply, UpstreamError> {
        let mut session = self.session.current();
        if let Some(lost) = session.as_ref().filter(|open| open.is_marked_lost()) {
            Box::pin(self.reopen(lost)).await?;
            self.inbox.relist();
            session = self.session.current();
        }
        let used = session.as_ref().filter(|open| open.can_be_lost());
        let again = used.is_some().then(|| message.clone());
        let reception = self.post(&(headers, session.as_deref()), message).await?;
        let Some(used) = used else { return Ok(reception) };
        let lost = session::is_lost(&reception, id);
        let (true, Some(again)) = (lost, again) else {
            self.note_doubtful_session(used, &reception);
            return Ok(reception);
        };
        let lost = used;
        // Boxed to keep the usual call small: this is rare.
        Box::pin(async {
            self.reopen(lost).await?;
            let session = self.session.current();
            let reception = self.post(&(headers, session.as_deref()), again).await?;
            if !session::is_lost(&reception, id) {
                // The lists may have changed with the session. A server that loses every session is
                // excluded: the list request would lose the next one, in an endless loop.
                self.inbox.relist();
            }
            Ok(reception)
        })
        .await
    }

    /// Opens a session in place of a lost one.
    async fn reopen(&self, lost: &Arc<OpenSession>) -> Result<(), UpstreamError> {
        let open = async {
            // Logged once for all calls affected by the loss.
            tracing::info!(server = %self.server, "the server has lost the session, a new one is opened");
            session::open(&self.client, &self.owner.told.capabilities, self.limit).await
        };
        let reopened = self.session.reopen(lost, open).await;
        reopened.inspect_err(|fault| self.lose(fault))
    }

    async fn post(
        &self,
        headers: &impl ServerHeaders,
        body: Bytes,
    ) -> Result<HttpReply, UpstreamError> {
        let reply = match self.client.post(headers, body).await {
            Ok(response) => HttpReply::read(response, self.limit).await,
            Err(fault) => Err(fault),
        };
        if let Err(fault) = &reply {
            self.doubt(fault);
        }
        reply
    }
}

#[cfg(test)]
mod tests;
