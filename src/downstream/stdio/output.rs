//! Writes lines to the host.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::call::Failure;
use crate::codec::large_message::work_on;
use crate::codec::lines::join_lines;
use crate::jsonrpc::{self, Frame};
use crate::shares::{Holder, Share, ShareBoundError, ShareBounds, SharedAmount};

use super::MAX_DEPTH;

/// The queue of messages to write.
#[derive(Clone)]
pub(super) struct LineOutput {
    lines: mpsc::Sender<Item>,
    budget: Option<OutputBudget>,
}

/// Limits of the bytes that wait for the clients of many outputs.
#[derive(Clone)]
pub(crate) struct OutputBudget {
    /// The waiting bytes of all of them.
    pub(crate) unread: Arc<SharedAmount>,
    /// The client of this output.
    pub(crate) holder: Holder,
    pub(crate) bounds: ShareBounds,
}

enum Item {
    Line(Bytes, Option<Share>),
    Last,
}

/// Receiver of the messages to write.
pub(crate) struct OutputLines(mpsc::Receiver<Item>);

impl LineOutput {
    pub(super) fn new(budget: Option<OutputBudget>) -> (Self, OutputLines) {
        let (lines, receiver) = mpsc::channel(MAX_QUEUED_MESSAGES);
        (Self { lines, budget }, OutputLines(receiver))
    }

    /// Queues a message, and waits while the host does not read. Line breaks, which JSON has only
    /// between its tokens, become spaces. Over the budget, answers become errors, and other
    /// messages are dropped.
    pub(super) async fn message(&self, message: Bytes) {
        let share = self.budget.as_ref().map(|budget| budget.take(message.len())).transpose();
        let item = match share {
            Ok(share) => {
                let line = work_on(message.len(), move || on_one_line(message)).await;
                let Ok(line) = line else { return };
                Item::Line(line, share)
            }
            Err(reached) => {
                tracing::debug!(%reached, "a message is dropped: too much is left unread");
                let error = work_on(message.len(), move || instead_of(&message)).await;
                let Ok(Some(error)) = error else { return };
                Item::Line(error, None)
            }
        };
        // If the output is no longer read, its writer reports it.
        let _ = self.lines.send(item).await;
    }

    /// Closes the queue.
    pub(super) async fn last(&self) {
        let _ = self.lines.send(Item::Last).await;
    }
}

impl OutputBudget {
    /// Takes the bytes of a message; one always fits if no other waits.
    fn take(&self, bytes: usize) -> Result<Share, ShareBoundError> {
        let ShareBounds { all, each } = self.bounds;
        let bounds = ShareBounds { all: all.max(bytes), each: each.max(bytes) };
        self.unread.take(&self.holder, bytes, bounds)
    }
}

impl OutputLines {
    /// Returns the next message; `None` after the last.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        match self.0.recv().await? {
            Item::Line(line, share) => {
                drop(share);
                Some(line)
            }
            Item::Last => None,
        }
    }

    /// Writes until the queue is closed.
    ///
    /// # Errors
    /// The output is no longer read.
    pub(super) async fn write(mut self, mut to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
        let mut batch = BytesMut::with_capacity(BATCH_BYTES);
        while let Some(item) = self.0.recv().await {
            let mut next = Some(item);
            let mut last = false;
            while let Some(item) = next.take() {
                match item {
                    Item::Line(line, _) => {
                        batch.extend_from_slice(&line);
                        batch.extend_from_slice(b"\n");
                    }
                    Item::Last => last = true,
                }
                if batch.len() < BATCH_BYTES && !last {
                    next = self.0.try_recv().ok();
                }
            }
            to.write_all(&batch).await?;
            to.flush().await?;
            if last {
                return Ok(());
            }
            if batch.capacity() > 4 * BATCH_BYTES {
                batch = BytesMut::with_capacity(BATCH_BYTES);
            }
            batch.clear();
        }
        Ok(())
    }
}

/// Builds the error for the client in place of an answer, or of a batch of them.
fn instead_of(message: &Bytes) -> Option<Bytes> {
    let id = match jsonrpc::parse(message, MAX_DEPTH) {
        Ok(Frame::Response { id, .. }) => id,
        Ok(_) => return None,
        Err(_) => None,
    };
    let failure = Failure::AnswerDropped { limit: "unread_each" };
    Some(jsonrpc::error(id.as_ref(), &failure.to_error()))
}

fn on_one_line(message: Bytes) -> Bytes {
    if memchr::memchr2(b'\r', b'\n', &message).is_none() {
        return message;
    }
    let mut flat = BytesMut::from(message);
    join_lines(&mut flat);
    flat.freeze()
}

/// Limit of messages that wait to be written.
const MAX_QUEUED_MESSAGES: usize = 64;
/// Bytes written at once.
const BATCH_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_is_one_line_whatever_stands_between_its_tokens() {
        let (output, lines) = LineOutput::new(None);
        output.message(Bytes::from_static(b"{\"a\":\r\n 1,\n\"b\":\"x\\ny\"}")).await;
        output.message(Bytes::from_static(b"{}")).await;
        output.last().await;
        let mut written = Vec::new();
        lines.write(&mut written).await.unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "{\"a\":   1, \"b\":\"x\\ny\"}\n{}\n");
    }
    #[tokio::test]
    async fn answers_that_too_many_others_wait_before_become_errors() {
        let unread = Arc::default();
        let holder = Holder::Client("a".into());
        let bounds = ShareBounds { all: 100, each: 60 };
        let budget = OutputBudget { unread: Arc::clone(&unread), holder, bounds };
        let (output, mut lines) = LineOutput::new(Some(budget));
        let answer = |id: usize| {
            Bytes::from(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"large":"{:70}"}}}}"#,
                ""
            ))
        };
        output.message(answer(1)).await;
        output.message(answer(2)).await;
        output.message(Bytes::from_static(br#"{"jsonrpc":"2.0","method":"dropped"}"#)).await;
        assert_eq!(unread.total(), answer(1).len());
        assert_eq!(lines.next().await, Some(answer(1)));
        assert_eq!(unread.total(), 0);
        output.message(answer(3)).await;
        let error = String::from_utf8(lines.next().await.unwrap().to_vec()).unwrap();
        assert!(error.contains(r#""id":2"#) && error.contains("unread_each"), "{error}");
        assert_eq!(lines.next().await, Some(answer(3)));
    }
}
