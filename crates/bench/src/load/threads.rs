//! The threads of a run. Each has a runtime and its share of the connections,
//! and shares only the clock with the others.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};

use super::clock::RunClock;
use super::tally::Tally;
use super::worker::{LoadWorker, ThreadCounts};
use crate::BenchFault;
use crate::exchange::answer::AnswerError;
use crate::session::plan::Load;
use crate::session::script::Script;

/// The threads of a run.
pub(crate) struct LoadThreads {
    reports: mpsc::Receiver<ThreadReport>,
    go: watch::Sender<Option<Arc<RunClock>>>,
    /// Number of running threads.
    left: usize,
    tally: Option<Tally>,
    last: Option<Instant>,
}

/// A message from a thread.
enum ThreadReport {
    /// All connections are open; or the number of open ones, and the error of the next.
    Open(Result<(), (usize, AnswerError)>),
    /// The thread has finished, with its counts and the time of its last answer.
    Done(Box<Tally>, Instant),
}

impl LoadThreads {
    /// Starts the threads, and waits until every connection is open.
    ///
    /// # Errors
    /// [`BenchFault`] if a connection cannot be opened.
    pub(crate) async fn gather(script: &Arc<Script>, load: &Load) -> Result<Self, BenchFault> {
        let threads = load.threads.clamp(1, load.connections.max(1));
        let (report, reports) = mpsc::channel(threads * 2);
        let (go, _) = watch::channel(None);
        for place in 0..threads {
            let hand = LoadThread {
                script: Arc::clone(script),
                places: (place..load.connections).step_by(threads).collect(),
                grace: load.timeout.min(LAST_ANSWERS_TIMEOUT),
                report: report.clone(),
                go: go.subscribe(),
            };
            let name = format!("load-{place}");
            let started = std::thread::Builder::new().name(name).spawn(move || hand.work());
            started.map_err(|_| BenchFault::Thread)?;
        }
        let mut crew = Self { reports, go, left: threads, tally: None, last: None };
        crew.all_open(script, load.connections).await?;
        Ok(crew)
    }

    /// Starts the load.
    pub(crate) fn go(&self, clock: &Arc<RunClock>) {
        self.go.send_replace(Some(Arc::clone(clock)));
    }

    /// Completes when all threads are done.
    ///
    /// # Cancel safety
    /// Reports that have been received are kept.
    pub(crate) async fn all_done(&mut self) {
        while self.left > 0 {
            match self.reports.recv().await {
                Some(ThreadReport::Done(tally, last)) => {
                    self.left -= 1;
                    self.last = self.last.max(Some(last));
                    match &mut self.tally {
                        Some(own) => own.add(*tally),
                        own => *own = Some(*tally),
                    }
                }
                Some(ThreadReport::Open(_)) => {}
                // All threads have ended; one of them has failed.
                None => return,
            }
        }
    }

    /// Returns the sum of the threads' counts, and the time at which the last thread finished.
    ///
    /// # Errors
    /// [`BenchFault::Thread`].
    pub(crate) async fn finish(mut self) -> Result<(Tally, Instant), BenchFault> {
        self.all_done().await;
        match (self.left, self.tally, self.last) {
            (0, Some(tally), Some(last)) => Ok((tally, last)),
            _ => Err(BenchFault::Thread),
        }
    }

    async fn all_open(&mut self, script: &Script, wanted: usize) -> Result<(), BenchFault> {
        let url = || script.writer.target.shown.clone();
        for _ in 0..self.left {
            match self.reports.recv().await {
                Some(ThreadReport::Open(Ok(()))) => {}
                Some(ThreadReport::Open(Err((open, AnswerError::Connect(source))))) if open > 0 => {
                    return Err(BenchFault::Connections { open, wanted, source });
                }
                Some(ThreadReport::Open(Err((_, AnswerError::Connect(source))))) => {
                    return Err(BenchFault::Connect { url: url(), source });
                }
                Some(ThreadReport::Open(Err((_, trouble)))) => {
                    let (during, answer) = ("opening a connection", trouble.to_string());
                    return Err(BenchFault::Refused { url: url(), during, answer });
                }
                Some(ThreadReport::Done(..)) | None => return Err(BenchFault::Thread),
            }
        }
        Ok(())
    }
}

/// One thread of the load generator.
struct LoadThread {
    script: Arc<Script>,
    /// The indices of its connections.
    places: Vec<usize>,
    grace: Duration,
    report: mpsc::Sender<ThreadReport>,
    go: watch::Receiver<Option<Arc<RunClock>>>,
}

impl LoadThread {
    fn work(self) {
        // The receiver notices a missing report.
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        LocalSet::new().block_on(&runtime, self.shift());
    }

    async fn shift(mut self) {
        let workers = match self.open().await {
            Ok(workers) => workers,
            Err(fault) => return self.say(ThreadReport::Open(Err(fault))).await,
        };
        self.say(ThreadReport::Open(Ok(()))).await;
        let Ok(clock) = self.go.wait_for(Option::is_some).await.map(|clock| clock.clone()) else {
            return;
        };
        let Some(clock) = clock else { return };
        let desk = Rc::new(ThreadCounts {
            tally: RefCell::new(Tally::new(clock.counted)),
            under_way: Cell::new(0),
            last: Cell::new(clock.counted),
        });
        let mut working = JoinSet::new();
        for worker in workers {
            working.spawn_local(worker.work(Arc::clone(&clock), Rc::clone(&desk)));
        }
        tokio::select! {
            () = async { while working.join_next().await.is_some() {} } => {}
            () = over(&clock, self.grace) => {}
        }
        working.shutdown().await;
        let mut tally = desk.tally.replace(Tally::new(clock.counted));
        tally.unfinished = desk.under_way.get();
        self.say(ThreadReport::Done(Box::new(tally), desk.last.get())).await;
    }

    /// Opens its connections, some at a time, because a server's backlog is
    /// limited.
    async fn open(&self) -> Result<Vec<LoadWorker>, (usize, AnswerError)> {
        let mut workers = Vec::with_capacity(self.places.len());
        for places in self.places.chunks(AT_ONCE) {
            let mut opening = JoinSet::new();
            for place in places {
                opening.spawn_local(LoadWorker::open(Arc::clone(&self.script), *place));
            }
            while let Some(opened) = opening.join_next().await {
                match opened {
                    Ok(Ok(worker)) => workers.push(worker),
                    Ok(Err(trouble)) => return Err((workers.len(), trouble)),
                    Err(_) => return Err((workers.len(), AnswerError::Timeout)),
                }
            }
        }
        Ok(workers)
    }

    async fn say(&self, report: ThreadReport) {
        // If the receiver is gone, the report is no longer needed.
        let _ = self.report.send(report).await;
    }
}

/// Completes when the run is over, and the operations in flight have had their
/// time.
async fn over(clock: &RunClock, grace: Duration) {
    match clock.end {
        Some(end) => tokio::select! {
            () = tokio::time::sleep_until(end.into()) => {}
            () = clock.stopped() => {}
        },
        None => clock.stopped().await,
    }
    tokio::time::sleep(if clock.is_stopped() { grace.min(IN_HASTE) } else { grace }).await;
}

/// Time limit for the last answers.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the last answers after Ctrl-C.
const IN_HASTE: Duration = Duration::from_millis(500);
/// The number of connections that are opened concurrently.
const AT_ONCE: usize = 64;
