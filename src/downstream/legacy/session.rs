//! A Legacy client's session.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant as RealInstant};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::call::{
    Client, Context, Failure, Notice, Question, RequestFault, SentResults, ServerName, Trace,
};
use crate::catalog::Kind;
use crate::clock::{self, LastUse};
use crate::crypto::sha256;
use crate::era::lower;
use crate::jsonrpc::{self, Id, Response};
use crate::mcp::{LogLevel, notification};
use crate::pipeline::{Gateway, Subscriber, withholds_questions};
use crate::shares::Holder;
use crate::snapshot::{Digests, Snapshots};
use crate::telemetry::metrics::Entered;
use crate::upstream::{ListPatience, QuestionableSession};

use super::inherited_state::InheritedState;
use super::outbox::{EventId, Merge, Outbox, OutboxBounds, Source};
use crate::downstream::access::caller::VerifiedCaller;

/// One Legacy client's session.
pub(crate) struct ClientSession {
    id: Arc<str>,
    owner: VerifiedCaller,
    holder: Holder,
    /// The address that it was opened from.
    address: IpAddr,
    client: Arc<Client>,
    /// Times of its creation and its last use.
    used: LastUse,
    /// Calls and streams under way.
    busy: AtomicUsize,
    /// True once it has had a request or a stream.
    requested: AtomicBool,
    /// Calls that the client may cancel, by their raw ids.
    calls: Mutex<HashMap<Id, CancellationToken>>,
    /// Pending server requests to the client, by id.
    awaited: Mutex<BTreeMap<u64, mpsc::Sender<(u64, Response)>>>,
    asked: AtomicU64,
    /// Number of connections for messages outside of calls.
    listening: AtomicUsize,
    /// The context of `initialize`, and the lists that the client last requested, or those at that
    /// time.
    introduced: OnceLock<(Context, Mutex<Digests>)>,
    /// Patience of its list requests with starting servers.
    list_patience: ListPatience,
    /// The resources that the client has subscribed to.
    subscriber: Subscriber,
    /// The part that a revived session has from its earlier owners.
    inherited: InheritedState,
    /// Minimum level of log messages, once the client has set it.
    log: AtomicU8,
    /// Messages outside of calls, for the GET stream.
    outbox: Arc<Outbox>,
    /// The streams of its calls.
    streams: Mutex<CallStreams>,
    /// Large results that the client has received.
    sent_results: Arc<SentResults>,
    /// Limits of the bytes kept for its streams.
    replay: OutboxBounds,
    snapshots: Arc<Snapshots>,
    closed: CancellationToken,
    _counted: Entered,
}

/// The streams of a session's calls.
#[derive(Default)]
struct CallStreams {
    /// Number of streams so far.
    opened: u64,
    /// Streams that can be resumed.
    kept: Vec<Arc<Outbox>>,
}

/// A session to be opened.
pub(super) struct NewSession {
    pub(super) id: Arc<str>,
    pub(super) client: Client,
    pub(super) owner: VerifiedCaller,
    pub(super) holder: Holder,
    pub(super) address: IpAddr,
    /// Number of the replicas that have had it, with this one.
    pub(super) generation: u64,
}

impl ClientSession {
    pub(super) fn new(opened: NewSession, replay: OutboxBounds, gateway: &Gateway) -> Self {
        let NewSession { id, client, owner, holder, address, generation } = opened;
        let inherited = InheritedState::new(generation);
        let first_number = inherited.first_number();
        Self {
            id,
            owner,
            holder,
            address,
            client: Arc::new(client),
            used: LastUse::new(clock::now()),
            busy: AtomicUsize::new(0),
            requested: AtomicBool::new(false),
            calls: Mutex::default(),
            awaited: Mutex::default(),
            asked: AtomicU64::new(first_number),
            listening: AtomicUsize::new(0),
            introduced: OnceLock::new(),
            list_patience: ListPatience::default(),
            subscriber: Subscriber::default(),
            inherited,
            log: AtomicU8::new(NO_LOG_LEVEL),
            outbox: Outbox::new(first_number, &replay),
            streams: Mutex::default(),
            sent_results: Arc::default(),
            replay,
            snapshots: Arc::clone(&gateway.snapshots),
            closed: CancellationToken::new(),
            _counted: gateway.metrics.open_sessions().enter(),
        }
    }

    pub(super) fn id(&self) -> &Arc<str> {
        &self.id
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(super) fn owner(&self) -> &VerifiedCaller {
        &self.owner
    }

    /// Returns the holder that is charged for it.
    pub(super) fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Returns the address that it was opened from.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// Ends all that is under way in it. Returns its lifetime.
    pub(super) fn end(&self) -> Duration {
        self.closed.cancel();
        self.subscriber.clear();
        clock::now() - self.used.created()
    }

    /// Registers a request to the client, and returns its id. The caller has to call `unexpect`,
    /// unless the request is answered.
    pub(super) fn expect(&self, answers: mpsc::Sender<(u64, Response)>) -> u64 {
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        self.awaited().insert(number, answers);
        number
    }

    /// Returns a name for a page that the client's user is sent to, for a server that provides
    /// none. It does not reveal the session's id, which is a secret.
    pub(super) fn page(&self, number: u64) -> String {
        let hash = sha256(format!("{} {number}", self.id).as_bytes());
        HEXLOWER.encode(hash.split_at(16).0)
    }

    /// Removes a request to the client: an answer is ignored then.
    pub(super) fn unexpect(&self, number: u64) {
        self.awaited().remove(&number);
    }

    /// Passes a client's answer on. Answers without a request are ignored.
    ///
    /// # Errors
    /// [`Failure::ReplicaLost`] if the request was of an earlier owner: its call has ended with it.
    pub(super) fn responded(&self, id: Option<&Id>, response: Response) -> Result<(), Failure> {
        let Some(number) = id.and_then(Id::as_number) else { return Ok(()) };
        let awaited = self.awaited().remove(&number);
        if let Some(answers) = awaited {
            // The channel has room for all open requests of a call.
            let _ = answers.try_send((number, response));
        } else if self.inherited.has_request(number) {
            return Err(Failure::ReplicaLost);
        }
        Ok(())
    }

    /// Returns the part that a revived session has from its earlier owners.
    pub(super) fn inherited(&self) -> &InheritedState {
        &self.inherited
    }

    /// Ends the subscription to a resource, if there is one.
    pub(super) fn unsubscribe(&self, uri: &str) {
        self.inherited.settle(uri);
        self.subscriber.unsubscribe(uri);
    }

    fn awaited(&self) -> MutexGuard<'_, BTreeMap<u64, mpsc::Sender<(u64, Response)>>> {
        self.awaited.lock()
    }

    /// Counts a connection for messages outside of calls, until the returned guard is dropped.
    pub(super) fn listens(self: &Arc<Self>) -> Listens {
        self.listening.fetch_add(1, Ordering::Relaxed);
        Listens(Arc::clone(self))
    }

    /// Returns the token that is cancelled at the session's end.
    pub(super) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Stores the context of `initialize`, and the digests of the lists at that time.
    pub(super) fn introduced(&self, context: &Context, shown: Digests) {
        let mut context = context.clone();
        // Data of the request, of any size: not needed for the session's lifetime.
        context.headers = Arc::default();
        context.trace = Trace::default();
        context.progress_token = None;
        let _ = self.introduced.set((context, Mutex::new(shown)));
    }

    /// Returns the context for messages outside of calls, and the lists that the client has.
    pub(super) fn knows(&self) -> Option<(&Context, Digests)> {
        let (context, listed) = self.introduced.get()?;
        Some((context, *listed.lock()))
    }

    /// Notes that the client has received a list of this kind.
    pub(super) fn listed(&self, kind: Kind, shown: &Digests) {
        let Some((_, listed)) = self.introduced.get() else { return };
        let mut listed = listed.lock();
        match kind {
            Kind::Tools => listed.tools = shown.tools,
            Kind::Prompts => listed.prompts = shown.prompts,
            Kind::Resources => listed.resources[0] = shown.resources[0],
            Kind::Templates => listed.resources[1] = shown.resources[1],
            // There is no notification for skills.
            Kind::Skills => {}
        }
    }

    /// Returns the large results that the client has received.
    pub(super) fn sent_results(&self) -> &Arc<SentResults> {
        &self.sent_results
    }

    /// Returns the patience of its list requests with starting servers.
    pub(super) fn list_patience(&self) -> &ListPatience {
        &self.list_patience
    }

    /// Returns the resources that the client has subscribed to.
    pub(super) fn subscriber(&self) -> &Subscriber {
        &self.subscriber
    }

    /// Returns the minimum level of log messages, if the client has set one.
    pub(super) fn log_level(&self) -> Option<LogLevel> {
        LogLevel::ALL.get(usize::from(self.log.load(Ordering::Relaxed))).copied()
    }

    /// Returns true if the client gets this notification: any but a log message below the minimum
    /// level.
    pub(super) fn hears(&self, method: &str, params: Option<&Bytes>) -> bool {
        if method != notification::MESSAGE {
            return true;
        }
        let least = self.log_level().unwrap_or(LogLevel::Info);
        let line = |params: &Bytes| Notice::line(method.to_owned(), params.clone(), least);
        params.and_then(line).is_some()
    }

    /// Sets the minimum level of log messages for the client.
    pub(super) fn set_log_level(&self, level: LogLevel) {
        self.log.store(level as u8, Ordering::Relaxed);
    }

    /// Returns the outbox for messages outside of calls.
    pub(super) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// Opens the stream of a call's messages. Ended streams are dropped, the oldest first, while
    /// together they keep more than one stream may.
    pub(super) fn open_stream(&self, source: Source, request: Id) -> Arc<Outbox> {
        let mut streams = self.streams();
        streams.opened += 1;
        let stream = self.inherited.first_number() + streams.opened;
        let outbox = Outbox::fed(stream, &self.replay, source, request);
        let mut left = 0;
        let mut kept: Vec<_> = streams.kept.drain(..).rev().collect();
        kept.retain(|outbox| {
            left += outbox.left_over().unwrap_or(0);
            left <= self.replay.each || outbox.left_over().is_none()
        });
        kept.reverse();
        kept.push(Arc::clone(&outbox));
        streams.kept = kept;
        outbox
    }

    /// Returns the stream of the event with this id, while it is kept.
    pub(super) fn stream(&self, id: EventId) -> Option<Arc<Outbox>> {
        if self.outbox.is(id.stream) {
            return Some(Arc::clone(&self.outbox));
        }
        self.streams().kept.iter().find(|outbox| outbox.is(id.stream)).cloned()
    }

    /// Drops messages that are too old for a client to resume from.
    pub(super) fn forget(&self, now: RealInstant, after: Duration) {
        self.outbox.forget(now, after);
        let mut streams = self.streams();
        streams.kept.retain(|outbox| !outbox.forget(now, after));
        if streams.kept.is_empty() {
            streams.kept = Vec::new();
        }
    }

    fn streams(&self) -> MutexGuard<'_, CallStreams> {
        self.streams.lock()
    }

    /// Registers a call, so that the client can cancel it.
    pub(super) fn begin(self: &Arc<Self>, id: Id) -> Result<RegisteredCall, Failure> {
        let token = self.closed.child_token();
        let mut calls = self.calls.lock();
        if calls.contains_key(&id) {
            return Err(RequestFault::DuplicateId.into());
        }
        calls.insert(id.clone(), token.clone());
        drop(calls);
        Ok(RegisteredCall { token, id, busy: SessionUse::begin(self) })
    }

    /// Handles a client's cancellation of a call.
    pub(super) fn withdraw(&self, raw_id: &[u8]) {
        let calls = self.calls.lock();
        let call = calls.iter().find(|(id, _)| id.raw() == raw_id);
        if let Some((_, token)) = call {
            token.cancel();
        }
    }

    /// Returns the time of its creation.
    pub(super) fn opened(&self) -> Instant {
        self.used.created()
    }

    /// Notes a use of the session.
    pub(super) fn touch(&self) {
        self.used.touch(clock::now());
    }

    /// Returns the number of connections for messages outside of calls.
    pub(super) fn stream_count(&self) -> usize {
        self.listening.load(Ordering::Relaxed)
    }

    /// Returns the number of calls that the client may cancel.
    pub(super) fn call_count(&self) -> usize {
        self.calls.lock().len()
    }

    /// Returns the session's activity: busy with a stream or a call, or idle since its last use.
    pub(super) fn activity(&self) -> SessionActivity {
        if self.busy.load(Ordering::Relaxed) > 0 {
            return SessionActivity::Busy;
        }
        SessionActivity::Idle { since: self.used.last() }
    }

    /// Notes that the client uses the session after opening it.
    pub(super) fn note_request(&self) {
        if !self.is_used() {
            self.requested.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if the client has used the session after opening it.
    pub(super) fn is_used(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }
}

/// Activity of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionActivity {
    /// It has an open stream, or a call under way.
    Busy,
    /// No stream and no call.
    Idle {
        /// The time of its last use.
        since: Instant,
    },
}

impl QuestionableSession for ClientSession {
    fn ask(
        &self,
        server: &ServerName,
        question: &Question,
        answers: mpsc::Sender<(u64, Response)>,
    ) -> bool {
        let client = &self.client;
        let withholds =
            |(context, _): (&Context, _)| withholds_questions(&self.snapshots, context, server);
        let can = self.is_listening()
            && !self.knows().is_none_or(withholds)
            && question.is_known()
            && !question.is_ambiguous()
            && question.missing_capability(client.abilities()).is_none()
            && self.awaited().len() < MAX_AWAITED_QUESTIONS;
        if can {
            let number = self.expect(answers);
            let page = self.page(number);
            let Question { method, params } = lower::question(question, client.version, &page);
            let params = params.as_deref().unwrap_or(b"{}");
            let message = jsonrpc::request(&Id::number(number), &method, params);
            self.outbox.push(&message, Merge::Never);
        }
        can
    }

    fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed) > 0
    }
}

/// Counts a connection for messages outside of calls.
pub(super) struct Listens(Arc<ClientSession>);

impl Drop for Listens {
    fn drop(&mut self) {
        self.0.listening.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps a session from being idle.
pub(super) struct SessionUse(Arc<ClientSession>);

impl SessionUse {
    pub(super) fn begin(session: &Arc<ClientSession>) -> Self {
        session.busy.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(session))
    }
}

impl Drop for SessionUse {
    fn drop(&mut self) {
        self.0.touch();
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call's entry in its session.
pub(super) struct RegisteredCall {
    token: CancellationToken,
    id: Id,
    busy: SessionUse,
}

impl RegisteredCall {
    /// Returns the token that is cancelled when the client cancels the call or its session ends.
    pub(super) fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Runs `call` to its end, or until the client cancels it.
    pub(super) async fn or(&self, call: impl Future<Output = ()>) {
        tokio::select! {
            () = self.token.cancelled() => {}
            () = call => {}
        }
    }
}

impl Drop for RegisteredCall {
    fn drop(&mut self) {
        let calls = &self.busy.0.calls;
        calls.lock().remove(&self.id);
    }
}

/// The client has set no log level.
const NO_LOG_LEVEL: u8 = u8::MAX;
/// Limit of pending questions beyond which the client gets no more of them outside of its calls.
const MAX_AWAITED_QUESTIONS: usize = 128;
