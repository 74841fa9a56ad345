//! Messages of a scripted server outside of its answers, and their recipients.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::script::Received;
use super::{Era, Inner, Upstream, Watching};
use crate::support::until;

pub const TOOLS: &str = "notifications/tools/list_changed";
pub const PROMPTS: &str = "notifications/prompts/list_changed";
pub const RESOURCES: &str = "notifications/resources/list_changed";
pub const UPDATED: &str = "notifications/resources/updated";
pub const TASK: &str = "notifications/tasks";

/// A notification, and its receivers.
#[derive(Debug, Clone)]
pub struct Tell {
    pub method: String,
    pub params: Value,
    /// The recipients.
    pub to: To,
    /// For a request to the client of one session: its id, and the session.
    pub asks: Option<(Value, String)>,
}

/// Recipients of a message.
#[derive(Debug, Clone)]
pub enum To {
    /// Every subscribed stream.
    Asked,
    /// The subscribed streams of one session, or of one child.
    In(String),
    /// All streams, subscribed or not.
    Everybody,
}

/// One stream of a server.
pub struct Listener {
    number: u64,
    inner: Arc<Inner>,
    /// The session, or the child, that it belongs to.
    session: String,
    /// Id of the `subscriptions/listen` that opened it, and the agreed filter.
    subscription: Option<(Value, Value)>,
    tells: broadcast::Receiver<Tell>,
    _watching: Watching,
}

/// A stream as a test sees it.
#[derive(Debug, Clone)]
pub struct Audience {
    pub session: String,
    pub filter: Option<Value>,
}

impl Listener {
    /// Opens the stream of a Legacy session, or of a Legacy child.
    pub fn legacy(inner: &Arc<Inner>, session: &str) -> Self {
        Self::new(inner, session, None)
    }

    /// Opens the stream of a `subscriptions/listen`.
    pub fn modern(inner: &Arc<Inner>, listen: &Received) -> Self {
        let agreed = inner.agreed(&listen.params["notifications"]);
        let id = listen.id.clone().unwrap_or_default();
        Self::new(inner, "", Some((id, agreed)))
    }

    fn new(inner: &Arc<Inner>, session: &str, subscription: Option<(Value, Value)>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let audience = Audience {
            session: session.into(),
            filter: subscription.as_ref().map(|(_, filter)| filter.clone()),
        };
        let tells = inner.tells.subscribe();
        inner.audience.lock().unwrap().insert(number, audience);
        Self {
            number,
            inner: Arc::clone(inner),
            session: session.into(),
            subscription,
            tells,
            _watching: Watching::begin(inner),
        }
    }

    /// Returns its first message.
    pub fn first(&self) -> Option<Value> {
        let (_, agreed) = self.subscription.as_ref()?;
        let params = json!({ "notifications": agreed });
        Some(self.message("notifications/subscriptions/acknowledged", params))
    }

    /// Returns the next message to send.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            let tell = self.tells.recv().await.ok()?;
            let filter = self.subscription.as_ref().map(|(_, filter)| filter);
            if let Some((id, session)) = tell.asks {
                if session == self.session {
                    let message = json!({ "jsonrpc": "2.0", "id": id, "method": tell.method, "params": tell.params });
                    return Some(message);
                }
                continue;
            }
            let wants = || self.inner.wants(&self.session, filter, &tell);
            let told = match &tell.to {
                To::Asked => wants(),
                To::In(session) => *session == self.session && wants(),
                To::Everybody => true,
            };
            if told {
                return Some(self.message(&tell.method, tell.params));
            }
        }
    }

    fn message(&self, method: &str, mut params: Value) -> Value {
        if let Some((id, _)) = &self.subscription {
            params["_meta"] = json!({ "io.modelcontextprotocol/subscriptionId": id });
        }
        json!({ "jsonrpc": "2.0", "method": method, "params": params })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.inner.audience.lock().unwrap().remove(&self.number);
        if self.session.starts_with("child-") {
            self.inner.subscribed.lock().unwrap().remove(&self.session);
        }
    }
}

impl Inner {
    /// Returns the agreed part of a filter.
    fn agreed(&self, filter: &Value) -> Value {
        let mut agreed = filter.clone();
        let unknown = self.unknown.lock().unwrap();
        let uris = agreed.get_mut("resourceSubscriptions").and_then(Value::as_array_mut);
        if let Some(uris) = uris {
            uris.retain(|uri| !unknown.contains(uri.as_str().unwrap()));
        }
        agreed
    }

    fn wants(&self, session: &str, filter: Option<&Value>, tell: &Tell) -> bool {
        let uri = &tell.params["uri"];
        let Some(filter) = filter else {
            let subscribed = self.subscribed.lock().unwrap();
            let uris = subscribed.get(session);
            let subscribed = uris.is_some_and(|uris| uris.contains(uri.as_str().unwrap_or("")));
            return tell.method != UPDATED || subscribed;
        };
        let names = |key: &str, name: &Value| {
            filter[key].as_array().is_some_and(|names| names.contains(name))
        };
        match tell.method.as_str() {
            TOOLS => filter["toolsListChanged"] == true,
            PROMPTS => filter["promptsListChanged"] == true,
            RESOURCES => filter["resourcesListChanged"] == true,
            UPDATED => names("resourceSubscriptions", uri),
            TASK => names("taskIds", &tell.params["taskId"]),
            _ => true,
        }
    }

    /// Handles `resources/subscribe` and `resources/unsubscribe`.
    pub fn subscribe(&self, asked: &Received) -> Result<String, Value> {
        let uri = asked.params["uri"].as_str().unwrap_or_default().to_owned();
        if self.unknown.lock().unwrap().contains(&uri) {
            return Err(json!({ "code": -32002, "message": "Resource not found" }));
        }
        let session = asked.header("mcp-session-id").unwrap_or_default().to_owned();
        let mut subscribed = self.subscribed.lock().unwrap();
        let uris = subscribed.entry(session).or_default();
        if asked.method.ends_with("/subscribe") {
            uris.insert(uri);
        } else {
            uris.remove(&uri);
        }
        Ok("{}".into())
    }
}

impl Upstream {
    /// Announces a change of its list of tools. Waits for a subscribed stream.
    pub async fn announce(&self) {
        self.tell(TOOLS, json!({})).await;
    }

    /// Announces a change of a resource. Waits for a subscribed stream.
    pub async fn update(&self, uri: &str) {
        self.tell(UPDATED, json!({ "uri": uri })).await;
    }

    /// Sends a notification to every subscribed stream. Waits until there is one.
    pub async fn tell(&self, method: &str, params: Value) {
        let tell = Tell { method: method.into(), params, to: To::Asked, asks: None };
        until(|| self.is_heard(&tell)).await;
        self.tell_anyway(method, tell.params);
    }

    /// Sends a notification to every subscribed stream, if any.
    pub fn tell_anyway(&self, method: &str, params: Value) {
        let tell = Tell { method: method.into(), params, to: To::Asked, asks: None };
        let _ = self.inner.tells.send(tell);
    }

    /// Sends a notification to all streams, subscribed or not.
    pub fn tell_all(&self, method: &str, params: Value) {
        let tell = Tell { method: method.into(), params, to: To::Everybody, asks: None };
        let _ = self.inner.tells.send(tell);
    }

    /// Sends a notification to the subscribed streams of one session, or of one child.
    pub fn tell_in(&self, session: &str, method: &str, params: Value) {
        let to = To::In(session.into());
        let _ = self.inner.tells.send(Tell { method: method.into(), params, to, asks: None });
    }

    /// Returns the sessions, or children, that are subscribed to a resource.
    pub fn sessions_subscribed_to(&self, uri: &str) -> Vec<String> {
        let subscribed = self.inner.subscribed.lock().unwrap();
        let all = subscribed.iter().filter(|(_, uris)| uris.contains(uri));
        all.map(|(session, _)| session.clone()).collect()
    }

    fn is_heard(&self, tell: &Tell) -> bool {
        let audience = self.inner.audience.lock().unwrap().clone();
        audience.values().any(|a| self.inner.wants(&a.session, a.filter.as_ref(), tell))
    }

    /// Returns the filters of the open streams of a Modern server.
    pub fn filters(&self) -> Vec<Value> {
        let audience = self.inner.audience.lock().unwrap();
        audience.values().filter_map(|audience| audience.filter.clone()).collect()
    }

    /// Returns the subscribed resources of all sessions, in order.
    pub fn subscriptions(&self) -> Vec<String> {
        let mut all: Vec<String> = match self.inner.era {
            Era::Modern => {
                let filters = self.filters();
                let uris = filters.iter().filter_map(|f| f["resourceSubscriptions"].as_array());
                uris.flatten().map(|uri| uri.as_str().unwrap().to_owned()).collect()
            }
            Era::Legacy => {
                let subscribed = self.inner.subscribed.lock().unwrap();
                subscribed.values().flatten().cloned().collect()
            }
        };
        all.sort();
        all
    }

    /// Sets its declared capabilities.
    pub fn can(&self, capabilities: Value) -> &Self {
        *self.inner.capabilities.lock().unwrap() = capabilities;
        self
    }

    /// Replaces a list of some kind: the member of its result, such as `prompts`.
    pub fn lists(&self, member: &str, items: impl IntoIterator<Item = Value>) -> &Self {
        let items = items.into_iter().collect();
        self.inner.lists.lock().unwrap().insert(member.into(), items);
        self
    }

    /// Lists resources of these URIs, with all related capabilities.
    pub fn resources(&self, uris: &[&str]) -> &Self {
        self.can(json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
        }));
        let resource = |uri: &&str| json!({ "uri": uri, "name": uri });
        self.lists("resources", uris.iter().map(resource))
    }

    /// Refuses subscriptions to these resources.
    pub fn refuses_to_tell_of(&self, uris: &[&str]) -> &Self {
        let uris: HashSet<String> = uris.iter().map(|uri| (*uri).to_owned()).collect();
        *self.inner.unknown.lock().unwrap() = uris;
        self
    }
}
