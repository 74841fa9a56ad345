//! What servers tell outside of their answers, and who is to hear of it.
//!
//! A list that is another concerns everybody: the server is listed again, and
//! the streams to clients compare what they show. A resource or a task that is
//! another concerns those who subscribed to it. [`Subscriptions`] knows them,
//! per server: however many clients want the same, the server is asked once,
//! and not at all once nobody does. They outlive connections, restarts and
//! reloads; after each of these [`listen`] (Modern) and [`subscribe`] (Legacy)
//! ask again, and tell whoever may have missed something.

mod hub;
pub(in crate::upstream) mod levels;
pub(in crate::upstream) mod listen;
mod listener;
mod mailbox;
pub(in crate::upstream) mod subscribe;
mod subscriptions;

pub use hub::SubscriptionHub;
pub use listener::CallLog;
pub use mailbox::{ClientNotice, Mailbox, NoticeSubject};
pub use subscriptions::{SubscriptionGuard, SubscriptionRefusal, Subscriptions};

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{Notify, Semaphore};

use crate::call::ServerName;
use crate::jsonrpc::object;
use crate::mcp::notification;
use crate::telemetry::metrics::ServerMetrics;
use crate::upstream::interaction::outside::SEEKING;
use crate::upstream::lists::reads::ReadCache;

/// One thing at one server that clients may ask to hear of, by the server's
/// own name for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// A resource, by its URI.
    Resource(Arc<str>),
    /// A task, by its id.
    Task(Arc<str>),
    /// Whatever members of a `subscriptions/listen` filter stand for that the
    /// gateway does not know: a raw object of them.
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

    /// What these raw members of a filter stand for.
    pub fn unknown(members: &str) -> Self {
        Self::Unknown(members.into())
    }

    /// The notification's params where the server itself sent none.
    fn params(&self) -> Option<Bytes> {
        match self {
            Self::Resource(uri) => Some(json!({ "uri": &**uri }).to_string().into()),
            // What became of these nobody but the server knows.
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
    /// One of the lists is another.
    ListChanged,
    /// Something is another that clients may have subscribed to, with the
    /// notification's params.
    About(Topic, Bytes),
}

impl News {
    /// Reads a notification; `None` where it is of another kind.
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
            notification::TOOLS_CHANGED
            | notification::PROMPTS_CHANGED
            | notification::RESOURCES_CHANGED => Some(Self::ListChanged),
            notification::RESOURCE_UPDATED => {
                let params = params?;
                let Updated { uri } = object(params).ok()?;
                Some(Self::About(Topic::resource(&uri), params.clone()))
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

/// Where a connection puts what its server tells.
#[derive(Debug)]
pub struct Inbox {
    /// The lists may be others.
    changed: Arc<Notify>,
    /// What clients want to hear of.
    pub(in crate::upstream) subscriptions: Arc<Subscriptions>,
    /// What clients have read, as long as it has not changed.
    pub(in crate::upstream) reads: Arc<ReadCache>,
    /// Told whenever a call begins that a question can belong to.
    pub(in crate::upstream) begun: Notify,
    /// Places for questions that belong to no call so far.
    pub(in crate::upstream) seeking: Arc<Semaphore>,
    /// Where what nobody hears is counted.
    metrics: OnceLock<Arc<ServerMetrics>>,
}

impl Inbox {
    /// An inbox that has the lists fetched through `changed`.
    pub(in crate::upstream) fn new(
        changed: Arc<Notify>,
        subscriptions: Arc<Subscriptions>,
    ) -> Arc<Self> {
        Arc::new(Self {
            changed,
            subscriptions,
            reads: Arc::default(),
            begun: Notify::new(),
            seeking: Arc::new(Semaphore::new(SEEKING)),
            metrics: OnceLock::new(),
        })
    }

    /// Has what nobody hears counted.
    pub(in crate::upstream) fn count_in(&self, metrics: &Arc<ServerMetrics>) {
        let _ = self.metrics.set(Arc::clone(metrics));
    }

    /// Takes a notification that belongs to no call. What is of no kind known
    /// here goes to the one client that it can be for, if there is one.
    pub(in crate::upstream) fn hear(&self, method: &str, params: Option<&Bytes>) {
        if !self.sort(method, params) && !is_of_a_call(method) {
            self.subscriptions.pass(method, params);
        }
    }

    /// Takes a notification from a call's own stream; false where it is of no
    /// kind known here, and the call's.
    pub(in crate::upstream) fn sort(&self, method: &str, params: Option<&Bytes>) -> bool {
        match News::parse(method, params) {
            Some(News::ListChanged) => {
                if method == notification::RESOURCES_CHANGED {
                    self.reads.clear();
                }
                self.relist();
            }
            Some(News::About(topic, params)) => {
                // Before anybody hears of it, and reads again.
                if let Topic::Resource(uri) = &topic {
                    self.reads.forget(uri);
                }
                // A Legacy server tells of tasks unasked.
                return self.subscriptions.deliver(&topic, &params)
                    || matches!(topic, Topic::Resource(_));
            }
            None => return false,
        }
        true
    }

    /// Takes a line of the server's log that is tied to no call. Where the
    /// connection is one session's own it is its client's, and else nobody's.
    pub(in crate::upstream) fn line(&self, method: &str, params: &Bytes) {
        if self.subscriptions.is_ones_own() {
            self.subscriptions.pass(method, Some(params));
        } else if let Some(metrics) = self.metrics.get() {
            metrics.count_lost_line();
        }
    }

    /// Whose inbox it is.
    pub(in crate::upstream) fn server(&self) -> &ServerName {
        self.subscriptions.server()
    }

    /// The lists may be others.
    pub(in crate::upstream) fn relist(&self) {
        self.changed.notify_one();
    }

    /// Nobody listened for a while: anything may have changed.
    pub(in crate::upstream) fn missed(&self) {
        self.missed_lists();
        self.subscriptions.missed();
    }

    /// The same, as far as it is about no subscription.
    fn missed_lists(&self) {
        self.reads.clear();
        self.relist();
    }
}

/// Whether a notification means nothing outside of a call, or is the other
/// side's to send.
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

    #[test]
    fn what_a_server_tells_is_told_apart() {
        let params = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        for (method, said, news) in [
            ("notifications/tools/list_changed", None, Some(News::ListChanged)),
            ("notifications/prompts/list_changed", None, Some(News::ListChanged)),
            ("notifications/resources/list_changed", params("{}"), Some(News::ListChanged)),
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
