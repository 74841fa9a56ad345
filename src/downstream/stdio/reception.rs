//! What comes back from an endpoint.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;

use crate::call::{Failure, GatewayFault, ServerFault};
use crate::codec::body::{BodyError, collect};
use crate::codec::sse::{SseDecoder, SseError};
use crate::jsonrpc::{self, Frame, Id, Response as Answer};
use crate::mcp::MediaType;

use super::MAX_DEPTH;

/// An answer whose head has come.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for a moment, and most answers that count are events"
)]
pub(super) enum PipedResponse<B> {
    /// In one piece.
    Whole(StatusCode, Bytes),
    /// Bit by bit.
    Events(PipedEvents<B>),
}

impl<B: Body<Data = Bytes> + Unpin> PipedResponse<B> {
    pub(super) async fn read(response: Response<B>, limit: usize) -> Result<Self, Failure> {
        let status = response.status();
        if status.is_success() && MediaType::of(response.headers()) == MediaType::EventStream {
            return Ok(Self::Events(PipedEvents::new(response.into_body(), limit)));
        }
        match collect(response.into_body(), limit).await {
            Ok(body) => Ok(Self::Whole(status, body)),
            Err(BodyError::TooLarge { limit }) => Err(too_large(limit)),
            Err(BodyError::Broken(_)) => Err(broken()),
        }
    }
}

/// The message that answers the request `id`, made of a whole body.
pub(super) fn answer_in(status: StatusCode, body: Bytes, id: &Id) -> Result<Bytes, Failure> {
    match jsonrpc::parse(&body, MAX_DEPTH) {
        Ok(Frame::Response { id: Some(theirs), .. }) if theirs == *id => Ok(body),
        // Refused before, or without, reading as far as the id.
        Ok(Frame::Response { response: Answer::Error(raw), .. }) => {
            Ok(jsonrpc::error(Some(id), &raw))
        }
        _ => Err(no_answer(status)),
    }
}

/// The failure of an HTTP response that carries no answer.
pub(super) fn no_answer(status: StatusCode) -> Failure {
    GatewayFault::Status { status }.into()
}

pub(super) fn broken() -> Failure {
    GatewayFault::Transport(ServerFault::Disconnected).into()
}

fn too_large(limit: usize) -> Failure {
    GatewayFault::Transport(ServerFault::TooLarge { limit }).into()
}

/// Events that carry messages.
pub(super) struct PipedEvents<B> {
    body: B,
    decoder: SseDecoder,
    /// The last id that an event had: the stream can be resumed behind it.
    pub(super) last_id: Option<Bytes>,
    /// How many milliseconds to wait before that.
    pub(super) retry: Option<u64>,
}

impl<B: Body<Data = Bytes> + Unpin> PipedEvents<B> {
    fn new(body: B, limit: usize) -> Self {
        Self { body, decoder: SseDecoder::new(limit), last_id: None, retry: None }
    }

    /// The next message's data; `None` at the end of the stream.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let event = self.decoder.next_event();
            match event.map_err(|SseError::TooLarge { limit }| too_large(limit))? {
                Some(event) => {
                    if event.id.is_some() {
                        self.last_id = event.id.as_ref().map(|id| Bytes::copy_from_slice(id));
                    }
                    self.retry = event.retry.or(self.retry);
                    if event.is_message() {
                        return Ok(Some(event.data));
                    }
                }
                None => match self.body.frame().await {
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            self.decoder.push(data);
                        }
                    }
                    Some(Err(_)) => return Err(broken()),
                    None => return Ok(None),
                },
            }
        }
    }
}
