//! The concurrency limit of a server: calls in flight, and a bounded queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::call::{Failure, InFlightSlot, ServerName};

/// The bounds of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GateSettings {
    /// Calls in flight at once.
    pub in_flight: usize,
    /// Calls that may wait for a slot.
    pub queue: usize,
    /// The maximum time that a call waits.
    pub queue_timeout: Duration,
}

/// The concurrency limit of one server. It lives as long as its settings: a
/// reload that does not change them keeps the gate and the calls in it.
#[derive(Debug)]
pub struct Gate {
    settings: GateSettings,
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Gate {
    /// A gate with no calls in flight.
    pub fn new(settings: GateSettings) -> Self {
        let places = Arc::new(Semaphore::new(settings.in_flight.min(Semaphore::MAX_PERMITS)));
        Self { settings, places, waiting: AtomicUsize::new(0) }
    }

    /// Takes a slot, and waits in the queue if none is free.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] if the queue is full, or no slot became free in
    /// time.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the queue.
    pub async fn acquire_slot(&self, server: &ServerName) -> Result<InFlightSlot, Failure> {
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(InFlightSlot::new(permit));
        }
        let waiting = QueueEntry::join(&self.waiting);
        if waiting.before >= self.settings.queue {
            return Err(self.queue_full(server));
        }
        let place = timeout(self.settings.queue_timeout, Arc::clone(&self.places).acquire_owned());
        match place.await {
            Ok(Ok(permit)) => Ok(InFlightSlot::new(permit)),
            Ok(Err(_)) | Err(_) => Err(self.queue_full(server)),
        }
    }

    /// Calls in flight.
    pub fn in_flight(&self) -> usize {
        self.settings.in_flight.saturating_sub(self.places.available_permits())
    }

    /// Calls that wait for a slot.
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

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_bounded_in_length_and_time() {
        let settings =
            GateSettings { in_flight: 1, queue: 1, queue_timeout: Duration::from_secs(2) };
        let gate = Arc::new(Gate::new(settings));
        let server = ServerName::new("s").unwrap();
        let first = gate.acquire_slot(&server).await.unwrap();
        let second = tokio::spawn({
            let (gate, server) = (Arc::clone(&gate), server.clone());
            async move { gate.acquire_slot(&server).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(gate.queued(), 1);
        assert!(gate.acquire_slot(&server).await.is_err(), "the queue is full");
        drop(first);
        let second = second.await.unwrap().unwrap();
        assert!(gate.acquire_slot(&server).await.is_err(), "nobody leaves in time");
        assert_eq!(gate.in_flight(), 1);
        drop(second);
        assert_eq!((gate.in_flight(), gate.queued()), (0, 0));
    }
}
