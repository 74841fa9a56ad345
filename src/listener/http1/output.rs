//! What is to be written, gathered so that it goes out in as few writes as can be.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::AsyncWrite;

/// Bytes on their way out. Small ones are copied together, large ones stand between them.
#[derive(Default)]
pub(super) struct Output {
    text: Vec<u8>,
    /// Where in `text` each large piece belongs.
    large: Vec<(usize, Bytes)>,
    /// The bytes of the large pieces.
    large_bytes: usize,
    written: usize,
    /// What was written may still be held back, for TLS takes more than its socket does.
    unflushed: bool,
}

impl Output {
    /// Where small bytes are written to.
    pub(super) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Adds a piece.
    pub(super) fn push(&mut self, piece: Bytes) {
        if piece.len() <= COPIED {
            self.text.extend_from_slice(&piece);
        } else {
            self.large_bytes += piece.len();
            self.large.push((self.text.len(), piece));
        }
    }

    /// How many bytes are still to be written.
    pub(super) fn left(&self) -> usize {
        self.text.len() + self.large_bytes - self.written
    }

    /// How much memory it holds for small bytes.
    pub(super) fn capacity(&self) -> usize {
        self.text.capacity()
    }

    /// Lets go of memory that nothing is in.
    pub(super) fn release(&mut self) {
        if self.left() == 0 {
            *self = Self { unflushed: self.unflushed, ..Self::default() };
        }
    }

    /// Writes all of it.
    pub(super) fn poll_write<I: AsyncWrite + Unpin>(
        &mut self,
        io: &mut I,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left() == 0 && !self.unflushed {
            return Poll::Ready(Ok(()));
        }
        while self.left() > 0 {
            self.unflushed = true;
            let io = Pin::new(&mut *io);
            let wrote = if self.large.is_empty() {
                io.poll_write(cx, self.text.get(self.written..).unwrap_or_default())
            } else {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let count = self.slices(&mut slices);
                io.poll_write_vectored(cx, slices.get(..count).unwrap_or_default())
            };
            match ready!(wrote)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                wrote => self.written += wrote,
            }
        }
        self.text.clear();
        self.large.clear();
        (self.large_bytes, self.written) = (0, 0);
        ready!(Pin::new(io).poll_flush(cx))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    /// What is left, in order, as far as there is room; how many slices it takes.
    fn slices<'a>(&'a self, room: &mut [IoSlice<'a>; SLICES]) -> usize {
        let (mut count, mut passed, mut at) = (0, self.written, 0);
        let mut add = |piece: &'a [u8]| {
            let left = piece.get(passed..).unwrap_or_default();
            passed = passed.saturating_sub(piece.len());
            if !left.is_empty()
                && let Some(slot) = room.get_mut(count)
            {
                *slot = IoSlice::new(left);
                count += 1;
            }
        };
        for (position, piece) in &self.large {
            add(self.text.get(at..*position).unwrap_or_default());
            add(piece);
            at = *position;
        }
        add(self.text.get(at..).unwrap_or_default());
        count
    }
}

/// Sizes alone: what is in it is between a client and a server.
impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("left", &self.left()).finish_non_exhaustive()
    }
}

/// A piece up to this size is copied.
const COPIED: usize = 4 * 1024;
/// How many pieces one write takes.
const SLICES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes a write, every other time, and holds them back until it is flushed.
    #[derive(Default)]
    struct Slow {
        step: usize,
        tired: bool,
        held: Vec<u8>,
        came: Vec<u8>,
    }

    impl Slow {
        fn rests(&mut self) -> bool {
            self.tired = !self.tired;
            self.tired
        }
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            if self.rests() {
                return Poll::Pending;
            }
            let taken = bytes.len().min(self.step);
            self.held.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all = slices.iter().flat_map(|slice| slice.iter().copied());
            let taken: Vec<u8> = all.take(self.step).collect();
            self.poll_write(cx, &taken)
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.rests() {
                return Poll::Pending;
            }
            let held = std::mem::take(&mut self.held);
            self.came.extend_from_slice(&held);
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn pieces_of_all_sizes_come_out_in_order() {
        for step in [1, 3, 5000, usize::MAX] {
            let mut output = Output::default();
            let mut wanted = Vec::new();
            for round in 0..20_u8 {
                output.text().extend_from_slice(&[round; 3]);
                wanted.extend_from_slice(&[round; 3]);
                let piece = vec![round; usize::from(round % 3) * 3000];
                wanted.extend_from_slice(&piece);
                output.push(piece.into());
            }
            assert_eq!(output.left(), wanted.len());
            let mut io = Slow { step, ..Slow::default() };
            let mut cx = Context::from_waker(std::task::Waker::noop());
            while output.poll_write(&mut io, &mut cx).is_pending() {
                output.release();
            }
            assert_eq!(io.came, wanted, "{step}");
            assert_eq!(output.left(), 0);
        }
    }
}
