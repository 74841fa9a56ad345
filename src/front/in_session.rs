//! A Legacy client's call.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::call::{Call, Event};
use crate::pipeline::{Exchange, Gateway};

use super::answer::Events;
use super::session::Withdrawal;

/// A call that ends when it is answered or taken back, and goes on when its
/// client merely goes away (2025-11-25, Streamable HTTP, "Sending Messages").
/// Until it has ended it can be taken back, whoever waits for it.
pub(super) struct InSession {
    /// Comes once the call has been sent.
    started: Option<oneshot::Receiver<Exchange>>,
    exchange: Option<Exchange>,
    withdrawal: Arc<Withdrawal>,
}

impl InSession {
    /// Sends the call, in a task of its own.
    pub(super) fn start(gateway: Arc<Gateway>, call: Call, withdrawal: Withdrawal) -> Self {
        let withdrawal = Arc::new(withdrawal);
        let (started, receiver) = oneshot::channel();
        let held = Arc::clone(&withdrawal);
        tokio::spawn(async move {
            let begun = async {
                let exchange = gateway.call(call).await;
                if let Err(unwanted) = started.send(exchange) {
                    unwanted.run_out().await;
                }
            };
            held.or(begun).await;
        });
        Self { started: Some(receiver), exchange: None, withdrawal }
    }

    async fn step(&mut self) -> Option<Event> {
        if let Some(starting) = self.started.as_mut() {
            self.exchange = starting.await.ok();
            self.started = None;
        }
        self.exchange.as_mut()?.next().await
    }
}

impl Events for InSession {
    async fn next(&mut self) -> Option<Event> {
        let cancelled = self.withdrawal.token();
        tokio::select! {
            biased;
            () = cancelled.cancelled() => {
                // Dropped here, the exchange tells the server.
                self.exchange = None;
                None
            }
            event = self.step() => event,
        }
    }
}

impl Drop for InSession {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            let held = Arc::clone(&self.withdrawal);
            tokio::spawn(async move { held.or(exchange.run_out()).await });
        }
    }
}
