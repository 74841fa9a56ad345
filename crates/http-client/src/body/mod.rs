//! Response bodies.

mod content_coding;

use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::connection::Http1Connection;
use crate::error::TransportError;
use crate::idle::IdleConnections;
pub use content_coding::decode_body;
use content_coding::{ContentCoding, DecodedBody};

/// A response body. If it is dropped before its end, its connection is closed
/// (over HTTP/2, the stream is reset).
#[derive(Debug)]
pub struct ResponseBody(BodySource);

#[derive(Debug)]
enum BodySource {
    /// The whole body has been read, which is the usual case.
    Whole(Option<Bytes>),
    /// An HTTP/1.1 body. `first` arrived with the head; `rest` is `None` at the
    /// end.
    Http1 { first: Option<Bytes>, rest: Option<Box<Receiving>> },
    /// An HTTP/2 body, and a value that is dropped with it.
    Http2(Incoming, #[allow(dead_code, reason = "held for its drop")] HeldValue),
    /// A body that had a content coding.
    Decoded(Box<DecodedBody>),
}

/// A value that is held while a body is read.
pub type HeldValue = Option<Box<dyn Any + Send + Sync>>;

/// The rest of an HTTP/1.1 body, and its connection.
#[derive(Debug)]
struct Receiving {
    incoming: Incoming,
    connection: Http1Connection,
    /// Receives the connection afterwards. `None` if the connection is to be closed.
    idle: Option<IdleConnections>,
}

impl ResponseBody {
    /// Reads the part of the body that has arrived with the head. The connection returns to `idle`
    /// after the whole body, so at once if the body is small. After a response with both
    /// `Content-Length` and `Transfer-Encoding` it is closed (RFC 9112, 6.3): a proxy on the way
    /// may disagree about the end of the body.
    ///
    /// # Errors
    /// [`TransportError`] if the part that was read is malformed.
    pub(crate) fn receive(
        response: Response<Incoming>,
        connection: Http1Connection,
        idle: &IdleConnections,
    ) -> Result<Response<Self>, TransportError> {
        let (head, incoming) = response.into_parts();
        // hyper reports a length only for bodies without `Transfer-Encoding`. A response without a
        // body, such as a 204, is recognised by its headers.
        let may_have_two = incoming.size_hint().exact().is_none_or(|length| length == 0);
        let has_two_lengths = may_have_two
            && head.headers.contains_key(TRANSFER_ENCODING)
            && head.headers.contains_key(CONTENT_LENGTH);
        let idle = (!has_two_lengths).then(|| idle.clone());
        let mut receiving = Receiving { incoming, connection, idle };
        let mut quiet = Context::from_waker(Waker::noop());
        let source = match receiving.poll_data(&mut quiet) {
            Poll::Ready(None) => {
                receiving.finish();
                BodySource::Whole(None)
            }
            Poll::Ready(Some(piece)) => {
                let piece = Some(piece?);
                if receiving.is_over() {
                    receiving.finish();
                    BodySource::Whole(piece)
                } else {
                    BodySource::Http1 { first: piece, rest: Some(Box::new(receiving)) }
                }
            }
            Poll::Pending => BodySource::Http1 { first: None, rest: Some(Box::new(receiving)) },
        };
        Ok(Response::from_parts(head, Self(source)))
    }

    /// Creates a body without contents.
    #[inline]
    pub fn empty() -> Self {
        Self(BodySource::Whole(None))
    }

    /// An HTTP/2 response.
    pub(crate) fn receive_http2(response: Response<Incoming>) -> Response<Self> {
        Self::receive_holding(response, None)
    }

    /// Wraps an HTTP/2 response with a value that is dropped with its body, such as a place that it
    /// occupies.
    pub fn receive_holding(response: Response<Incoming>, held: HeldValue) -> Response<Self> {
        response.map(|incoming| Self(BodySource::Http2(incoming, held)))
    }

    /// Decodes the rest of the body. An empty body has no coding, even if its head names one.
    fn decode(&mut self, coding: ContentCoding) {
        if !self.is_end_stream() {
            let encoded = std::mem::replace(self, Self::empty());
            self.0 = BodySource::Decoded(Box::new(DecodedBody::new(encoded, coding)));
        }
    }
}

impl Receiving {
    /// Returns the next piece, or `None` at the end.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, TransportError>>> {
        let Self { incoming, connection, .. } = self;
        loop {
            let frame = connection.poll_feeding(cx, |cx| Pin::new(&mut *incoming).poll_frame(cx));
            match ready!(frame).map(|frame| frame.map(Frame::into_data)) {
                None => return Poll::Ready(None),
                Some(Ok(Ok(piece))) => return Poll::Ready(Some(Ok(piece))),
                // Trailers are not used.
                Some(Ok(Err(_))) => {}
                Some(Err(error)) => return Poll::Ready(Some(Err(TransportError::of_http1(error)))),
            }
        }
    }

    /// Returns true if the body has ended, as far as it was read. After the last piece no further
    /// read is needed.
    fn is_over(&mut self) -> bool {
        match self.incoming.size_hint().exact() {
            Some(left) => left == 0,
            None => self.connection.is_reusable(),
        }
    }

    /// Keeps the connection for the next request, unless the server closes it or has not read the
    /// last request completely.
    fn finish(mut self) {
        if let Some(idle) = self.idle
            && (self.connection.is_ready() || self.connection.is_reusable())
        {
            idle.put(self.connection);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = TransportError;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let (first, rest) = match &mut self.get_mut().0 {
            BodySource::Whole(all) => {
                return Poll::Ready(all.take().map(|all| Ok(Frame::data(all))));
            }
            BodySource::Http2(incoming, _) => {
                let frame = ready!(Pin::new(incoming).poll_frame(cx));
                return Poll::Ready(frame.map(|frame| frame.map_err(TransportError::Http2)));
            }
            BodySource::Decoded(decoded) => {
                let piece = ready!(decoded.poll_data(cx));
                return Poll::Ready(piece.map(|piece| piece.map(Frame::data)));
            }
            BodySource::Http1 { first, rest } => (first, rest),
        };
        if let Some(first) = first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(receiving) = rest else { return Poll::Ready(None) };
        let piece = ready!(receiving.poll_data(cx));
        match &piece {
            Some(Ok(_)) if !receiving.is_over() => {}
            Some(Err(_)) => *rest = None,
            _ => {
                if let Some(receiving) = rest.take() {
                    receiving.finish();
                }
            }
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodySource::Whole(all) => all.is_none(),
            BodySource::Http1 { first, rest } => first.is_none() && rest.is_none(),
            BodySource::Http2(incoming, _) => incoming.is_end_stream(),
            BodySource::Decoded(decoded) => decoded.is_over(),
        }
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        match &self.0 {
            BodySource::Whole(all) => SizeHint::with_exact(length(all)),
            BodySource::Http2(incoming, _) => incoming.size_hint(),
            BodySource::Decoded(_) => SizeHint::new(),
            BodySource::Http1 { first, rest } => {
                let left = rest.as_ref().map_or(Some(0), |rest| rest.incoming.size_hint().exact());
                left.map_or_else(SizeHint::new, |left| SizeHint::with_exact(length(first) + left))
            }
        }
    }
}
