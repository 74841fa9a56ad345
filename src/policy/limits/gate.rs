//! The concurrency limit of a server: calls in flight, and a bounded queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::call::{Failure, InFlightSlot, ServerName};
use crate::shares::{Holder, HolderSlots, OwnSlots};

/// The bounds of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GateSettings {
    /// Calls in flight at once.
    pub in_flight: usize,
    /// Calls that may wait for a slot.
    pub queue: usize,
    /// Time limit of a call's wait.
    pub queue_timeout: Duration,
    /// Limits of one client, where clients can be distinguished.
    pub each: Option<GateShare>,
}

/// Limits of one client at a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GateShare {
    /// Calls in flight at once.
    pub in_flight: usize,
    /// Calls that may wait for a slot.
    pub queue: usize,
}

/// State of a gate for one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GateLevel {
    pub(crate) in_flight: usize,
    pub(crate) settings: GateSettings,
    /// True if a call has to wait for a slot.
    pub(crate) waits: bool,
    /// The refusal of a call now.
    pub(crate) refusal: Option<Failure>,
}

/// The concurrency limit of one server. It lives as long as its settings: a
/// reload that does not change them keeps the gate and the calls in it.
#[derive(Debug)]
pub struct Gate {
    settings: GateSettings,
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    each: Option<(GateShare, HolderSlots)>,
}

impl Gate {
    /// Creates a gate without calls in flight.
    pub fn new(settings: GateSettings) -> Self {
        let places = Arc::new(Semaphore::new(settings.in_flight.min(Semaphore::MAX_PERMITS)));
        let each = settings.each.map(|share| (share, HolderSlots::new(share.in_flight)));
        Self { settings, places, waiting: AtomicUsize::new(0), each }
    }

    /// Takes a slot, and waits in the queue if none is free. A client that has used up its share
    /// waits for a slot of its own, and delays no other client.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] if the queue, or the client's share of it, is full, or no slot became
    /// free in time.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the queue.
    pub async fn acquire_slot(
        &self,
        server: &ServerName,
        holder: impl FnOnce() -> Holder,
    ) -> Result<InFlightSlot, Failure> {
        let own = self.each.as_ref().map(|(share, slots)| (share, slots.find(&holder())));
        let permit = own.as_ref().map(|(_, slots)| slots.try_acquire()).transpose();
        if let Ok(permit) = permit
            && let Ok(place) = Arc::clone(&self.places).try_acquire_owned()
        {
            return Ok(InFlightSlot::new(place, permit));
        }
        let waiting = QueueEntry::join(&self.waiting);
        let in_share = own.as_ref().map(|(share, own)| (share, QueueEntry::join(&own.waiting)));
        let before_in_share = in_share.as_ref().map(|(share, entry)| (***share, entry.before));
        if self.is_queue_full(waiting.before, before_in_share) {
            return Err(self.queue_full(server));
        }
        let own = own.as_ref().map(|(_, own)| &**own);
        let slot = timeout(self.settings.queue_timeout, self.wait_for_slot(own)).await;
        slot.ok().flatten().ok_or_else(|| self.queue_full(server))
    }

    /// Returns the calls in flight and in the queue, and the refusal that a client's call would get
    /// now. Takes no slot.
    pub(crate) fn look(&self, server: &ServerName, holder: &Holder) -> GateLevel {
        let own = self.each.as_ref().map(|(share, slots)| (share, slots.find(holder)));
        let has_own = own.as_ref().is_none_or(|(_, slots)| slots.try_acquire().is_ok());
        let waits = !(has_own && self.places.available_permits() > 0);
        let waiting = own.map(|(share, own)| (*share, own.waiting.load(Ordering::Relaxed)));
        let is_full = waits && self.is_queue_full(self.queued(), waiting);
        GateLevel {
            in_flight: self.in_flight(),
            settings: self.settings,
            waits,
            refusal: is_full.then(|| self.queue_full(server)),
        }
    }

    /// Returns true if a call may not wait, with so many calls before it in the queue, and in the
    /// client's share of it.
    #[inline]
    fn is_queue_full(&self, before: usize, in_share: Option<(GateShare, usize)>) -> bool {
        let over_share = in_share.is_some_and(|(share, before)| before >= share.queue);
        over_share || before >= self.settings.queue
    }

    async fn wait_for_slot(&self, own: Option<&OwnSlots>) -> Option<InFlightSlot> {
        let own = match own {
            Some(own) => Some(own.acquire().await.ok()?),
            None => None,
        };
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        Some(InFlightSlot::new(place, own))
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> usize {
        self.settings.in_flight.saturating_sub(self.places.available_permits())
    }

    /// Returns the number of calls that wait for a slot.
    pub fn queued(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn queue_full(&self, server: &ServerName) -> Failure {
        let retry_after = self.settings.queue_timeout.max(Duration::from_secs(1));
        Failure::OverLimit { limit: format!("in_flight:{server}"), retry_after }
    }
}

struct QueueEntry<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> QueueEntry<'a> {
    fn join(count: &'a AtomicUsize) -> Self {
        Self { before: count.fetch_add(1, Ordering::Relaxed), count }
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anyone() -> Holder {
        Holder::Client("anyone".into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_its_whole_share_delays_no_other() {
        let settings = GateSettings {
            in_flight: 4,
            queue: 4,
            queue_timeout: Duration::from_secs(2),
            each: Some(GateShare { in_flight: 3, queue: 1 }),
        };
        let gate = Arc::new(Gate::new(settings));
        let server = ServerName::new("s").unwrap();
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(gate.acquire_slot(&server, anyone).await.unwrap());
        }
        let waiting = tokio::spawn({
            let (gate, server) = (Arc::clone(&gate), server.clone());
            async move { gate.acquire_slot(&server, anyone).await }
        });
        tokio::task::yield_now().await;
        assert!(gate.acquire_slot(&server, anyone).await.is_err(), "its part of the queue is full");
        let other = || Holder::Client("other".into());
        let others = gate.acquire_slot(&server, other).await.unwrap();
        assert_eq!((gate.in_flight(), gate.queued()), (4, 1));
        drop(held);
        drop(waiting.await.unwrap().unwrap());
        drop(others);
        assert_eq!((gate.in_flight(), gate.queued()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_bounded_in_length_and_time() {
        let settings = GateSettings {
            in_flight: 1,
            queue: 1,
            queue_timeout: Duration::from_secs(2),
            each: None,
        };
        let gate = Arc::new(Gate::new(settings));
        let server = ServerName::new("s").unwrap();
        let first = gate.acquire_slot(&server, anyone).await.unwrap();
        let second = tokio::spawn({
            let (gate, server) = (Arc::clone(&gate), server.clone());
            async move { gate.acquire_slot(&server, anyone).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(gate.queued(), 1);
        assert!(gate.acquire_slot(&server, anyone).await.is_err(), "the queue is full");
        drop(first);
        let second = second.await.unwrap().unwrap();
        assert!(gate.acquire_slot(&server, anyone).await.is_err(), "no caller leaves in time");
        assert_eq!(gate.in_flight(), 1);
        drop(second);
        assert_eq!((gate.in_flight(), gate.queued()), (0, 0));
    }
}
