//! Newline framing: one JSON-RPC message per line, as in the stdio transport.
//!
//! The reader holds at most one line of the allowed length and one read buffer. A longer line is
//! discarded as it arrives and reported once it has ended; the reader then continues with the next
//! line. The error contains the first and last bytes of the discarded line, because a message's
//! `id` is usually near one of its ends and lets the caller fail that one call at once instead of
//! at its deadline.

use std::{fmt, io};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::large_message::{make_room, share_thread, take_first};

/// Reasons that no line could be read.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// A line had more bytes than allowed and was discarded; the next call continues after it.
    #[error("a line is longer than {limit} bytes")]
    TooLong {
        /// Limit of a line's bytes.
        limit: usize,
        /// The two ends of the line.
        ends: Box<LineEnds>,
    },
    /// The stream failed; it will not recover.
    #[error("cannot read a line")]
    Io(#[from] io::Error),
}

/// The two ends of a line that was too long to keep, at most
/// [`LineEnds::KEPT`] bytes each.
#[derive(Clone, PartialEq, Eq)]
pub struct LineEnds {
    /// The beginning of the line.
    pub head: Bytes,
    /// The end of the line; overlaps `head` if the line is short.
    pub tail: Bytes,
}

impl LineEnds {
    /// Limit of the bytes kept of each end.
    pub const KEPT: usize = 512;
}

impl fmt::Debug for LineEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} … {} bytes", self.head.len(), self.tail.len())
    }
}

/// Replaces the line breaks of a JSON message, which are between its tokens only, by spaces: the
/// message is one line then.
pub fn join_lines(message: &mut [u8]) {
    let Some(first) = memchr::memchr2(b'\r', b'\n', message) else { return };
    for byte in message.iter_mut().skip(first).filter(|byte| matches!(byte, b'\r' | b'\n')) {
        *byte = b' ';
    }
}

/// Reads lines from `io`, each at most `limit` bytes without its line end.
///
/// `\n` and `\r\n` end a line; empty lines are skipped. Bytes after the last line end, before the
/// end of the stream, are the last line.
pub struct LineReader<R> {
    io: R,
    limit: usize,
    /// Bytes read but not returned yet; no `\n` before `searched`.
    buffer: BytesMut,
    searched: usize,
    /// Set while the rest of an overlong line is discarded.
    lost: Option<OverlongLine>,
    ended: bool,
}

#[derive(Default)]
struct OverlongLine {
    head: BytesMut,
    tail: BytesMut,
    len: usize,
}

/// The next step, from the buffer's content.
enum LineStep {
    Line(Bytes),
    Lost(OverlongLine),
    More,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Creates a reader of lines of at most `limit` bytes.
    pub fn new(io: R, limit: usize) -> Self {
        Self { io, limit, buffer: BytesMut::new(), searched: 0, lost: None, ended: false }
    }

    /// Returns the next line without its line end, or `None` at the end of the stream.
    ///
    /// The line is a slice of the read buffer: holding a short line keeps the whole buffer alive.
    ///
    /// # Errors
    /// [`LineError::TooLong`] for a line over the limit, once it has ended: the next call continues
    /// with the line after it. [`LineError::Io`] if the stream fails.
    ///
    /// # Cancel safety
    /// Safe: bytes that were read stay in the reader.
    pub async fn next(&mut self) -> Result<Option<Bytes>, LineError> {
        loop {
            match self.step() {
                LineStep::Line(line) if line.is_empty() => {}
                LineStep::Line(line) => return Ok(Some(line)),
                LineStep::Lost(lost) => return Err(self.too_long(lost)),
                LineStep::More if self.ended => return Ok(None),
                LineStep::More => {
                    make_room(&mut self.buffer, MAX_READ_BYTES);
                    let read = (&mut self.io)
                        .take(MAX_READ_BYTES as u64)
                        .read_buf(&mut self.buffer)
                        .await?;
                    self.ended = read == 0;
                    share_thread(read).await;
                }
            }
        }
    }

    fn step(&mut self) -> LineStep {
        let fresh = self.buffer.get(self.searched..).unwrap_or_default();
        let end = match memchr::memchr(b'\n', fresh) {
            Some(at) => self.searched + at,
            None if self.ended && (self.lost.is_some() || !self.buffer.is_empty()) => {
                self.buffer.len()
            }
            None => {
                self.searched = self.buffer.len();
                self.drop_overlong();
                return LineStep::More;
            }
        };
        let mut line = take_first(&mut self.buffer, end);
        let _line_end = self.buffer.split_to(self.buffer.len().min(1));
        self.searched = 0;
        if let Some(lost) = self.lost.take() {
            return LineStep::Lost(lost.and(&line));
        }
        let kept = line.len() - usize::from(line.last() == Some(&b'\r'));
        if kept > self.limit {
            return LineStep::Lost(OverlongLine::default().and(&line));
        }
        line.truncate(kept);
        LineStep::Line(line.freeze())
    }

    /// Discards a line that has outgrown the limit before its end was seen. One byte more than the
    /// limit is allowed: it may be the `\r` of a line end.
    fn drop_overlong(&mut self) {
        if let Some(lost) = self.lost.take() {
            self.lost = Some(lost.and(&self.buffer));
        } else if self.buffer.len() > self.limit.saturating_add(1) {
            self.lost = Some(OverlongLine::default().and(&self.buffer));
        } else {
            return;
        }
        self.buffer = BytesMut::new();
        self.searched = 0;
    }

    fn too_long(&self, lost: OverlongLine) -> LineError {
        LineError::TooLong { limit: self.limit, ends: Box::new(lost.ends()) }
    }
}

impl OverlongLine {
    fn and(mut self, more: &[u8]) -> Self {
        self.len += more.len();
        let room = LineEnds::KEPT - self.head.len();
        self.head.extend_from_slice(more.get(..room).unwrap_or(more));
        let more = more.get(more.len().saturating_sub(LineEnds::KEPT)..).unwrap_or_default();
        let surplus = (self.tail.len() + more.len()).saturating_sub(LineEnds::KEPT);
        self.tail = BytesMut::from(self.tail.get(surplus..).unwrap_or_default());
        self.tail.extend_from_slice(more);
        self
    }

    fn ends(mut self) -> LineEnds {
        if self.tail.last() == Some(&b'\r') {
            self.tail.truncate(self.tail.len() - 1);
            self.head.truncate(self.len - 1);
        }
        LineEnds { head: self.head.freeze(), tail: self.tail.freeze() }
    }
}

/// Limit of the bytes read from the stream at once: a quarter of a Linux pipe.
const MAX_READ_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    use super::*;

    fn read_all(chunks: Vec<Vec<u8>>, limit: usize) -> Vec<Result<Bytes, usize>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut write, read) = tokio::io::duplex(64 * 1024);
            let feed = tokio::spawn(async move {
                for chunk in chunks {
                    write.write_all(&chunk).await.unwrap();
                    tokio::task::yield_now().await;
                }
            });
            let mut lines = LineReader::new(read, limit);
            let mut seen = Vec::new();
            loop {
                match lines.next().await {
                    Ok(Some(line)) => seen.push(Ok(line)),
                    Ok(None) => break,
                    Err(LineError::TooLong { ends, .. }) => {
                        assert!(ends.head.len() <= LineEnds::KEPT);
                        assert!(ends.tail.len() <= LineEnds::KEPT);
                        seen.push(Err(ends.head.len() + ends.tail.len()));
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            feed.await.unwrap();
            seen
        })
    }

    fn text(seen: &[Result<Bytes, usize>]) -> Vec<&str> {
        seen.iter()
            .map(|line| match line {
                Ok(line) => std::str::from_utf8(line).unwrap(),
                Err(_) => "TOO LONG",
            })
            .collect()
    }

    #[test]
    fn lines_are_split_stripped_and_bounded() {
        let cases: [(&[u8], &[&str]); 9] = [
            (b"", &[]),
            (b"a\nb\n", &["a", "b"]),
            (b"a\r\nb\r\n", &["a", "b"]),
            (b"\n\r\n\na\n\n", &["a"]),
            (b"the last", &["the last"]),
            (b"12345678\r\n123456789\n1\n", &["12345678", "TOO LONG", "1"]),
            (b"12345678\r", &["12345678"]),
            (b"123456789012345678901234567890", &["TOO LONG"]),
            (b"a\rb\n", &["a\rb"]),
        ];
        for (input, expected) in cases {
            assert_eq!(text(&read_all(vec![input.to_vec()], 8)), expected, "{input:?}");
        }
    }

    #[tokio::test]
    async fn a_line_too_long_shows_both_its_ends_and_is_not_kept() {
        let mut line = b"{\"id\":1,".to_vec();
        line.resize(10_000_000, b'x');
        line.extend_from_slice(b",\"id\":2}\nnext\n");
        let mut lines = LineReader::new(line.as_slice(), 1000);
        let Err(LineError::TooLong { limit: 1000, ends }) = lines.next().await else {
            panic!("not refused");
        };
        assert!(ends.head.starts_with(b"{\"id\":1,"));
        assert!(ends.tail.ends_with(b",\"id\":2}"));
        assert!(
            lines.buffer.capacity() <= 1000 + 4 * MAX_READ_BYTES,
            "{}",
            lines.buffer.capacity()
        );
        assert_eq!(lines.next().await.unwrap().unwrap(), "next");
        assert!(lines.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_cancelled_read_loses_nothing() {
        let (mut write, read) = tokio::io::duplex(64);
        let mut lines = LineReader::new(read, 64);
        write.write_all(b"hal").await.unwrap();
        for _ in 0..3 {
            tokio::select! {
                biased;
                _ = lines.next() => panic!("there is no whole line yet"),
                () = tokio::task::yield_now() => {}
            }
        }
        write.write_all(b"f\n").await.unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap(), "half");
    }

    proptest! {
        #[test]
        fn chunking_changes_nothing(
            input in prop::collection::vec(prop::sample::select(b"ab\r\n".to_vec()), 0..200),
            cuts in prop::collection::vec(1usize..9, 0..200),
        ) {
            let whole = read_all(vec![input.clone()], 5);
            let mut chunks = Vec::new();
            let mut rest = input.as_slice();
            for cut in cuts {
                let (chunk, after) = rest.split_at(cut.min(rest.len()));
                chunks.push(chunk.to_vec());
                rest = after;
            }
            chunks.push(rest.to_vec());
            prop_assert_eq!(whole, read_all(chunks, 5));
        }
    }
}
