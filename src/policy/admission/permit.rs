//! The proof that policy has admitted a call.

use crate::call::{InFlightSlot, ReplyWatch};
use crate::policy::limits::breaker::BreakerPass;
use crate::policy::target::CallTarget;

/// A call or subscription that policy has admitted, and its destination.
#[derive(Debug)]
pub struct Permitted<T> {
    /// Boxed, because it is moved often.
    inner: Box<T>,
    target: CallTarget,
    slot: Option<InFlightSlot>,
    /// Reports the end of the call to the server's circuit breaker; `None` without one.
    pass: Option<Box<BreakerPass>>,
}

impl<T> Permitted<T> {
    // Only the checks in `admission` can permit a call.
    pub(super) fn new(inner: Box<T>, target: CallTarget, slot: Option<InFlightSlot>) -> Self {
        Self { inner, target, slot, pass: None }
    }

    pub(super) fn watched_by(self, pass: Option<BreakerPass>) -> Self {
        Self { pass: pass.map(Box::new), ..self }
    }

    /// Returns the permitted call or subscription.
    pub fn get(&self) -> &T {
        &self.inner
    }

    /// Returns the destination.
    pub fn target(&self) -> &CallTarget {
        &self.target
    }

    /// Takes the watch that records the end of the call, if there is one.
    pub fn take_watch(&mut self) -> Option<Box<dyn ReplyWatch>> {
        self.pass.take().map(|pass| pass as Box<dyn ReplyWatch>)
    }

    /// Takes the slot among the calls in flight, to be held with the reply.
    pub fn take_slot(&mut self) -> Option<InFlightSlot> {
        self.slot.take()
    }
}
