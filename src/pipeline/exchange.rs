//! A call under way, as a front holds it.

use crate::call::{Event, Failure, Reply};

use super::record::Record;

/// A reply that is watched to its end: the log, the metrics and the trace
/// learn how the call ended, also when nobody waits for that.
pub struct Exchange {
    reply: Reply,
    record: Record,
}

impl Exchange {
    /// A call that has not been sent yet.
    pub(super) fn begin(record: Record) -> Self {
        Self { reply: Reply::ready(Err(Failure::Cancelled)), record }
    }

    pub(super) fn record(&mut self) -> &mut Record {
        &mut self.record
    }

    pub(super) fn reply(&mut self, reply: Reply) {
        self.reply = reply;
    }

    /// The next step; `None` after the answer.
    ///
    /// # Cancel safety
    /// Safe: no step is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        let event = self.reply.next().await;
        if let Some(Event::Answer(answer)) = &event {
            self.record.finish(answer);
        }
        event
    }

    /// Waits for the end without looking at it: for a client that is gone but
    /// has not taken the call back.
    pub async fn run_out(mut self) {
        while self.next().await.is_some() {}
    }
}
