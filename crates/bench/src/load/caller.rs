//! A connection that makes single calls on demand, to measure something other
//! than time.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use trunkline_core::clock;

use super::clock::{RunClock, ScheduledStart};
use super::tally::Tally;
use super::worker::{LoadWorker, ThreadCounts, Turn};
use crate::exchange::answer::AnswerError;
use crate::exchange::answer_check::CorrectAnswer;
use crate::session::plan::Load;
use crate::session::script::Script;

/// The connection, and its session if the server has sessions.
pub struct BenchCaller {
    worker: LoadWorker,
    clock: RunClock,
    desk: ThreadCounts,
}

impl BenchCaller {
    /// Connects.
    ///
    /// # Errors
    /// [`AnswerError`] if connecting fails.
    pub async fn open(script: Arc<Script>, load: &Load) -> Result<Self, AnswerError> {
        let clock = RunClock::start(load, clock::real_now());
        let desk = ThreadCounts {
            tally: RefCell::new(Tally::new(clock.counted)),
            under_way: Cell::new(0),
            last: Cell::new(clock.counted),
        };
        Ok(Self { worker: LoadWorker::open(script, 0).await?, clock, desk })
    }

    /// Makes the next call, and checks its answer.
    ///
    /// # Errors
    /// [`AnswerError`] for every incorrect answer.
    pub async fn call(&mut self) -> Result<CorrectAnswer, AnswerError> {
        let Self { worker, clock, desk } = self;
        let turn =
            Turn { clock, desk, slot: ScheduledStart { due: None }, begun: clock::real_now() };
        worker.call(&turn).await.map(|(right, _)| right)
    }

    /// Ends the session, if there is one.
    pub async fn close(self) {
        self.worker.close().await;
    }
}
