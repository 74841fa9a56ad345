//! The subscriptions at one server.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};

use crate::call::{ErrorBody, Question, ServerName};
use crate::jsonrpc::Response;
use crate::shares::{Holder, Share};

use super::hub::Clients;
use super::{ClientNotice, Mailbox, NoticeSubject, Topic};

/// The clients' subscriptions at one server, or at one instance of it.
#[derive(Debug)]
pub struct Subscriptions {
    server: ServerName,
    /// The Legacy session to which the instance belongs, if there is one.
    client: Option<(Arc<str>, Arc<Clients>)>,
    /// True if the instance serves a single client, of either era, and the server knows of a
    /// capability for server requests.
    pub(super) can_be_asked: bool,
    topics: Mutex<HashMap<Topic, TopicState>>,
    /// Counts additions and removals of topics.
    changes: watch::Sender<u64>,
    /// Counts the server's verdicts.
    verdicts: watch::Sender<u64>,
}

/// The subscribers of one topic.
#[derive(Debug, Default)]
struct TopicState {
    readers: BTreeMap<u64, Arc<Mailbox>>,
    /// The client that subscribed first.
    first: Option<Holder>,
    next: u64,
    /// The server's last verdict, or `None` before the first one.
    verdict: Option<Result<(), SubscriptionRefusal>>,
    /// True if the topic was ever active. Its subscribers then rely on being notified of every
    /// change.
    stood: bool,
    /// The filter that the server agreed to, for unknown topics.
    agreed: Option<Bytes>,
}

/// Refusal of a subscription by its server.
#[derive(Debug, Clone)]
pub enum SubscriptionRefusal {
    /// The server does not offer such subscriptions.
    Unsupported,
    /// The server responded with an error.
    Said(ErrorBody),
    /// The server left the topic out of its acknowledgement.
    LeftOut,
}

impl Subscriptions {
    pub(super) fn new(server: ServerName, client: Option<(Arc<str>, Arc<Clients>)>) -> Self {
        Self {
            server,
            client,
            can_be_asked: false,
            topics: Mutex::default(),
            changes: watch::Sender::new(0),
            verdicts: watch::Sender::new(0),
        }
    }

    /// Returns the name of the server.
    pub(super) fn server(&self) -> &ServerName {
        &self.server
    }

    /// Subscribes `mailbox` to `topic` until the guard is dropped.
    pub fn add(
        self: &Arc<Self>,
        topic: Topic,
        mailbox: &Arc<Mailbox>,
        place: Share,
    ) -> SubscriptionGuard {
        let mut topics = self.topics();
        let standing = topics.entry(topic.clone()).or_default();
        // A topic that was refused before may be accepted now.
        let ask = standing.readers.is_empty() || standing.is_refused();
        if ask {
            standing.verdict = None;
        }
        let number = standing.next;
        standing.next += 1;
        standing.readers.insert(number, Arc::clone(mailbox));
        standing.first.get_or_insert_with(|| place.holder().clone());
        drop(topics);
        if ask {
            self.changes.send_modify(|count| *count += 1);
        }
        SubscriptionGuard { subscriptions: Arc::clone(self), topic, number, _place: place }
    }

    /// Waits for the server's verdict on `topic`.
    async fn verdict(&self, topic: &Topic) -> Result<(), SubscriptionRefusal> {
        let mut verdicts = self.verdicts.subscribe();
        loop {
            verdicts.mark_unchanged();
            if let Some(verdict) = self.topics().get(topic).map(|topic| topic.verdict.clone()) {
                if let Some(verdict) = verdict {
                    return verdict;
                }
            } else {
                return Err(SubscriptionRefusal::LeftOut);
            }
            // The sender is part of `self`, so it cannot be dropped.
            let _ = verdicts.changed().await;
        }
    }

    /// Returns true if there are any subscriptions.
    pub fn are_wanted(&self) -> bool {
        !self.topics().is_empty()
    }

    /// Returns the client that subscribed first to one of the topics, or `None` if there are no
    /// subscriptions.
    pub(super) fn first_subscriber(&self) -> Option<Holder> {
        self.topics().values().find_map(|topic| topic.first.clone())
    }

    /// Notifies whenever a topic is added or removed.
    pub(in crate::upstream) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns all topics with subscribers, except those that the server has refused.
    pub(in crate::upstream) fn wanted(&self) -> Vec<Topic> {
        let topics = self.topics();
        let open = topics.iter().filter(|(_, standing)| !standing.is_refused());
        let mut wanted: Vec<_> = open.map(|(topic, _)| topic.clone()).collect();
        wanted.sort_unstable();
        wanted
    }

    /// Forgets the refusals, because the server may decide differently now.
    pub(super) fn forget_refusals(&self) {
        for standing in self.topics().values_mut().filter(|standing| standing.is_refused()) {
            standing.verdict = None;
        }
    }

    /// Records the server's verdict on `topic`. If the topic was active before
    /// and continuity was broken, its subscribers are notified, because they
    /// may have missed a change.
    pub(in crate::upstream) fn settle(
        &self,
        topic: &Topic,
        verdict: Result<(), SubscriptionRefusal>,
        continuity: Continuity,
    ) {
        let mut topics = self.topics();
        if let Some(standing) = topics.get_mut(topic) {
            if verdict.is_ok() {
                if standing.stood && continuity == Continuity::Broken {
                    standing.tell_missed(&self.server, topic);
                }
                standing.stood = true;
            }
            standing.verdict = Some(verdict);
        }
        drop(topics);
        self.verdicts.send_modify(|count| *count += 1);
    }

    /// Records that the server sends no notifications about any topic.
    pub(in crate::upstream) fn refuse_all(&self) {
        for topic in self.wanted() {
            self.settle(&topic, Err(SubscriptionRefusal::Unsupported), Continuity::Kept);
        }
    }

    /// Records the filter to which the server agreed, for an unknown topic.
    pub(super) fn agree(&self, topic: &Topic, agreed: Bytes) {
        if let Some(standing) = self.topics().get_mut(topic) {
            standing.agreed = Some(agreed);
        }
    }

    /// Delivers an unknown notification to the subscribers of its topic.
    pub(super) fn deliver_unknown(&self, topic: &Topic, method: &str, params: Option<&Bytes>) {
        if let Some(standing) = self.topics().get(topic) {
            for mailbox in standing.readers.values() {
                let subject = NoticeSubject::Other(method.to_owned());
                let (server, params) = (self.server.clone(), params.cloned());
                mailbox.put_other(ClientNotice { server, subject, params });
            }
        }
    }

    /// Delivers a notification to the subscribers of `topic` or, if there are none, of a resource
    /// that contains it: servers may send notifications about a resource below the subscribed one.
    /// Returns false if there are no subscribers.
    pub(super) fn deliver(&self, topic: &Topic, params: &Bytes) -> bool {
        let topics = self.topics();
        if let Some(standing) = topics.get(topic) {
            standing.tell(&self.server, topic, topic, params);
            return true;
        }
        let Topic::Resource(uri) = topic else { return false };
        for whole in wholes(uri).map(Topic::resource) {
            if let Some(standing) = topics.get(&whole) {
                standing.tell(&self.server, &whole, topic, params);
                return true;
            }
        }
        tracing::trace!(server = %self.server, %topic, "a change without subscribers");
        false
    }

    /// Returns true if the instance belongs to one session.
    pub(super) fn is_ones_own(&self) -> bool {
        self.client.is_some()
    }

    /// Returns true if server requests outside calls can reach exactly one client, and the server
    /// knows of a capability of that client for such requests.
    pub(in crate::upstream) fn can_be_asked(&self) -> bool {
        self.can_be_asked
    }

    /// Asks the client of the instance's session. Returns false if the client cannot be asked, or
    /// if there is no such session.
    pub(in crate::upstream) fn ask(
        &self,
        question: &Question,
        answers: mpsc::Sender<(u64, Response)>,
    ) -> bool {
        match &self.client {
            Some((session, all)) => all.ask(session, &self.server, question, answers),
            None => false,
        }
    }

    /// Forwards another notification to the client of the instance's session, if there is one.
    pub(super) fn pass(&self, method: &str, params: Option<&Bytes>) {
        if let Some((session, all)) = &self.client {
            all.tell(session, &self.server, method, params.cloned());
        } else {
            tracing::trace!(server = %self.server, method, "a notification without recipients");
        }
    }

    /// Notifies all subscribers after a time without a stream.
    pub(super) fn missed(&self) {
        for (topic, standing) in self.topics().iter().filter(|(_, standing)| standing.stood) {
            standing.tell_missed(&self.server, topic);
        }
    }

    fn topics(&self) -> MutexGuard<'_, HashMap<Topic, TopicState>> {
        self.topics.lock()
    }
}

/// Continuity of a subscription: decides if notifications could have been missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Continuity {
    /// The gateway has listened all the time.
    Kept,
    /// The gateway was not listening for a while.
    Broken,
}

impl TopicState {
    fn is_refused(&self) -> bool {
        matches!(self.verdict, Some(Err(_)))
    }

    fn tell(&self, server: &ServerName, wanted: &Topic, topic: &Topic, params: &Bytes) {
        for mailbox in self.readers.values() {
            mailbox.put(server, wanted, topic, params);
        }
    }

    fn tell_missed(&self, server: &ServerName, topic: &Topic) {
        if let Some(params) = topic.params() {
            self.tell(server, topic, topic, &params);
        }
    }
}

/// Returns the URIs of the resources that may contain this one, nearest first. At most
/// [`MAX_CONTAINING_LEVELS`] levels, because a server may send a URI of nothing but slashes.
fn wholes(uri: &str) -> impl Iterator<Item = &str> {
    let ends = uri.char_indices().rev().filter(|(_, c)| matches!(c, '/' | '?' | '#'));
    let ends = ends.take(MAX_CONTAINING_LEVELS);
    // With and without the separator.
    ends.flat_map(|(at, _)| [uri.get(..=at), uri.get(..at)])
        .flatten()
        .filter(move |whole| whole.len() < uri.len() && !whole.is_empty())
}

/// A subscription, which ends when this is dropped.
#[derive(Debug)]
pub struct SubscriptionGuard {
    subscriptions: Arc<Subscriptions>,
    topic: Topic,
    number: u64,
    _place: Share,
}

impl SubscriptionGuard {
    /// Returns true if the subscription is to this topic of this server.
    pub fn is_of(&self, server: &ServerName, topic: &Topic) -> bool {
        self.topic == *topic && self.subscriptions.server == *server
    }

    /// Returns the name of the server.
    pub fn server(&self) -> &ServerName {
        &self.subscriptions.server
    }

    /// Returns the subscribed topic.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Waits for the server's verdict.
    ///
    /// # Errors
    /// [`SubscriptionRefusal`] if the server does not offer the subscription.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn verdict(&self) -> Result<(), SubscriptionRefusal> {
        self.subscriptions.verdict(&self.topic).await
    }
}

impl SubscriptionGuard {
    /// Returns the filter to which the server agreed, for an unknown topic, as a raw object.
    pub fn agreed(&self) -> Option<Bytes> {
        self.subscriptions.topics().get(&self.topic)?.agreed.clone()
    }
}

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        let mut topics = self.subscriptions.topics();
        let Some(standing) = topics.get_mut(&self.topic) else { return };
        standing.readers.remove(&self.number);
        let last = standing.readers.is_empty();
        if last {
            topics.remove(&self.topic);
        }
        drop(topics);
        if last {
            self.subscriptions.changes.send_modify(|count| *count += 1);
        }
    }
}

/// Maximum number of levels between a resource and the subscribed one that contains it.
const MAX_CONTAINING_LEVELS: usize = 64;

#[cfg(test)]
mod tests;
