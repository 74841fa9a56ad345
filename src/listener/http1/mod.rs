//! HTTP/1.1 as a server speaks it (RFC 9112), with as little between a call and its socket as can
//! be.
//!
//! A connection is one future. It reads a head, has the request answered within itself, and
//! writes the answer: what is small goes out in one write with its head. While a request is served
//! it watches for the client's going away, and reads the body as it is asked for.
//!
//! It is strict where leniency lets two readers see different requests in the same bytes: a head
//! that frames its body in two ways is refused, and so are lines that end without a CR.

mod coming;
mod date;
mod head;
mod output;
mod response;
mod socket;

use std::pin::pin;

use http::{Method, StatusCode, Version};

use super::Service;
use super::answer::{Known, answer};
use super::connection::Line;

use head::Head;
use response::Reply;
use socket::Socket;

pub(in crate::listener) use coming::Pieces;

/// Why a connection ended otherwise than by agreement.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// What came is no head of a request, or too large for one.
    #[error("a request's head was refused with status {0}")]
    Head(StatusCode),
    /// The client went away in the middle of something.
    #[error("the client closed the connection")]
    Gone,
    /// The chunks of a body that nobody read are none.
    #[error("the chunks of the body are broken")]
    Chunks,
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[from] std::io::Error),
    /// The answer's body broke off.
    #[error("the answer broke off")]
    Answer(#[source] super::BoxError),
    /// The answer's body is shorter or longer than it said.
    #[error("the answer's body has another length than it said")]
    Length,
}

/// Serves a connection until it ends, or until it is to end and nothing is in flight.
pub(super) async fn serve<I, S>(io: I, line: &Line<'_, S>) -> Result<(), Fault>
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    S: Service,
{
    let mut socket = Socket::new(io, line.limits);
    let mut known = Known::default();
    loop {
        let head = match socket.head(&line.activity).await {
            Ok(Some(head)) => head,
            Ok(None) => return socket.close().await,
            Err(Fault::Head(status)) => {
                socket.refuse(status).await?;
                return Err(Fault::Head(status));
            }
            Err(fault) => return Err(fault),
        };
        let busy = line.activity.request();
        let Head { request, size, framing, keep_alive, expects } = head;
        let mut reply = Reply {
            is_head: request.method == Method::HEAD,
            is_11: request.version == Version::HTTP_11,
            keep_alive,
        };
        let body = socket.body(framing, expects);
        let settings = line.context.settings.load();
        let request = request.map(|()| body);
        let response = {
            let from = (line.peer, Some(size));
            let answered =
                pin!(answer(&line.context.service, &settings, request, from, &mut known));
            socket.attend(answered).await?
        };
        reply.keep_alive &= socket.may_go_on() && !line.activity.is_closing();
        socket.respond(response, &mut reply).await?;
        drop(busy);
        if !reply.keep_alive {
            return socket.linger().await;
        }
        socket.pass_over().await?;
    }
}
