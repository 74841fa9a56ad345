//! Writes lines to the host.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// The queue of messages to be written.
#[derive(Clone)]
pub(super) struct LineOutput(mpsc::Sender<Item>);

enum Item {
    Line(Bytes),
    Last,
}

/// What was given to be written.
pub(in crate::downstream) struct OutputLines(mpsc::Receiver<Item>);

impl LineOutput {
    pub(super) fn new() -> (Self, OutputLines) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), OutputLines(receiver))
    }

    /// Gives a message to be written, and waits where the host does not read.
    /// Line breaks, which JSON has only between its tokens, become spaces.
    pub(super) async fn message(&self, message: Bytes) {
        // If nothing reads any more, the writer of the output reports it.
        let _ = self.0.send(Item::Line(on_one_line(message))).await;
    }

    /// Nothing comes after this.
    pub(super) async fn last(&self) {
        let _ = self.0.send(Item::Last).await;
    }
}

impl OutputLines {
    /// The next message; `None` behind the last.
    ///
    /// # Cancel safety
    /// Safe.
    pub(in crate::downstream) async fn next(&mut self) -> Option<Bytes> {
        match self.0.recv().await? {
            Item::Line(line) => Some(line),
            Item::Last => None,
        }
    }

    /// Writes until nothing more comes.
    ///
    /// # Errors
    /// Where nobody reads.
    pub(super) async fn write(mut self, mut to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
        let mut batch = BytesMut::with_capacity(BATCH);
        while let Some(item) = self.0.recv().await {
            let mut next = Some(item);
            let mut last = false;
            while let Some(item) = next.take() {
                match item {
                    Item::Line(line) => {
                        batch.extend_from_slice(&line);
                        batch.extend_from_slice(b"\n");
                    }
                    Item::Last => last = true,
                }
                if batch.len() < BATCH && !last {
                    next = self.0.try_recv().ok();
                }
            }
            to.write_all(&batch).await?;
            to.flush().await?;
            if last {
                return Ok(());
            }
            if batch.capacity() > 4 * BATCH {
                batch = BytesMut::with_capacity(BATCH);
            }
            batch.clear();
        }
        Ok(())
    }
}

fn on_one_line(message: Bytes) -> Bytes {
    let Some(first) = memchr::memchr2(b'\r', b'\n', &message) else { return message };
    let mut flat = BytesMut::from(message);
    for byte in flat.iter_mut().skip(first).filter(|byte| matches!(byte, b'\r' | b'\n')) {
        *byte = b' ';
    }
    flat.freeze()
}

/// Messages that wait to be written.
const WAITING: usize = 64;
/// How many bytes are written at once.
const BATCH: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_is_one_line_whatever_stands_between_its_tokens() {
        let (output, lines) = LineOutput::new();
        output.message(Bytes::from_static(b"{\"a\":\r\n 1,\n\"b\":\"x\\ny\"}")).await;
        output.message(Bytes::from_static(b"{}")).await;
        output.last().await;
        let mut written = Vec::new();
        lines.write(&mut written).await.unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "{\"a\":   1, \"b\":\"x\\ny\"}\n{}\n");
    }
}
