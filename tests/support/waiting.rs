//! Waits for events, each with a time limit, and polls of states that have no event of their own.
#![allow(dead_code, clippy::disallowed_methods, clippy::panic, reason = "used by many programs")]

use std::time::{Duration, Instant};

/// Waits with a time limit, which is longer than any successful step here.
#[track_caller]
pub fn within<T>(step: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    let step = Box::pin(step);
    async move {
        let done = tokio::time::timeout(WAIT_LIMIT, step).await;
        done.unwrap_or_else(|_| panic!("timed out: {caller}"))
    }
}

/// Polls a state until it has a value.
#[track_caller]
pub fn poll_for<T, F>(mut look: impl FnMut() -> F) -> impl Future<Output = T>
where
    F: Future<Output = Option<T>>,
{
    within(async move {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
}

/// Polls until a condition is true.
#[track_caller]
pub fn until(mut it_is_so: impl FnMut() -> bool) -> impl Future<Output = ()> {
    poll_for(move || std::future::ready(it_is_so().then_some(())))
}

/// Polls until a condition is true that needs a request.
#[track_caller]
pub fn until_async<F>(mut it_is_so: impl FnMut() -> F) -> impl Future<Output = ()>
where
    F: Future<Output = bool>,
{
    poll_for(move || {
        let answer = it_is_so();
        async move { answer.await.then_some(()) }
    })
}

/// Polls until a condition is true, outside of a runtime.
#[track_caller]
pub fn until_blocking(it_is_so: impl FnMut() -> bool) {
    assert!(holds_within(WAIT_LIMIT, it_is_so), "the expected state was not reached");
}

/// Polls until a condition is true, outside of a runtime. Returns false if the time is over.
pub fn holds_within(limit: Duration, mut it_is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !it_is_so() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

/// Time limit of a wait.
const WAIT_LIMIT: Duration = Duration::from_mins(1);
/// Time between two looks at a state.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
