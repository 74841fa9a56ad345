//! Calls that wait for their clients' input.
//!
//! A Legacy server asks in the middle of a call and keeps the call open; a
//! Modern client is told what it asks in a result, and comes back with a
//! request of its own. In between the rest of the reply waits here, with all
//! that it holds: its place among the server's calls in flight, its stream,
//! its deadline, which stands still. A task listens to the server meanwhile,
//! so that a server that ends, answers after all or takes its question back is
//! heard at once. How many wait is bounded in all and for each principal, how
//! long by the clock.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::call::{Call, Event, Failure, MOST_QUESTIONS, Principal, Question, Reply, ServerName};
use crate::crypto::random_bytes;
use crate::jsonrpc::Id;
use crate::policy::Permitted;
use crate::telemetry::metrics::{Entered, Metrics};

/// All calls that wait for input.
pub struct Parking {
    places: Mutex<Places>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct Places {
    calls: HashMap<u64, Parked>,
    taken: usize,
    by_owner: HashMap<Principal, usize>,
}

/// How many may wait, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct ParkingLimits {
    /// In all.
    pub all: usize,
    /// Of one principal's.
    pub each: usize,
    /// How long.
    pub lasting: Duration,
}

/// A place among the calls that wait, given back when dropped.
pub struct ParkingSlot {
    parking: Arc<Parking>,
    owner: Principal,
    _counted: Entered,
}

/// What is left of a call that waits.
#[derive(Debug)]
pub struct ParkedReply {
    /// The rest of the reply.
    pub reply: Reply,
    /// What is still to be answered, by the keys that the client knows.
    pub open: Vec<(String, Id, Question)>,
    /// How many there were in all.
    pub asked: usize,
    /// What came from the server meanwhile.
    pub events: VecDeque<Event>,
}

struct Parked {
    owner: Principal,
    server: ServerName,
    /// Calls the task back; dropped, it ends the task and the call.
    called: oneshot::Sender<()>,
    task: JoinHandle<Option<ParkedReply>>,
}

/// Whoever parked a call sees what becomes of it.
#[derive(Debug)]
pub struct Ticket {
    /// The call's number.
    pub id: u64,
    /// Counts what came from the server; closed once the call no longer waits.
    pub news: watch::Receiver<usize>,
}

impl Parking {
    /// Nobody waits yet.
    pub fn new(metrics: &Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { places: Mutex::default(), metrics: Arc::clone(metrics) })
    }

    /// Takes a place.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    pub fn enter(
        self: &Arc<Self>,
        owner: &Principal,
        bounds: ParkingLimits,
    ) -> Result<ParkingSlot, Failure> {
        let over = |limit: &str| Failure::OverLimit {
            limit: limit.to_owned(),
            retry_after: Duration::from_secs(1),
        };
        let mut places = self.places();
        if places.taken >= bounds.all {
            return Err(over("parked"));
        }
        let own = places.by_owner.entry(owner.clone()).or_default();
        if *own >= bounds.each {
            return Err(over("parked_each"));
        }
        *own += 1;
        places.taken += 1;
        let counted = self.metrics.parked().enter();
        Ok(ParkingSlot { parking: Arc::clone(self), owner: owner.clone(), _counted: counted })
    }

    /// Lets a call wait.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] and, where there are no random numbers,
    /// [`Failure::Internal`]. The call is then cancelled.
    pub fn park(
        self: &Arc<Self>,
        waiting: ParkedReply,
        owner: &Principal,
        server: &ServerName,
        bounds: ParkingLimits,
    ) -> Result<Ticket, Failure> {
        let place = self.enter(owner, bounds)?;
        let number = random_bytes::<8>()
            .map_err(|_| Failure::Internal { detail: "numbering a call".into() })?;
        let id = u64::from_be_bytes(number);
        let (called, hears) = oneshot::channel();
        let (tells, news) = watch::channel(0);
        let parking = Arc::downgrade(self);
        // Held while the task begins, so that it finds its entry when it ends.
        let mut places = self.places();
        let task = tokio::spawn(async move {
            let left = wait(waiting, hears, tells, bounds.lasting).await;
            drop(place);
            if left.is_none() {
                forget(&parking, id);
            }
            left
        });
        let parked = Parked { owner: owner.clone(), server: server.clone(), called, task };
        places.calls.insert(id, parked);
        Ok(Ticket { id, news })
    }

    /// What is left of a call that its client comes back to; `None` where it
    /// no longer waits, or is another's.
    pub async fn resume(&self, permitted: &Permitted<Call>, id: u64) -> Option<ParkedReply> {
        let parked = {
            let mut places = self.places();
            let parked = places.calls.get(&id)?;
            let own = parked.owner == permitted.get().context.principal;
            if !own || parked.server != permitted.target().server {
                return None;
            }
            places.calls.remove(&id)?
        };
        // One that has ended just now has nothing left.
        let _ = parked.called.send(());
        parked.task.await.ok().flatten()
    }

    /// Ends the calls of those who are not to be kept; their servers are told.
    pub fn retain(&self, keep: impl Fn(&Principal) -> bool) {
        self.places().calls.retain(|_, parked| keep(&parked.owner));
    }

    /// Ends a call that waits; the server is told.
    pub fn cancel(&self, id: u64) {
        drop(self.places().calls.remove(&id));
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock()
    }
}

impl Drop for ParkingSlot {
    fn drop(&mut self) {
        let mut places = self.parking.places();
        places.taken -= 1;
        if let Some(own) = places.by_owner.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                places.by_owner.remove(&self.owner);
            }
        }
    }
}

fn forget(parking: &Weak<Parking>, id: u64) {
    if let Some(parking) = parking.upgrade() {
        parking.cancel(id);
    }
}

/// Listens to the server until the client comes back; `None` where it does not
/// in time, or the call is cancelled.
async fn wait(
    mut waiting: ParkedReply,
    mut called: oneshot::Receiver<()>,
    news: watch::Sender<usize>,
    lasting: Duration,
) -> Option<ParkedReply> {
    let expired = sleep(lasting);
    tokio::pin!(expired);
    let mut ended = false;
    loop {
        let event = tokio::select! {
            biased;
            called = &mut called => return called.is_ok().then_some(waiting),
            () = &mut expired => return None,
            event = waiting.reply.next(), if !ended => event,
        };
        match event {
            // Nobody has a connection that could be let go of.
            Some(Event::Pause(_)) => {}
            Some(Event::Notice(_)) if waiting.events.len() >= EVENTS => {}
            Some(notice @ Event::Notice(_)) => waiting.events.push_back(notice),
            // More questions than a call may have open: the server is told when
            // the client is back.
            Some(Event::Asks(..) | Event::TookBack(_))
                if waiting.events.len() >= EVENTS + 2 * MOST_QUESTIONS => {}
            Some(event) => {
                ended = event.is_last();
                waiting.events.push_back(event);
                news.send_modify(|count| *count += 1);
            }
            None => ended = true,
        }
    }
}

/// Notices that are kept for a client that is not there.
const EVENTS: usize = 64;
