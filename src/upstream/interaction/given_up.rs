//! Cancelled calls that their server may still be working on.
//!
//! A server may read a cancellation late, or ignore it: for a while, a message
//! that names no call may belong to a cancelled one.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::upstream::InstanceScope;

/// The recently cancelled calls to one server.
#[derive(Debug, Default)]
pub(in crate::upstream) struct GivenUp(Mutex<Vec<Stray>>);

#[derive(Debug)]
struct Stray {
    number: u64,
    caller: InstanceScope,
    /// When the call would have timed out.
    until: Instant,
}

impl GivenUp {
    /// Records a cancelled call. The server works on it for at most `time`.
    pub(in crate::upstream) fn add(&self, number: u64, caller: InstanceScope, time: Duration) {
        let mut strays = self.current();
        if strays.len() >= MOST {
            // Replaces the client's own oldest call, or the oldest of all.
            let its = strays.iter().position(|stray| stray.caller == caller);
            strays.remove(its.unwrap_or(0));
        }
        strays.push(Stray { number, caller, until: Instant::now() + time });
    }

    /// Forgets a cancelled call that the server has answered anyway.
    pub(in crate::upstream) fn answered(&self, number: u64) {
        self.current().retain(|stray| stray.number != number);
    }

    /// Whether the server may be working on a cancelled call of another client.
    pub(in crate::upstream) fn is_anothers(&self, caller: &InstanceScope) -> bool {
        self.current().iter().any(|stray| stray.caller != *caller)
    }

    /// The cancelled calls that have not timed out.
    fn current(&self) -> MutexGuard<'_, Vec<Stray>> {
        // No code that can panic runs while the lock is held.
        let mut strays = self.0.lock();
        if !strays.is_empty() {
            let now = Instant::now();
            strays.retain(|stray| stray.until > now);
        }
        strays
    }
}

/// The most cancelled calls that are kept.
const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Principal;

    #[tokio::test(start_paused = true)]
    async fn a_call_given_up_counts_until_it_is_answered_or_its_time_is_over() {
        let ann = InstanceScope::Principal(Principal::Client("ann".into()));
        let bob = InstanceScope::Principal(Principal::Client("bob".into()));
        let (given_up, time) = (GivenUp::default(), Duration::from_secs(30));
        assert!(!given_up.is_anothers(&bob));
        given_up.add(1, ann.clone(), time);
        assert!(given_up.is_anothers(&bob) && !given_up.is_anothers(&ann));
        given_up.answered(2);
        assert!(given_up.is_anothers(&bob));
        given_up.answered(1);
        assert!(!given_up.is_anothers(&bob));
        given_up.add(3, ann.clone(), time);
        tokio::time::advance(time).await;
        assert!(!given_up.is_anothers(&bob));
    }

    #[test]
    fn who_gives_up_very_much_takes_no_others_place() {
        let ann = InstanceScope::Principal(Principal::Client("ann".into()));
        let bob = InstanceScope::Principal(Principal::Client("bob".into()));
        let given_up = GivenUp::default();
        given_up.add(0, bob, Duration::from_secs(30));
        for number in 1..1_000 {
            given_up.add(number, ann.clone(), Duration::from_secs(30));
        }
        assert!(given_up.is_anothers(&ann));
        assert_eq!(given_up.current().len(), MOST);
    }
}
