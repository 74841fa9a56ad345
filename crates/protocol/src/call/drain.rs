//! The drain signal: sent once, received by every connection and every stream.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use trunkline_core::clock;

/// Creates a switch and its signal.
pub fn drain() -> (DrainSwitch, Drain) {
    let (sender, receiver) = watch::channel(None);
    (DrainSwitch(sender), Drain(receiver))
}

/// Starts a drain. Dropping it does not start one.
#[derive(Debug)]
pub struct DrainSwitch(watch::Sender<Option<Instant>>);

impl DrainSwitch {
    /// Asks all connections and streams to finish `within` this time, after which they are cut.
    /// Another call can only shorten the deadline (a second Ctrl-C with zero), never extend it.
    pub fn start(&self, within: Duration) {
        let asked = clock::now() + within;
        self.0.send_if_modified(|deadline| {
            let nearer = deadline.is_none_or(|set| asked < set);
            if nearer {
                *deadline = Some(asked);
            }
            nearer
        });
    }
}

/// Observes the start and the end of a drain. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Drain(watch::Receiver<Option<Instant>>);

impl Drain {
    /// Waits until the drain has started; forever if it never does.
    ///
    /// # Cancel safety
    /// Safe: nothing is consumed.
    pub async fn started(&self) {
        let mut signal = self.0.clone();
        if signal.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the drain's deadline has passed, even if it is shortened meanwhile.
    ///
    /// # Cancel safety
    /// Safe: nothing is consumed.
    pub async fn over(&self) {
        self.started().await;
        let mut signal = self.0.clone();
        loop {
            let Some(deadline) = *signal.borrow_and_update() else { return };
            tokio::select! {
                () = sleep_until(deadline) => return,
                Ok(()) = signal.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Poll};

    use futures_util::poll;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_drain_is_seen_by_those_who_waited_and_those_who_ask_later() {
        let (switch, drain) = drain();
        let early = drain.clone();
        let mut early = pin!(early.started());
        assert!(poll!(&mut early).is_pending());

        switch.start(Duration::from_mins(1));

        early.await;
        drain.started().await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_second_start_can_only_bring_the_end_nearer() {
        let (switch, drain) = drain();
        let mut over = pin!(drain.over());
        switch.start(Duration::from_mins(10));
        assert!(poll!(&mut over).is_pending());
        switch.start(Duration::ZERO);
        switch.start(Duration::from_mins(10));
        over.await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_switch_that_is_dropped_starts_nothing() {
        let (switch, drain) = drain();
        drop(switch);
        assert_eq!(poll!(pin!(drain.started())), Poll::Pending);
    }
}
