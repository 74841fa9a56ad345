//! Demand for one instance: its calls, the list requests that wait for it, and its last use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::{self, LastUse};
use crate::upstream::notifications::SubscriptionHub;
use crate::upstream::supervisor::instance::callers::Callers;

/// Reasons for an instance to start, and to stay.
pub(crate) struct InstanceDemand {
    /// Notified when a start may be needed: see `Instance::is_wanted`.
    start: Notify,
    /// True if a list request needs a start.
    is_list_due: AtomicBool,
    /// Number of list requests that wait for the first list.
    list_requests: AtomicU32,
    /// Notified when an operator requests the list.
    operator_requests: Notify,
    /// Notified when an operator requests a start of the failed instance.
    retry: Notify,
    /// Number of calls in flight.
    calls: AtomicU32,
    /// True if there has been a call.
    was_called: AtomicBool,
    /// Legacy sessions of these calls. Empty for the main instance.
    callers: Callers,
    /// Times of the instance's creation and of the end of its last call.
    used: LastUse,
    /// Notified when the last call in flight ends.
    freed: Notify,
}

impl InstanceDemand {
    /// Creates the demand for an instance that begins now.
    pub(super) fn new() -> Self {
        Self {
            start: Notify::new(),
            is_list_due: AtomicBool::new(false),
            list_requests: AtomicU32::new(0),
            operator_requests: Notify::new(),
            retry: Notify::new(),
            calls: AtomicU32::new(0),
            was_called: AtomicBool::new(false),
            callers: Callers::default(),
            used: LastUse::new(clock::now()),
            freed: Notify::new(),
        }
    }

    /// Requests a start, if the instance is idle or waits before its next start.
    #[inline]
    pub(crate) fn request_start(&self) {
        self.start.notify_one();
    }

    /// Requests a start for the lists.
    pub(crate) fn request_start_for_list(&self) {
        self.is_list_due.store(true, Ordering::SeqCst);
        self.start.notify_one();
    }

    /// Waits until a start is requested.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn start_requested(&self) {
        self.start.notified().await;
    }

    /// Takes the request of a start for the lists. Returns false if there is none.
    pub(crate) fn take_list_request(&self) -> bool {
        self.is_list_due.swap(false, Ordering::SeqCst)
    }

    /// Returns the signal of an operator's requests for the lists.
    pub(crate) fn operator_requests(&self) -> &Notify {
        &self.operator_requests
    }

    /// Requests a start of the failed instance, for an operator.
    pub(super) fn request_retry(&self) {
        self.retry.notify_one();
    }

    /// Waits until an operator requests a start of the failed instance.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn retry_requested(&self) {
        self.retry.notified().await;
    }

    /// Counts a list request that waits for the first list, until [`end_list_request`] follows.
    ///
    /// [`end_list_request`]: Self::end_list_request
    pub(crate) fn begin_list_request(&self) {
        self.list_requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a list request that was counted.
    pub(crate) fn end_list_request(&self) {
        self.list_requests.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns true if a call or a list request waits for the instance.
    pub(crate) fn is_awaited(&self) -> bool {
        self.has_calls() || self.list_requests.load(Ordering::Relaxed) > 0
    }

    /// Counts a call, until [`end_call`](Self::end_call) follows.
    #[inline]
    pub(crate) fn begin_call(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.was_called.store(true, Ordering::SeqCst);
    }

    /// Ends a call that was counted.
    #[inline]
    pub(crate) fn end_call(&self) {
        self.touch();
        if self.calls.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.freed.notify_one();
        }
    }

    /// Returns true if calls are in flight.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls.load(Ordering::SeqCst) > 0
    }

    /// Returns the number of calls in flight, for a summary.
    pub(crate) fn count_calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns true if there has been a call.
    pub(crate) fn was_called(&self) -> bool {
        self.was_called.load(Ordering::SeqCst)
    }

    /// Waits until no calls are in flight.
    pub(crate) async fn unused(&self) {
        while self.has_calls() {
            self.freed.notified().await;
        }
    }

    /// Records the session of a call to an instance that is not the main one.
    #[inline]
    pub(crate) fn add_caller(&self, session: &Arc<str>, hub: &SubscriptionHub) {
        self.callers.add(session, hub);
    }

    /// Returns true if a client that has called the instance keeps a stream open.
    pub(crate) fn has_listeners(&self, hub: &SubscriptionHub) -> bool {
        self.callers.are_listening(hub)
    }

    /// Returns the time of the instance's creation.
    pub(crate) fn created(&self) -> Instant {
        self.used.created()
    }

    /// Returns the time of the instance's last use.
    pub(crate) fn last_used(&self) -> Instant {
        self.used.last()
    }

    /// Records a use.
    #[inline]
    pub(crate) fn touch(&self) {
        self.used.touch(clock::now());
    }
}
