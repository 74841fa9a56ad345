//! Cancelled calls that their server may still be working on.
//!
//! A server may read a cancellation late, or ignore it: for a while, a message
//! that names no call may belong to a cancelled one.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::clock;
use crate::upstream::InstanceScope;

/// The recently cancelled calls to one server.
#[derive(Debug, Default)]
pub(in crate::upstream) struct CancelledCalls(Mutex<Vec<CancelledCall>>);

#[derive(Debug)]
struct CancelledCall {
    number: u64,
    caller: InstanceScope,
    /// When the call would have timed out.
    until: Instant,
}

impl CancelledCalls {
    /// Records a cancelled call. The server works on it for at most `time`.
    pub(in crate::upstream) fn add(&self, number: u64, caller: InstanceScope, time: Duration) {
        let mut calls = self.current();
        if calls.len() >= MOST {
            // Replaces the client's own oldest call, or the oldest of all.
            let its = calls.iter().position(|call| call.caller == caller);
            calls.remove(its.unwrap_or(0));
        }
        calls.push(CancelledCall { number, caller, until: clock::now() + time });
    }

    /// Forgets a cancelled call that the server has answered anyway.
    pub(in crate::upstream) fn answered(&self, number: u64) {
        self.current().retain(|call| call.number != number);
    }

    /// Whether the server may be working on a cancelled call of another client.
    pub(in crate::upstream) fn is_anothers(&self, caller: &InstanceScope) -> bool {
        self.current().iter().any(|call| call.caller != *caller)
    }

    /// The cancelled calls that have not timed out.
    fn current(&self) -> MutexGuard<'_, Vec<CancelledCall>> {
        // No code that can panic runs while the lock is held.
        let mut calls = self.0.lock();
        if !calls.is_empty() {
            let now = clock::now();
            calls.retain(|call| call.until > now);
        }
        calls
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
        let (cancelled_calls, time) = (CancelledCalls::default(), Duration::from_secs(30));
        assert!(!cancelled_calls.is_anothers(&bob));
        cancelled_calls.add(1, ann.clone(), time);
        assert!(cancelled_calls.is_anothers(&bob) && !cancelled_calls.is_anothers(&ann));
        cancelled_calls.answered(2);
        assert!(cancelled_calls.is_anothers(&bob));
        cancelled_calls.answered(1);
        assert!(!cancelled_calls.is_anothers(&bob));
        cancelled_calls.add(3, ann.clone(), time);
        tokio::time::advance(time).await;
        assert!(!cancelled_calls.is_anothers(&bob));
    }

    #[test]
    fn who_gives_up_very_much_takes_no_others_place() {
        let ann = InstanceScope::Principal(Principal::Client("ann".into()));
        let bob = InstanceScope::Principal(Principal::Client("bob".into()));
        let cancelled_calls = CancelledCalls::default();
        cancelled_calls.add(0, bob, Duration::from_secs(30));
        for number in 1..1_000 {
            cancelled_calls.add(number, ann.clone(), Duration::from_secs(30));
        }
        assert!(cancelled_calls.is_anothers(&ann));
        assert_eq!(cancelled_calls.current().len(), MOST);
    }
}
