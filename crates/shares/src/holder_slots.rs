//! Slots by holder: as many for each as its share of a limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::share::Holder;

/// The slots of all holders.
#[derive(Debug)]
pub struct HolderSlots {
    each: usize,
    known: Mutex<KnownHolders>,
}

#[derive(Debug)]
struct KnownHolders {
    slots: HashMap<Holder, Arc<OwnSlots>>,
    /// Number of holders at which those without a slot are forgotten.
    sweep_at: usize,
}

/// The slots of one holder.
#[derive(Debug)]
pub struct OwnSlots {
    slots: Arc<Semaphore>,
    /// Number of the holder's waiting calls.
    pub waiting: AtomicUsize,
}

impl HolderSlots {
    /// Creates `each` slots for every holder.
    pub fn new(each: usize) -> Self {
        let known = KnownHolders { slots: HashMap::new(), sweep_at: KEPT_UNUSED_HOLDERS };
        Self { each, known: Mutex::new(known) }
    }

    /// Returns the slots of one holder.
    #[inline]
    pub fn find(&self, holder: &Holder) -> Arc<OwnSlots> {
        let mut known = self.known.lock();
        if let Some(own) = known.slots.get(holder) {
            return Arc::clone(own);
        }
        if known.slots.len() >= known.sweep_at {
            known.slots.retain(|_, own| !OwnSlots::is_unused(own));
            known.sweep_at = (known.slots.len() * 2).max(KEPT_UNUSED_HOLDERS);
        }
        let slots = Arc::new(Semaphore::new(self.each.min(Semaphore::MAX_PERMITS)));
        let own = Arc::new(OwnSlots { slots, waiting: AtomicUsize::new(0) });
        known.slots.insert(holder.clone(), Arc::clone(&own));
        own
    }
}

impl OwnSlots {
    /// Waits for a slot.
    ///
    /// # Errors
    /// None in practice: slots are never closed.
    ///
    /// # Cancel safety
    /// Safe. The place among the waiting calls is lost.
    #[inline]
    pub async fn acquire(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        Arc::clone(&self.slots).acquire_owned().await
    }

    /// Takes a slot if one is free.
    ///
    /// # Errors
    /// All slots are taken.
    #[inline]
    pub fn try_acquire(&self) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        Arc::clone(&self.slots).try_acquire_owned()
    }

    /// Returns true if no call holds a slot, waits for one or is about to.
    fn is_unused(own: &Arc<Self>) -> bool {
        Arc::strong_count(own) == 1 && Arc::strong_count(&own.slots) == 1
    }
}

/// Number of holders up to which unused ones are kept.
const KEPT_UNUSED_HOLDERS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_holder_has_slots_of_its_own() {
        let all = HolderSlots::new(1);
        let (one, other) = (Holder::Client("a".into()), Holder::Client("b".into()));
        let held = all.find(&one).try_acquire().unwrap();
        assert!(all.find(&one).try_acquire().is_err());
        assert!(all.find(&other).try_acquire().is_ok());
        drop(held);
        assert!(all.find(&one).try_acquire().is_ok());
    }

    #[test]
    fn holders_without_a_slot_are_forgotten() {
        let all = HolderSlots::new(1);
        let holder = |number: usize| Holder::Client(number.to_string().into());
        let held = all.find(&holder(0)).try_acquire().unwrap();
        for number in 1..3 * KEPT_UNUSED_HOLDERS {
            let _unused = all.find(&holder(number));
            assert!(all.known.lock().slots.len() <= KEPT_UNUSED_HOLDERS);
        }
        assert!(all.find(&holder(0)).try_acquire().is_err(), "it is still held");
        drop(held);
    }
}
