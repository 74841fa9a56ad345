//! `subscriptions/listen` at a Modern server: one stream for all that anybody
//! wants to hear of.

mod unknown;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::call::Answer;
use crate::jsonrpc::object;
use crate::mcp::{ProtocolVersion, code, meta};
use crate::upstream::UpstreamError;
use crate::upstream::transport::peer::{ChangeCapabilities, Peer, modern_params_of};

use super::subscriptions::{Continuity, SubscriptionRefusal};
use super::{Inbox, Topic};

/// How a transport opens a stream.
pub(in crate::upstream) trait ListenTransport: Send + Sync + 'static {
    /// Asks the server to listen, with these params. What concerns the stream
    /// itself goes into its signals.
    fn open(
        &self,
        params: Bytes,
        carries: StreamPurpose,
    ) -> impl Future<Output = Result<ChangeStream, StreamRefused>> + Send;
}

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum StreamPurpose {
    /// What goes into the inbox.
    News,
    /// What nobody here knows: it goes into the stream's own signals.
    Unknown,
}

/// Why there is no stream.
#[derive(Debug)]
pub(in crate::upstream) enum StreamRefused {
    /// The server has none to offer, or not for what it was asked.
    Refused(SubscriptionRefusal),
    /// Something went wrong.
    Fault(UpstreamError),
}

impl StreamRefused {
    /// What an answer to the request means: instead of a stream, or as its end
    /// before it has begun.
    pub(in crate::upstream) fn answered(answer: Option<Answer>) -> Self {
        match answer {
            Some(Answer::Error(error)) if error.code() != code::METHOD_NOT_FOUND => {
                Self::Refused(SubscriptionRefusal::Said(error))
            }
            Some(_) => Self::Refused(SubscriptionRefusal::Unsupported),
            None => Self::Fault(UpstreamError::NoAnswer),
        }
    }

    /// What a fault means: where the server says by its status that it is the
    /// request's, it will not say anything else later.
    pub(in crate::upstream) fn of(fault: UpstreamError) -> Self {
        match fault {
            UpstreamError::Status { status } if status.is_client_error() => {
                Self::Refused(SubscriptionRefusal::Unsupported)
            }
            fault => Self::Fault(fault),
        }
    }
}

/// A stream that is open until it is dropped.
pub(in crate::upstream) struct ChangeStream {
    signals: mpsc::Receiver<StreamSignal>,
    _held: Box<dyn Send>,
}

impl ChangeStream {
    /// A stream that gives these signals, and ends when `held` is dropped.
    pub(in crate::upstream) fn new(
        signals: mpsc::Receiver<StreamSignal>,
        held: impl Send + 'static,
    ) -> Self {
        Self { signals, _held: Box::new(held) }
    }

    /// A stream's two ends.
    pub(in crate::upstream) fn channel()
    -> (mpsc::Sender<StreamSignal>, mpsc::Receiver<StreamSignal>) {
        mpsc::channel(SIGNALS)
    }

    pub(super) async fn acknowledged(&mut self) -> Result<Option<Bytes>, StreamRefused> {
        match timeout(PATIENCE, self.signals.recv()).await {
            Ok(Some(StreamSignal::Acknowledged(params))) => Ok(Some(params)),
            Ok(Some(StreamSignal::Ended(answer))) => Err(StreamRefused::answered(answer)),
            Ok(None) => Err(StreamRefused::Fault(UpstreamError::NoAnswer)),
            // It may be one that listens and does not say so.
            Ok(Some(StreamSignal::Told(..))) | Err(_) => Ok(None),
        }
    }

    async fn ended(&mut self) {
        while let Some(StreamSignal::Acknowledged(_) | StreamSignal::Told(..)) =
            self.signals.recv().await
        {}
    }

    /// The next notification of a stream that carries unknown ones; `None` at
    /// its end.
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

/// What concerns a stream itself.
#[derive(Debug)]
pub(in crate::upstream) enum StreamSignal {
    /// The params of the acknowledgement.
    Acknowledged(Bytes),
    /// A notification on a stream that carries unknown ones.
    Told(String, Option<Bytes>),
    /// The answer to the request: the stream's end.
    Ended(Option<Answer>),
}

/// Listens for as long as the connection is there.
pub(in crate::upstream) async fn listen(line: impl ListenTransport, peer: Peer, inbox: Arc<Inbox>) {
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
    /// What listens for unknown things, each on a stream of its own.
    unknown: HashMap<Topic, JoinSet<()>>,
    version: ProtocolVersion,
    tells: ChangeCapabilities,
    inbox: Arc<Inbox>,
    changes: watch::Receiver<u64>,
    /// The stream that is listened to.
    current: Option<ChangeStream>,
    /// Those before it, until what the server wrote there last has come.
    before: JoinSet<()>,
    /// What it tells of.
    standing: HashSet<Topic>,
    /// A stream was lost, and none has taken its place yet.
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
            } else if !self.has(&filter)
                && let Err(no_stream) = self.open(&filter).await
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

    /// Whether the stream that stands is the one to be asked for.
    fn has(&self, filter: &ListenFilter) -> bool {
        self.current.is_some()
            && self.standing.len() == filter.topics.len()
            && filter.topics.iter().all(|topic| self.standing.contains(topic))
    }

    /// Opens a stream and lets go of the one before it, in this order and not
    /// at once, so that nothing is lost between them.
    async fn open(&mut self, filter: &ListenFilter) -> Result<(), StreamRefused> {
        let opening = self.line.open(filter.params(self.version), StreamPurpose::News);
        let too_late = StreamRefused::Fault(UpstreamError::Timeout { after: PATIENCE });
        let mut stream = timeout(PATIENCE, opening).await.unwrap_or(Err(too_late))?;
        let agreed = match stream.acknowledged().await? {
            Some(params) => agreed(&params),
            None => filter.topics.iter().cloned().collect(),
        };
        while self.before.try_join_next().is_some() {}
        if let Some(before) = self.current.replace(stream) {
            self.before.spawn(async move {
                sleep(OVERLAP).await;
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

    /// Whether there is nothing to be done about it: the server refuses, and
    /// it is not a stream that it had offered before. What stands goes on.
    fn put_up_with(&self, filter: &ListenFilter, no_stream: StreamRefused) -> bool {
        let settled = self.current.is_some() || self.pace.opened.is_none();
        let refusal = match no_stream {
            StreamRefused::Refused(refusal) if settled => refusal,
            StreamRefused::Refused(_) => return false,
            StreamRefused::Fault(fault) => {
                let server = self.inbox.server();
                tracing::debug!(%server, fault = %fault.chain(), "no stream of changes");
                return false;
            }
        };
        for topic in filter.topics.iter().filter(|topic| !self.standing.contains(topic)) {
            let refused = Err(refusal.clone());
            self.inbox.subscriptions.settle(topic, refused, Continuity::Kept);
        }
        true
    }

    /// Waits until another stream is due; false where none ever is.
    async fn wait(&mut self) -> bool {
        let Some(current) = &mut self.current else {
            if self.changes.changed().await.is_err() {
                return false;
            }
            // What one client asks for comes one by one.
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

/// How often streams are opened: a lost one ever more rarely, because each
/// opening costs a listing; and many changes of what is wanted at once.
struct ReopenPace {
    wait: Duration,
    pause: Duration,
    opened: Option<Instant>,
}

impl ReopenPace {
    fn new() -> Self {
        Self { wait: FIRST_WAIT, pause: FIRST_PAUSE, opened: None }
    }

    fn opened(&mut self) {
        self.opened = Some(Instant::now());
    }

    async fn after_loss(&mut self) {
        if self.opened.is_some_and(|opened| opened.elapsed() >= LAST_WAIT) {
            self.wait = FIRST_WAIT;
        }
        sleep(self.wait).await;
        self.wait = (self.wait * 2).min(LAST_WAIT);
    }

    async fn after_change(&mut self) {
        let calm = self.opened.is_none_or(|opened| opened.elapsed() > CALM);
        self.pause = if calm { FIRST_PAUSE } else { (self.pause * 2).min(LAST_PAUSE) };
        sleep(self.pause).await;
    }
}

/// What a stream is asked for.
struct ListenFilter {
    tells: ChangeCapabilities,
    topics: Vec<Topic>,
    unsupported: Vec<Topic>,
    /// These have streams of their own.
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
        let mut filter = serde_json::Map::new();
        for (key, wanted) in [
            ("toolsListChanged", self.tells.tools),
            ("promptsListChanged", self.tells.prompts),
            ("resourcesListChanged", self.tells.resources),
        ] {
            if wanted {
                filter.insert(key.into(), Value::Bool(true));
            }
        }
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
        for (key, names) in [("resourceSubscriptions", uris), ("taskIds", tasks)] {
            if !names.is_empty() {
                filter.insert(key.into(), Value::Array(names));
            }
        }
        modern_params_of(version, json!({ "notifications": filter }), &capabilities)
    }
}

/// The topics that an acknowledgement names.
fn agreed(params: &[u8]) -> HashSet<Topic> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct FilterAck {
        notifications: Agreed,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Agreed {
        // `null` is nothing.
        resource_subscriptions: Option<Vec<String>>,
        task_ids: Option<Vec<String>>,
    }
    let agreed = object::<FilterAck>(params).unwrap_or_default().notifications;
    let uris = agreed.resource_subscriptions.unwrap_or_default();
    let ids = agreed.task_ids.unwrap_or_default();
    let uris = uris.iter().map(|uri| Topic::resource(uri));
    uris.chain(ids.iter().map(|id| Topic::task(id))).collect()
}

/// How long a server may take to open a stream, and to acknowledge it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a stream is heard when another has taken its place: what was on
/// its way has come by then.
const OVERLAP: Duration = Duration::from_millis(250);
/// Before a lost stream is opened again.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_mins(1);
/// From a change of what is wanted to the stream that asks for it.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_millis(500);
/// After so long without a change the pauses start over.
const CALM: Duration = Duration::from_secs(2);
/// Signals that wait to be read.
const SIGNALS: usize = 64;

#[cfg(test)]
mod tests;
