//! Who wants to hear of what at one server.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};

use crate::call::{ErrorBody, Question, ServerName};
use crate::jsonrpc::Response;

use super::hub::Clients;
use super::{ClientNotice, Mailbox, NoticeSubject, Topic};

/// What clients are subscribed to at one server, or at one instance of it.
#[derive(Debug)]
pub struct Subscriptions {
    server: ServerName,
    /// The Legacy session whose own instance it is, if it is one's.
    client: Option<(Arc<str>, Arc<Clients>)>,
    /// Whether the instance is one client's own, of either era.
    pub(super) one_clients: bool,
    topics: Mutex<HashMap<Topic, TopicState>>,
    /// Counts how often a topic came or went.
    changes: watch::Sender<u64>,
    /// Counts the server's verdicts.
    verdicts: watch::Sender<u64>,
    room: Arc<Room>,
}

/// One topic.
#[derive(Debug, Default)]
struct TopicState {
    readers: BTreeMap<u64, Arc<Mailbox>>,
    next: u64,
    /// What the server said to it last; `None` while it has said nothing.
    verdict: Option<Result<(), SubscriptionRefusal>>,
    /// It stood once: its subscribers count on hearing of every change.
    stood: bool,
    /// What the server agreed to, where that has to be told.
    agreed: Option<Bytes>,
}

/// Why a server does not tell of something.
#[derive(Debug, Clone)]
pub enum SubscriptionRefusal {
    /// It tells of no such things at all.
    Unsupported,
    /// It said so when it was asked.
    Said(ErrorBody),
    /// It left it out of what it agreed to.
    LeftOut,
}

impl Subscriptions {
    pub(super) fn new(
        server: ServerName,
        client: Option<(Arc<str>, Arc<Clients>)>,
        room: Arc<Room>,
    ) -> Self {
        Self {
            server,
            client,
            one_clients: false,
            topics: Mutex::default(),
            changes: watch::Sender::new(0),
            verdicts: watch::Sender::new(0),
            room,
        }
    }

    /// Whose they are.
    pub(super) fn server(&self) -> &ServerName {
        &self.server
    }

    /// Has news of `topic` put into `mailbox` until the answer is dropped;
    /// `None` where there are `limit` subscriptions at all servers together.
    pub fn add(
        self: &Arc<Self>,
        topic: Topic,
        mailbox: &Arc<Mailbox>,
        limit: usize,
    ) -> Option<SubscriptionGuard> {
        if self.room.taken.fetch_add(1, Ordering::Relaxed) >= limit {
            self.room.taken.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut topics = self.topics();
        let standing = topics.entry(topic.clone()).or_default();
        // Whoever was refused before may be served now.
        let ask = standing.readers.is_empty() || standing.is_refused();
        if ask {
            standing.verdict = None;
        }
        let number = standing.next;
        standing.next += 1;
        standing.readers.insert(number, Arc::clone(mailbox));
        drop(topics);
        if ask {
            self.changes.send_modify(|count| *count += 1);
        }
        Some(SubscriptionGuard { subscriptions: Arc::clone(self), topic, number })
    }

    /// Waits until the server has said whether it tells of `topic`.
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
            // The sender is part of `self`: it cannot be gone.
            let _ = verdicts.changed().await;
        }
    }

    /// Whether anybody is subscribed to anything.
    pub fn are_wanted(&self) -> bool {
        !self.topics().is_empty()
    }

    /// Tells whenever a topic comes or goes.
    pub(in crate::upstream) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// All topics that somebody wants to hear of, but for those that the
    /// server has refused.
    pub(in crate::upstream) fn wanted(&self) -> Vec<Topic> {
        let topics = self.topics();
        let open = topics.iter().filter(|(_, standing)| !standing.is_refused());
        let mut wanted: Vec<_> = open.map(|(topic, _)| topic.clone()).collect();
        wanted.sort_unstable();
        wanted
    }

    /// A server may say something else now than it did.
    pub(in crate::upstream) fn forget_refusals(&self) {
        for standing in self.topics().values_mut().filter(|standing| standing.is_refused()) {
            standing.verdict = None;
        }
    }

    /// The server tells of `topic`, or will not. Where it stood before, and
    /// not `continuously`, a change may have been missed.
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

    /// Notes what the server agreed to of a topic's unknown members.
    pub(super) fn agree(&self, topic: &Topic, agreed: Bytes) {
        if let Some(standing) = self.topics().get_mut(topic) {
            standing.agreed = Some(agreed);
        }
    }

    /// Hands news of a kind that is not known here to those who subscribed to
    /// what stands for it.
    pub(super) fn deliver_unknown(&self, topic: &Topic, method: &str, params: Option<&Bytes>) {
        if let Some(standing) = self.topics().get(topic) {
            for mailbox in standing.readers.values() {
                let subject = NoticeSubject::Other(method.to_owned());
                let (server, params) = (self.server.clone(), params.cloned());
                mailbox.put_other(ClientNotice { server, subject, params });
            }
        }
    }

    /// Hands news to those who subscribed to `topic` or, where nobody did, to
    /// what it is a part of: servers may tell of a resource below the one that
    /// was subscribed to.
    /// False where nobody did.
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
        tracing::trace!(server = %self.server, %topic, "news for nobody");
        false
    }

    /// Whether the instance is one session's own.
    pub(super) fn is_ones_own(&self) -> bool {
        self.client.is_some()
    }

    /// Whether the instance is one client's own: a session's, or a principal's.
    pub(in crate::upstream) fn is_one_clients(&self) -> bool {
        self.one_clients
    }

    /// Asks the client whose own instance this is; false where it cannot be
    /// asked, or there is none.
    pub(in crate::upstream) fn ask(
        &self,
        question: &Question,
        answers: mpsc::Sender<(u64, Response)>,
    ) -> bool {
        match &self.client {
            Some((session, all)) => all.ask(session, question, answers),
            None => false,
        }
    }

    /// Hands anything else to the one client whose own instance this is.
    pub(super) fn pass(&self, method: &str, params: Option<&Bytes>) {
        if let Some((session, all)) = &self.client {
            all.tell(session, &self.server, method, params.cloned());
        } else {
            tracing::trace!(server = %self.server, method, "a notification for nobody");
        }
    }

    /// Nobody listened for a while.
    pub(super) fn missed(&self) {
        for (topic, standing) in self.topics().iter().filter(|(_, standing)| standing.stood) {
            standing.tell_missed(&self.server, topic);
        }
    }

    fn topics(&self) -> MutexGuard<'_, HashMap<Topic, TopicState>> {
        self.topics.lock()
    }
}

/// Whether news could have been missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Continuity {
    /// It was listened for all the time.
    Kept,
    /// There was a while in which nobody listened.
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

/// The URIs of what a resource may be a part of, the nearest first.
fn wholes(uri: &str) -> impl Iterator<Item = &str> {
    let ends = uri.char_indices().rev().filter(|(_, c)| matches!(c, '/' | '?' | '#'));
    // With the separator and without it.
    ends.flat_map(|(at, _)| [uri.get(..=at), uri.get(..at)])
        .flatten()
        .filter(move |whole| whole.len() < uri.len() && !whole.is_empty())
}

/// How many subscriptions there are at all servers together.
#[derive(Debug, Default)]
pub(super) struct Room {
    taken: AtomicUsize,
}

/// A subscription. Dropped, it is over.
#[derive(Debug)]
pub struct SubscriptionGuard {
    subscriptions: Arc<Subscriptions>,
    topic: Topic,
    number: u64,
}

impl SubscriptionGuard {
    /// Whether it is a subscription to this.
    pub fn is_of(&self, server: &ServerName, topic: &Topic) -> bool {
        self.topic == *topic && self.subscriptions.server == *server
    }

    /// Waits until the server has said whether it tells of it.
    ///
    /// # Errors
    /// [`SubscriptionRefusal`] where it does not.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn verdict(&self) -> Result<(), SubscriptionRefusal> {
        self.subscriptions.verdict(&self.topic).await
    }
}

impl SubscriptionGuard {
    /// What the server agreed to of unknown members: a raw object.
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
        self.subscriptions.room.taken.fetch_sub(1, Ordering::Relaxed);
        if last {
            self.subscriptions.changes.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests;
