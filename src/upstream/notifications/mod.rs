//! Notifications that servers send outside of responses, and their recipients.
//!
//! A changed list concerns all clients: the server is listed again, and the
//! streams to clients compare what they have announced. A changed resource or
//! task concerns its subscribers. [`Subscriptions`] holds them per server:
//! however many clients subscribe to a topic, the server is asked once, and the
//! subscription ends with the last of them. Subscriptions outlive connections,
//! restarts and reloads; after each of these [`listen`] (Modern) and
//! [`subscribe`] (Legacy) renew them, and notify the clients that may have
//! missed a change.

mod hub;
pub(in crate::upstream) mod levels;
pub(in crate::upstream) mod listen;
mod call_log;
mod mailbox;
pub(in crate::upstream) mod subscribe;
mod subscriptions;

pub(super) use call_log::CallLog;
pub use hub::SubscriptionHub;
pub use mailbox::{ClientNotice, Mailbox, NoticeSubject};
pub use subscriptions::{SubscriptionGuard, SubscriptionRefusal, Subscriptions};

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{Notify, Semaphore};

use crate::call::{Failure, ServerName};
use crate::catalog::{Kind, MAX_URI};
use crate::config::ServerSecrets;
use crate::jsonrpc::object;
use crate::mcp::notification;
use crate::telemetry::metrics::ServerMetrics;
use crate::upstream::UpstreamError;
use crate::upstream::interaction::routing::SEEKING;
use crate::upstream::lists::changes::ChangedLists;
use crate::upstream::lists::reads::ReadCache;

/// A subject at one server that clients can subscribe to, by the server's own
/// name for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// A resource, by its URI.
    Resource(Arc<str>),
    /// A task, by its id.
    Task(Arc<str>),
    /// Members of a `subscriptions/listen` filter that the gateway does not
    /// know: a raw object of them.
    Unknown(Arc<str>),
}

impl Topic {
    /// The resource of this URI.
    pub fn resource(uri: &str) -> Self {
        Self::Resource(uri.into())
    }

    /// The task of this id.
    pub fn task(id: &str) -> Self {
        Self::Task(id.into())
    }

    /// The topic of these raw members of a filter.
    pub fn unknown(members: &str) -> Self {
        Self::Unknown(members.into())
    }

    /// The params of a notification that the server did not send itself.
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
    /// Reads a notification; `None` if it is of another kind.
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
                // No client subscribes to longer ones.
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

/// The destination of the notifications on a connection.
#[derive(Debug)]
pub(super) struct Inbox {
    /// The lists that may have changed.
    changes: Arc<ChangedLists>,
    /// The clients' subscriptions.
    pub(in crate::upstream) subscriptions: Arc<Subscriptions>,
    /// Cached reads, as long as they are valid.
    pub(in crate::upstream) reads: Arc<ReadCache>,
    /// Notified whenever a call begins that server requests can belong to.
    pub(in crate::upstream) begun: Notify,
    /// Permits for server requests that belong to no call so far.
    pub(in crate::upstream) seeking: Arc<Semaphore>,
    /// The number of messages that could not be used.
    useless: AtomicU64,
    /// Counts log lines without a recipient.
    metrics: OnceLock<Arc<ServerMetrics>>,
    /// What the log must not show of errors.
    secrets: OnceLock<ServerSecrets>,
}

impl Inbox {
    /// An inbox that requests the lists through `changes`.
    pub(in crate::upstream) fn new(
        changes: Arc<ChangedLists>,
        subscriptions: Arc<Subscriptions>,
    ) -> Arc<Self> {
        Arc::new(Self {
            changes,
            subscriptions,
            reads: Arc::default(),
            begun: Notify::new(),
            seeking: Arc::new(Semaphore::new(SEEKING)),
            useless: AtomicU64::new(0),
            metrics: OnceLock::new(),
            secrets: OnceLock::new(),
        })
    }

    /// Sets the secrets of the server.
    pub(in crate::upstream) fn keep_secret(&self, secrets: &ServerSecrets) {
        let _ = self.secrets.set(secrets.clone());
    }

    /// The chain of causes of an error in one line, for the log.
    pub(in crate::upstream) fn describe(&self, fault: &UpstreamError) -> String {
        fault.chain_without(self.secrets())
    }

    /// The outward form of an error of the server `name`.
    pub(in crate::upstream) fn fail(&self, name: &ServerName, fault: UpstreamError) -> Failure {
        fault.into_failure(name, self.secrets())
    }

    fn secrets(&self) -> &ServerSecrets {
        self.secrets.get_or_init(ServerSecrets::default)
    }

    /// Sets the metrics that count log lines without a recipient.
    pub(in crate::upstream) fn count_in(&self, metrics: &Arc<ServerMetrics>) {
        let _ = self.metrics.set(Arc::clone(metrics));
    }

    /// Handles a notification that belongs to no call. If its kind is unknown,
    /// it is passed to the only client that it can be for, if there is one.
    pub(in crate::upstream) fn hear(&self, method: &str, params: Option<&Bytes>) {
        if !self.sort(method, params) && !is_of_a_call(method) {
            self.subscriptions.pass(method, params);
        }
    }

    /// Handles a notification from a call's own stream; false if its kind is
    /// unknown, and it belongs to the call.
    pub(in crate::upstream) fn sort(&self, method: &str, params: Option<&Bytes>) -> bool {
        match News::parse(method, params) {
            Some(News::ListChanged(kinds)) => {
                if method == notification::RESOURCES_CHANGED {
                    self.reads.clear();
                }
                self.changes.mark(kinds);
            }
            Some(News::About(topic, params)) => {
                // Before the subscribers are notified and read again.
                if let Topic::Resource(uri) = &topic {
                    self.reads.forget(uri);
                }
                // A Legacy server sends task notifications without a
                // subscription.
                return self.subscriptions.deliver(&topic, &params)
                    || matches!(topic, Topic::Resource(_));
            }
            None => return false,
        }
        true
    }

    /// Handles a line of the server's log that belongs to no call. If the
    /// connection belongs to one session, its client receives the line;
    /// otherwise nobody does.
    pub(in crate::upstream) fn line(&self, method: &str, params: &Bytes) {
        if self.subscriptions.is_ones_own() {
            self.subscriptions.pass(method, Some(params));
        } else if let Some(metrics) = self.metrics.get() {
            metrics.count_lost_line();
        }
    }

    /// Counts a message that cannot be used; whether to log it: the first few,
    /// then ever fewer, so that a server that sends nothing else does not fill
    /// the log.
    pub(in crate::upstream) fn is_worth_a_warning(&self) -> bool {
        let before = self.useless.fetch_add(1, Ordering::Relaxed);
        before < TOLD || (before + 1).is_power_of_two()
    }

    /// Counts a line on the standard output of a child that is no message; whether it is the
    /// server's first.
    pub(in crate::upstream) fn is_first_stdout_line(&self) -> bool {
        match self.metrics.get() {
            Some(metrics) => metrics.count_stdout_line() == 0,
            None => self.is_worth_a_warning(),
        }
    }

    /// The name of the server.
    pub(in crate::upstream) fn server(&self) -> &ServerName {
        self.subscriptions.server()
    }

    /// Requests all lists again.
    pub(in crate::upstream) fn relist(&self) {
        self.changes.mark_all();
    }

    /// After a time without a stream: anything may have changed.
    pub(in crate::upstream) fn missed(&self) {
        self.missed_lists();
        self.subscriptions.missed();
    }

    /// Like [`missed`](Self::missed), without the subscriptions.
    fn missed_lists(&self) {
        self.reads.clear();
        self.relist();
    }
}

/// The number of unusable messages that are all logged.
const TOLD: u64 = 8;

/// Whether a notification has no meaning outside of a call, or is not a
/// server's to send.
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
    fn what_a_server_tells_is_told_apart() {
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
