//! Messages that servers send outside responses, and their recipients.
//!
//! A changed list concerns all clients: the gateway lists the server again, and the streams to
//! clients compare the result with their last announcement. A changed resource or task concerns its
//! subscribers. [`Subscriptions`] holds them per server. However many clients subscribe to a topic,
//! the server receives one subscription, which ends with the last subscriber. Subscriptions outlive
//! connections, restarts and reloads. After each of these, [`listen`] (Modern) and [`subscribe`]
//! (Legacy) renew them, and notify the clients that may have missed a change. [`routing`] finds the
//! client for a request of a Legacy server that did not arrive on a call's stream.

mod hub;
pub(super) mod levels;
pub(super) mod listen;
mod call_log;
pub(super) mod changes;
mod mailbox;
pub(super) mod routing;
pub(super) mod subscribe;
mod subscriptions;

pub(super) use call_log::CallLog;
pub use hub::SubscriptionHub;
pub use mailbox::{ClientNotice, Mailbox, NoticeSubject};
use routing::QuestionRouting;
pub use routing::QuestionableSession;
pub use subscriptions::{SubscriptionGuard, SubscriptionRefusal, Subscriptions};

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use crate::call::{Failure, ServerName};
use crate::catalog::{Kind, MAX_URI};
use crate::config::ServerSecrets;
use crate::jsonrpc::object;
use crate::mcp::notification;
use crate::telemetry::metrics::{ServerMetric, ServerMetrics};
use crate::upstream::UpstreamError;
use crate::upstream::notifications::changes::ChangedLists;
use crate::upstream::read_cache::ReadCache;

/// A subject at one server to which clients can subscribe, by the server's own name for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// A resource, by its URI.
    Resource(Arc<str>),
    /// A task, by its id.
    Task(Arc<str>),
    /// Members of a `subscriptions/listen` filter that the gateway does not know, as a raw object.
    Unknown(Arc<str>),
}

impl Topic {
    /// Creates the topic of the resource with this URI.
    pub fn resource(uri: &str) -> Self {
        Self::Resource(uri.into())
    }

    /// Creates the topic of the task with this id.
    pub fn task(id: &str) -> Self {
        Self::Task(id.into())
    }

    /// Creates the topic of these raw members of a filter.
    pub fn unknown(members: &str) -> Self {
        Self::Unknown(members.into())
    }

    /// Returns the params of a notification that the server did not send itself.
    fn params(&self) -> Option<Bytes> {
        match self {
            Self::Resource(uri) => Some(json!({ "uri": &**uri }).to_string().into()),
            // Only the server knows the state of these.
            Self::Task(_) | Self::Unknown(_) => None,
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(name) | Self::Task(name) | Self::Unknown(name) => f.write_str(name),
        }
    }
}

/// A notification that belongs to no request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum News {
    /// Lists of these kinds have changed.
    ListChanged(&'static [Kind]),
    /// A topic has changed, with the notification's params.
    About(Topic, Bytes),
}

impl News {
    /// Reads a notification. Returns `None` if it is of another kind.
    fn parse(method: &str, params: Option<&Bytes>) -> Option<Self> {
        #[derive(Deserialize)]
        struct Updated {
            uri: String,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct TaskStatusParams {
            task_id: String,
        }
        match method {
            notification::TOOLS_CHANGED => Some(Self::ListChanged(&[Kind::Tools])),
            notification::PROMPTS_CHANGED => Some(Self::ListChanged(&[Kind::Prompts])),
            // Skills are resources, too, and have no notification of their own.
            notification::RESOURCES_CHANGED => {
                Some(Self::ListChanged(&[Kind::Resources, Kind::Templates, Kind::Skills]))
            }
            notification::RESOURCE_UPDATED => {
                let params = params?;
                let Updated { uri } = object(params).ok()?;
                // No client can subscribe to a longer one.
                let topic = (uri.len() <= MAX_URI).then(|| Topic::resource(&uri));
                Some(Self::About(topic?, params.clone()))
            }
            notification::TASK | notification::TASK_STATUS => {
                let params = params?;
                let TaskStatusParams { task_id } = object(params).ok()?;
                Some(Self::About(Topic::task(&task_id), params.clone()))
            }
            _ => None,
        }
    }
}

/// Destination of the notifications on a connection.
#[derive(Debug)]
pub(super) struct Inbox {
    /// The lists that may have changed.
    changes: Arc<ChangedLists>,
    /// The clients' subscriptions.
    pub(super) subscriptions: Arc<Subscriptions>,
    /// Cached reads, kept while they are valid.
    pub(super) reads: Arc<ReadCache>,
    /// Finds clients for the server's requests.
    pub(super) question_routing: QuestionRouting,
    /// Number of unusable messages.
    useless: AtomicU64,
    /// Counts log lines without a recipient.
    metrics: OnceLock<Arc<ServerMetrics>>,
    /// Secrets to hide from errors in the log.
    secrets: OnceLock<ServerSecrets>,
}

impl Inbox {
    /// Creates an inbox that requests the lists through `changes`.
    pub(super) fn new(changes: Arc<ChangedLists>, subscriptions: Arc<Subscriptions>) -> Arc<Self> {
        Arc::new(Self {
            changes,
            subscriptions,
            reads: Arc::default(),
            question_routing: QuestionRouting::default(),
            useless: AtomicU64::new(0),
            metrics: OnceLock::new(),
            secrets: OnceLock::new(),
        })
    }

    /// Sets the secrets of the server.
    pub(super) fn keep_secret(&self, secrets: &ServerSecrets) {
        let _ = self.secrets.set(secrets.clone());
    }

    /// Returns the chain of causes of an error in one line, for the log.
    pub(super) fn describe(&self, fault: &UpstreamError) -> String {
        fault.chain_without(self.secrets())
    }

    /// Converts an error of the server `name` to its outward form.
    pub(super) fn fail(&self, name: &ServerName, fault: UpstreamError) -> Failure {
        fault.into_failure(name, self.secrets())
    }

    fn secrets(&self) -> &ServerSecrets {
        self.secrets.get_or_init(ServerSecrets::default)
    }

    /// Sets the metrics that count log lines without a recipient.
    pub(super) fn count_in(&self, metrics: &Arc<ServerMetrics>) {
        let _ = self.metrics.set(Arc::clone(metrics));
    }

    /// Handles a notification that belongs to no call. If its kind is unknown, it goes to the only
    /// possible client, if there is exactly one.
    pub(super) fn hear(&self, method: &str, params: Option<&Bytes>) {
        if !self.sort(method, params) && !is_of_a_call(method) {
            self.subscriptions.pass(method, params);
        }
    }

    /// Handles a notification from a call's own stream. Returns false if its kind is unknown, so
    /// that it belongs to the call.
    pub(super) fn sort(&self, method: &str, params: Option<&Bytes>) -> bool {
        match News::parse(method, params) {
            Some(News::ListChanged(kinds)) => {
                if method == notification::RESOURCES_CHANGED {
                    self.reads.clear();
                }
                self.changes.mark(kinds);
            }
            Some(News::About(topic, params)) => {
                // Done first, because the subscribers read the resource again once they are
                // notified.
                if let Topic::Resource(uri) = &topic {
                    self.reads.forget(uri);
                }
                // A Legacy server sends task notifications without a subscription.
                return self.subscriptions.deliver(&topic, &params)
                    || matches!(topic, Topic::Resource(_));
            }
            None => return false,
        }
        true
    }

    /// Handles a line of the server's log that belongs to no call. If the connection belongs to one
    /// session, its client receives the line. Otherwise the line is dropped and counted.
    pub(super) fn line(&self, method: &str, params: &Bytes) {
        if self.subscriptions.is_ones_own() {
            self.subscriptions.pass(method, Some(params));
        } else if let Some(metrics) = self.metrics.get() {
            metrics.count(ServerMetric::LostLines);
        }
    }

    /// Counts an unusable message. Returns true if it is to be logged: the first few, then fewer
    /// and fewer, so that a server that sends nothing else does not fill the log.
    pub(super) fn is_worth_a_warning(&self) -> bool {
        let before = self.useless.fetch_add(1, Ordering::Relaxed);
        before < LOGGED_USELESS_MESSAGES || (before + 1).is_power_of_two()
    }

    /// Counts a line on a child's standard output that is not a message. Returns true for the
    /// server's first one.
    pub(super) fn is_first_stdout_line(&self) -> bool {
        match self.metrics.get() {
            Some(metrics) => metrics.count(ServerMetric::StdoutLines) == 0,
            None => self.is_worth_a_warning(),
        }
    }

    /// Returns the name of the server.
    pub(super) fn server(&self) -> &ServerName {
        self.subscriptions.server()
    }

    /// Requests all lists again.
    pub(super) fn relist(&self) {
        self.changes.mark_all();
    }

    /// Handles the end of a time without a stream, in which anything may have changed.
    pub(super) fn missed(&self) {
        self.missed_lists();
        self.subscriptions.missed();
    }

    /// Like [`missed`](Self::missed), without the subscriptions.
    pub(super) fn missed_lists(&self) {
        self.reads.clear();
        self.relist();
    }
}

/// Number of unusable messages that are all logged.
const LOGGED_USELESS_MESSAGES: u64 = 8;

/// Returns true if a notification has no meaning outside a call, or if servers may not send it.
fn is_of_a_call(method: &str) -> bool {
    matches!(
        method,
        notification::PROGRESS
            | notification::CANCELLED
            | notification::MESSAGE
            | notification::ACKNOWLEDGED
            | notification::INITIALIZED
            | notification::ROOTS_CHANGED
            | notification::RESOURCE_UPDATED
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::ServerName;
    use crate::upstream::owner::InstanceKey;

    #[test]
    fn an_error_is_described_without_the_servers_secrets() {
        let hub = Arc::new(SubscriptionHub::default());
        let subscriptions = hub.of(&ServerName::new("s").unwrap(), &InstanceKey::main());
        let inbox = Inbox::new(Arc::default(), subscriptions);
        inbox.keep_secret(&ServerSecrets::new(["hunter2-hunter2"]));
        let fault = UpstreamError::Refused { code: 1, message: "no: hunter2-hunter2".into() };
        let described = inbox.describe(&fault);
        assert!(described.contains("no: ***"), "{described}");
    }

    #[test]
    fn kinds_of_server_notifications_are_distinguished() {
        let params = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        for (method, said, news) in [
            ("notifications/tools/list_changed", None, Some(News::ListChanged(&[Kind::Tools]))),
            ("notifications/prompts/list_changed", None, Some(News::ListChanged(&[Kind::Prompts]))),
            (
                "notifications/resources/list_changed",
                params("{}"),
                Some(News::ListChanged(&[Kind::Resources, Kind::Templates, Kind::Skills])),
            ),
            (
                "notifications/resources/updated",
                params(r#"{"uri":"a:b"}"#),
                Some(News::About(Topic::resource("a:b"), Bytes::from_static(br#"{"uri":"a:b"}"#))),
            ),
            (
                "notifications/tasks",
                params(r#"{"taskId":"7"}"#),
                Some(News::About(Topic::task("7"), Bytes::from_static(br#"{"taskId":"7"}"#))),
            ),
            ("notifications/resources/updated", params(r#"{"uri":7}"#), None),
            ("notifications/resources/updated", None, None),
            ("notifications/message", params("{}"), None),
        ] {
            assert_eq!(News::parse(method, said.as_ref()), news, "{method}");
        }
    }
}
