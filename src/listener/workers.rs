//! Worker threads that connections are spread over.
//!
//! Each has a runtime and sockets of its own, so that a call stays on one core from the client's
//! request to the client's answer: the events that it waits for wake its own thread and no other.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The threads. They end when this is dropped, together with the tasks on them.
#[derive(Debug)]
pub struct Workers {
    all: Box<[WorkerThread]>,
}

#[derive(Debug)]
struct WorkerThread {
    runtime: Handle,
    /// Number of its connections.
    connections: Arc<AtomicUsize>,
    /// Stops the thread when dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A connection's place on a thread.
#[derive(Debug)]
pub(super) struct WorkerSlot {
    pub(super) runtime: Handle,
    connections: Arc<AtomicUsize>,
}

impl Workers {
    /// Starts this number of threads; by default one for each core that this process may use.
    ///
    /// # Errors
    /// The system's error if it provides no thread or no descriptor.
    pub fn start(threads: Option<NonZeroUsize>) -> io::Result<Self> {
        let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let threads = threads.unwrap_or_else(cores).get();
        let all = (1..=threads).map(WorkerThread::start).collect::<io::Result<_>>()?;
        Ok(Self { all })
    }

    /// Creates no threads: connections are served on the listener's own.
    pub fn none() -> Self {
        Self { all: Box::default() }
    }

    /// Returns a place on the thread with the fewest connections.
    pub(super) fn place(&self) -> Option<WorkerSlot> {
        let worker = self.all.iter().min_by_key(|worker| worker.connections.load(Relaxed))?;
        worker.connections.fetch_add(1, Relaxed);
        let connections = Arc::clone(&worker.connections);
        Some(WorkerSlot { runtime: worker.runtime.clone(), connections })
    }
}

impl WorkerThread {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = keep_a_timer() => {}
                }
            });
            // Blocking work, such as a name lookup, does not delay the end.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(run)?;
        Ok(Self {
            runtime: handle,
            connections: Arc::default(),
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// Keeps a timer set that is nearly always the earliest: a timer that becomes the runtime's
/// earliest makes it write to its own wakeup descriptor, and two timers of every call would.
async fn keep_a_timer() {
    loop {
        tokio::time::sleep(WORKER_TICK).await;
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.stop.take();
        let thread = self.thread.take();
        // The last owner may be a task on the thread itself.
        if let Some(thread) = thread.filter(|it| it.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Relaxed);
    }
}

/// Shorter than nearly all time limits of a call, and rare enough to cost nothing.
const WORKER_TICK: Duration = Duration::from_millis(900);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_go_where_the_fewest_are() {
        let workers = Workers::start(NonZeroUsize::new(3)).unwrap();
        let mut places: Vec<_> = (0..6).map(|_| workers.place().unwrap()).collect();
        let counts = || -> Vec<_> {
            workers.all.iter().map(|worker| worker.connections.load(Relaxed)).collect()
        };
        assert_eq!(counts(), [2, 2, 2]);
        places.swap_remove(1);
        assert_eq!(counts(), [2, 1, 2]);
        let again = workers.place().unwrap();
        assert_eq!(counts(), [2, 2, 2]);
        drop((again, places));
        assert_eq!(counts(), [0, 0, 0]);
    }

    #[test]
    fn their_tasks_end_with_them() {
        let workers = Workers::start(NonZeroUsize::new(1)).unwrap();
        let (sender, receiver) = oneshot::channel::<()>();
        workers.place().unwrap().runtime.spawn(async move {
            let _held = sender;
            std::future::pending::<()>().await;
        });
        drop(workers);
        assert!(receiver.blocking_recv().is_err());
    }
}
