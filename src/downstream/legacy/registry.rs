//! The table of Legacy sessions: open, find, count and close.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::call::{Client, Failure, InternalFault, Principal};
use crate::clock;
use crate::cluster::Cluster;
use crate::config::LimitsConfig;
use crate::crypto::{random_bytes, sha256};
use crate::pipeline::Gateway;
use crate::shares::Holder;
use crate::telemetry::events::{ClientFacts, EventType, LifecycleEvent};
use crate::text::one_line;
use crate::upstream::QuestionableSession;

use super::outbox::{OutboxBounds, RequestNaming};
use super::revival::session_key;
use super::session::{ClientSession, NewSession, SessionActivity};
use crate::downstream::access::caller::VerifiedCaller;

/// All open sessions.
pub(crate) struct Sessions {
    open: Mutex<OpenSessions>,
    /// Bytes kept by their streams.
    held: Arc<AtomicUsize>,
    gateway: Arc<Gateway>,
    cluster: Option<Arc<Cluster>>,
}

#[derive(Default)]
struct OpenSessions {
    /// Every request looks for its session, with replicas up to three times. Ids are the gateway's own.
    sessions: HashMap<Arc<str>, OpenSession, RandomState>,
    /// Sessions by holder, in the order of the earliest possible last use. A use of a session does
    /// not move it. When it comes first and turns out to have been used since, it is moved then, so
    /// that requests cost nothing, and making room costs at most one step for each use.
    held: HashMap<Holder, BTreeMap<IdlePlace, Arc<str>>>,
    opened: u64,
}

/// An open session, as operators see it.
#[derive(Debug, Clone)]
pub struct SessionOverview {
    /// Digits of the SHA-256 of its id, which itself is a secret.
    pub digest: String,
    /// The client or user.
    pub principal: Principal,
    /// The address that it was opened from.
    pub address: IpAddr,
    /// The profile.
    pub profile: String,
    /// The client's name for its software; empty if it sent none.
    pub software: String,
    /// The version of that software.
    pub version: String,
    /// The protocol version.
    pub protocol_version: String,
    /// Its open streams for messages outside of calls.
    pub streams: usize,
    /// Its calls in flight.
    pub calls: usize,
    /// The time of its opening.
    pub opened_at: SystemTime,
    /// The time of its last use; `None` while it has a call or a stream.
    pub idle_since: Option<SystemTime>,
}

struct OpenSession {
    session: Arc<ClientSession>,
    place: IdlePlace,
}

/// Order of a session among its holder's: a lower bound of its last use, and a unique number.
type IdlePlace = (Instant, u64);

impl Sessions {
    /// Creates an empty table, and a task that closes sessions that were idle for too long, and
    /// those of clients that are gone.
    pub(crate) fn start(gateway: &Arc<Gateway>, cluster: Option<Arc<Cluster>>) -> Arc<Self> {
        let sessions = Arc::new(Self {
            open: Mutex::default(),
            held: Arc::default(),
            gateway: Arc::clone(gateway),
            cluster,
        });
        tokio::spawn(sweep(Arc::downgrade(&sessions), gateway.snapshots.load_count()));
        if let Some(cluster) = &sessions.cluster {
            let recorded: Weak<Self> = Arc::downgrade(&sessions);
            cluster.session_records().describe_by(recorded);
        }
        sessions
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().sessions.len()
    }

    /// Returns the clients of a principal's sessions.
    pub(crate) fn clients_of(&self, principal: &str) -> Vec<Arc<Client>> {
        let open = self.lock();
        let sessions = open.sessions.values().map(|open| &open.session);
        let own = sessions.filter(|session| session.owner().principal().as_str() == principal);
        own.map(|session| Arc::clone(session.client())).collect()
    }

    /// Returns every open session, the oldest first.
    pub(crate) fn overviews(&self) -> Vec<SessionOverview> {
        let open = self.lock();
        let sessions = open.sessions.values().map(|open| Arc::clone(&open.session));
        let mut sessions: Vec<_> = sessions.collect();
        drop(open);
        sessions.sort_by_key(|session| session.opened());
        sessions.iter().map(|session| SessionOverview::of(session)).collect()
    }

    /// Ends the session with this digest. Returns it; `None` if there is no such session.
    pub(crate) fn end_by_digest(&self, digest: &str) -> Option<SessionOverview> {
        let open = self.lock();
        let mut sessions = open.sessions.values().map(|open| &open.session);
        let found = sessions.find(|session| digest_session(session) == digest).map(Arc::clone);
        drop(open);
        let session = found?;
        let overview = SessionOverview::of(&session);
        self.close(&session);
        Some(overview)
    }

    /// Opens a session for a caller at that address. At a limit, the session of the same holder
    /// that has been idle for longest ends.
    pub(super) fn open(
        &self,
        client: Client,
        owner: VerifiedCaller,
        address: IpAddr,
    ) -> Result<Arc<ClientSession>, Failure> {
        let holder = Holder::identify(owner.principal(), address);
        let id = self.new_id(&owner)?;
        let session = self.create(NewSession { id, client, owner, holder, address, generation: 1 });
        self.admit(&session)?;
        Ok(session)
    }

    /// Creates a session that requests do not find yet.
    pub(super) fn create(&self, opened: NewSession) -> Arc<ClientSession> {
        let snapshot = self.gateway.snapshots.load();
        let limits = &snapshot.config.gateway.limits;
        let naming =
            if self.cluster.is_some() { RequestNaming::Short } else { RequestNaming::Never };
        let (each, all, held) = (limits.replay, limits.replay_all, Arc::clone(&self.held));
        let replay = OutboxBounds { each, all, held, naming };
        Arc::new(ClientSession::new(opened, replay, &self.gateway))
    }

    /// Adds a session to the table. At a limit, the session of the same holder that has been idle for
    /// longest ends.
    pub(super) fn admit(&self, session: &Arc<ClientSession>) -> Result<(), Failure> {
        let snapshot = self.gateway.snapshots.load();
        let limits = &snapshot.config.gateway.limits;
        let mut open = self.lock();
        let ended = open.make_room(session.holder(), limits)?;
        open.insert(session);
        let askable: Arc<dyn QuestionableSession> = Arc::clone(session) as _;
        self.gateway.client_came(session.id(), session.subscriber(), Arc::downgrade(&askable));
        drop(open);
        self.send_opened(session);
        if let Some(ended) = ended {
            tracing::debug!("the longest idle session is closed: its client opens too many");
            self.end(&ended);
        }
        Ok(())
    }

    /// Records a session that was opened here, for other replicas. Waits briefly until it is in the
    /// store: from then on, it outlives this replica.
    pub(super) async fn record(&self, session: &ClientSession) {
        let Some(cluster) = &self.cluster else { return };
        let key = session_key(session.id(), session.owner());
        if let Some(written) = cluster.session_records().keep_session(key) {
            let _ = timeout(FIRST_RECORD_TIMEOUT, written).await;
        }
    }

    /// Notes that the state of a session has changed, for its record.
    pub(super) fn note_change(&self, session: &ClientSession) {
        if let Some(cluster) = &self.cluster {
            cluster.session_records().note_change(session.id());
        }
    }

    /// Returns true if this session is open and belongs to `who`. It is no use of the session.
    pub(crate) fn has(&self, id: &str, who: &VerifiedCaller) -> bool {
        self.lock().sessions.get(id).is_some_and(|open| open.session.owner().is(who))
    }

    /// Returns the session with this id, of any client.
    pub(super) fn by_id(&self, id: &str) -> Option<Arc<ClientSession>> {
        self.lock().sessions.get(id).map(|open| Arc::clone(&open.session))
    }

    /// Returns the time after which an idle session ends.
    pub(super) fn idle_time(&self) -> Duration {
        self.gateway.snapshots.load().config.gateway.limits.session_idle
    }

    /// Creates an unguessable id, which names this replica if there are several.
    fn new_id(&self, owner: &VerifiedCaller) -> Result<Arc<str>, Failure> {
        let Some(cluster) = &self.cluster else { return unguessable() };
        let id = cluster.new_session_id(owner.principal(), owner.endpoint());
        Ok(id.map_err(|_| InternalFault::Random)?)
    }

    /// Returns the session with this id, if it is open and belongs to `who`. To other callers it
    /// does not exist.
    pub(super) fn find(&self, id: &str, who: &VerifiedCaller) -> Option<Arc<ClientSession>> {
        let open = self.lock();
        let session = &open.sessions.get(id)?.session;
        let session = session.owner().is(who).then(|| Arc::clone(session))?;
        drop(open);
        session.touch();
        Some(session)
    }

    /// Ends a session and everything in it.
    pub(crate) fn close(&self, session: &ClientSession) {
        let gone = self.lock().remove(session.id());
        if let Some(gone) = gone {
            self.end(&gone);
        }
    }

    fn close_idle(&self) {
        let config = Arc::clone(&self.gateway.snapshots.load().config);
        let limits = &config.gateway.limits;
        let now = clock::real_now();
        self.close_unless(|session| {
            session.forget(now, limits.replay_time);
            let SessionActivity::Idle { since } = session.activity() else { return true };
            clock::now().saturating_duration_since(since) < longest_idle(session, limits)
        });
    }

    /// Closes the sessions of callers that are no longer configured, or no longer admitted to their
    /// endpoint.
    fn close_strangers(&self) {
        let snapshot = self.gateway.snapshots.load_full();
        self.close_unless(|session| session.owner().keeps(&snapshot));
        self.gateway.forget_strangers();
    }

    fn close_unless(&self, keep: impl Fn(&ClientSession) -> bool) {
        let mut open = self.lock();
        let gone =
            open.sessions.values().map(|open| &open.session).filter(|session| !keep(session));
        let gone: Vec<_> = gone.map(|session| Arc::clone(session.id())).collect();
        let gone: Vec<_> = gone.iter().filter_map(|id| open.remove(id)).collect();
        drop(open);
        for session in gone {
            self.end(&session);
        }
    }

    fn end(&self, session: &ClientSession) {
        if let Some(cluster) = &self.cluster {
            cluster.session_records().remove_session(session.id());
        }
        self.gateway.client_left(session.id());
        let lasted = session.end();
        self.gateway.metrics.record_session(lasted);
        let events = self.gateway.snapshots.events();
        if events.wants(EventType::ClientClosed) {
            let (name, version) = session.client().name_and_version();
            let client = client_facts(session, &name, &version);
            events.send(&LifecycleEvent::ClientClosed { client, lasted });
        }
    }

    fn send_opened(&self, session: &ClientSession) {
        let events = self.gateway.snapshots.events();
        if events.wants(EventType::ClientOpened) {
            let (name, version) = session.client().name_and_version();
            let client = client_facts(session, &name, &version);
            events.send(&LifecycleEvent::ClientOpened(client));
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenSessions> {
        self.open.lock()
    }
}

impl SessionOverview {
    fn of(session: &ClientSession) -> Self {
        let (software, version) = session.client().name_and_version();
        let wall = |at: Instant| clock::wall_now() - clock::now().saturating_duration_since(at);
        Self {
            digest: digest_session(session),
            principal: session.owner().principal().clone(),
            address: session.address(),
            profile: session.owner().endpoint().profile().to_owned(),
            software: one_line(&software, MAX_SOFTWARE_CHARS),
            version: one_line(&version, MAX_SOFTWARE_CHARS),
            protocol_version: session.client().version.to_string(),
            streams: session.stream_count(),
            calls: session.call_count(),
            opened_at: wall(session.opened()),
            idle_since: match session.activity() {
                SessionActivity::Busy => None,
                SessionActivity::Idle { since } => Some(wall(since)),
            },
        }
    }
}

/// Returns the digits that identify a session to operators. They open no session.
fn digest_session(session: &ClientSession) -> String {
    let digest = sha256(session.id().as_bytes());
    HEXLOWER.encode(digest.first_chunk::<SESSION_DIGEST_BYTES>().unwrap_or(&[0; 8]))
}

impl OpenSessions {
    fn remove(&mut self, id: &str) -> Option<Arc<ClientSession>> {
        let OpenSession { session, place } = self.sessions.remove(id)?;
        if let Entry::Occupied(mut held) = self.held.entry(session.holder().clone()) {
            held.get_mut().remove(&place);
            if held.get().is_empty() {
                held.remove();
            }
        }
        Some(session)
    }

    fn insert(&mut self, session: &Arc<ClientSession>) {
        self.opened += 1;
        let place = (session.opened(), self.opened);
        let held = self.held.entry(session.holder().clone()).or_default();
        held.insert(place, Arc::clone(session.id()));
        let id = Arc::clone(session.id());
        self.sessions.insert(id, OpenSession { session: Arc::clone(session), place });
    }

    /// Removes the idlest session of the holder if a limit is reached.
    fn make_room(
        &mut self,
        holder: &Holder,
        limits: &LimitsConfig,
    ) -> Result<Option<Arc<ClientSession>>, Failure> {
        let held = self.held.get(holder).map_or(0, BTreeMap::len);
        let (name, limit) = if held >= limits.sessions_each {
            ("sessions_each", limits.sessions_each)
        } else if self.sessions.len() >= limits.sessions {
            ("sessions", limits.sessions)
        } else {
            return Ok(None);
        };
        let idlest = self.find_idlest(holder).ok_or(Failure::TooManySessions { name, limit })?;
        Ok(self.remove(&idlest))
    }

    /// Returns the session of the holder that has been idle for longest.
    fn find_idlest(&mut self, holder: &Holder) -> Option<Arc<str>> {
        let held = self.held.get_mut(holder)?;
        let now = clock::now();
        loop {
            let first = held.first_entry()?;
            let (not_before, number) = *first.key();
            if not_before > now {
                return None;
            }
            let open = self.sessions.get_mut(first.get())?;
            let place = match open.session.activity() {
                SessionActivity::Idle { since } if since <= not_before => {
                    return Some(Arc::clone(first.get()));
                }
                SessionActivity::Idle { since } => (since, number),
                SessionActivity::Busy => (now + BUSY_SESSION_TIME, number),
            };
            open.place = place;
            let id = first.remove();
            held.insert(place, id);
        }
    }
}

/// Returns the facts about a session's client for events.
fn client_facts<'a>(
    session: &'a ClientSession,
    name: &'a str,
    version: &'a str,
) -> ClientFacts<'a> {
    let protocol_version = session.client().version.as_str();
    ClientFacts { client: session.owner().principal().as_str(), name, version, protocol_version }
}

/// Returns the time after which a session without requests is closed.
fn longest_idle(session: &ClientSession, limits: &LimitsConfig) -> Duration {
    if session.is_used() {
        limits.session_idle
    } else {
        limits.session_unused.min(limits.session_idle)
    }
}

async fn sweep(sessions: Weak<Sessions>, mut loads: watch::Receiver<SystemTime>) {
    let mut every = tokio::time::interval(IDLE_SESSION_SWEEP);
    loop {
        let close = tokio::select! {
            _ = every.tick() => Sessions::close_idle,
            Ok(()) = loads.changed() => Sessions::close_strangers,
        };
        match sessions.upgrade() {
            Some(sessions) => close(&sessions),
            None => return,
        }
    }
}

/// Returns 128 random bits in hexadecimal.
pub(crate) fn unguessable() -> Result<Arc<str>, Failure> {
    let bytes = random_bytes::<16>().map_err(|_| InternalFault::Random)?;
    Ok(HEXLOWER.encode(&bytes).into())
}

/// Time for which a busy session is skipped when room is needed: no longer than the retry delay of
/// a client that finds none.
const BUSY_SESSION_TIME: Duration = Duration::from_secs(1);
/// Interval of the search for idle sessions.
const IDLE_SESSION_SWEEP: Duration = Duration::from_secs(5);

/// Longest wait of `initialize` for the session's record in the store.
const FIRST_RECORD_TIMEOUT: Duration = Duration::from_millis(250);
/// Bytes of the digest that identifies a session to operators.
const SESSION_DIGEST_BYTES: usize = 8;
/// Limit of the characters of a client's software and its version.
const MAX_SOFTWARE_CHARS: usize = 64;
