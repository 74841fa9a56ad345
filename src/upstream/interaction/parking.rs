//! Calls that wait for input from their clients.
//!
//! A Legacy server asks for input during a call and keeps the call open. A Modern client receives
//! the question as a result, and returns with a request of its own. Until then the rest of the
//! reply is parked here with all its resources: its slot among the server's calls in flight, its
//! stream, and its paused deadline. Meanwhile a task listens to the server, so that the loss of the
//! server, an early answer or a cancelled question is noticed at once. The number of parked calls
//! is limited in total and per client, and so is their time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::call::{
    Call, Event, Failure, InternalFault, MAX_QUESTIONS, Notice, Principal, Question, Reply,
    ServerName,
};
use crate::crypto::random_bytes;
use crate::jsonrpc::Id;
use crate::policy::Permitted;
use crate::shares::{Holder, Share, ShareBoundError, ShareBounds, SharedAmount};
use crate::telemetry::metrics::{Entered, Metrics};

/// All parked calls.
pub struct Parking {
    calls: Mutex<ParkedCalls>,
    /// Number of slots that each client uses.
    taken: Arc<SharedAmount>,
    metrics: Arc<Metrics>,
}

type ParkedCalls = HashMap<u64, Parked>;

/// Limits of parking.
#[derive(Debug, Clone, Copy)]
pub struct ParkingLimits {
    /// Maximum number of parked calls, in total and per client.
    pub amount: ShareBounds,
    /// Maximum time that a call stays parked.
    pub lasting: Duration,
}

/// A slot among the parked calls, released when dropped.
pub struct ParkingSlot {
    _share: Share,
    _counted: Entered,
}

/// The rest of a parked call.
#[derive(Debug)]
pub struct ParkedReply {
    /// The rest of the reply.
    pub reply: Reply,
    /// Unanswered questions, by the keys that the client knows.
    pub open: Vec<(String, Id, Question)>,
    /// The number of questions in total.
    pub asked: usize,
    /// Events from the server since the call was parked.
    pub events: VecDeque<Event>,
}

struct Parked {
    owner: Principal,
    /// `None` for a call that the gateway answers itself.
    server: Option<ServerName>,
    /// Requests the rest of the call from the task. Dropping it cancels the call.
    called: oneshot::Sender<()>,
    task: JoinHandle<Option<ParkedReply>>,
}

/// The receipt for a parked call.
#[derive(Debug)]
pub struct Ticket {
    /// The call's number.
    pub id: u64,
    /// Counts the events from the server. Closed once the call is no longer parked.
    pub news: watch::Receiver<usize>,
}

/// The origin of a parked call.
#[derive(Debug, Clone, Copy)]
pub struct ParkedBy<'a> {
    /// The principal that may resume the call.
    pub owner: &'a Principal,
    /// The server of the call; `None` if the gateway answers it itself.
    pub server: Option<&'a ServerName>,
}

impl Parking {
    /// Creates an empty [`Parking`].
    pub fn new(metrics: &Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            calls: Mutex::default(),
            taken: Arc::default(),
            metrics: Arc::clone(metrics),
        })
    }

    /// Takes a slot. Clients without a key are counted by their addresses, so that no single one
    /// can take all slots.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    pub fn enter(&self, holder: &Holder, bounds: ParkingLimits) -> Result<ParkingSlot, Failure> {
        let share = self.taken.take(holder, 1, bounds.amount).map_err(|reached| {
            let limit = match reached {
                ShareBoundError::All => "parked",
                ShareBoundError::Each => "parked_each",
            };
            Failure::OverLimit { limit: limit.to_owned(), retry_after: Duration::from_secs(1) }
        })?;
        Ok(ParkingSlot { _share: share, _counted: self.metrics.parked().enter() })
    }

    /// Parks a call, for the principal that may resume it.
    ///
    /// # Errors
    /// [`Failure::OverLimit`], or [`Failure::Internal`] if there are no random
    /// numbers. The call is then cancelled.
    pub fn park(
        self: &Arc<Self>,
        waiting: ParkedReply,
        parked_by: ParkedBy<'_>,
        holder: &Holder,
        bounds: ParkingLimits,
    ) -> Result<Ticket, Failure> {
        let ParkedBy { owner, server } = parked_by;
        let place = self.enter(holder, bounds)?;
        let number = random_bytes::<8>().map_err(|_| InternalFault::Random)?;
        let id = u64::from_be_bytes(number);
        let (called, hears) = oneshot::channel();
        let (tells, news) = watch::channel(0);
        let parking = Arc::downgrade(self);
        // Held while the task starts, so that the task finds its entry when it ends.
        let mut calls = self.calls();
        let task = tokio::spawn(async move {
            let left = wait(waiting, hears, tells, bounds.lasting).await;
            drop(place);
            if left.is_none() {
                forget(&parking, id);
            }
            left
        });
        let parked = Parked { owner: owner.clone(), server: server.cloned(), called, task };
        calls.insert(id, parked);
        Ok(Ticket { id, news })
    }

    /// Returns the rest of a parked call to its client. Returns `None` if the call is no longer
    /// parked, or belongs to another principal.
    pub async fn resume(&self, permitted: &Permitted<Call>, id: u64) -> Option<ParkedReply> {
        let owner = &permitted.get().context.principal;
        self.take_up(id, ParkedBy { owner, server: Some(&permitted.target().server) }).await
    }

    /// Like [`Parking::resume`], for a call that the gateway answers itself.
    pub async fn resume_own(&self, owner: &Principal, id: u64) -> Option<ParkedReply> {
        self.take_up(id, ParkedBy { owner, server: None }).await
    }

    async fn take_up(&self, id: u64, parked_by: ParkedBy<'_>) -> Option<ParkedReply> {
        let ParkedBy { owner, server } = parked_by;
        let parked = {
            let mut calls = self.calls();
            let parked = calls.get(&id)?;
            if parked.owner != *owner || parked.server.as_ref() != server {
                return None;
            }
            calls.remove(&id)?
        };
        // A task that has just ended leaves nothing.
        let _ = parked.called.send(());
        parked.task.await.ok().flatten()
    }

    /// Cancels the parked calls of principals that lost access, and notifies
    /// their servers.
    pub fn retain(&self, keep: impl Fn(&Principal) -> bool) {
        self.calls().retain(|_, parked| keep(&parked.owner));
    }

    /// Cancels a parked call and notifies its server.
    pub fn cancel(&self, id: u64) {
        drop(self.calls().remove(&id));
    }

    fn calls(&self) -> MutexGuard<'_, ParkedCalls> {
        self.calls.lock()
    }
}

fn forget(parking: &Weak<Parking>, id: u64) {
    if let Some(parking) = parking.upgrade() {
        parking.cancel(id);
    }
}

/// Listens to the server until the client returns. Returns `None` if the client does not return in
/// time, or if the call is cancelled.
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
            // A parked call has no client connection to release.
            Some(Event::Pause(_)) => {}
            Some(Event::Notice(notice)) if !waiting.has_room_for(&notice) => {}
            Some(notice @ Event::Notice(_)) => waiting.events.push_back(notice),
            Some(Event::TookBack(id)) if waiting.forget_question(&id) => {}
            // There are too many events. The server's request is refused when the client returns.
            Some(Event::Asks(..) | Event::TookBack(_))
                if waiting.events.len() >= MAX_KEPT_NOTIFICATIONS + 2 * MAX_QUESTIONS => {}
            Some(event) => {
                ended = event.is_last();
                waiting.events.push_back(event);
                news.send_modify(|count| *count += 1);
            }
            None => ended = true,
        }
    }
}

impl ParkedReply {
    /// Returns true if a notification may wait with the others. The first one always may.
    fn has_room_for(&self, notice: &Notice) -> bool {
        let waiting: usize = self.events.iter().map(notice_size).sum();
        self.events.len() < MAX_KEPT_NOTIFICATIONS
            && (waiting == 0 || waiting + notice.size() <= NOTICE_BYTES)
    }

    /// Drops a question that was cancelled before its client has seen it. Returns false if it does
    /// not wait here.
    fn forget_question(&mut self, cancelled: &Id) -> bool {
        let is_it = |event: &Event| matches!(event, Event::Asks(id, _) if id == cancelled);
        let found = self.events.iter().position(is_it);
        found.and_then(|at| self.events.remove(at)).is_some()
    }
}

fn notice_size(event: &Event) -> usize {
    match event {
        Event::Notice(notice) => notice.size(),
        _ => 0,
    }
}

/// Maximum number of notifications kept for an absent client.
const MAX_KEPT_NOTIFICATIONS: usize = 64;
/// Maximum size of these notifications in bytes. The questions of a call are limited when they are
/// opened.
const NOTICE_BYTES: usize = 1024 * 1024;
