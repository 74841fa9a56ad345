//! A call under way, as a front holds it.

use crate::call::{Event, Failure, Reply};

use super::record::Record;

/// A reply that is watched to its end: the log, the metrics and the trace
/// learn how the call ended, also when nobody waits for that.
pub struct Exchange {
    reply: Reply,
    record: Option<Record>,
}

impl Exchange {
    /// A call that has not been sent yet.
    pub(super) fn begin(record: Record) -> Self {
        Self { reply: Reply::ready(Err(Failure::Cancelled)), record: Some(record) }
    }

    pub(super) fn record(&mut self) -> Option<&mut Record> {
        self.record.as_mut()
    }

    pub(super) fn reply(&mut self, reply: Reply) {
        self.reply = reply;
    }

    /// The next step; `None` after the answer.
    ///
    /// # Cancel safety
    /// Safe: no step is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        let mut event = self.reply.next().await;
        match &mut event {
            Some(Event::Answer(answer)) => {
                if let Some(mut record) = self.record.take() {
                    record.finish(answer);
                }
            }
            Some(Event::Passing(passing)) => {
                if let Some(mut record) = self.record.take() {
                    passing.at_end(move |ended| record.passed(ended));
                }
            }
            Some(Event::Notice(_) | Event::Pause(_)) | None => {}
        }
        event
    }

    /// Waits for the end without looking at it: for a client that is gone but
    /// has not taken the call back.
    pub async fn run_out(mut self) {
        while let Some(event) = self.next().await {
            if let Event::Passing(mut passing) = event {
                while let Ok(Some(_)) = passing.next().await {}
            }
        }
    }
}
