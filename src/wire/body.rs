//! A response, and its body as it comes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::WireFault;
use super::connection::Connection;
use super::framing::{Framed, Piece};
use super::head::{Fields, Head};
use super::idle::Idle;

/// What a server answers.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The head's fields.
    pub fields: Fields,
    /// What comes behind the head.
    pub body: Body,
}

impl Response {
    /// One whose head has come. When its body has come, too, the connection
    /// goes to `home`.
    pub(super) fn new(
        head: Head,
        mut connection: Connection,
        home: &Idle,
    ) -> Result<Self, WireFault> {
        let Head { status, framing, keep_alive, fields } = head;
        let mut framed = Framed::new(framing);
        let first = match connection.piece(&mut framed)? {
            Piece::Data(piece) => Some(piece),
            Piece::More(_) | Piece::End => None,
        };
        let mut rest = Rest { connection, framed, home: keep_alive.then(|| home.clone()) };
        let body = if rest.is_over()? {
            rest.go_home();
            Way::Here(first)
        } else {
            Way::Coming { first, rest: Some(Box::new(rest)) }
        };
        Ok(Self { status, fields, body: Body(body) })
    }

    /// The same in the types of the `http` crate.
    pub fn into_http(self) -> http::Response<Body> {
        let mut response = http::Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.fields.into_map();
        response
    }

    /// One of HTTP/2.
    pub(super) fn of_h2(response: http::Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        Self { status: head.status, fields: Fields::map(head.headers), body: Body(Way::H2(body)) }
    }
}

/// A response's body. When it is dropped before its end, its connection is
/// closed.
#[derive(Debug)]
pub struct Body(Way);

#[derive(Debug)]
enum Way {
    /// All of it, the common case.
    Here(Option<Bytes>),
    Coming {
        first: Option<Bytes>,
        rest: Option<Box<Rest>>,
    },
    H2(Incoming),
}

/// What is still to come.
#[derive(Debug)]
struct Rest {
    connection: Connection,
    framed: Framed,
    /// Where the connection goes then, if it may be used again.
    home: Option<Idle>,
}

impl Rest {
    /// Whether nothing is to come any more, as far as was read.
    fn is_over(&mut self) -> Result<bool, WireFault> {
        self.connection.is_over(&mut self.framed)
    }

    fn go_home(self) {
        if let Some(home) = self.home {
            home.put(self.connection);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = WireFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, WireFault>>> {
        let (first, coming) = match &mut self.get_mut().0 {
            Way::Here(all) => return Poll::Ready(all.take().map(|all| Ok(Frame::data(all)))),
            Way::H2(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                return Poll::Ready(frame.map(|frame| frame.map_err(WireFault::H2)));
            }
            Way::Coming { first, rest } => (first, rest),
        };
        if let Some(first) = first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(mut rest) = coming.take() else { return Poll::Ready(None) };
        let piece = match rest.connection.poll_piece(&mut rest.framed, cx) {
            Poll::Pending => {
                *coming = Some(rest);
                return Poll::Pending;
            }
            Poll::Ready(piece) => piece,
        };
        let Some(piece) = piece? else {
            rest.go_home();
            return Poll::Ready(None);
        };
        // The end may be here with the last piece: whoever reads need not ask again.
        if rest.is_over()? {
            rest.go_home();
        } else {
            *coming = Some(rest);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Way::Here(all) => all.is_none(),
            Way::Coming { first, rest } => first.is_none() && rest.is_none(),
            Way::H2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        match &self.0 {
            Way::Here(all) => SizeHint::with_exact(length(all)),
            Way::Coming { first, rest } => {
                let (left, is_all) = rest.as_ref().map_or((0, true), |rest| rest.framed.left());
                let size = length(first).saturating_add(left);
                if is_all {
                    return SizeHint::with_exact(size);
                }
                let mut hint = SizeHint::new();
                hint.set_lower(size);
                hint
            }
            Way::H2(body) => body.size_hint(),
        }
    }
}
