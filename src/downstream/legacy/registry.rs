//! The table of Legacy sessions: open, find, count and close.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::call::{Client, Failure, InternalFault};
use crate::clock;
use crate::crypto::random_bytes;
use crate::pipeline::Gateway;
use crate::policy::Holder;
use crate::upstream::QuestionableSession;

use super::outbox::OutboxBounds;
use super::session::ClientSession;
use crate::downstream::caller::VerifiedCaller;

/// All open sessions.
pub(in crate::downstream) struct Sessions {
    open: Mutex<OpenSessions>,
    /// How many bytes their streams keep.
    held: Arc<AtomicUsize>,
    gateway: Arc<Gateway>,
}

#[derive(Default)]
struct OpenSessions {
    sessions: HashMap<Arc<str>, Arc<ClientSession>>,
    /// How many sessions each holder has.
    held: HashMap<Holder, usize>,
}

impl Sessions {
    /// No sessions yet, and a task that closes those that have been idle for
    /// too long, and those of clients that are gone.
    pub(in crate::downstream) fn start(gateway: &Arc<Gateway>) -> Arc<Self> {
        let sessions = Arc::new(Self {
            open: Mutex::default(),
            held: Arc::default(),
            gateway: Arc::clone(gateway),
        });
        tokio::spawn(sweep(Arc::downgrade(&sessions), gateway.snapshots.load_count()));
        sessions
    }

    pub(in crate::downstream) fn len(&self) -> usize {
        self.lock().sessions.len()
    }

    /// Opens a session for a caller at that address.
    pub(super) fn open(
        &self,
        client: Client,
        owner: VerifiedCaller,
        address: IpAddr,
    ) -> Result<Arc<ClientSession>, Failure> {
        let snapshot = self.gateway.snapshots.load();
        let limits = &snapshot.config.gateway.limits;
        let holder = Holder::identify(owner.principal(), address);
        let id = unguessable()?;
        let mut open = self.lock();
        if open.sessions.len() >= limits.sessions {
            return Err(Failure::TooManySessions { limit: limits.sessions });
        }
        let held = open.held.entry(holder.clone()).or_default();
        if *held >= limits.sessions_each {
            return Err(Failure::TooManySessions { limit: limits.sessions_each });
        }
        *held += 1;
        let held = Arc::clone(&self.held);
        let replay = OutboxBounds { each: limits.replay, all: limits.replay_all, held };
        let session = ClientSession::new((id, client), (owner, holder), replay, &self.gateway);
        let session = Arc::new(session);
        open.sessions.insert(Arc::clone(session.id()), Arc::clone(&session));
        let askable: Arc<dyn QuestionableSession> = Arc::clone(&session) as _;
        self.gateway.client_came(session.id(), session.subscriber(), Arc::downgrade(&askable));
        Ok(session)
    }

    /// The session of that id, if it is open and `who`'s. To anybody else it
    /// is not there.
    pub(super) fn find(&self, id: &str, who: &VerifiedCaller) -> Option<Arc<ClientSession>> {
        let open = self.lock();
        let session = open.sessions.get(id).filter(|session| session.owner().is(who)).cloned()?;
        drop(open);
        session.touch();
        Some(session)
    }

    /// Ends a session with everything in it.
    pub(in crate::downstream) fn close(&self, session: &ClientSession) {
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
            session.idle_for() < limits.session_idle
        });
    }

    /// Closes the sessions of those whom the configuration knows no longer, or
    /// who may no longer come in where they did.
    fn close_strangers(&self) {
        let snapshot = self.gateway.snapshots.load_full();
        self.close_unless(|session| session.owner().keeps(&snapshot));
        self.gateway.forget_strangers();
    }

    fn close_unless(&self, keep: impl Fn(&ClientSession) -> bool) {
        let mut open = self.lock();
        let gone = open.sessions.values().filter(|session| !keep(session));
        let gone: Vec<_> = gone.map(|session| Arc::clone(session.id())).collect();
        let gone: Vec<_> = gone.iter().filter_map(|id| open.remove(id)).collect();
        drop(open);
        for session in gone {
            self.end(&session);
        }
    }

    fn end(&self, session: &ClientSession) {
        self.gateway.client_left(session.id());
        self.gateway.metrics.record_session(session.end());
    }

    fn lock(&self) -> MutexGuard<'_, OpenSessions> {
        self.open.lock()
    }
}

impl OpenSessions {
    fn remove(&mut self, id: &str) -> Option<Arc<ClientSession>> {
        let session = self.sessions.remove(id)?;
        if let Entry::Occupied(mut held) = self.held.entry(session.holder().clone()) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
        Some(session)
    }
}

async fn sweep(sessions: Weak<Sessions>, mut loads: watch::Receiver<SystemTime>) {
    let mut every = tokio::time::interval(SWEEP);
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

/// 128 random bits in hexadecimal.
pub(in crate::downstream) fn unguessable() -> Result<Arc<str>, Failure> {
    let bytes = random_bytes::<16>().map_err(|_| InternalFault::Random)?;
    Ok(HEXLOWER.encode(&bytes).into())
}

/// How often idle sessions are looked for.
const SWEEP: Duration = Duration::from_secs(5);
