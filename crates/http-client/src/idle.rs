//! Idle connections.
//!
//! They are kept by thread, the most recently used first. If each thread has its own sockets, a
//! call stays on its thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::connection::Http1Connection;

/// The idle connections of one server.
#[derive(Debug, Clone)]
pub(crate) struct IdleConnections(Arc<Shelves>);

#[derive(Debug)]
struct Shelves {
    by_thread: Box<[Mutex<Vec<IdleConnection>>]>,
    /// The number of sweeps so far.
    round: AtomicU64,
    /// True while a sweeping task runs.
    is_kept: AtomicBool,
}

#[derive(Debug)]
struct IdleConnection {
    connection: Http1Connection,
    /// The sweep after which it became idle.
    since: u64,
}

impl Default for IdleConnections {
    fn default() -> Self {
        Self(Arc::new(Shelves {
            by_thread: (0..SHELF_COUNT).map(|_| Mutex::default()).collect(),
            round: AtomicU64::new(0),
            is_kept: AtomicBool::new(false),
        }))
    }
}

impl IdleConnections {
    /// Takes a connection that accepts a request. The server may have closed it meanwhile; sending
    /// detects this ([`Http1Connection::send`]).
    pub(crate) fn take(&self) -> Option<Http1Connection> {
        let mut here = self.0.shelf()?;
        while let Some(waiting) = here.pop() {
            if waiting.connection.is_ready() {
                return Some(waiting.connection);
            }
        }
        None
    }

    /// Keeps a connection for the next request, or closes it if there are too
    /// many.
    pub(crate) fn put(&self, connection: Http1Connection) {
        let since = self.0.round.load(Ordering::Relaxed);
        if let Some(mut here) = self.0.shelf()
            && here.len() < MAX_SHELF_CONNECTIONS
        {
            here.push(IdleConnection { connection, since });
        }
        if !self.0.is_kept.load(Ordering::Relaxed) {
            self.keep();
        }
    }

    /// Closes all idle connections.
    #[cold]
    pub(crate) fn close_all(&self) {
        for shelf in &self.0.by_thread {
            shelf.lock().clear();
        }
    }

    /// Spawns the task that closes expired connections, and those closed by the
    /// server, until none are left.
    #[cold]
    fn keep(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.0.is_kept.swap(true, Ordering::Relaxed) {
            let kept = Arc::downgrade(&self.0);
            runtime.spawn(Keeper(kept).keep());
        }
    }
}

/// The sweeping task. If its runtime ends, the next idle connection starts
/// another.
struct Keeper(Weak<Shelves>);

impl Keeper {
    async fn keep(self) {
        loop {
            tokio::time::sleep(IDLE_ROUND).await;
            let Some(shelves) = self.0.upgrade() else { return };
            if shelves.sweep() == 0 {
                return;
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(shelves) = self.0.upgrade() {
            shelves.is_kept.store(false, Ordering::Relaxed);
        }
    }
}

impl Shelves {
    /// Returns the connections of the calling thread.
    fn shelf(&self) -> Option<MutexGuard<'_, Vec<IdleConnection>>> {
        static THREAD_COUNT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static THREAD_NUMBER: Cell<usize> = Cell::new(THREAD_COUNT.fetch_add(1, Ordering::Relaxed));
        }
        let number = THREAD_NUMBER.try_with(Cell::get).unwrap_or(0) % SHELF_COUNT;
        let own = self.by_thread.get(number)?;
        Some(own.lock())
    }

    /// Drops connections that are closed or have been idle for a whole round. Returns the number of
    /// those left.
    fn sweep(&self) -> usize {
        let round = self.round.fetch_add(1, Ordering::Relaxed);
        let sweep = |shelf: &Mutex<Vec<IdleConnection>>| {
            let mut kept = shelf.lock();
            kept.retain_mut(|waiting| waiting.since >= round && waiting.connection.is_reusable());
            kept.len()
        };
        self.by_thread.iter().map(sweep).sum()
    }
}

/// Number of shelves. If there are more threads, they share shelves.
const SHELF_COUNT: usize = 32;
/// Maximum number of idle connections on one shelf.
const MAX_SHELF_CONNECTIONS: usize = 1024;
/// Minimum time that an idle connection is kept. The maximum is twice as long.
const IDLE_ROUND: Duration = Duration::from_secs(45);
