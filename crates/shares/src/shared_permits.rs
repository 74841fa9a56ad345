//! Permits of rates that several gateways share. Their source is outside of this crate.

use std::fmt::Debug;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use trunkline_config::Rate;
use trunkline_protocol::call::Failure;

/// A source of shared permits, by rate and holder.
pub trait PermitSource: Debug + Send + Sync {
    /// Returns the permits of a rate.
    fn find(&self, rate: &SharedRate<'_>) -> Arc<dyn SharedPermits>;

    /// Returns the permits of a rate, if they have been used here.
    fn peek(&self, rate: &SharedRate<'_>) -> Option<Arc<dyn SharedPermits>>;

    /// Charges one permit after the fact, if the source can be reached and is not busy. `learn` gets
    /// the time in which all charged permits are refilled. Does not wait.
    fn charge(&self, rate: &SharedRate<'_>, learn: LearnRefillTime);
}

/// Takes over the refill time of a shared bucket.
pub type LearnRefillTime = Box<dyn FnOnce(Duration) + Send>;

/// A rate that several gateways share.
#[derive(Debug, Clone, Copy)]
pub struct SharedRate<'a> {
    /// The name of the limit.
    pub limit: &'a str,
    /// The holder of the permits; `None` if all callers share them.
    pub holder: Option<&'a str>,
    /// The rate.
    pub rate: Rate,
}

/// Permits of one rate and holder. Nothing here waits, except for the future that
/// [`prepare`](Self::prepare) returns.
pub trait SharedPermits: Debug + Send + Sync {
    /// Takes the permits of a call.
    fn take(&self, cost: NonZeroU32) -> PermitTaking;

    /// Decides like [`take`](Self::take), and takes nothing.
    fn look(&self, cost: NonZeroU32) -> PermitTaking;

    /// Returns the number of permits, as far as it is known.
    fn remaining(&self) -> Option<u32>;

    /// Provides the permits of a call that is about to take them; `None` if no wait is needed.
    fn prepare(&self, cost: NonZeroU32) -> Option<PermitWait>;
}

/// The wait for permits. It ends within a bounded time, with permits or without.
pub type PermitWait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Result of taking shared permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermitTaking {
    /// They were taken.
    Taken,
    /// There are too few: the wait until there are enough.
    Over(Duration),
    /// The source cannot be reached: the gateway's own bucket decides.
    Alone,
    /// The source cannot be reached, and the call has to be refused.
    Unavailable,
}

impl PermitTaking {
    /// Returns the decision. `alone` asks the gateway's own bucket. Most calls need no `name`.
    pub(crate) fn judge<N: FnOnce() -> String>(
        self,
        name: N,
        alone: impl FnOnce(N) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Self::Taken => Ok(()),
            Self::Over(retry_after) => Err(Failure::OverLimit { limit: name(), retry_after }),
            Self::Alone => alone(name),
            Self::Unavailable => Err(Failure::StoreUnavailable),
        }
    }
}
