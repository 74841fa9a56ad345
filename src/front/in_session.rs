//! A Legacy client's call.

use std::pin::Pin;
use std::sync::Arc;

use crate::call::{Call, Event};
use crate::pipeline::{Exchange, Gateway};

use super::session::Withdrawal;
use super::streamed::{Step, Steps};

/// A call that ends when it is answered or taken back, and goes on when its
/// client merely goes away (2025-11-25, Streamable HTTP, "Sending Messages"):
/// then, and only then, in a task of its own. Until it has ended it can be
/// taken back, whoever waits for it.
pub(super) struct InSession {
    stage: Stage,
    withdrawal: Arc<Withdrawal>,
}

/// How far a call has come.
#[expect(clippy::large_enum_variant, reason = "every call becomes the large one")]
enum Stage {
    /// On its way to its server.
    Starting(Pin<Box<dyn Future<Output = Exchange> + Send>>),
    /// Sent.
    Under(Exchange),
    /// Answered or taken back.
    Ended,
}

impl InSession {
    /// Begins a call. It moves as its events are asked for.
    pub(super) fn start(gateway: Arc<Gateway>, call: Call, withdrawal: Withdrawal) -> Self {
        let starting = Box::pin(async move { gateway.call(call).await });
        Self { stage: Stage::Starting(starting), withdrawal: Arc::new(withdrawal) }
    }
}

impl Stage {
    async fn step(&mut self) -> Option<Event> {
        if let Self::Starting(starting) = self {
            *self = Self::Under(starting.await);
        }
        let Self::Under(exchange) = self else { return None };
        let event = exchange.next().await;
        if event.as_ref().is_none_or(Event::is_last) {
            *self = Self::Ended;
        }
        event
    }

    /// Runs the call to its end without looking at it.
    async fn run_out(self) {
        match self {
            Self::Starting(starting) => starting.await.run_out().await,
            Self::Under(exchange) => exchange.run_out().await,
            Self::Ended => {}
        }
    }
}

impl Steps for InSession {
    async fn next(&mut self) -> Option<Step> {
        let cancelled = self.withdrawal.token();
        tokio::select! {
            biased;
            () = cancelled.cancelled() => {
                // Dropped here, the exchange tells the server.
                self.stage = Stage::Ended;
                None
            }
            event = self.stage.step() => event.map(Step::Event),
        }
    }
}

impl Drop for InSession {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        if matches!(stage, Stage::Ended) {
            return;
        }
        let held = Arc::clone(&self.withdrawal);
        tokio::spawn(async move { held.or(stage.run_out()).await });
    }
}
