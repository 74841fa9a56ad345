//! Lines to a child: written by their senders, or by a task if the child does not read them at
//! once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use parking_lot::{Mutex, MutexGuard};
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

use crate::codec::lines::join_lines;

/// The queue of lines to a child. Writes all lines in order until it is
/// dropped.
pub(super) struct Outgoing(Arc<OutgoingShared>);

/// The child's input is closed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InputClosed;

struct OutgoingShared {
    lines: Mutex<OutgoingLines>,
    /// Notified when there is space in the queue.
    room: Notify,
}

struct OutgoingLines {
    /// `None` once the input is closed.
    input: Option<Input>,
    /// Lines to be written. The child has read the first `taken` bytes.
    left: Vec<u8>,
    taken: usize,
    /// True if the input is to be closed after them.
    closing: bool,
    /// Wakes the task that writes the remaining lines.
    writer: Option<Waker>,
}

/// The child's input. It is unbuffered and needs no flush.
type Input = Pin<Box<dyn AsyncWrite + Send>>;

impl Outgoing {
    /// Starts the task that writes into `input`.
    pub(super) fn start(input: impl AsyncWrite + Send + 'static) -> Self {
        let lines = OutgoingLines {
            input: Some(Box::pin(input)),
            left: Vec::new(),
            taken: 0,
            closing: false,
            writer: None,
        };
        let shared = Arc::new(OutgoingShared { lines: Mutex::new(lines), room: Notify::new() });
        let writer = Arc::clone(&shared);
        tokio::spawn(std::future::poll_fn(move |cx| writer.poll_write(cx)));
        Self(shared)
    }

    /// Sends a message as a line: line breaks in it, which JSON has only between its tokens, become
    /// spaces. Waits while the queue is full.
    ///
    /// # Errors
    /// [`InputClosed`].
    ///
    /// # Cancel safety
    /// The line is sent whole or not at all.
    pub(super) async fn send(&self, line: &[u8]) -> Result<(), InputClosed> {
        loop {
            let room = self.0.room.notified();
            if self.try_send(line)? {
                return Ok(());
            }
            room.await;
        }
    }

    /// Like [`send`](Self::send), unless the queue is full. Returns true if the line was sent.
    ///
    /// # Errors
    /// [`InputClosed`].
    pub(super) fn try_send(&self, line: &[u8]) -> Result<bool, InputClosed> {
        let mut lines = self.0.lines();
        if lines.input.is_none() || lines.closing {
            return Err(InputClosed);
        }
        if lines.left.len() >= MAX_OUTGOING_BYTES {
            return Ok(false);
        }
        let begin = lines.left.len();
        lines.left.extend_from_slice(line);
        join_lines(lines.left.get_mut(begin..).unwrap_or_default());
        lines.left.push(b'\n');
        // Behind other lines it waits for its turn.
        if begin == 0 && lines.poll_take(&mut Context::from_waker(Waker::noop())).is_pending() {
            lines.wake();
        }
        Ok(true)
    }

    /// Closes the child's input after the lines that were sent.
    pub(super) fn close(&self) {
        let mut lines = self.0.lines();
        lines.closing = true;
        lines.wake();
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        let mut lines = self.0.lines();
        lines.shut();
        lines.wake();
    }
}

impl OutgoingShared {
    fn lines(&self) -> MutexGuard<'_, OutgoingLines> {
        // No code that can panic runs while the lock is held.
        self.lines.lock()
    }

    /// Writes the queued lines until the input is closed.
    fn poll_write(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut lines = self.lines();
        let taken = lines.poll_take(cx);
        if taken.is_ready() {
            if lines.closing {
                lines.shut();
            }
            self.room.notify_waiters();
        }
        if lines.input.is_none() {
            return Poll::Ready(());
        }
        match &mut lines.writer {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl OutgoingLines {
    /// Writes the queued lines as far as possible. Ready when none are left.
    fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(rest) = self.left.get(self.taken..).filter(|rest| !rest.is_empty()) {
            let Some(input) = &mut self.input else { break };
            match ready!(input.as_mut().poll_write(cx, rest)) {
                Ok(taken @ 1..) => self.taken += taken,
                // The reader sees the end of the child's output and reports it.
                Ok(0) | Err(_) => self.shut(),
            }
        }
        self.left.clear();
        self.left.shrink_to(KEPT_QUEUE_CAPACITY);
        self.taken = 0;
        Poll::Ready(())
    }

    fn shut(&mut self) {
        self.input = None;
        self.left = Vec::new();
        self.taken = 0;
    }

    fn wake(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}

/// Maximum number of queued bytes, before the last line, for a child that does not read.
const MAX_OUTGOING_BYTES: usize = 256 * 1024;
/// Capacity in bytes that the empty queue retains.
const KEPT_QUEUE_CAPACITY: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn lines_come_whole_and_in_order_however_slowly_they_are_read() {
        let (input, mut child) = duplex(7);
        let outgoing = Outgoing::start(input);
        for line in ["one", "and a second one", "three"] {
            outgoing.send(line.as_bytes()).await.unwrap();
        }
        outgoing.close();
        assert_eq!(outgoing.send(b"four").await, Err(InputClosed));
        let mut read = String::new();
        child.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "one\nand a second one\nthree\n");
    }

    #[tokio::test]
    async fn a_message_is_one_line_whatever_is_between_its_tokens() {
        let (input, mut child) = duplex(7);
        let outgoing = Outgoing::start(input);
        outgoing.send(b"{\"first\":1}").await.unwrap();
        outgoing.send(b"{\r\n  \"text\":\n\t\"one\\ntwo\"\n}").await.unwrap();
        outgoing.close();
        let mut read = String::new();
        child.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "{\"first\":1}\n{    \"text\": \t\"one\\ntwo\" }\n");
    }

    #[tokio::test]
    async fn lines_with_room_in_the_pipe_are_written_before_other_tasks_run() {
        let (input, mut child) = duplex(64);
        let outgoing = Outgoing::start(input);
        assert_eq!(outgoing.try_send(b"now"), Ok(true));
        let mut read = [0; 64];
        assert_eq!(child.read(&mut read).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn a_child_that_does_not_read_lets_senders_wait_and_not_pile_up() {
        let (input, mut child) = duplex(16);
        let outgoing = Outgoing::start(input);
        let line = [b'x'; 1024];
        let mut sent = 0;
        while outgoing.try_send(&line).unwrap() {
            sent += 1;
        }
        assert_eq!(sent, MAX_OUTGOING_BYTES.div_ceil(line.len() + 1));
        let waits = outgoing.send(&line);
        let reads = async {
            let mut left = (sent + 1) * (line.len() + 1);
            while left > 0 {
                left -= child.read(&mut [0; 512]).await.unwrap();
            }
        };
        let (sent, ()) = tokio::join!(waits, reads);
        assert_eq!(sent, Ok(()));
    }

    #[tokio::test]
    async fn a_child_with_closed_input_receives_nothing() {
        let (input, child) = duplex(16);
        let outgoing = Outgoing::start(input);
        drop(child);
        let _first = outgoing.try_send(b"a line");
        assert_eq!(outgoing.send(b"another").await, Err(InputClosed));
    }

    #[tokio::test]
    async fn the_input_is_closed_after_the_last_sender() {
        let (input, mut child) = duplex(4);
        let outgoing = Outgoing::start(input);
        assert_eq!(outgoing.try_send(b"longer than there is room for"), Ok(true));
        drop(outgoing);
        let mut read = Vec::new();
        child.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"long");
    }
}
