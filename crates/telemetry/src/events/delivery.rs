//! The delivery task: delivers the events in order, each until the receiver accepts it or its time
//! has expired.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use trunkline_core::backoff::Backoff;
use trunkline_core::clock;
use trunkline_core::text::error_chain;

use super::EventSettings;
use super::health::SinkHealth;
use super::queue::{EventQueue, QueuedEvent};
use super::sink::{DeliveryError, EventSink, OpenResult};
use crate::metrics::EventFate;

/// The settings in force; `None` while events are off.
pub(super) type LiveEventSettings = watch::Receiver<Option<Arc<EventSettings>>>;

/// Delivers events until `finish` fires, and then the rest of the queue. Stops at once when it is
/// dropped.
pub(super) async fn deliver_events(
    queue: Arc<EventQueue>,
    mut settings: LiveEventSettings,
    mut finish: oneshot::Receiver<()>,
) {
    loop {
        let current = settings.borrow_and_update().clone();
        let mut sink = current.as_ref().map(|current| EventSink::new(&current.receiver));
        let is_over = {
            let deliver = async {
                match (&current, &mut sink) {
                    (Some(current), Some(sink)) => deliver_to(&queue, current, sink).await,
                    _ => std::future::pending().await,
                }
            };
            let mut deliver = std::pin::pin!(deliver);
            tokio::select! {
                () = &mut deliver => true,
                changed = settings.changed() => changed.is_err(),
                _ = &mut finish => {
                    let drained = async {
                        if current.is_some() {
                            queue.drained().await;
                        }
                    };
                    tokio::select! {
                        () = deliver => {}
                        () = drained => {}
                    }
                    true
                }
            }
        };
        if let Some(sink) = sink {
            sink.close().await;
        }
        if is_over {
            return;
        }
    }
}

/// Delivers to one receiver in an endless loop.
async fn deliver_to(queue: &EventQueue, settings: &EventSettings, sink: &mut EventSink) {
    let mut attempts = Attempts::new(&queue.health.receiver, settings.receiver.place());
    let mut opened = attempts.open(sink, settings.timeout).await;
    loop {
        match (queue.first(), opened) {
            (Some(event), _) => {
                let fate = attempts.deliver(&event, settings, sink).await;
                opened = SinkStage::Opened;
                queue.remove(&event, fate);
            }
            (None, SinkStage::Opened) => queue.added.notified().await,
            // Without events, a sink that cannot be opened is tried again: its fault is shown.
            (None, SinkStage::Closed) => {
                let is_added = timeout(attempts.next_pause(), queue.added.notified()).await.is_ok();
                if !is_added {
                    opened = attempts.open(sink, settings.timeout).await;
                }
            }
        }
    }
}

/// State of a sink before its first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SinkStage {
    /// It could not be opened.
    Closed,
    /// It was opened, or an event was delivered to it or given up.
    Opened,
}

/// Delivery attempts for one receiver.
struct Attempts<'a> {
    health: &'a SinkHealth,
    place: String,
    backoff: Backoff,
    dice: fastrand::Rng,
    /// True if the last attempt failed: only changes are logged.
    is_failing: bool,
}

impl<'a> Attempts<'a> {
    fn new(health: &'a SinkHealth, place: String) -> Self {
        let backoff = Backoff::new(FIRST_PAUSE, LAST_PAUSE);
        Self { health, place, backoff, dice: fastrand::Rng::new(), is_failing: false }
    }

    /// Opens a receiver as far as possible without an event.
    async fn open(&mut self, sink: &mut EventSink, limit: Duration) -> SinkStage {
        match sink.open(limit).await {
            Ok(OpenResult::Opened) => {
                self.note_success();
                SinkStage::Opened
            }
            Ok(OpenResult::Untested) => SinkStage::Opened,
            Err(error) => {
                self.note_failure(&error);
                SinkStage::Closed
            }
        }
    }

    fn next_pause(&mut self) -> Duration {
        self.backoff.jittered_wait_after(Duration::ZERO, &mut self.dice)
    }

    /// Delivers one event, until it is accepted or dropped.
    async fn deliver(
        &mut self,
        event: &Arc<QueuedEvent>,
        settings: &EventSettings,
        sink: &mut EventSink,
    ) -> EventFate {
        let mut rejections = 0;
        loop {
            let error = match sink.deliver(event, settings.timeout).await {
                Ok(()) => {
                    self.note_success();
                    return EventFate::Delivered;
                }
                Err(error) => error,
            };
            self.note_failure(&error);
            rejections += u32::from(error.is_rejection());
            let age = clock::wall_now().duration_since(event.at).unwrap_or_default();
            if rejections >= MAX_REJECTIONS || age >= settings.retry_for {
                tracing::warn!(
                    target: "trunkline::telemetry::events::delivery",
                    id = &*event.id,
                    r#type = event.kind.name(),
                    "an event is dropped: {}",
                    error_chain(&error)
                );
                return EventFate::GivenUp;
            }
            tokio::time::sleep(self.next_pause()).await;
        }
    }

    fn note_success(&mut self) {
        self.backoff.reset();
        self.health.note_fault(None);
        if std::mem::take(&mut self.is_failing) {
            tracing::info!(target: "trunkline::telemetry::events::delivery", "events are delivered again");
        }
    }

    fn note_failure(&mut self, error: &DeliveryError) {
        self.health.note_fault(Some(error_chain(error)));
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                target: "trunkline::telemetry::events::delivery",
                "events cannot be delivered to {}: {}",
                self.place,
                error_chain(error)
            );
        }
    }
}

/// Pause after the first failed attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Maximum pause between two attempts.
const LAST_PAUSE: Duration = Duration::from_mins(1);
/// Maximum attempts for an event that the receiver rejects.
const MAX_REJECTIONS: u32 = 5;
