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
pub(super) mod listen;
mod mailbox;
mod own;
pub(super) mod subscribe;
mod subscriptions;

pub use hub::Hub;
pub use mailbox::{Letter, Mailbox};
pub use own::Listener;
pub use subscriptions::{Held, Refusal, Subscriptions};

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Notify;

use crate::call::{Outside, ServerName};
use crate::jsonrpc::object;
use crate::link::reads::Reads;
use crate::mcp::{LogLevel, notification};
use crate::telemetry::metrics::ServerMetrics;

use own::Own;

/// One thing at one server that clients may ask to hear of, by the server's
/// own name for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// A resource, by its URI.
    Resource(Arc<str>),
    /// A task, by its id.
    Task(Arc<str>),
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

    /// The notification's params where the server itself sent none.
    fn params(&self) -> Option<Bytes> {
        match self {
            Self::Resource(uri) => Some(json!({ "uri": &**uri }).to_string().into()),
            // What became of a task nobody but its server knows.
            Self::Task(_) => None,
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(name) | Self::Task(name) => f.write_str(name),
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
        struct Task {
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
                let Task { task_id } = object(params).ok()?;
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
    pub(super) subscriptions: Arc<Subscriptions>,
    /// What clients have read, as long as it has not changed.
    pub(super) reads: Arc<Reads>,
    /// The client, where the connection is one's own.
    own: OnceLock<Own>,
    /// Where what nobody hears is counted.
    metrics: OnceLock<Arc<ServerMetrics>>,
}

impl Inbox {
    /// An inbox that has the lists fetched through `changed`.
    pub(super) fn new(changed: Arc<Notify>, subscriptions: Arc<Subscriptions>) -> Arc<Self> {
        Arc::new(Self {
            changed,
            subscriptions,
            reads: Arc::default(),
            own: OnceLock::new(),
            metrics: OnceLock::new(),
        })
    }

    /// Has what nobody hears counted.
    pub(super) fn count_in(&self, metrics: &Arc<ServerMetrics>) {
        let _ = self.metrics.set(Arc::clone(metrics));
    }

    /// Takes a notification; false where it is of no kind that is known here.
    pub(super) fn hear(&self, method: &str, params: Option<&Bytes>) -> bool {
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
                self.subscriptions.deliver(&topic, &params);
            }
            None => return false,
        }
        true
    }

    /// Takes a line of the server's log that is tied to no call. Where the
    /// connection is one client's own it is that client's, and else nobody's.
    pub(super) fn line(&self, method: &str, params: &Bytes) {
        let heard = self.own.get().is_some_and(|own| own.line(method, params));
        if let Some(metrics) = self.metrics.get().filter(|_| !heard) {
            metrics.count_lost_line();
        }
    }

    /// Notes that the connection serves one client and no other, and how that
    /// is reached outside of its calls, if it is.
    #[allow(dead_code, reason = "for connections of one client's own")]
    pub(super) fn serves_one(&self, client: Option<&Outside>) {
        let own = self.own.get_or_init(Own::default);
        if let Some(client) = client {
            own.reach(client);
        }
    }

    /// The lines of such a connection, for a call that hears those of that
    /// level, whichever way they come.
    pub(super) fn listen(&self, least: Option<LogLevel>) -> Option<Arc<Listener>> {
        Some(self.own.get()?.listen(least?))
    }

    /// Whose inbox it is.
    fn server(&self) -> &ServerName {
        self.subscriptions.server()
    }

    /// The lists may be others.
    pub(super) fn relist(&self) {
        self.changed.notify_one();
    }

    /// Nobody listened for a while: anything may have changed.
    pub(super) fn missed(&self) {
        self.reads.clear();
        self.relist();
        self.subscriptions.missed();
    }
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
