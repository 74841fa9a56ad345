//! Replies of an endpoint.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;

use crate::call::{Failure, GatewayFault, InternalFault, ServerFault};
use crate::codec::body::{BodyError, collect};
use crate::codec::large_message::work_on;
use crate::codec::sse::SseReader;
use crate::jsonrpc::{self, Frame, FrameFault, Id, Response as Answer};
use crate::mcp::MediaType;
use crate::upstream::is_session_lost;

use super::MAX_DEPTH;

/// A reply after its head.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for a moment, and most answers that count are events"
)]
pub(super) enum PipedReply<B> {
    /// A whole body.
    Whole(StatusCode, Bytes),
    /// An event stream.
    Events(SseReader<B>),
}

impl<B: Body<Data = Bytes> + Unpin> PipedReply<B> {
    pub(super) async fn read(response: Response<B>, limit: usize) -> Result<Self, Failure> {
        let status = response.status();
        if status.is_success() && MediaType::of(response.headers()) == MediaType::EventStream {
            return Ok(Self::Events(SseReader::new(response.into_body(), limit)));
        }
        let body = collect(response.into_body(), limit).await.map_err(unreadable)?;
        Ok(Self::Whole(status, body))
    }

    /// Returns true if the endpoint does not know the session of the request `asked`.
    pub(super) fn is_session_lost(&self, asked: Option<&Id>) -> bool {
        matches!(self, Self::Whole(status, body) if is_session_lost(*status, body, asked))
    }
}

/// Returns the message that answers the request `id`, from a whole body. A large one is parsed on
/// another thread.
pub(super) async fn find_answer(
    status: StatusCode,
    body: Bytes,
    id: &Id,
) -> Result<Bytes, Failure> {
    let (size, id) = (body.len(), id.clone());
    let found = work_on(size, move || answer_in(status, body, &id)).await;
    found.map_err(|_| InternalFault::LargeWork)?
}

/// The parsed data of an endpoint's event.
pub(super) enum ReceivedText {
    Message(Frame),
    NoMessage(FrameFault),
}

/// Parses a message of an endpoint, on another thread if it is large.
pub(super) async fn parse_message(data: &Bytes) -> Result<ReceivedText, Failure> {
    let data = data.clone();
    let parsed = work_on(data.len(), move || jsonrpc::parse(&data, MAX_DEPTH)).await;
    Ok(match parsed.map_err(|_| InternalFault::LargeWork)? {
        Ok(frame) => ReceivedText::Message(frame),
        Err(fault) => ReceivedText::NoMessage(fault),
    })
}

fn answer_in(status: StatusCode, body: Bytes, id: &Id) -> Result<Bytes, Failure> {
    match jsonrpc::parse(&body, MAX_DEPTH) {
        Ok(Frame::Response { id: Some(theirs), .. }) if theirs == *id => Ok(body),
        // The request was refused before its id was read.
        Ok(Frame::Response { response: Answer::Error(raw), .. }) => {
            Ok(jsonrpc::error(Some(id), &raw))
        }
        _ => Err(no_answer(status)),
    }
}

/// Returns the failure of an HTTP response without an answer.
pub(super) fn no_answer(status: StatusCode) -> Failure {
    GatewayFault::Status { status }.into()
}

pub(super) fn broken() -> Failure {
    GatewayFault::Transport(ServerFault::Disconnected).into()
}

/// Returns the failure of a body that could not be read.
pub(super) fn unreadable<E>(error: BodyError<E>) -> Failure {
    match error {
        BodyError::TooLarge { limit } => {
            GatewayFault::Transport(ServerFault::TooLarge { limit }).into()
        }
        BodyError::Chatter { limit } => {
            GatewayFault::Transport(ServerFault::Chatter { limit }).into()
        }
        BodyError::Broken(_source) => broken(),
    }
}
