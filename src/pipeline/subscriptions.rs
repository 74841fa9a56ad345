//! The story of one subscription: from a client's URI to the server that tells
//! of it, and of the news on the way back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use crate::call::{Context, ErrorBody, Failure, NativeName, ServerName};
use crate::era::news;
use crate::jsonrpc::Id;
use crate::link::{Held, Letter, Mailbox, Refusal, Subject, Topic};
use crate::mcp::notification;
use crate::policy::Target;
use crate::snapshot::{Digests, View};

use super::Gateway;

/// One client that hears of resources: a Legacy session, or one
/// `subscriptions/listen`. Dropped, it hears no more.
#[derive(Debug, Default)]
pub struct Subscriber {
    mailbox: Arc<Mailbox>,
    /// By the URIs that the client used.
    subscribed: Mutex<HashMap<String, Arc<Held>>>,
}

/// News for a client, in its own words.
#[derive(Debug)]
pub struct Told {
    /// The notification.
    pub method: String,
    params: Option<Bytes>,
    renamed: Option<(&'static str, String)>,
}

impl Told {
    /// The notification's params: for a Modern client, as part of its
    /// subscription of that id.
    pub fn params(&self, subscription: Option<&Id>) -> Option<Bytes> {
        let renamed = self.renamed.as_ref().map(|(key, name)| (*key, name.as_str()));
        let params = self.params.as_ref()?;
        Some(news::params(params, renamed.as_slice(), subscription))
    }
}

impl Subscriber {
    /// Ends one subscription, if it is there.
    pub fn unsubscribe(&self, uri: &str) {
        let held = self.subscribed().remove(uri);
        drop(held);
    }

    /// Ends all of them.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.subscribed());
        drop(all);
    }

    /// The URIs by which the client knows what a server tells of.
    fn known_as(&self, view: &View, server: &ServerName, topic: &Topic) -> Vec<String> {
        let Topic::Resource(native) = topic else { return Vec::new() };
        let leads_there = |uri: &str| {
            let origin = view.catalog.uris().route(uri);
            origin.is_some_and(|to| to.server == *server && to.native.as_str() == &**native)
        };
        let subscribed = self.subscribed();
        let own = subscribed.iter().filter(|(_, held)| held.is_of(server, topic));
        let mut known: Vec<_> = own.map(|(uri, _)| uri.clone()).collect();
        drop(subscribed);
        if known.is_empty() {
            // A part of what was subscribed to.
            known.push(view.catalog.uris().public(server, native).into_owned());
        }
        // What the client is no longer shown it does not hear of.
        known.retain(|uri| leads_there(uri));
        known
    }

    fn subscribed(&self) -> MutexGuard<'_, HashMap<String, Arc<Held>>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gateway {
    /// Subscribes a client to a resource. Waits a while for what the server
    /// says to it; one that is away is asked when it is back.
    ///
    /// # Errors
    /// [`Failure`] where the resource is not there in the client's view, or
    /// nobody tells of it, or there are too many subscriptions. Inside of that,
    /// what the server itself says against it.
    ///
    /// # Cancel safety
    /// Dropped, the client may be subscribed or not.
    pub async fn subscribe(
        &self,
        subscriber: &Subscriber,
        context: &Context,
        uri: &str,
    ) -> Result<Result<(), ErrorBody>, Failure> {
        let there = subscriber.subscribed().get(uri).cloned();
        let held = match there {
            Some(held) => held,
            None => self.admit_subscription(subscriber, context, uri)?,
        };
        // A server that is slow, or away, tells of it when it can.
        let Err(refusal) = timeout(PATIENCE, held.verdict()).await.unwrap_or(Ok(())) else {
            return Ok(Ok(()));
        };
        subscriber.unsubscribe(uri);
        match refusal {
            Refusal::Said(error) => Ok(Err(error)),
            Refusal::Unsupported | Refusal::LeftOut => {
                Err(Failure::NoUpdates { uri: uri.to_owned() })
            }
        }
    }

    fn admit_subscription(
        &self,
        subscriber: &Subscriber,
        context: &Context,
        uri: &str,
    ) -> Result<Arc<Held>, Failure> {
        let snapshot = self.snapshots.load();
        let limits = &snapshot.config.gateway.limits;
        let view = snapshot.view(&self.view_key(context));
        let unknown = || Failure::UnknownResource { uri: uri.to_owned() };
        let origin = view.catalog.uris().route(uri).ok_or_else(unknown)?;
        let member = snapshot.server(&origin.server).ok_or_else(unknown)?;
        let topic = Topic::resource(origin.native.as_str());
        let native = Some(NativeName::new(origin.native.as_str()));
        let target = Target { server: origin.server, native, tool: None, edits: Box::default() };
        let permitted = snapshot.policy.permit_subscription(topic, target)?;
        let limit = limits.all_subscriptions;
        let held = member.server.subscribe(context, &permitted, &subscriber.mailbox, limit);
        let held = Arc::new(held.ok_or(Failure::TooManySubscriptions { limit })?);
        let limit = limits.subscriptions;
        let mut all = subscriber.subscribed();
        if all.len() >= limit {
            return Err(Failure::TooManySubscriptions { limit });
        }
        // Somebody may have been faster by now: one of the two is enough.
        Ok(Arc::clone(all.entry(uri.to_owned()).or_insert(held)))
    }

    /// What tells the lists that a client is shown from others.
    pub fn shown(&self, context: &Context) -> Digests {
        self.snapshots.load().view(&self.view_key(context)).digests()
    }

    /// What a client is to be told next, of all that it subscribed to.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn news(&self, subscriber: &Subscriber, context: &Context) -> Vec<Told> {
        loop {
            let Letter { server, subject, params } = subscriber.mailbox.next().await;
            let topic = match subject {
                Subject::Topic(topic) => topic,
                Subject::Other(method) => return vec![Told { method, params, renamed: None }],
            };
            let view = self.snapshots.load().view(&self.view_key(context));
            let known = subscriber.known_as(&view, &server, &topic);
            if !known.is_empty() {
                return known.into_iter().map(|name| told(&topic, params.clone(), name)).collect();
            }
        }
    }

    /// Lets a Legacy client hear of what its own instances of servers tell it
    /// without having been asked.
    pub fn client_came(&self, session: &Arc<str>, subscriber: &Subscriber) {
        self.snapshots.hub().enter(session, &subscriber.mailbox);
    }
}

fn told(topic: &Topic, params: Option<Bytes>, name: String) -> Told {
    let (method, key) = match topic {
        Topic::Task(_) => (notification::TASK, "taskId"),
        Topic::Resource(_) | Topic::Unknown(_) => (notification::RESOURCE_UPDATED, "uri"),
    };
    Told { method: method.to_owned(), params, renamed: Some((key, name)) }
}

/// How long a client waits for what a server says to its subscription.
const PATIENCE: Duration = Duration::from_secs(5);
