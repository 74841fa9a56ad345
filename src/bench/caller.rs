//! A connection on which one call is made after the other, by hand: for those
//! who count something else than time.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Instant;

use super::answer::Trouble;
use super::clock::{Clock, Slot};
use super::judge::Right;
use super::plan::Load;
use super::script::Script;
use super::tally::Tally;
use super::worker::{Desk, Turn, Worker};

/// The connection, and its session if there are such.
pub struct Caller {
    worker: Worker,
    clock: Clock,
    desk: Desk,
}

impl Caller {
    /// Connects.
    ///
    /// # Errors
    /// [`Trouble`] where that fails.
    pub async fn open(script: Arc<Script>, load: &Load) -> Result<Self, Trouble> {
        let clock = Clock::start(load, Instant::now());
        let desk = Desk {
            tally: RefCell::new(Tally::new(clock.counted)),
            under_way: Cell::new(0),
            last: Cell::new(clock.counted),
        };
        Ok(Self { worker: Worker::open(script, 0).await?, clock, desk })
    }

    /// Makes the next call, and judges its answer.
    ///
    /// # Errors
    /// [`Trouble`] for every answer that is not right.
    pub async fn call(&mut self) -> Result<Right, Trouble> {
        let Self { worker, clock, desk } = self;
        let turn = Turn { clock, desk, slot: Slot { due: None }, begun: Instant::now() };
        worker.call(&turn).await.map(|(right, _)| right)
    }

    /// Ends the session, if there is one.
    pub async fn close(self) {
        self.worker.close().await;
    }
}
