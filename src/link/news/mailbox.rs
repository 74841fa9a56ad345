//! What one client has yet to be told.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::call::ServerName;

use super::Topic;

/// News for one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Whose news.
    pub server: ServerName,
    /// Of what.
    pub topic: Topic,
    /// The params of the server's notification, with its own names.
    pub params: Bytes,
}

/// News that wait for one client: of each thing the newest only. So a client
/// that reads nothing costs no more than one that does, and still hears of
/// everything that it asked for once it reads.
#[derive(Debug, Default)]
pub struct Mailbox {
    letters: Mutex<Letters>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Letters {
    order: VecDeque<(ServerName, Topic)>,
    params: HashMap<(ServerName, Topic), Bytes>,
}

impl Mailbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts news in: of `topic`, for a client that subscribed to `wanted`,
    /// which may be what the topic is a part of.
    pub(super) fn put(&self, server: &ServerName, wanted: &Topic, topic: &Topic, params: &Bytes) {
        let mut letters = self.letters();
        let mut key = (server.clone(), topic.clone());
        let mut params = params.clone();
        if letters.params.len() >= PARTS && wanted != topic && !letters.params.contains_key(&key) {
            // Too many parts of what was asked for: the whole instead.
            key.1 = wanted.clone();
            let Some(whole) = wanted.params() else { return };
            params = whole;
        }
        if letters.params.insert(key.clone(), params).is_none() {
            letters.order.push_back(key);
        }
        drop(letters);
        self.arrived.notify_one();
    }

    /// The oldest news, waiting for it. One reader at a time.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn next(&self) -> Letter {
        loop {
            if let Some(letter) = self.take() {
                return letter;
            }
            self.arrived.notified().await;
        }
    }

    /// The oldest news, if there are any.
    pub fn take(&self) -> Option<Letter> {
        let mut letters = self.letters();
        let key = letters.order.pop_front()?;
        let params = letters.params.remove(&key)?;
        let (server, topic) = key;
        Some(Letter { server, topic, params })
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From so many letters on, parts of what was subscribed to count as the whole.
const PARTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn put(mailbox: &Mailbox, uri: &str, params: &'static str) {
        let topic = Topic::resource(uri);
        let server = ServerName::new("s").unwrap();
        mailbox.put(&server, &topic, &topic, &Bytes::from_static(params.as_bytes()));
    }

    #[tokio::test]
    async fn of_each_thing_only_the_newest_waits() {
        let mailbox = Mailbox::new();
        put(&mailbox, "a", "1");
        put(&mailbox, "b", "2");
        put(&mailbox, "a", "3");
        let first = mailbox.next().await;
        assert_eq!((first.topic, &first.params[..]), (Topic::resource("a"), b"3".as_slice()));
        assert_eq!(mailbox.next().await.topic, Topic::resource("b"));
        assert_eq!(mailbox.take(), None);
    }

    #[test]
    fn endless_parts_become_the_whole() {
        let (mailbox, server) = (Mailbox::new(), ServerName::new("s").unwrap());
        let wanted = Topic::resource("d/");
        for part in 0..PARTS * 2 {
            let topic = Topic::resource(&format!("d/{part}"));
            mailbox.put(&server, &wanted, &topic, &Bytes::new());
        }
        assert_eq!(std::iter::from_fn(|| mailbox.take()).count(), PARTS + 1);
    }
}
