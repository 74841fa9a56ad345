//! Queue of starting child processes. It limits how many start at once, and prefers those that a
//! client waits for.
//!
//! Starting programs compete for the processors. If all of a hundred started at once, most would
//! not be ready within their `start_timeout`. The time of a start begins when it has its place.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The starts of all servers.
pub(crate) struct StartQueue(Mutex<StartPlaces>);

struct StartPlaces {
    /// Maximum number of simultaneous starts.
    limit: usize,
    /// Number of current starts.
    taken: usize,
    /// Number of slow starts that have made room for others. At most `limit`.
    slow: usize,
    /// Waiting starts in their order of arrival.
    waiting: Vec<WaitingStart>,
}

struct WaitingStart {
    /// Returns true if a client waits for the start now.
    is_awaited: Box<dyn Fn() -> bool + Send>,
    granted: oneshot::Sender<StartPlace>,
}

impl StartQueue {
    /// Creates a queue with this many simultaneous starts.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(StartPlaces { limit, taken: 0, slow: 0, waiting: Vec::new() })))
    }

    /// Changes the number of simultaneous starts.
    pub(crate) fn set_limit(self: &Arc<Self>, limit: usize) {
        self.0.lock().limit = limit;
        self.grant_places();
    }

    /// Waits for a place. `is_awaited` is called whenever a place is free, and returns true if a
    /// client waits for this start.
    ///
    /// # Cancel safety
    /// Safe: a place that was granted meanwhile is given to another start.
    pub(crate) async fn take_place(
        self: &Arc<Self>,
        is_awaited: impl Fn() -> bool + Send + 'static,
    ) -> Option<StartPlace> {
        let (granted, place) = oneshot::channel();
        self.0.lock().waiting.push(WaitingStart { is_awaited: Box::new(is_awaited), granted });
        self.grant_places();
        // The queue drops no sender before it is used.
        place.await.ok()
    }

    fn grant_places(self: &Arc<Self>) {
        while let Some(next) = self.take_next() {
            // A place for a start that has been cancelled returns to the queue when it is dropped.
            let _ = next.granted.send(StartPlace { queue: Arc::clone(self), is_slow: false });
        }
    }

    /// Returns the next start, if there is a place for it.
    fn take_next(&self) -> Option<WaitingStart> {
        let mut places = self.0.lock();
        places.waiting.retain(|start| !start.granted.is_closed());
        if places.taken >= places.limit || places.waiting.is_empty() {
            return None;
        }
        let awaited = places.waiting.iter().position(|start| (start.is_awaited)());
        places.taken += 1;
        Some(places.waiting.remove(awaited.unwrap_or(0)))
    }
}

/// Place of one start.
pub(crate) struct StartPlace {
    queue: Arc<StartQueue>,
    /// True if it has made room for another start.
    is_slow: bool,
}

impl StartPlace {
    /// Keeps the place until `start` is done. A start that takes longer than `patience` probably
    /// waits for something other than a processor. It makes room for another one, unless too many
    /// have done so. So servers that hang do not keep all others from starting.
    pub(super) async fn hold_during<T>(
        mut self,
        start: impl Future<Output = T>,
        patience: Duration,
    ) -> T {
        let mut start = pin!(start);
        if let Ok(done) = timeout(patience, &mut start).await {
            return done;
        }
        self.make_room();
        start.await
    }

    fn make_room(&mut self) {
        let mut places = self.queue.0.lock();
        if places.slow < places.limit {
            places.slow += 1;
            places.taken -= 1;
            self.is_slow = true;
        }
        drop(places);
        self.queue.grant_places();
    }
}

impl Drop for StartPlace {
    fn drop(&mut self) {
        let mut places = self.queue.0.lock();
        if self.is_slow {
            places.slow -= 1;
        } else {
            places.taken -= 1;
        }
        drop(places);
        self.queue.grant_places();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt as _;

    use super::*;

    fn unawaited() -> bool {
        false
    }

    /// Takes a free place.
    fn take(queue: &Arc<StartQueue>) -> Option<StartPlace> {
        queue.take_place(unawaited).now_or_never().flatten()
    }

    #[tokio::test]
    async fn starts_that_a_client_waits_for_come_first_and_the_others_in_their_order() {
        let queue = StartQueue::new(1);
        let first = take(&queue).unwrap();
        let is_awaited = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_awaited);
        let mut one = pin!(queue.take_place(unawaited));
        let mut two = pin!(queue.take_place(unawaited));
        let mut urgent = pin!(queue.take_place(move || told.load(Ordering::Relaxed)));
        assert!((&mut one).now_or_never().is_none() && (&mut two).now_or_never().is_none());
        assert!((&mut urgent).now_or_never().is_none());
        // The client comes while the start is waiting.
        is_awaited.store(true, Ordering::Relaxed);
        drop(first);
        assert!((&mut one).now_or_never().is_none() && (&mut two).now_or_never().is_none());
        drop(urgent.now_or_never().unwrap());
        assert!((&mut two).now_or_never().is_none(), "it came second");
        drop(one.now_or_never().unwrap());
        assert!(two.now_or_never().unwrap().is_some());
    }

    #[tokio::test]
    async fn a_start_that_is_cancelled_takes_no_place_from_the_others() {
        let queue = StartQueue::new(1);
        let first = take(&queue).unwrap();
        let mut granted = Box::pin(queue.take_place(unawaited));
        let mut waiting = Box::pin(queue.take_place(unawaited));
        assert!((&mut granted).now_or_never().is_none() && (&mut waiting).now_or_never().is_none());
        drop(waiting);
        drop(first);
        // It has a place and has not looked yet.
        drop(granted);
        let last = take(&queue).expect("the place is free");
        assert!(take(&queue).is_none());
        queue.set_limit(2);
        assert!(take(&queue).is_some(), "a larger limit counts at once");
        drop(last);
    }

    #[tokio::test(start_paused = true)]
    async fn starts_that_hang_make_room_for_as_many_others() {
        let (queue, patience) = (StartQueue::new(2), Duration::from_secs(10));
        let hang = async |place: StartPlace| {
            place.hold_during(std::future::pending::<()>(), patience).await;
        };
        let mut hanging: Vec<_> = (0..2).map(|_| Box::pin(hang(take(&queue).unwrap()))).collect();
        assert!(hanging.iter_mut().all(|start| start.now_or_never().is_none()));
        assert!(take(&queue).is_none());
        tokio::time::advance(patience).await;
        assert!(hanging.iter_mut().all(|start| start.now_or_never().is_none()));
        let more: Vec<_> = (0..2).map(|_| take(&queue).unwrap()).collect();
        let mut more: Vec<_> = more.into_iter().map(|place| Box::pin(hang(place))).collect();
        assert!(more.iter_mut().all(|start| start.now_or_never().is_none()));
        tokio::time::advance(patience).await;
        assert!(more.iter_mut().all(|start| start.now_or_never().is_none()));
        assert!(take(&queue).is_none(), "no more than twice the limit at a time");
        hanging.clear();
        more.clear();
        let places = [take(&queue), take(&queue), take(&queue)];
        assert_eq!(places.iter().flatten().count(), 2, "all places came back");
    }
}
