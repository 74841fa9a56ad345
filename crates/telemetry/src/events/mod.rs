//! Lifecycle events for the operator's own programs: available servers, changed lists, connected
//! clients and calls.
//!
//! Events are CloudEvents 1.0 as JSON. Any module sends one through an [`EventSender`], which
//! builds it only if its type is enabled, puts it into a bounded queue and returns. Delivery has
//! tasks of its own, so that no receiver delays a call. Delivery is in order and at least once: an
//! event leaves the queue when the receiver has accepted it, when its time has expired, or when the
//! queue is full. The queue is in memory and, with a folder, in a journal on disk as well.
//!
//! Unlike the log, which is text for people, and metrics, which count, events describe single
//! changes. As in all of `telemetry`, no argument, result, header, session id or secret is ever an
//! input.

mod delivery;
mod health;
mod journal;
mod kind;
mod lifecycle;
mod line_file;
mod program;
mod queue;
mod signature;
mod sink;
#[cfg(test)]
mod tests;
mod webhook;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use data_encoding::HEXLOWER;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use trunkline_core::clock;
use trunkline_core::crypto::random_bytes;

use super::SinkReport;
use super::metrics::EventCounts;
use delivery::deliver_events;
use journal::{keep_journal, open_journal};
use kind::TYPE_PREFIX;
pub use kind::{EventType, EventTypes};
pub use lifecycle::{CallFacts, ClientFacts, LifecycleEvent, MAX_EVENT_SERVERS};
use queue::{EventQueue, QueuedEvent};
pub use signature::{SigningKey, SigningKeyError};
pub use sink::{EventProgram, EventReceiver, RunningProgram};

/// Settings of event delivery.
#[derive(Debug)]
pub struct EventSettings {
    /// Enabled types.
    pub types: EventTypes,
    /// `source` of all events.
    pub source: String,
    /// Destination of the events.
    pub receiver: EventReceiver,
    /// Maximum bytes of pending events.
    pub queue_size: usize,
    /// Age at which an event is no longer retried.
    pub retry_for: Duration,
    /// Time limit for one attempt.
    pub timeout: Duration,
}

/// Handle for sending events. Clones share one queue.
#[derive(Debug, Clone)]
pub struct EventSender(Arc<EventHub>);

#[derive(Debug)]
struct EventHub {
    /// The bits of [`EventTypes`].
    types: AtomicU32,
    source: ArcSwap<String>,
    /// Prefix of all ids of this run.
    run: String,
    sent: AtomicU64,
    calls: AtomicU64,
    queue: Arc<EventQueue>,
}

/// Id of a call in its events.
#[derive(Debug)]
pub struct CallTag(String);

impl CallTag {
    /// Returns the text for the events.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An event in the JSON format of CloudEvents 1.0.
#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: &'a str,
    source: &'a str,
    r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    time: &'a str,
    datacontenttype: &'static str,
    data: &'a LifecycleEvent<'a>,
}

impl EventSender {
    /// Creates a sender that sends no events until [`EventDelivery::apply`] is called.
    fn new(counts: EventCounts) -> Self {
        let run = random_bytes::<8>().unwrap_or_else(|_| clock::unix_now().as_secs().to_be_bytes());
        Self(Arc::new(EventHub {
            types: AtomicU32::new(0),
            source: ArcSwap::from_pointee(String::new()),
            run: HEXLOWER.encode(&run),
            sent: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            queue: Arc::new(EventQueue::new(counts)),
        }))
    }

    /// Creates a sender without a receiver.
    pub fn disabled() -> Self {
        Self::new(EventCounts::default())
    }

    /// Returns the states of the receiver, and of the folder of events that wait.
    pub fn sinks(&self) -> Vec<SinkReport> {
        self.0.queue.health.reports()
    }

    /// Returns true if events of this type are enabled.
    #[inline]
    pub fn wants(&self, kind: EventType) -> bool {
        self.types().has(kind)
    }

    /// Returns an id for the events of one call; `None` if none of them is sent.
    #[inline]
    pub fn tag_call(&self) -> Option<CallTag> {
        let types = self.types();
        (types.has(EventType::CallBegun) || types.has(EventType::CallEnded))
            .then(|| self.next_tag())
    }

    /// Sends an event, if its type is enabled. Never waits.
    #[inline]
    pub fn send(&self, event: &LifecycleEvent<'_>) {
        if self.wants(event.kind()) {
            self.enqueue(event, clock::wall_now());
        }
    }

    fn types(&self) -> EventTypes {
        EventTypes(self.0.types.load(Relaxed))
    }

    fn next_tag(&self) -> CallTag {
        let number = self.0.calls.fetch_add(1, Relaxed);
        CallTag(format!("{}-c{number}", self.0.run))
    }

    fn enqueue(&self, event: &LifecycleEvent<'_>, at: SystemTime) {
        let hub = &self.0;
        let id = format!("{}-{}", hub.run, hub.sent.fetch_add(1, Relaxed));
        let json = write_event(event, &id, &hub.source.load(), at);
        match json {
            Ok(json) => hub.queue.push(QueuedEvent {
                id: id.into(),
                kind: event.kind(),
                at,
                json: json.into(),
            }),
            Err(error) => tracing::error!(
                target: "trunkline::telemetry::events", %error, "an event could not be written"
            ),
        }
    }
}

/// Writes one event as one line.
fn write_event(
    event: &LifecycleEvent<'_>,
    id: &str,
    source: &str,
    at: SystemTime,
) -> serde_json::Result<Vec<u8>> {
    let time = Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH);
    serde_json::to_vec(&CloudEvent {
        specversion: "1.0",
        id,
        source,
        r#type: &format!("{TYPE_PREFIX}{}", event.kind().name()),
        subject: event.subject(),
        time: &format!("{time:.3}"),
        datacontenttype: "application/json",
        data: event,
    })
}

/// The running delivery. Dropping it stops it; [`EventDelivery::finish`] delivers pending events
/// first.
#[derive(Debug)]
pub struct EventDelivery {
    sender: EventSender,
    settings: watch::Sender<Option<Arc<EventSettings>>>,
    running: Mutex<Option<DeliveryTasks>>,
}

/// The tasks, which are aborted on drop, and the signal to deliver the rest.
#[derive(Debug)]
struct DeliveryTasks {
    finish: Option<oneshot::Sender<()>>,
    delivery: JoinHandle<()>,
    journal: Option<JournalTask>,
}

/// The task that keeps the journal, and the token that ends it.
#[derive(Debug)]
struct JournalTask {
    task: JoinHandle<()>,
    end: CancellationToken,
}

impl Drop for DeliveryTasks {
    fn drop(&mut self) {
        self.delivery.abort();
        if let Some(journal) = &self.journal {
            journal.end.cancel();
        }
    }
}

impl EventDelivery {
    /// Starts the delivery on the current runtime. With a folder, pending events are kept there,
    /// and those of an earlier run are delivered first. A fault of the folder does not keep the
    /// gateway from starting: without it, events are only lost more easily.
    pub async fn start(
        settings: Option<EventSettings>,
        folder: Option<PathBuf>,
        counts: EventCounts,
    ) -> Self {
        let sender = EventSender::new(counts);
        let queue = &sender.0.queue;
        let mut journal = None;
        if let (Some(settings), Some(folder)) = (&settings, folder) {
            queue.set_limit(settings.queue_size);
            queue.health.folder.set_place(Some(folder.display().to_string()));
            match open_journal(&folder, settings.queue_size).await {
                Ok((open, left)) => {
                    for event in left {
                        queue.push(event);
                    }
                    queue.keep_journal();
                    let end = CancellationToken::new();
                    let keeping = keep_journal(Arc::clone(queue), open, end.clone());
                    journal = Some(JournalTask { task: tokio::spawn(keeping), end });
                }
                Err(error) => {
                    tracing::warn!(
                        target: "trunkline::telemetry::events", "events are not kept in {}: {error}", folder.display()
                    );
                    queue.health.folder.note_fault(Some(error));
                }
            }
        }
        let (settings_sender, live) = watch::channel(None);
        let (finish, finished) = oneshot::channel();
        let delivery = tokio::spawn(deliver_events(Arc::clone(queue), live, finished));
        let tasks = DeliveryTasks { finish: Some(finish), delivery, journal };
        let running = Mutex::new(Some(tasks));
        let delivery = Self { sender, settings: settings_sender, running };
        delivery.apply(settings);
        delivery
    }

    /// Returns the handle for the modules that send events.
    #[inline]
    pub fn sender(&self) -> &EventSender {
        &self.sender
    }

    /// Puts settings in force. Pending events go to the new receiver. `None` turns events off;
    /// pending events stay in the queue.
    pub fn apply(&self, settings: Option<EventSettings>) {
        let hub = &self.sender.0;
        if let Some(settings) = &settings {
            hub.queue.set_limit(settings.queue_size);
            hub.source.store(Arc::new(settings.source.clone()));
        }
        let types = settings.as_ref().map_or(EventTypes::default(), |settings| settings.types);
        hub.types.store(types.0, Relaxed);
        hub.queue.health.receiver.set_place(settings.as_ref().map(|it| it.receiver.place()));
        self.settings.send_replace(settings.map(Arc::new));
    }

    /// Delivers pending events within this time, and stops.
    ///
    /// # Cancel safety
    /// If it is dropped early, the delivery stops.
    pub async fn finish(&self, within: Duration) {
        let Some(mut tasks) = self.running.lock().take() else { return };
        if let Some(finish) = tasks.finish.take() {
            let _ = finish.send(());
        }
        if tokio::time::timeout(within, &mut tasks.delivery).await.is_err() {
            tracing::warn!(target: "trunkline::telemetry::events", "some events could not be delivered before the end");
        }
        if let Some(journal) = &mut tasks.journal {
            let _ = tokio::time::timeout(JOURNAL_PATIENCE, self.sender.0.queue.saved()).await;
            // The folder is free for the next gateway once the task has ended.
            journal.end.cancel();
            let _ = tokio::time::timeout(JOURNAL_PATIENCE, &mut journal.task).await;
        }
    }
}

/// Time limit for the last write of the journal.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(1);
