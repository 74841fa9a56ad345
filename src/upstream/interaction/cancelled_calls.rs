//! Cancelled calls that their server may still be working on.
//!
//! A server may read a cancellation late, or ignore it. For a while, a message that names no call
//! may therefore belong to a cancelled one. The gateway sends a ping after the cancellation, and
//! its response shows that the server has read both. From then on, other clients of the same
//! principal receive their messages again, unless the server has been found to continue cancelled
//! calls. Other principals wait until the call would have timed out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::clock;
use crate::upstream::InstanceScope;

/// The recently cancelled calls to one server.
#[derive(Debug, Default)]
pub(crate) struct CancelledCalls {
    calls: Mutex<Vec<CancelledCall>>,
    /// True once the server has answered a call after it had read the call's cancellation.
    ignored: AtomicBool,
}

#[derive(Debug)]
struct CancelledCall {
    number: u64,
    caller: InstanceScope,
    /// Time at which the call would have timed out.
    until: Instant,
    /// The ping sent after the cancellation.
    ping: Option<u64>,
    /// True if the server has answered the ping.
    is_read: bool,
}

impl CancelledCalls {
    /// Records a cancelled call. The server works on it for at most `time`, and receives `ping`
    /// after the cancellation.
    pub(crate) fn add(
        &self,
        number: u64,
        caller: InstanceScope,
        time: Duration,
        ping: Option<u64>,
    ) {
        let mut calls = self.current();
        if calls.len() >= MAX_CANCELLED_CALLS {
            // Replaces the client's own oldest call, or otherwise the oldest of all.
            let its = calls.iter().position(|call| call.caller == caller);
            calls.remove(its.unwrap_or(0));
        }
        let until = clock::now() + time;
        calls.push(CancelledCall { number, caller, until, ping, is_read: false });
    }

    /// Records a response: to a cancelled call, which is forgotten, or to the ping after its
    /// cancellation.
    pub(crate) fn answered(&self, number: u64) {
        self.current().retain_mut(|call| {
            if call.number == number {
                self.ignored.fetch_or(call.is_read, Ordering::Relaxed);
                return false;
            }
            call.is_read |= call.ping == Some(number);
            true
        });
    }

    /// Returns true if the server may be working on a cancelled call of another client.
    pub(crate) fn is_anothers(&self, caller: &InstanceScope) -> bool {
        let stops = !self.ignored.load(Ordering::Relaxed);
        let is_over = |call: &CancelledCall| {
            stops && call.is_read && call.caller.principal() == caller.principal()
        };
        self.current().iter().any(|call| call.caller != *caller && !is_over(call))
    }

    /// Returns the cancelled calls that have not timed out.
    fn current(&self) -> MutexGuard<'_, Vec<CancelledCall>> {
        // No code that can panic runs while the lock is held.
        let mut calls = self.calls.lock();
        if !calls.is_empty() {
            let now = clock::now();
            calls.retain(|call| call.until > now);
        }
        calls
    }
}

/// Maximum number of cancelled calls that are kept.
const MAX_CANCELLED_CALLS: usize = 256;

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
        cancelled_calls.add(1, ann.clone(), time, None);
        assert!(cancelled_calls.is_anothers(&bob) && !cancelled_calls.is_anothers(&ann));
        cancelled_calls.answered(2);
        assert!(cancelled_calls.is_anothers(&bob));
        cancelled_calls.answered(1);
        assert!(!cancelled_calls.is_anothers(&bob));
        cancelled_calls.add(3, ann.clone(), time, None);
        tokio::time::advance(time).await;
        assert!(!cancelled_calls.is_anothers(&bob));
    }

    #[test]
    fn a_ping_tells_the_principals_other_clients_that_a_call_is_over() {
        let session =
            |id: &str, principal: Principal| InstanceScope::Session { id: id.into(), principal };
        let ann = session("1", Principal::Anonymous);
        let same = session("2", Principal::Anonymous);
        let bob = InstanceScope::Principal(Principal::Client("bob".into()));
        let (cancelled_calls, time) = (CancelledCalls::default(), Duration::from_secs(30));
        cancelled_calls.add(1, ann.clone(), time, Some(2));
        assert!(cancelled_calls.is_anothers(&same) && cancelled_calls.is_anothers(&bob));
        cancelled_calls.answered(2);
        assert!(!cancelled_calls.is_anothers(&same));
        assert!(cancelled_calls.is_anothers(&bob), "another principal waits");
        // The server continues a call after it has read the cancellation, so its pings prove
        // nothing.
        cancelled_calls.answered(1);
        cancelled_calls.add(3, ann, time, Some(4));
        cancelled_calls.answered(4);
        assert!(cancelled_calls.is_anothers(&same));
    }

    #[test]
    fn who_gives_up_very_much_takes_no_others_place() {
        let ann = InstanceScope::Principal(Principal::Client("ann".into()));
        let bob = InstanceScope::Principal(Principal::Client("bob".into()));
        let cancelled_calls = CancelledCalls::default();
        cancelled_calls.add(0, bob, Duration::from_secs(30), None);
        for number in 1..1_000 {
            cancelled_calls.add(number, ann.clone(), Duration::from_secs(30), None);
        }
        assert!(cancelled_calls.is_anothers(&ann));
        assert_eq!(cancelled_calls.current().len(), MAX_CANCELLED_CALLS);
    }
}
