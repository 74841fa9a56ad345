//! Checks of arguments that are large for their schema, and rewrites of large results, away from the
//! threads that serve clients.
//!
//! Work on megabytes, or on less with a costly schema, takes long enough to be felt by every client
//! of its thread. It runs on a thread for blocking work instead: a few at a time, and one of each
//! client.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use trunkline_protocol::call::{Failure, InternalFault};

use crate::holder_slots::HolderSlots;
use crate::share::Holder;

/// Runs the work on large messages.
#[derive(Debug)]
pub struct LargeWork {
    all: Arc<Semaphore>,
    each: HolderSlots,
}

/// Limit of a call's wait for the work of others, and the failure after it.
#[derive(Debug)]
pub struct Patience {
    /// Limit of the wait.
    pub longest: Duration,
    /// The failure after it.
    pub failure: Failure,
}

impl Default for LargeWork {
    /// Allows as much concurrent work as leaves half of the cores to the clients.
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        let all = Arc::new(Semaphore::new((cores / 2).clamp(1, MAX_CONCURRENT_WORK)));
        Self { all, each: HolderSlots::new(1) }
    }
}

impl LargeWork {
    /// Runs one piece of work for a holder.
    ///
    /// # Errors
    /// The failure of `patience` after a long wait for other work.
    ///
    /// # Cancel safety
    /// Safe. Work that has begun runs to its end, and keeps its place until then.
    pub async fn run<T: Send + 'static>(
        &self,
        holder: &Holder,
        patience: Patience,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let own = self.each.find(holder);
        let places = async {
            // The client's own place first: its other work then delays no other client.
            let own = own.acquire().await.ok()?;
            let place = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some((own, place))
        };
        let Ok(Some(places)) = timeout(patience.longest, places).await else {
            return Err(patience.failure);
        };
        let done = tokio::task::spawn_blocking(move || {
            let _places = places;
            work()
        });
        done.await.map_err(|_| InternalFault::LargeWork.into())
    }
}

/// Limit of concurrent pieces of work, regardless of the number of cores.
const MAX_CONCURRENT_WORK: usize = 4;
