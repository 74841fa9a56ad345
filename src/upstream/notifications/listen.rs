//! `subscriptions/listen` at a Modern server: one stream for all subscriptions.

mod unknown;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::backoff::Backoff;
use crate::call::Answer;
use crate::clock;
use crate::jsonrpc::object;
use crate::mcp::{ProtocolVersion, code, meta, notification};
use crate::upstream::UpstreamError;
use crate::upstream::peer::{ChangeCapabilities, Peer, modern_params_of};

use super::subscriptions::{Continuity, SubscriptionRefusal};
use super::{Inbox, Topic};

/// Opens streams over a transport.
pub(crate) trait ListenTransport: Send + Sync + 'static {
    /// Sends `subscriptions/listen` with these params. Messages about the
    /// stream itself become its signals.
    fn open(
        &self,
        params: Bytes,
        carries: StreamPurpose,
    ) -> impl Future<Output = Result<ChangeStream, StreamRefused>> + Send;
}

/// The kind of notifications on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamPurpose {
    /// Known notifications, which go to the inbox.
    News,
    /// Notifications unknown to the gateway, which become the stream's signals.
    Unknown,
}

/// Error while opening a stream.
#[derive(Debug)]
pub(crate) enum StreamRefused {
    /// The server offers no streams, or not for these subscriptions.
    Refused(SubscriptionRefusal),
    /// The request failed.
    Fault(UpstreamError),
}

impl StreamRefused {
    /// Interprets a response that arrives instead of a stream, or before its acknowledgement.
    pub(crate) fn answered(answer: Option<Answer>) -> Self {
        match answer {
            Some(Answer::Error(error)) if error.code() != code::METHOD_NOT_FOUND => {
                Self::Refused(SubscriptionRefusal::Said(error))
            }
            Some(_) => Self::Refused(SubscriptionRefusal::Unsupported),
            None => Self::Fault(UpstreamError::NoAnswer),
        }
    }

    /// Interprets an error: a client error status is permanent.
    pub(crate) fn of(fault: UpstreamError) -> Self {
        match fault {
            UpstreamError::Status { status, .. } if status.is_client_error() => {
                Self::Refused(SubscriptionRefusal::Unsupported)
            }
            fault => Self::Fault(fault),
        }
    }
}

/// An open stream, closed when dropped.
pub(crate) struct ChangeStream {
    signals: mpsc::Receiver<StreamSignal>,
    _held: Box<dyn Send>,
}

impl ChangeStream {
    /// Creates a stream with these signals, which is closed when `held` is dropped.
    pub(crate) fn new(signals: mpsc::Receiver<StreamSignal>, held: impl Send + 'static) -> Self {
        Self { signals, _held: Box::new(held) }
    }

    /// Creates the channel for the signals of a stream.
    pub(crate) fn channel() -> (mpsc::Sender<StreamSignal>, mpsc::Receiver<StreamSignal>) {
        mpsc::channel(MAX_UNREAD_SIGNALS)
    }

    pub(super) async fn acknowledged(&mut self) -> Result<Option<Bytes>, StreamRefused> {
        match timeout(STREAM_OPEN_TIMEOUT, self.signals.recv()).await {
            Ok(Some(StreamSignal::Acknowledged(params))) => Ok(Some(params)),
            Ok(Some(StreamSignal::Ended(answer))) => Err(StreamRefused::answered(answer)),
            Ok(None) => Err(StreamRefused::Fault(UpstreamError::NoAnswer)),
            // The server may be listening without an acknowledgement.
            Ok(Some(StreamSignal::Told(..))) | Err(_) => Ok(None),
        }
    }

    async fn ended(&mut self) {
        while let Some(StreamSignal::Acknowledged(_) | StreamSignal::Told(..)) =
            self.signals.recv().await
        {}
    }

    /// Returns the next notification of a stream of unknown notifications, or `None` at its end.
    pub(super) async fn next(&mut self) -> Option<(String, Option<Bytes>)> {
        loop {
            match self.signals.recv().await? {
                StreamSignal::Told(method, params) => return Some((method, params)),
                StreamSignal::Acknowledged(_) => {}
                StreamSignal::Ended(_) => return None,
            }
        }
    }
}

/// A message about a stream.
#[derive(Debug)]
pub(crate) enum StreamSignal {
    /// The params of the acknowledgement.
    Acknowledged(Bytes),
    /// A notification on a stream of unknown notifications.
    Told(String, Option<Bytes>),
    /// The response to the request, which ends the stream.
    Ended(Option<Answer>),
}

/// Listens while the connection lives.
pub(crate) async fn listen(line: impl ListenTransport, peer: Peer, inbox: Arc<Inbox>) {
    let changes = inbox.subscriptions.changes();
    let listening = ListenTask {
        line: Arc::new(line),
        unknown: HashMap::new(),
        version: peer.version,
        tells: peer.tells,
        inbox,
        changes,
        current: None,
        before: JoinSet::new(),
        standing: HashSet::new(),
        lost: false,
        pace: ReopenPace::new(),
    };
    listening.run().await;
}

struct ListenTask<L> {
    line: Arc<L>,
    /// Tasks that listen for unknown notifications, each on a stream of its own.
    unknown: HashMap<Topic, JoinSet<()>>,
    version: ProtocolVersion,
    tells: ChangeCapabilities,
    inbox: Arc<Inbox>,
    changes: watch::Receiver<u64>,
    /// The open stream.
    current: Option<ChangeStream>,
    /// Earlier streams, kept until their last messages have arrived.
    before: JoinSet<()>,
    /// The topics of the open stream.
    standing: HashSet<Topic>,
    /// True if a stream was lost and has not been replaced.
    lost: bool,
    pace: ReopenPace,
}

impl<L: ListenTransport> ListenTask<L> {
    async fn run(mut self) {
        self.inbox.subscriptions.forget_refusals();
        loop {
            self.changes.mark_unchanged();
            let filter = ListenFilter::new(self.tells, self.inbox.subscriptions.wanted());
            for topic in &filter.unsupported {
                let refused = Err(SubscriptionRefusal::Unsupported);
                self.inbox.subscriptions.settle(topic, refused, Continuity::Kept);
            }
            self.listen_for_unknown(&filter.unknown);
            if filter.is_empty() {
                self.current = None;
                self.standing.clear();
            } else if self.has(&filter) {
                // A topic may have lost its last subscriber and found another one meanwhile, which
                // waits for a verdict.
                for topic in &filter.topics {
                    self.inbox.subscriptions.settle(topic, Ok(()), Continuity::Kept);
                }
            } else if let Err(no_stream) = self.open(&filter).await
                && !self.put_up_with(&filter, no_stream)
            {
                self.lost |= self.current.is_none() && self.pace.opened.is_some();
                self.pace.after_loss().await;
                continue;
            }
            if !self.wait().await {
                return;
            }
        }
    }

    fn listen_for_unknown(&mut self, wanted: &[Topic]) {
        self.unknown.retain(|topic, _| wanted.contains(topic));
        for topic in wanted {
            let (line, inbox) = (Arc::clone(&self.line), Arc::clone(&self.inbox));
            self.unknown.entry(topic.clone()).or_insert_with(|| {
                let mut task = JoinSet::new();
                task.spawn(unknown::listen(line, self.version, topic.clone(), inbox));
                task
            });
        }
    }

    /// Returns true if the open stream covers exactly these topics.
    fn has(&self, filter: &ListenFilter) -> bool {
        self.current.is_some()
            && self.standing.len() == filter.topics.len()
            && filter.topics.iter().all(|topic| self.standing.contains(topic))
    }

    /// Opens a stream, and closes the previous one shortly after, so that no notification is lost
    /// between them. Meanwhile, notifications may arrive on both, and in another order than the
    /// server has sent them.
    async fn open(&mut self, filter: &ListenFilter) -> Result<(), StreamRefused> {
        let opening = self.line.open(filter.params(self.version), StreamPurpose::News);
        let too_late = StreamRefused::Fault(UpstreamError::Timeout { after: STREAM_OPEN_TIMEOUT });
        let mut stream = timeout(STREAM_OPEN_TIMEOUT, opening).await.unwrap_or(Err(too_late))?;
        let agreed = match stream.acknowledged().await? {
            Some(params) => agreed(&params),
            None => filter.topics.iter().cloned().collect(),
        };
        while self.before.try_join_next().is_some() {}
        if let Some(before) = self.current.replace(stream) {
            self.before.spawn(async move {
                sleep(STREAM_OVERLAP).await;
                drop(before);
            });
        }
        self.pace.opened();
        if std::mem::take(&mut self.lost) {
            self.inbox.missed_lists();
        }
        for topic in &filter.topics {
            let stood = self.standing.contains(topic);
            let continuity = if stood { Continuity::Kept } else { Continuity::Broken };
            let verdict = agreed.contains(topic).then_some(()).ok_or(SubscriptionRefusal::LeftOut);
            self.inbox.subscriptions.settle(topic, verdict, continuity);
        }
        self.standing = agreed;
        Ok(())
    }

    /// Decides if a failure is acceptable: the server refuses, and the stream was not open before.
    /// Any open stream stays.
    fn put_up_with(&self, filter: &ListenFilter, no_stream: StreamRefused) -> bool {
        let settled = self.current.is_some() || self.pace.opened.is_none();
        let refusal = match no_stream {
            StreamRefused::Refused(refusal) if settled => refusal,
            StreamRefused::Refused(_) => return false,
            StreamRefused::Fault(fault) => {
                let server = self.inbox.server();
                tracing::debug!(%server, fault = self.inbox.describe(&fault), "no change stream");
                return false;
            }
        };
        for topic in filter.topics.iter().filter(|topic| !self.standing.contains(topic)) {
            let refused = Err(refusal.clone());
            self.inbox.subscriptions.settle(topic, refused, Continuity::Kept);
        }
        true
    }

    /// Waits until another stream is due. Returns false if none ever will be.
    async fn wait(&mut self) -> bool {
        let Some(current) = &mut self.current else {
            if self.changes.changed().await.is_err() {
                return false;
            }
            // A client's subscriptions arrive one by one.
            self.pace.after_change().await;
            return true;
        };
        tokio::select! {
            () = current.ended() => {
                self.current = None;
                self.standing.clear();
                self.lost = true;
                self.inbox.subscriptions.forget_refusals();
                self.pace.after_loss().await;
            }
            changed = self.changes.changed() => {
                if changed.is_err() {
                    return false;
                }
                self.pace.after_change().await;
            }
        }
        true
    }
}

/// Pace of opening streams. Lost streams are reopened with backoff, because each opening costs a
/// list request. A pause collects changes of the subscriptions.
struct ReopenPace {
    backoff: Backoff,
    pause: Backoff,
    opened: Option<Instant>,
    /// Time at which the stream was opened, until its loss.
    open_since: Option<Instant>,
}

impl ReopenPace {
    fn new() -> Self {
        let backoff = Backoff::new(FIRST_WAIT, LAST_WAIT);
        Self {
            backoff,
            pause: Backoff::new(FIRST_PAUSE, LAST_PAUSE).with_stable(CALM_TIME),
            opened: None,
            open_since: None,
        }
    }

    fn opened(&mut self) {
        self.opened = Some(clock::now());
        self.open_since = self.opened;
    }

    async fn after_loss(&mut self) {
        let ran = self.open_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        sleep(self.backoff.wait_after(ran)).await;
    }

    async fn after_change(&mut self) {
        let ran = self.opened.map_or(Duration::MAX, |opened| opened.elapsed());
        sleep(self.pause.wait_after(ran)).await;
    }
}

/// Topics that a stream is requested for.
struct ListenFilter {
    tells: ChangeCapabilities,
    topics: Vec<Topic>,
    unsupported: Vec<Topic>,
    /// Topics that have streams of their own.
    unknown: Vec<Topic>,
}

impl ListenFilter {
    fn new(tells: ChangeCapabilities, wanted: Vec<Topic>) -> Self {
        let mut filter = Self { tells, topics: vec![], unsupported: vec![], unknown: vec![] };
        for topic in wanted {
            let to = match topic {
                Topic::Resource(_) if tells.updates => &mut filter.topics,
                Topic::Task(_) if tells.tasks => &mut filter.topics,
                Topic::Resource(_) | Topic::Task(_) => &mut filter.unsupported,
                Topic::Unknown(_) => &mut filter.unknown,
            };
            to.push(topic);
        }
        filter
    }

    fn is_empty(&self) -> bool {
        !self.tells.changes() && self.topics.is_empty()
    }

    fn params(&self, version: ProtocolVersion) -> Bytes {
        let (mut uris, mut tasks) = (Vec::new(), Vec::new());
        for topic in &self.topics {
            match topic {
                Topic::Resource(uri) => uris.push(json!(uri)),
                Topic::Task(id) => tasks.push(json!(id)),
                Topic::Unknown(_) => {}
            }
        }
        let mut capabilities = json!({});
        if !tasks.is_empty() {
            capabilities = json!({ "extensions": { meta::TASKS: {} } });
        }
        let ChangeCapabilities { tools, prompts, resources, .. } = self.tells;
        let filter = notification::listen_filter([tools, prompts, resources], uris, tasks);
        modern_params_of(version, json!({ "notifications": filter }), &capabilities)
    }
}

/// Returns the topics that an acknowledgement names.
fn agreed(params: &[u8]) -> HashSet<Topic> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct FilterAck {
        notifications: Agreed,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Agreed {
        // `null` counts as absent.
        resource_subscriptions: Option<Vec<String>>,
        task_ids: Option<Vec<String>>,
    }
    let agreed = object::<FilterAck>(params).unwrap_or_default().notifications;
    let uris = agreed.resource_subscriptions.unwrap_or_default();
    let ids = agreed.task_ids.unwrap_or_default();
    let uris = uris.iter().map(|uri| Topic::resource(uri));
    uris.chain(ids.iter().map(|id| Topic::task(id))).collect()
}

/// Time limit for a server to open a stream, and to acknowledge it.
const STREAM_OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a replaced stream stays open, so that its last messages arrive.
const STREAM_OVERLAP: Duration = Duration::from_millis(250);
/// Backoff before a lost stream is reopened.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_mins(1);
/// Pause between a change of the subscriptions and the request for a new stream.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_millis(500);
/// Time without a change after which the pause is reset.
const CALM_TIME: Duration = Duration::from_secs(2);
/// Maximum number of signals that wait to be read.
const MAX_UNREAD_SIGNALS: usize = 64;

#[cfg(test)]
mod tests;
