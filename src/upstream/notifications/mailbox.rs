//! Notifications that wait for one client.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{OnceLock, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};

use crate::call::{Question, ServerName};
use crate::jsonrpc::Response;
use crate::upstream::QuestionableSession;

use super::Topic;

/// A notification for one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientNotice {
    /// The server that sent it.
    pub server: ServerName,
    /// The subject of the notification.
    pub subject: NoticeSubject,
    /// The params of the server's notification, with its own names.
    pub params: Option<Bytes>,
}

/// The subject of a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeSubject {
    /// A topic that the client subscribed to, or a part of it.
    Topic(Topic),
    /// Any other notification, by its method. Only for the client that owns the sending instance of
    /// the server.
    Other(String),
}

impl fmt::Display for NoticeSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(topic) => topic.fmt(f),
            Self::Other(method) => f.write_str(method),
        }
    }
}

/// Pending notifications for one client: only the newest of each topic. So a client that does not
/// read costs no more than one that does, and is still notified of every topic once it reads.
/// Limited in number and in bytes.
#[derive(Default)]
pub struct Mailbox {
    letters: Mutex<Letters>,
    arrived: Notify,
    /// The session through which the client can be asked for input.
    listener: OnceLock<Weak<dyn QuestionableSession>>,
}

#[derive(Debug, Default)]
struct Letters {
    order: VecDeque<PendingNotices>,
    params: HashMap<(ServerName, Topic), Bytes>,
    /// Size of these params in bytes.
    params_size: usize,
    /// The number of pending notifications without a topic.
    others: usize,
    /// Their size in bytes.
    others_size: usize,
}

#[derive(Debug)]
enum PendingNotices {
    /// The newest notification of this topic.
    About((ServerName, Topic)),
    /// A notification without a topic.
    Other(ClientNotice),
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl Mailbox {
    /// Creates an empty mailbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a notification about `topic` for a client that subscribed to `wanted`, which is the
    /// topic or contains it. Beyond the limits of number and bytes it becomes a notification about
    /// `wanted` without the server's own params. The state of a task, which clients also poll, is
    /// dropped instead.
    pub(super) fn put(&self, server: &ServerName, wanted: &Topic, topic: &Topic, params: &Bytes) {
        let mut letters = self.letters();
        let mut key = (server.clone(), topic.clone());
        let mut params = params.clone();
        let too_many_parts = letters.params.len() >= MAX_PART_TOPICS
            && wanted != topic
            && !letters.params.contains_key(&key);
        if too_many_parts || !letters.has_room_for(&key, &params) {
            // Notify of the whole subscribed resource instead.
            key.1 = wanted.clone();
            let Some(whole) = wanted.params() else { return };
            params = whole;
        }
        letters.put(key, params);
        drop(letters);
        self.arrived.notify_one();
    }

    /// Queues a notification without a topic. At the limits of number and bytes
    /// the oldest ones are dropped.
    pub(super) fn put_other(&self, letter: ClientNotice) {
        let mut letters = self.letters();
        let size = letter.size();
        while letters.others >= MAX_OTHER_NOTICES || letters.others_size + size > OTHERS_SIZE {
            if !letters.drop_oldest_other() {
                break;
            }
        }
        letters.others += 1;
        letters.others_size += size;
        letters.order.push_back(PendingNotices::Other(letter));
        drop(letters);
        self.arrived.notify_one();
    }

    /// Sets the session through which the client can be asked for input.
    pub fn is_of(&self, listener: Weak<dyn QuestionableSession>) {
        // A mailbox belongs to one session, so a second call has no effect.
        let _ = self.listener.set(listener);
    }

    /// Returns true if the client keeps a stream open.
    pub(super) fn is_listened_to(&self) -> bool {
        let listener = self.listener.get().and_then(Weak::upgrade);
        listener.is_some_and(|listener| listener.is_listening())
    }

    /// Asks the client on behalf of a server. Returns false if the client cannot be asked.
    pub(super) fn ask(
        &self,
        server: &ServerName,
        question: &Question,
        answers: mpsc::Sender<(u64, Response)>,
    ) -> bool {
        let listener = self.listener.get().and_then(Weak::upgrade);
        listener.is_some_and(|listener| listener.ask(server, question, answers))
    }

    /// Waits for the oldest notification and takes it. One reader at a time.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn next(&self) -> ClientNotice {
        loop {
            if let Some(letter) = self.take() {
                return letter;
            }
            self.arrived.notified().await;
        }
    }

    /// Takes the oldest notification, if there is one.
    pub fn take(&self) -> Option<ClientNotice> {
        let mut letters = self.letters();
        match letters.order.pop_front()? {
            PendingNotices::Other(letter) => {
                letters.others -= 1;
                letters.others_size -= letter.size();
                Some(letter)
            }
            PendingNotices::About(key) => {
                let params = letters.params.remove(&key)?;
                letters.params_size -= params.len();
                let (server, topic) = key;
                Some(ClientNotice {
                    server,
                    subject: NoticeSubject::Topic(topic),
                    params: Some(params),
                })
            }
        }
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock()
    }
}

impl ClientNotice {
    /// Returns the size in bytes of a notification without a topic.
    fn size(&self) -> usize {
        let method = match &self.subject {
            NoticeSubject::Topic(_) => 0,
            NoticeSubject::Other(method) => method.len(),
        };
        method + self.params.as_ref().map_or(0, Bytes::len)
    }
}

impl Letters {
    /// Returns true if the newest params of a topic fit. The first ones always do.
    fn has_room_for(&self, key: &(ServerName, Topic), params: &Bytes) -> bool {
        let replaced = self.params.get(key).map_or(0, Bytes::len);
        let others = self.params_size - replaced;
        others == 0 || others + params.len() <= PARAMS_SIZE
    }

    /// Sets the newest params of a topic.
    fn put(&mut self, key: (ServerName, Topic), params: Bytes) {
        self.params_size += params.len();
        match self.params.insert(key.clone(), params) {
            Some(replaced) => self.params_size -= replaced.len(),
            None => self.order.push_back(PendingNotices::About(key)),
        }
    }

    /// Drops the oldest notification without a topic. Returns false if there is none.
    fn drop_oldest_other(&mut self) -> bool {
        let other = |waiting: &PendingNotices| matches!(waiting, PendingNotices::Other(_));
        let oldest = self.order.iter().position(other);
        let Some(PendingNotices::Other(letter)) = oldest.and_then(|at| self.order.remove(at))
        else {
            return false;
        };
        self.others -= 1;
        self.others_size -= letter.size();
        true
    }
}

/// Number of pending topics above which notifications about parts become one about the whole.
const MAX_PART_TOPICS: usize = 256;
/// Maximum number of pending notifications without a topic.
const MAX_OTHER_NOTICES: usize = 64;
/// Maximum size in bytes of the pending params of topics. Above it, a notification carries only the
/// URI of the subscribed resource.
const PARAMS_SIZE: usize = 512 * 1024;
/// Maximum size in bytes of the pending notifications without a topic.
const OTHERS_SIZE: usize = 512 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn put(mailbox: &Mailbox, uri: &str, params: &'static str) {
        let topic = Topic::resource(uri);
        let server = ServerName::new("s").unwrap();
        mailbox.put(&server, &topic, &topic, &Bytes::from_static(params.as_bytes()));
    }

    fn topic(letter: ClientNotice) -> Topic {
        match letter.subject {
            NoticeSubject::Topic(topic) => topic,
            NoticeSubject::Other(method) => panic!("{method}"),
        }
    }

    #[tokio::test]
    async fn of_each_thing_only_the_newest_waits() {
        let mailbox = Mailbox::new();
        put(&mailbox, "a", "1");
        put(&mailbox, "b", "2");
        put(&mailbox, "a", "3");
        let first = mailbox.next().await;
        assert_eq!(first.params.as_deref(), Some(b"3".as_slice()));
        assert_eq!(topic(first), Topic::resource("a"));
        assert_eq!(topic(mailbox.next().await), Topic::resource("b"));
        assert_eq!(mailbox.take(), None);
    }

    #[test]
    fn notices_without_a_subject_wait_in_order_and_are_bounded() {
        let mailbox = Mailbox::new();
        put(&mailbox, "a", "1");
        for number in 0..MAX_OTHER_NOTICES + 3 {
            let subject = NoticeSubject::Other(number.to_string());
            let server = ServerName::new("s").unwrap();
            mailbox.put_other(ClientNotice { server, subject, params: None });
        }
        assert_eq!(topic(mailbox.take().unwrap()), Topic::resource("a"));
        let rest: Vec<_> = std::iter::from_fn(|| mailbox.take()).collect();
        assert_eq!(rest.len(), MAX_OTHER_NOTICES);
        assert_eq!(rest[0].subject, NoticeSubject::Other("3".into()), "the oldest made room");
        assert_eq!(mailbox.letters().others, 0);
    }

    #[test]
    fn large_notifications_make_room_for_newer_ones() {
        let mailbox = Mailbox::new();
        let put = |number: usize, size: usize| {
            let subject = NoticeSubject::Other(number.to_string());
            let server = ServerName::new("s").unwrap();
            let params = Some(Bytes::from(vec![b' '; size]));
            mailbox.put_other(ClientNotice { server, subject, params });
        };
        put(0, 2 * OTHERS_SIZE);
        assert_eq!(std::iter::from_fn(|| mailbox.take()).count(), 1, "one always fits");
        for number in 1..=20 {
            put(number, OTHERS_SIZE / 4);
        }
        put(21, 0);
        let rest = std::iter::from_fn(|| mailbox.take()).map(|letter| letter.subject);
        let expected = ["18", "19", "20", "21"].map(|number| NoticeSubject::Other(number.into()));
        assert!(rest.eq(expected));
        assert_eq!(mailbox.letters().others_size, 0);
    }

    #[test]
    fn large_params_of_many_topics_are_reduced_to_their_uris() {
        let (mailbox, server) = (Mailbox::new(), ServerName::new("s").unwrap());
        let large = Bytes::from(vec![b' '; PARAMS_SIZE / 4]);
        let put = |wanted: &Topic, topic: &Topic| mailbox.put(&server, wanted, topic, &large);
        for part in 0..8 {
            let topic = Topic::resource(&format!("a{part}"));
            put(&topic, &topic);
            put(&topic, &topic);
        }
        put(&Topic::resource("d/"), &Topic::resource("d/part"));
        put(&Topic::task("7"), &Topic::task("7"));
        let all: Vec<_> = std::iter::from_fn(|| mailbox.take()).collect();
        let kept = |letter: &&ClientNotice| letter.params.as_ref() == Some(&large);
        assert_eq!((all.len(), all.iter().filter(kept).count()), (9, 4));
        assert_eq!(all[8].params.as_deref(), Some(br#"{"uri":"d/"}"#.as_slice()));
        assert_eq!(mailbox.letters().params_size, 0);
        mailbox.put(
            &server,
            &Topic::task("7"),
            &Topic::task("7"),
            &vec![b' '; 2 * PARAMS_SIZE].into(),
        );
        assert!(mailbox.take().is_some(), "one always fits");
    }

    #[test]
    fn endless_parts_become_the_whole() {
        let (mailbox, server) = (Mailbox::new(), ServerName::new("s").unwrap());
        let wanted = Topic::resource("d/");
        for part in 0..MAX_PART_TOPICS * 2 {
            let topic = Topic::resource(&format!("d/{part}"));
            mailbox.put(&server, &wanted, &topic, &Bytes::new());
        }
        assert_eq!(std::iter::from_fn(|| mailbox.take()).count(), MAX_PART_TOPICS + 1);
    }
}
