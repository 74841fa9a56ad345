//! State of one instance's life: its connection, its history, and the request to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock;

use crate::upstream::peer::Peer;
use crate::upstream::supervisor::state::{InstanceHistory, LifeState};
use crate::upstream::transport::connection::ServerConnection;

/// State, connection and history of an instance. Its task changes them, and calls read them.
pub(crate) struct InstanceLife {
    state: watch::Sender<LifeState>,
    connection: ArcSwapOption<ServerConnection>,
    history: Mutex<InstanceHistory>,
    restarts: AtomicU32,
    stop: CancellationToken,
}

impl InstanceLife {
    /// Creates the life of an instance that has not been started and ends with `stop`.
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self {
            state: watch::Sender::new(LifeState::Idle),
            connection: ArcSwapOption::empty(),
            history: Mutex::default(),
            restarts: AtomicU32::new(0),
            stop,
        }
    }

    /// Returns the current state.
    pub(crate) fn state(&self) -> LifeState {
        self.state.borrow().clone()
    }

    /// Returns true if this is the current state.
    pub(crate) fn is_in(&self, state: &LifeState) -> bool {
        *self.state.borrow() == *state
    }

    /// Returns the state, to wait for a change. It does not close while the instance is held.
    pub(crate) fn watch_state(&self) -> watch::Receiver<LifeState> {
        self.state.subscribe()
    }

    /// Enters a state, and records the time.
    pub(crate) fn enter(&self, state: LifeState) {
        let mut history = self.history();
        history.since = Some(clock::wall_now());
        match state {
            LifeState::Idle => {}
            LifeState::Connecting => {
                history.first_start.get_or_insert_with(clock::now);
            }
            _ => {
                history.first_verdict.get_or_insert_with(clock::wall_now);
            }
        }
        drop(history);
        self.state.send_replace(state);
    }

    /// Returns the connection, while there is one.
    #[inline]
    pub(crate) fn current(&self) -> Option<Arc<ServerConnection>> {
        self.connection.load_full()
    }

    /// Returns true if there is a connection.
    #[inline]
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.load().is_some()
    }

    /// Returns true if this is still the connection.
    pub(crate) fn is_current(&self, connection: &Arc<ServerConnection>) -> bool {
        self.connection.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, connection))
    }

    /// Reads the server's identity, while there is a connection.
    #[inline]
    pub(crate) fn read_peer<T>(&self, read: impl FnOnce(&Peer) -> T) -> Option<T> {
        self.connection.load().as_ref().map(|connection| read(connection.peer()))
    }

    /// Sets the connection for calls.
    pub(crate) fn connect_to(&self, connection: &Arc<ServerConnection>) {
        self.connection.store(Some(Arc::clone(connection)));
    }

    /// Removes the connection. New calls wait for the next one.
    pub(crate) fn disconnect(&self) -> Option<Arc<ServerConnection>> {
        self.connection.swap(None)
    }

    /// Returns the past events.
    pub(crate) fn history(&self) -> MutexGuard<'_, InstanceHistory> {
        self.history.lock()
    }

    /// Returns the number of restarts.
    pub(crate) fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Counts a restart.
    pub(crate) fn count_restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests the end of the instance. Does not wait.
    pub(crate) fn cancel(&self) {
        self.stop.cancel();
    }

    /// Waits until the instance has to end.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn cancelled(&self) {
        self.stop.cancelled().await;
    }
}
