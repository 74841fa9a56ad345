//! Response bodies: a few pieces that are ready, or a stream.

use std::iter;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http_body::{Frame, SizeHint};

/// A response body.
pub enum Body {
    /// One piece.
    Whole(Bytes),
    /// A few pieces, sent in turn. A prepared list is one of them,
    /// shared and never copied into an envelope.
    Pieces(Box<[Bytes]>),
    /// Pieces that are produced over time.
    Stream(Pin<Box<dyn Stream<Item = Result<Bytes, BrokenBodyError>> + Send>>),
}

/// A body that ended early. The connection is closed without a proper end, so that the client does
/// not take the part for the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer ended early")]
pub struct BrokenBodyError;

impl Body {
    /// Creates an empty body.
    pub fn empty() -> Self {
        Self::Whole(Bytes::new())
    }

    /// Creates a body of these pieces.
    pub fn pieces(pieces: impl Into<Box<[Bytes]>>) -> Self {
        Self::Pieces(pieces.into())
    }

    /// Creates a body from a stream that always ends properly.
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::fragile(stream.map(Ok))
    }

    /// Creates a body from a stream that may break off.
    pub fn fragile(
        stream: impl Stream<Item = Result<Bytes, BrokenBodyError>> + Send + 'static,
    ) -> Self {
        Self::Stream(Box::pin(stream))
    }
}

/// Takes the next frame of a piece. A connection copies a frame, for TLS more than once, before its
/// thread serves another client.
fn take_frame(piece: &mut Bytes) -> Bytes {
    if piece.len() <= MAX_FRAME { std::mem::take(piece) } else { piece.split_to(MAX_FRAME) }
}

/// Splits pieces into frames, for a stream.
pub(crate) fn frames(pieces: Vec<Bytes>) -> impl Iterator<Item = Bytes> {
    let mut pieces = pieces.into_iter();
    let mut piece = Bytes::new();
    iter::from_fn(move || {
        while piece.is_empty() {
            piece = pieces.next()?;
        }
        Some(take_frame(&mut piece))
    })
}

/// Limit of a frame's bytes. Streams have no larger pieces.
const MAX_FRAME: usize = 256 << 10;

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BrokenBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBodyError>>> {
        let next = match &mut *self {
            Self::Whole(bytes) => Some(bytes).filter(|bytes| !bytes.is_empty()),
            Self::Pieces(pieces) => pieces.iter_mut().find(|piece| !piece.is_empty()),
            Self::Stream(stream) => return stream.as_mut().poll_next(cx).map_ok(Frame::data),
        };
        Poll::Ready(next.map(|piece| Ok(Frame::data(take_frame(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Pieces(pieces) => pieces.iter().all(Bytes::is_empty),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces(pieces) => {
                SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum())
            }
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn a_large_piece_is_sent_in_frames_of_bounded_size() {
        let large = Bytes::from(vec![b'x'; 3 * MAX_FRAME + 1]);
        let pieces = Body::pieces([Bytes::from_static(b"a"), large.clone()]);
        for (mut body, expected) in [(Body::Whole(large.clone()), 4), (pieces, 5)] {
            let (mut frames, mut bytes) = (0, 0);
            while let Some(frame) = body.frame().now_or_never().unwrap() {
                let data = frame.unwrap().into_data().unwrap();
                assert!((1..=MAX_FRAME).contains(&data.len()));
                (frames, bytes) = (frames + 1, bytes + data.len());
            }
            assert_eq!(frames, expected);
            assert!(bytes >= large.len());
        }
    }
}
