//! A request's body.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::http1::Pieces;

/// Why a request's body broke off.
#[derive(Debug, thiserror::Error)]
pub enum BodyFault {
    /// The client closed its connection.
    #[error("the client closed the connection")]
    Gone,
    /// Its chunks break the rules of such (RFC 9112, 7.1).
    #[error("the chunks of the body are broken")]
    Chunks,
    /// HTTP/2 went wrong.
    #[error("the HTTP/2 stream failed")]
    H2(#[source] hyper::Error),
}

/// A request's body as it comes.
pub struct Incoming(Way);

enum Way {
    /// All of it, the common case.
    Here(Bytes),
    Coming(Pieces),
    H2(hyper::body::Incoming),
}

impl Incoming {
    pub(super) fn here(body: Bytes) -> Self {
        Self(Way::Here(body))
    }

    pub(super) fn coming(pieces: Pieces) -> Self {
        Self(Way::Coming(pieces))
    }

    pub(super) fn h2(body: hyper::body::Incoming) -> Self {
        Self(Way::H2(body))
    }
}

/// Its size alone.
impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Incoming").field(&self.size_hint()).finish()
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match &mut self.0 {
            Way::Here(body) if body.is_empty() => Poll::Ready(None),
            Way::Here(body) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(body))))),
            Way::Coming(pieces) => pieces.poll(cx).map_ok(Frame::data),
            Way::H2(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(BodyFault::H2)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Way::Here(body) => body.is_empty(),
            Way::Coming(pieces) => pieces.is_over(),
            Way::H2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Way::Here(body) => SizeHint::with_exact(body.len() as u64),
            Way::Coming(pieces) => match pieces.left() {
                (left, true) => SizeHint::with_exact(left),
                (left, false) => {
                    let mut hint = SizeHint::new();
                    hint.set_lower(left);
                    hint
                }
            },
            Way::H2(body) => body.size_hint(),
        }
    }
}
