//! Checks of large arguments, away from the threads that serve clients.
//!
//! A check of megabytes takes long enough to be felt by every client of its thread. It runs on a
//! thread for blocking work instead: a few at a time, and one of each client.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::call::{Failure, InternalFault, Params};
use crate::catalog::Tool;

use super::holder_slots::HolderSlots;
use super::shares::Holder;

/// Runs the checks of large arguments.
#[derive(Debug)]
pub(super) struct LargeChecks {
    all: Arc<Semaphore>,
    each: HolderSlots,
}

impl Default for LargeChecks {
    /// As many at a time as leave half of the cores to the clients.
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        let all = Arc::new(Semaphore::new((cores / 2).clamp(1, MOST_AT_A_TIME)));
        Self { all, each: HolderSlots::new(1) }
    }
}

impl LargeChecks {
    /// Checks the arguments of a call of `tool`.
    ///
    /// # Errors
    /// [`Failure::InvalidArguments`], and [`Failure::OverLimit`] after a long wait for others.
    ///
    /// # Cancel safety
    /// Safe. A check that has begun runs to its end, and keeps its place until then.
    pub(super) async fn check(
        &self,
        holder: &Holder,
        tool: Arc<Tool>,
        params: Params,
    ) -> Result<(), Failure> {
        let own = self.each.find(holder);
        let places = async {
            // A client's own place first: its other checks then wait in front of nobody.
            let own = own.acquire().await.ok()?;
            let place = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some((own, place))
        };
        let Ok(Some(places)) = timeout(LONGEST_WAIT, places).await else {
            return Err(Failure::OverLimit { limit: "arguments".into(), retry_after: SOON });
        };
        let checked = tokio::task::spawn_blocking(move || {
            let _places = places;
            tool.arguments.check(params.arguments())
        });
        match checked.await {
            Ok(checked) => checked.map_err(Failure::InvalidArguments),
            Err(_) => Err(InternalFault::Check.into()),
        }
    }
}

/// How many bytes of arguments are checked on the thread that serves their client.
pub(super) const LARGE: usize = 64 * 1024;
/// The most checks of large arguments at a time, however many cores there are.
const MOST_AT_A_TIME: usize = 4;
/// How long a call waits for other checks.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(1);
