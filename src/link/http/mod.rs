//! A server that is reached over Streamable HTTP.
//!
//! Each call is a request of its own, so that its answer, its progress and its
//! cancellation need no bookkeeping: dropping the response is the
//! cancellation. Only a Legacy server's session is shared, and opened again
//! when the server has lost it.

mod client;
mod coming;
mod passing;
mod probe;
mod reception;
mod resume;
mod session;
mod watch;

use std::iter::from_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::sync::{Semaphore, watch as cell};
use tokio::task::JoinSet;

use crate::call::{Answer, Call, Event, NativeName, Reply, ServerName};
use crate::config::{EraChoice, Http as HttpConfig};
use crate::era::{lift, lower};
use crate::jsonrpc::{self, Frame, Id, Response};
use crate::mcp::{Era, LogLevel, Method, ProtocolVersion, code, encode_value, header};
use crate::policy::Target;

use super::LinkFault;
use super::deadline::Deadline;
use super::levels::{self, Levels};
use super::news::Inbox;
use super::peer::{Peer, answer_to_server};
use super::questions::{Questions, message};
pub use client::Client;
use coming::{Coming, UnderWay};
use probe::{discover, probe};
use reception::{Events, Reception, answer_in, refusal};
use resume::{Resumable, Said};
use session::Session;

/// A server that has answered and can be called.
pub(super) struct Http {
    shared: Arc<Shared>,
    /// What hears of changes, for as long as the connection is there.
    _listening: JoinSet<()>,
}

/// What calls and the watcher share.
struct Shared {
    server: ServerName,
    client: Client,
    peer: Peer,
    session: Session,
    next_id: AtomicU64,
    limit: usize,
    forward: Vec<HeaderName>,
    inbox: Arc<Inbox>,
    levels: Levels,
    /// Why what is known of the server no longer holds, once it does not.
    lost: cell::Sender<Option<String>>,
    /// Places for messages beside the calls.
    asides: Arc<Semaphore>,
}

/// How a connection to an HTTP server is opened.
pub(super) struct Opening<'a> {
    pub(super) server: ServerName,
    pub(super) config: &'a HttpConfig,
    pub(super) era: EraChoice,
    pub(super) connect_timeout: Duration,
    /// How long a probe waits before it takes the server for Legacy.
    pub(super) patience: Duration,
    /// The most bytes an answer, or one event, may have.
    pub(super) limit: usize,
    /// Headers of the client's own that go on.
    pub(super) forward: Vec<HeaderName>,
    /// What the server tells outside of its answers.
    pub(super) inbox: Arc<Inbox>,
}

impl Http {
    /// Finds out the server's era and, if it is Legacy, opens a session. The
    /// caller bounds the time.
    pub(super) async fn open(opening: Opening<'_>) -> Result<Self, LinkFault> {
        let client = Client::new(opening.config, opening.connect_timeout)?;
        let modern = match opening.era {
            EraChoice::Legacy => None,
            EraChoice::Modern => Some(
                discover(&client, opening.limit)
                    .await?
                    .ok_or_else(|| LinkFault::Versions("Legacy ones".into()))?,
            ),
            EraChoice::Auto => probe(&client, opening.limit, opening.patience).await?,
        };
        let (peer, session) = match modern {
            Some(peer) => (peer, Session::none()),
            None => Session::open(&client, opening.limit).await?,
        };
        let shared = Arc::new(Shared {
            server: opening.server,
            client,
            peer,
            session,
            next_id: AtomicU64::new(2),
            limit: opening.limit,
            forward: opening.forward,
            inbox: opening.inbox,
            levels: Levels::default(),
            lost: cell::Sender::new(None),
            asides: Arc::new(Semaphore::new(ASIDES)),
        });
        let listening = watch::start(&shared);
        Ok(Self { shared, _listening: listening })
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.shared.peer
    }

    /// A request of the gateway's own.
    pub(super) async fn request(
        &self,
        method: &Method,
        params: Bytes,
    ) -> Result<Answer, LinkFault> {
        self.shared.request(method, params).await
    }

    /// A client's call. `mirrored` are the tool's parameters that go into
    /// headers.
    pub(super) async fn call(
        &self,
        call: &Call,
        target: &Target,
        mirrored: Vec<(HeaderName, HeaderValue)>,
        mut deadline: Deadline,
    ) -> Result<Reply, LinkFault> {
        let shared = Arc::clone(&self.shared);
        let id = shared.number();
        let params = shared.params(call, target, &id);
        let named = target.native.as_ref().filter(|_| call.method.named_by().is_some());
        let mut headers = shared.headers(&call.method, named.map(NativeName::as_str));
        shared.add_clients_own(&mut headers, call);
        headers.extend(mirrored);
        // On its way from here on: a server that answers with plain JSON sends
        // no head until it is done, and has to hear of a cancellation as well.
        let mut under_way = UnderWay::begin(&shared, &id);
        let hears = call.context.hears();
        let lines = shared.inbox.listen(hears);
        let sent = async {
            shared.set_level(call.context.log).await;
            shared.exchange(&id, &call.method, &params, headers).await
        };
        let reception = tokio::select! {
            reception = sent => {
                // Answered, or refused. Behind a connection that broke off the
                // server may still be at it.
                if !matches!(reception, Ok(Reception::Events(_)) | Err(LinkFault::Broken(_))) {
                    under_way.end();
                }
                reception?
            }
            after = deadline.passed() => return Err(LinkFault::Timeout { after }),
        };
        let answer = match reception {
            Reception::Events(events) => {
                let events = shared.resumable(&id, events, Some(call));
                let (questions, answers) = Questions::of(call, shared.peer.era());
                let coming =
                    Coming { shared, id, events, deadline, questions, under_way, hears, lines };
                let reply = Reply::stream(stream::unfold(Some(coming), Coming::step));
                return Ok(reply.answered_by(answers));
            }
            Reception::Message(frame) => answer_in(frame, &id),
            Reception::Begun(begun) => match begun.pass(&id, &shared, deadline).await? {
                Ok(passing) => return Ok(Reply::passing(passing)),
                Err(frame) => answer_in(frame, &id),
            },
            Reception::Empty => Err(LinkFault::NoAnswer),
            Reception::Refused { status, frame, .. } => shared.refused(status, frame, &id),
        };
        if let Err(fault) = &answer {
            shared.doubt(fault);
        }
        let answer = Ok(shared.checked(answer?)?);
        let before: Vec<_> = lines.iter().flat_map(|lines| from_fn(|| lines.take())).collect();
        if before.is_empty() {
            return Ok(Reply::ready(answer));
        }
        let steps = before.into_iter().map(Event::Notice).chain([Event::Answer(answer)]);
        Ok(Reply::stream(stream::iter(steps)))
    }

    /// Waits until what is known of the server no longer holds; says why.
    pub(super) async fn closed(&self) -> LinkFault {
        let mut lost = self.shared.lost.subscribe();
        let reason = lost.wait_for(Option::is_some).await;
        LinkFault::Down(reason.ok().and_then(|reason| reason.clone()).unwrap_or_default())
    }

    /// Ends the Legacy session, if there is one. A server that does not
    /// answer holds nothing up.
    pub(super) async fn close(&self) {
        let closing = self.shared.session.close(&self.shared.client);
        let _ = tokio::time::timeout(ASIDE, closing).await;
    }
}

impl Shared {
    fn number(&self) -> Id {
        Id::number(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// A request of the gateway's own.
    async fn request(
        self: &Arc<Self>,
        method: &Method,
        params: Bytes,
    ) -> Result<Answer, LinkFault> {
        let id = self.number();
        let headers = self.headers(method, None);
        let reception = match self.exchange(&id, method, &params, headers).await? {
            Reception::Events(events) => events,
            whole => return whole.answer(&id).await,
        };
        let mut events = self.resumable(&id, reception, None);
        while let Some(said) = events.next().await? {
            match said {
                Said::Frame(frame @ Frame::Response { .. }) => {
                    events.finish();
                    return answer_in(frame, &id);
                }
                Said::Frame(Frame::Notification { method, params }) => {
                    self.inbox.hear(&method, params.as_ref());
                }
                Said::Frame(Frame::Request { .. }) | Said::Pause(_) => {}
            }
        }
        Err(LinkFault::NoAnswer)
    }

    /// Has a Legacy server write as much into its log as its clients want.
    async fn set_level(self: &Arc<Self>, wants: Option<LogLevel>) {
        if !self.peer.offers.has("logging") || self.peer.era() == Era::Modern {
            return;
        }
        let Some(level) = self.levels.before(wants, self.session.number()) else { return };
        let setting = self.request(&Method::SetLevel, levels::params(level));
        // A call is worth more than the lines that come with it.
        match tokio::time::timeout(ASIDE, setting).await {
            Ok(Ok(Answer::Result(_))) => {}
            refused => {
                tracing::debug!(server = %self.server, ?level, ?refused, "the log level is not set");
            }
        }
    }

    /// A stream of events that goes on when its connection ends.
    fn resumable(self: &Arc<Self>, id: &Id, events: Box<Events>, call: Option<&Call>) -> Resumable {
        let mut headers = HeaderMap::new();
        if self.peer.era() == Era::Legacy {
            if let Some(call) = call {
                self.add_clients_own(&mut headers, call);
            }
            self.session.add_to(&mut headers);
        }
        Resumable::new(self, id, events, headers)
    }

    fn params(&self, call: &Call, target: &Target, id: &Id) -> Bytes {
        let wanted = call.context.progress_token.as_ref();
        match self.peer.era() {
            // A stream of its own: the client's own token meets no other.
            Era::Modern => lift::request(
                call,
                &target.edits,
                self.peer.version,
                wanted.map(|token| &token[..]),
            ),
            Era::Legacy => lower::request(call, &target.edits, wanted.map(|_| id.raw())),
        }
    }

    fn headers(&self, method: &Method, name: Option<&str>) -> HeaderMap {
        match self.peer.era() {
            Era::Modern => modern_headers(self.peer.version, method, name),
            Era::Legacy => HeaderMap::new(),
        }
    }

    /// The client's trace, and those of its headers that the configuration
    /// lets go on.
    fn add_clients_own(&self, headers: &mut HeaderMap, call: &Call) {
        let trace = &call.context.trace;
        let (parent, state) = match &trace.sent {
            Some((parent, state)) => (Some(parent), state.as_ref()),
            None => (trace.parent.as_ref(), trace.state.as_ref()),
        };
        for (name, value) in [(header::TRACEPARENT, parent), (header::TRACESTATE, state)] {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(name, value);
            }
        }
        for name in &self.forward {
            if let Some(value) = call.context.headers.get(name) {
                headers.insert(name.clone(), value.clone());
            }
        }
    }

    /// Sends one request and reads the head of what comes back. A session that
    /// the server has lost is opened anew, once.
    async fn exchange(
        &self,
        id: &Id,
        method: &Method,
        params: &[u8],
        mut headers: HeaderMap,
    ) -> Result<Reception, LinkFault> {
        let body = jsonrpc::request(id, method.as_str(), params);
        let used = self.session.add_to(&mut headers);
        let reception = self.post(&headers, body.clone()).await?;
        if !used.is_some_and(|_| session::is_lost(&reception, id)) {
            return Ok(reception);
        }
        self.reopen(used).await?;
        self.session.add_to(&mut headers);
        let reception = self.post(&headers, body).await?;
        if !session::is_lost(&reception, id) {
            // What it offered may have changed with the session. One that
            // loses every session is not asked: the listing would lose the
            // next, and so on without an end.
            self.inbox.relist();
        }
        Ok(reception)
    }

    /// Opens a session in place of a lost one.
    async fn reopen(&self, lost: Option<u64>) -> Result<(), LinkFault> {
        tracing::info!(server = %self.server, "the server has lost the session, a new one is opened");
        let reopened = self.session.reopen(&self.client, self.limit, lost).await;
        reopened.inspect_err(|fault| self.lose(fault))
    }

    async fn post(&self, headers: &HeaderMap, body: Bytes) -> Result<Reception, LinkFault> {
        let response = match self.client.post(headers, body).await {
            Ok(response) => Reception::read(response, self.limit).await,
            Err(fault) => Err(fault),
        };
        response.inspect_err(|fault| self.doubt(fault))
    }

    /// Answers a Legacy server's request on a call's stream.
    fn answer_server(self: &Arc<Self>, id: &Id, method: &str) {
        self.send_aside(answer_to_server(id, method));
    }

    /// Gives a Legacy server the answer to what it asked, within [`ASIDE`].
    async fn respond(&self, id: &Id, response: &Response) -> Result<(), LinkFault> {
        let mut headers = HeaderMap::new();
        self.session.add_to(&mut headers);
        let post = self.client.post(&headers, message(id, response));
        match tokio::time::timeout(ASIDE, post).await {
            Ok(Ok(taken)) if taken.status().is_success() => Ok(()),
            Ok(Ok(refused)) => Err(LinkFault::Status { status: refused.status() }),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(LinkFault::Timeout { after: ASIDE }),
        }
    }

    /// Sends a message beside the calls. A server that makes the gateway send
    /// more of them than it takes loses some.
    fn send_aside(self: &Arc<Self>, body: Bytes) {
        let Ok(place) = Arc::clone(&self.asides).try_acquire_owned() else {
            tracing::debug!(server = %self.server, "too many messages aside: one is dropped");
            return;
        };
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let mut headers = HeaderMap::new();
            shared.session.add_to(&mut headers);
            let sent = tokio::time::timeout(ASIDE, shared.client.post(&headers, body)).await;
            if let Ok(Err(fault)) = sent {
                tracing::debug!(server = %shared.server, fault = %fault.chain(), "a message was lost");
            }
            drop(place);
        });
    }

    /// What a refusal says. An error that answers no request, from a server
    /// that was Modern, is what a Legacy one says to a request outside of a
    /// session: it is no answer, but a sign that another server is there now.
    fn refused(
        &self,
        status: StatusCode,
        frame: Option<Frame>,
        id: &Id,
    ) -> Result<Answer, LinkFault> {
        let nameless = matches!(frame, Some(Frame::Response { id: None, .. }));
        match refusal(status, frame, id)? {
            Answer::Error(error)
                if nameless && self.peer.era() == Era::Modern && !code::is_modern(error.code()) =>
            {
                Err(LinkFault::Status { status })
            }
            answer => Ok(answer),
        }
    }

    /// Takes the server for lost where a fault shows that what was learnt of
    /// it, or its address, no longer holds.
    fn doubt(&self, fault: &LinkFault) {
        let era_changed = self.peer.era() == Era::Modern
            && matches!(fault, LinkFault::Status { status }
                if matches!(*status, StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST | StatusCode::METHOD_NOT_ALLOWED));
        if era_changed || matches!(fault, LinkFault::Connect(_)) {
            self.lose(fault);
        }
    }

    fn lose(&self, fault: &LinkFault) {
        let reason = fault.chain();
        self.lost.send_if_modified(|lost| {
            let first = lost.is_none();
            lost.get_or_insert(reason);
            first
        });
    }

    /// An answer, its sender noted; doubts the server's era or list where the
    /// answer says so.
    fn checked(&self, answer: Answer) -> Result<Answer, LinkFault> {
        if let Answer::Error(error) = &answer {
            match error.code() {
                // Agreed between the gateway and this server: to the client it
                // would say that the gateway does not speak the client's.
                code::UNSUPPORTED_VERSION if self.peer.era() == Era::Modern => {
                    let fault = LinkFault::Versions("others than it said".into());
                    self.lose(&fault);
                    return Err(fault);
                }
                // A tool's mirrored parameters are others than the list said.
                code::HEADER_MISMATCH => self.inbox.relist(),
                _ => {}
            }
        }
        Ok(answer.sent_by(&self.peer.info))
    }
}

/// The headers that a Modern request carries (2026-07-28, Streamable HTTP,
/// "Standard Request Headers").
fn modern_headers(version: ProtocolVersion, method: &Method, name: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(header::PROTOCOL_VERSION, HeaderValue::from_static(version.as_str()));
    headers.insert(header::METHOD, encode_value(method.as_str()));
    if let Some(name) = name {
        headers.insert(header::NAME, encode_value(name));
    }
    headers
}

/// How long a message beside a call may take.
const ASIDE: Duration = Duration::from_secs(5);
/// How many of them may be under way at once.
const ASIDES: usize = 64;

#[cfg(test)]
mod tests;
