//! A Legacy client's session.

use std::collections::{BTreeMap, HashMap};
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
use crate::policy::Holder;
use crate::snapshot::{Digests, Snapshots};
use crate::telemetry::metrics::Entered;
use crate::upstream::{ListPatience, QuestionableSession};

use super::outbox::{EventId, Merge, Outbox, OutboxBounds, Source};
use crate::downstream::caller::VerifiedCaller;

/// One Legacy client's session.
pub(in crate::downstream) struct ClientSession {
    id: Arc<str>,
    owner: VerifiedCaller,
    holder: Holder,
    client: Arc<Client>,
    /// When it was opened, and used last.
    used: LastUse,
    /// Calls and streams under way.
    busy: AtomicUsize,
    /// Whether there was a request or a stream in it.
    requested: AtomicBool,
    /// Calls that the client may take back, by their raw ids.
    calls: Mutex<HashMap<Id, CancellationToken>>,
    /// What the client is asked, by the ids of the requests to it.
    awaited: Mutex<BTreeMap<u64, mpsc::Sender<(u64, Response)>>>,
    asked: AtomicU64,
    /// Connections that carry what it is told outside of its calls.
    listening: AtomicUsize,
    /// How it was opened, and the lists that the client has asked for last, or
    /// that there were then.
    introduced: OnceLock<(Context, Mutex<Digests>)>,
    /// Whether its lists still wait for servers that are starting.
    list_patience: ListPatience,
    /// The resources that the client wants to hear of.
    subscriber: Subscriber,
    /// The least severe log lines that the client wants, once it has said so.
    log: AtomicU8,
    /// Messages outside of calls, which the GET stream carries.
    outbox: Arc<Outbox>,
    /// The streams of its calls.
    streams: Mutex<CallStreams>,
    /// The large results that the client was sent.
    sent_results: Arc<SentResults>,
    /// How many bytes of its streams are kept.
    replay: OutboxBounds,
    snapshots: Arc<Snapshots>,
    closed: CancellationToken,
    _counted: Entered,
}

/// The streams of a session's calls.
#[derive(Default)]
struct CallStreams {
    /// How many there have been.
    opened: u64,
    /// Those that can be resumed.
    kept: Vec<Arc<Outbox>>,
}

impl ClientSession {
    pub(super) fn new(
        (id, client): (Arc<str>, Client),
        (owner, holder): (VerifiedCaller, Holder),
        replay: OutboxBounds,
        gateway: &Gateway,
    ) -> Self {
        Self {
            id,
            owner,
            holder,
            client: Arc::new(client),
            used: LastUse::new(clock::now()),
            busy: AtomicUsize::new(0),
            requested: AtomicBool::new(false),
            calls: Mutex::default(),
            awaited: Mutex::default(),
            asked: AtomicU64::new(0),
            listening: AtomicUsize::new(0),
            introduced: OnceLock::new(),
            list_patience: ListPatience::default(),
            subscriber: Subscriber::default(),
            log: AtomicU8::new(UNASKED),
            outbox: Outbox::new(SESSION_STREAM, &replay),
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

    pub(in crate::downstream) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(super) fn owner(&self) -> &VerifiedCaller {
        &self.owner
    }

    /// Who is charged for it.
    pub(super) fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Ends all that is under way in it; gives how long it lasted.
    pub(super) fn end(&self) -> Duration {
        self.closed.cancel();
        self.subscriber.clear();
        clock::now() - self.used.created()
    }

    /// Notes that the client is asked something; gives the id of the request.
    /// The caller has to call `unexpect` as well, unless it is answered.
    pub(super) fn expect(&self, answers: mpsc::Sender<(u64, Response)>) -> u64 {
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        self.awaited().insert(number, answers);
        number
    }

    /// The name of a page that the client is sent to, for a server that has
    /// none. It shows nothing of the session's id, which is a secret.
    pub(super) fn page(&self, number: u64) -> String {
        let hash = sha256(format!("{} {number}", self.id).as_bytes());
        HEXLOWER.encode(hash.split_at(16).0)
    }

    /// The client's answer no longer matters.
    pub(super) fn unexpect(&self, number: u64) {
        self.awaited().remove(&number);
    }

    /// The client answers what it was asked. What nobody asked is ignored.
    pub(super) fn responded(&self, id: Option<&Id>, response: Response) {
        let Some(number) = id.and_then(Id::as_number) else { return };
        let awaited = self.awaited().remove(&number);
        if let Some(answers) = awaited {
            // There is room for as many as a call may have open.
            let _ = answers.try_send((number, response));
        }
    }

    fn awaited(&self) -> MutexGuard<'_, BTreeMap<u64, mpsc::Sender<(u64, Response)>>> {
        self.awaited.lock()
    }

    /// Notes that a connection carries what the client is told outside of its
    /// calls, until the answer is dropped.
    pub(super) fn listens(self: &Arc<Self>) -> Listens {
        self.listening.fetch_add(1, Ordering::Relaxed);
        Listens(Arc::clone(self))
    }

    /// Cancelled with the session's end.
    pub(super) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Notes how the session was opened, and what there was to be listed then.
    pub(super) fn introduced(&self, context: &Context, shown: Digests) {
        let mut context = context.clone();
        // The request's own, of any size: nobody needs them for as long as the session lasts.
        context.headers = Arc::default();
        context.trace = Trace::default();
        context.progress_token = None;
        let _ = self.introduced.set((context, Mutex::new(shown)));
    }

    /// The conditions of what the client is told outside of its calls, and the
    /// lists that it knows.
    pub(super) fn knows(&self) -> Option<(&Context, Digests)> {
        let (context, listed) = self.introduced.get()?;
        Some((context, *listed.lock()))
    }

    /// Notes that the client has been given a list of this kind.
    pub(super) fn listed(&self, kind: Kind, shown: &Digests) {
        let Some((_, listed)) = self.introduced.get() else { return };
        let mut listed = listed.lock();
        match kind {
            Kind::Tools => listed.tools = shown.tools,
            Kind::Prompts => listed.prompts = shown.prompts,
            Kind::Resources => listed.resources[0] = shown.resources[0],
            Kind::Templates => listed.resources[1] = shown.resources[1],
            // No notification tells of skills.
            Kind::Skills => {}
        }
    }

    /// The large results that the client was sent.
    pub(super) fn sent_results(&self) -> &Arc<SentResults> {
        &self.sent_results
    }

    /// Whether its lists still wait for servers that are starting.
    pub(super) fn list_patience(&self) -> &ListPatience {
        &self.list_patience
    }

    /// The resources that the client wants to hear of.
    pub(super) fn subscriber(&self) -> &Subscriber {
        &self.subscriber
    }

    /// The least severe log lines that the client asked for.
    pub(super) fn log_level(&self) -> Option<LogLevel> {
        LogLevel::ALL.get(usize::from(self.log.load(Ordering::Relaxed))).copied()
    }

    /// Whether the client gets this notification: any but a log line that is
    /// not severe enough.
    pub(super) fn hears(&self, method: &str, params: Option<&Bytes>) -> bool {
        if method != notification::MESSAGE {
            return true;
        }
        let least = self.log_level().unwrap_or(LogLevel::Info);
        let line = |params: &Bytes| Notice::line(method.to_owned(), params.clone(), least);
        params.and_then(line).is_some()
    }

    /// Notes the least severe log lines that the client wants.
    pub(super) fn set_log_level(&self, level: LogLevel) {
        self.log.store(level as u8, Ordering::Relaxed);
    }

    /// Where messages for the client go that belong to none of its calls.
    pub(super) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// Opens the stream of a call's messages. The oldest that are over make
    /// room: together they keep no more than one may.
    pub(super) fn open_stream(&self, source: Source, request: Id) -> Arc<Outbox> {
        let mut streams = self.streams();
        streams.opened += 1;
        let stream = SESSION_STREAM + streams.opened;
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

    /// The stream that an event of that id was part of, while it is kept.
    pub(super) fn stream(&self, id: EventId) -> Option<Arc<Outbox>> {
        if self.outbox.is(id.stream) {
            return Some(Arc::clone(&self.outbox));
        }
        self.streams().kept.iter().find(|outbox| outbox.is(id.stream)).cloned()
    }

    /// Forgets what a client that resumes would ask for by now.
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

    /// Notes a call, so that the client can take it back.
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

    /// The client takes a call back.
    pub(super) fn withdraw(&self, raw_id: &[u8]) {
        let calls = self.calls.lock();
        let call = calls.iter().find(|(id, _)| id.raw() == raw_id);
        if let Some((_, token)) = call {
            token.cancel();
        }
    }

    /// When it was opened.
    pub(super) fn opened(&self) -> Instant {
        self.used.created()
    }

    /// It is being used.
    pub(super) fn touch(&self) {
        self.used.touch(clock::now());
    }

    /// Whether it has a stream or a call, or since when it has not been used.
    pub(super) fn activity(&self) -> SessionActivity {
        if self.busy.load(Ordering::Relaxed) > 0 {
            return SessionActivity::Busy;
        }
        SessionActivity::Idle { since: self.used.last() }
    }

    /// Notes that the client does more than open the session.
    pub(super) fn note_request(&self) {
        if !self.is_used() {
            self.requested.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the client has done more than open the session.
    pub(super) fn is_used(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }
}

/// What a session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionActivity {
    /// It has an open stream, or a call under way.
    Busy,
    /// Nothing.
    Idle {
        /// When it was used last.
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
            && self.awaited().len() < AWAITED;
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

/// A connection that carries what a client is told outside of its calls.
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
    /// Cancelled when the client takes the call back or its session ends.
    pub(super) fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Runs `call` to its end, or until the client takes it back.
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

/// The client has asked for no log level.
const UNASKED: u8 = u8::MAX;
/// The number of the stream outside of calls.
const SESSION_STREAM: u64 = 0;
/// The most that a client may be asked at once for it to be asked more outside
/// of its calls.
const AWAITED: usize = 128;
