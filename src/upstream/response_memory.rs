//! Limits of the memory for servers' large responses, in total and for each client.
//!
//! Neither a small response nor one that is forwarded as it arrives is counted. Every other
//! response to a call, and every large event of a stream, is counted by its size from
//! [`LARGE_MESSAGE`] bytes on, until the last of its bytes is dropped. By then it has been
//! rewritten for its client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::call::{Failure, ResultMeter, ServerName};
use crate::codec::large_message::LARGE_MESSAGE;
use crate::shares::{Holder, Share, ShareBounds, SharedAmount};

use super::UpstreamError;

/// Counts the bytes of large responses in memory.
#[derive(Debug)]
pub(super) struct ResponseMemory {
    held: Arc<SharedAmount>,
    all: AtomicUsize,
    each: AtomicUsize,
}

/// Charge for the response or event that is being read for a client.
#[derive(Debug)]
pub(super) struct ResponseCharge {
    memory: Arc<ResponseMemory>,
    holder: Holder,
    /// Maximum size in bytes of a response of the server.
    largest: usize,
    counted: usize,
    share: Option<Share>,
}

impl Default for ResponseMemory {
    /// Creates a counter without limits.
    fn default() -> Self {
        let unbounded = || AtomicUsize::new(usize::MAX);
        Self { held: Arc::default(), all: unbounded(), each: unbounded() }
    }
}

impl ResponseMemory {
    /// Changes the limits. Responses in memory stay there.
    pub(super) fn set_bounds(&self, bounds: ShareBounds) {
        self.all.store(bounds.all, Ordering::Relaxed);
        self.each.store(bounds.each, Ordering::Relaxed);
    }

    /// Begins to count for a client of a server with responses of at most `largest` bytes.
    pub(super) fn charge(self: &Arc<Self>, holder: &Holder, largest: usize) -> ResponseCharge {
        ResponseCharge {
            memory: Arc::clone(self),
            holder: holder.clone(),
            largest,
            counted: 0,
            share: None,
        }
    }

    /// Returns the limits at a server. One response of its maximum size always fits.
    fn bounds(&self, largest: usize) -> ShareBounds {
        ShareBounds {
            all: self.all.load(Ordering::Relaxed).max(largest),
            each: self.each.load(Ordering::Relaxed).max(largest),
        }
    }
}

impl ResponseCharge {
    /// Counts a response with this number of bytes in memory.
    ///
    /// # Errors
    /// [`UpstreamError::MemoryUsedUp`].
    pub(super) fn count(&mut self, bytes: usize) -> Result<(), UpstreamError> {
        if bytes <= LARGE_MESSAGE {
            return Ok(());
        }
        let (bounds, more) = (self.memory.bounds(self.largest), bytes.saturating_sub(self.counted));
        let taken = match &mut self.share {
            Some(share) => share.grow(more, bounds),
            None => self.memory.held.take(&self.holder, more, bounds).map(|share| {
                self.share = Some(share);
            }),
        };
        self.counted += more;
        taken.map_err(UpstreamError::MemoryUsedUp)
    }

    /// Returns the whole response, which stays counted until its last byte is dropped. The next
    /// response is counted from its first byte.
    pub(super) fn hold(&mut self, response: Bytes) -> Bytes {
        self.counted = 0;
        match self.share.take() {
            Some(share) => share.hold(response),
            None => response,
        }
    }
}

/// Counts a forwarded result, in case it is read whole.
pub(super) struct PassingCharge {
    pub(super) server: ServerName,
    pub(super) charge: ResponseCharge,
}

impl ResultMeter for PassingCharge {
    fn count(&mut self, bytes: usize) -> Result<(), Failure> {
        let counted = self.charge.count(bytes);
        counted.map_err(|fault| Failure::bad_answer(self.server.clone(), fault.public()))
    }

    fn hold(&mut self, whole: Bytes) -> Bytes {
        self.charge.hold(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::ShareBoundError;

    const LARGE: usize = LARGE_MESSAGE + 1;

    fn memory(all: usize, each: usize) -> Arc<ResponseMemory> {
        let memory = ResponseMemory::default();
        memory.set_bounds(ShareBounds { all, each });
        Arc::new(memory)
    }

    fn client(name: &str) -> Holder {
        Holder::Client(name.into())
    }

    #[test]
    fn a_large_response_is_counted_until_its_last_byte_is_dropped() {
        let memory = memory(3 * LARGE, 2 * LARGE);
        let mut first = memory.charge(&client("a"), LARGE);
        first.count(LARGE_MESSAGE).unwrap();
        assert_eq!(memory.held.total(), 0, "small");
        first.count(LARGE).unwrap();
        assert_eq!(memory.held.total(), LARGE, "with its first bytes");
        first.count(2 * LARGE).unwrap();
        let whole = first.hold(Bytes::from(vec![0; 2 * LARGE]));
        let part = whole.slice(1..2);
        drop(whole);
        let refused = first.count(LARGE).unwrap_err();
        assert!(matches!(refused, UpstreamError::MemoryUsedUp(ShareBoundError::Each)), "{refused}");
        let mut other = memory.charge(&client("b"), LARGE);
        other.count(LARGE).unwrap();
        let refused = other.count(LARGE + 1).unwrap_err();
        assert!(matches!(refused, UpstreamError::MemoryUsedUp(ShareBoundError::All)), "{refused}");
        drop((part, first, other));
        assert_eq!(memory.held.total(), 0);
    }

    #[test]
    fn one_response_of_the_largest_size_always_fits() {
        let memory = memory(1, 1);
        memory.charge(&client("a"), 2 * LARGE).count(2 * LARGE).unwrap();
    }
}
