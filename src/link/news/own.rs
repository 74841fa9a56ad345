//! The one client of a connection that serves no other: what its server says
//! outside of any call is that client's.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::call::{Notice, Outside};
use crate::mcp::LogLevel;

/// The client, and its calls that hear lines of the server's log.
#[derive(Debug, Default)]
pub(super) struct Own {
    client: OnceLock<Outside>,
    calls: Mutex<Vec<Weak<Listener>>>,
}

/// A call that hears lines, whichever way they come.
#[derive(Debug)]
pub struct Listener {
    least: LogLevel,
    lines: Mutex<VecDeque<Notice>>,
    news: Notify,
}

impl Own {
    /// Notes how the client is reached outside of its calls.
    pub(super) fn reach(&self, client: &Outside) {
        // The first says as much as all that follow.
        let _ = self.client.set(client.clone());
    }

    /// A call that hears lines of that level for as long as it is held.
    pub(super) fn listen(&self, least: LogLevel) -> Arc<Listener> {
        let listener = Arc::new(Listener { least, lines: Mutex::default(), news: Notify::new() });
        let mut calls = lock(&self.calls);
        calls.retain(|call| call.strong_count() > 0);
        calls.push(Arc::downgrade(&listener));
        listener
    }

    /// Takes a line: the newest call's, or, where there is none, that of the
    /// client outside of its calls. False where it cannot be reached.
    pub(super) fn line(&self, method: &str, params: &Bytes) -> bool {
        let newest = lock(&self.calls).iter().rev().find_map(Weak::upgrade);
        if let Some(call) = newest {
            call.hear(method, params);
            return true;
        }
        let client = self.client.get().and_then(Outside::upgrade);
        client.is_some_and(|client| {
            client.notify(method, params);
            true
        })
    }
}

impl Listener {
    fn hear(&self, method: &str, params: &Bytes) {
        let notice = Notice::line(method.to_owned(), params.clone(), self.least);
        let mut lines = lock(&self.lines);
        // A client that reads slowly loses lines, never its answer.
        if let Some(notice) = notice.filter(|_| lines.len() < WAITING) {
            lines.push_back(notice);
            self.news.notify_one();
        }
    }

    /// The next line, if it is there.
    pub fn take(&self) -> Option<Notice> {
        lock(&self.lines).pop_front()
    }

    /// The next line.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn next(&self) -> Notice {
        loop {
            if let Some(notice) = self.take() {
                return notice;
            }
            self.news.notified().await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many lines wait for one call.
const WAITING: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Hears;

    #[derive(Default)]
    struct Client(Mutex<Vec<String>>);

    impl Hears for Client {
        fn notify(&self, method: &str, _: &Bytes) {
            lock(&self.0).push(method.to_owned());
        }
    }

    #[tokio::test]
    async fn a_line_is_the_newest_calls_and_else_the_clients() {
        let own = Own::default();
        let line = |level: &str| own.line("m", &Bytes::from(format!(r#"{{"level":"{level}"}}"#)));
        assert!(!line("alert"), "nobody is there");
        let old = own.listen(LogLevel::Debug);
        let new = own.listen(LogLevel::Error);
        assert!(line("alert") && line("debug"));
        assert_eq!(new.next().await.method, "m");
        assert!(new.take().is_none() && old.take().is_none());
        drop(new);
        assert!(line("debug"));
        assert!(old.take().is_some());
        for _ in 0..2 * WAITING {
            line("debug");
        }
        assert_eq!(std::iter::from_fn(|| old.take()).count(), WAITING);
        drop(old);
        let client = Arc::new(Client::default());
        let hears: Arc<dyn Hears> = Arc::<Client>::clone(&client);
        own.reach(&Outside::new(Arc::downgrade(&hears)));
        drop(hears);
        assert!(line("debug"));
        assert_eq!(*lock(&client.0), ["m"]);
        drop(client);
        assert!(!line("debug"));
    }
}
