//! Large JSON responses, streamed to the client.
//!
//! Most responses are small: they are read whole, checked, and rewritten where necessary. A
//! response of [`PASS_FROM`] bytes or more is forwarded piece by piece, so that it is neither
//! buffered whole nor delayed. With a `Content-Length`, forwarding starts with the first piece. The
//! response is forwarded only if the id in its envelope precedes the result and matches. A result
//! before its id could belong to another client, so such a response is read whole.

use std::ops::Range;
use std::sync::Arc;

use async_stream::try_stream;
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http_body_util::BodyExt;
use hyper::body::Body as _;

use crate::call::{Failure, Passing, ServerName};
use crate::codec::body::BodyError;
use crate::codec::large_message::{make_room, share_thread};
use crate::http_client::{ResponseBody, TransportError};
use crate::jsonrpc::{Frame, Id, MAX_SERVER_DEPTH, Scanner, whole_number};
use crate::mcp::Era;
use crate::telemetry::log::SharedFaultLog;
use crate::upstream::UpstreamError;
use crate::upstream::interaction::deadline::Deadline;
use crate::upstream::notifications::Inbox;
use crate::upstream::response_memory::{PassingCharge, ResponseCharge};
use crate::upstream::transport::large_message::parse_message;

use crate::upstream::transport::http::HttpShared;

/// A response that has arrived in part.
pub(crate) struct PartialAnswer {
    head: Bytes,
    body: ResponseBody,
    limit: usize,
}

/// A body after its first bytes.
pub(crate) enum ReadBody {
    /// A small body.
    Whole(Bytes),
    /// The beginning of a large body.
    Begun(PartialAnswer),
}

/// A response with a large result.
pub(crate) enum LargeResponse<T> {
    /// The result is forwarded in pieces.
    Passing(Passing),
    /// The response was read whole.
    Whole(T),
}

/// Limits of time and memory for the rest of a response.
pub(crate) struct AnswerBounds {
    pub(crate) deadline: Deadline,
    pub(crate) charge: ResponseCharge,
}

/// Reads a body whole if it is small.
///
/// # Errors
/// [`BodyError`] if the body is too large or its connection is lost.
pub(crate) async fn read(
    mut body: ResponseBody,
    limit: usize,
) -> Result<ReadBody, BodyError<TransportError>> {
    // Checked before the body is read, while an error response is still possible.
    if body.size_hint().lower() > limit as u64 {
        return Err(BodyError::TooLarge { limit });
    }
    let mut head = BytesMut::new();
    loop {
        let Some(frame) = body.frame().await else { return Ok(ReadBody::Whole(head.freeze())) };
        let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else { continue };
        if head.len() + data.len() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        if head.is_empty() && body.is_end_stream() {
            return Ok(ReadBody::Whole(data));
        }
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        let size = announced.saturating_add(head.len() + data.len());
        if size >= PASS_FROM {
            let head = if head.is_empty() { data } else { joined(head, &data) };
            return Ok(ReadBody::Begun(PartialAnswer { head, body, limit }));
        }
        head.reserve(size - head.len());
        head.extend_from_slice(&data);
    }
}

fn joined(mut head: BytesMut, data: &[u8]) -> Bytes {
    head.extend_from_slice(data);
    head.freeze()
}

impl PartialAnswer {
    /// Forwards the result if it has begun. Reads the rest if it cannot be forwarded, for example
    /// if the response begins with another member.
    ///
    /// # Errors
    /// [`UpstreamError`] if the response does not match `id`, or cannot be read.
    pub(crate) async fn pass(
        mut self,
        id: &Id,
        shared: &HttpShared,
        bounds: AnswerBounds,
    ) -> Result<LargeResponse<Frame>, UpstreamError> {
        let AnswerBounds { mut deadline, mut charge } = bounds;
        let era = shared.peer.era();
        let mut begun = self.result(era);
        if begun.is_none() && self.head.len() < PASS_FROM {
            self = tokio::select! {
                more = self.more() => more?,
                after = deadline.passed() => return Err(UpstreamError::Timeout { after }),
            };
            begun = self.result(era);
        }
        // The id shows which request a result belongs to. A response with the result first is
        // therefore read whole.
        let Some((scanner, first)) = begun.filter(|(scanner, _)| scanner.id().is_some()) else {
            let whole = tokio::select! {
                whole = self.rest(Some(&mut charge)) => whole?,
                after = deadline.passed() => return Err(UpstreamError::Timeout { after }),
            };
            return Ok(LargeResponse::Whole(parse_message(whole).await?.into_response()?));
        };
        check(&scanner, id)?;
        let way = PassingAnswer {
            first: Some(self.head.slice(first)),
            passed: self.head.len(),
            body: self.body,
            scanner,
            limit: self.limit,
            id: id.clone(),
            server: shared.server.clone(),
            inbox: Arc::clone(&shared.inbox),
            deadline,
        };
        let server = shared.server.clone();
        let passing = Passing::new(server.clone(), era, way.pieces());
        Ok(LargeResponse::Passing(passing.metered_by(PassingCharge { server, charge })))
    }

    /// Returns the part of the result that has arrived, if it can be forwarded.
    ///
    /// A result that requests input is read whole, however large, because its state is sealed. If
    /// the request for input is visible neither at the beginning nor in the first [`PASS_FROM`]
    /// bytes, the state stays unsealed and is rejected later.
    fn result(&self, era: Era) -> Option<(Scanner, Range<usize>)> {
        let mut scanner = Scanner::new(MAX_SERVER_DEPTH);
        let first = scanner.feed(&self.head).ok()?;
        let has_enough = self.head.len() >= PASS_FROM;
        let asks =
            || INPUT_MEMBERS.iter().any(|sign| memchr::memmem::find(&self.head, sign).is_some());
        let beginning = self.head.get(first.clone()).and_then(first_member);
        let passes = scanner.has_result()
            && match era {
                Era::Legacy => has_enough || beginning.is_some(),
                Era::Modern => beginning.is_some_and(is_complete) || has_enough && !asks(),
            };
        passes.then_some((scanner, first))
    }

    /// Reads the part that is inspected before forwarding, or everything.
    async fn more(self) -> Result<Self, UpstreamError> {
        let Self { head, mut body, limit } = self;
        let mut head = BytesMut::from(head);
        while head.len() < PASS_FROM && add_piece(&mut head, &mut body, limit).await? {}
        Ok(Self { head: head.freeze(), body, limit })
    }

    /// Reads everything. A response to a client's call is charged to the client.
    ///
    /// # Errors
    /// [`UpstreamError`] if the response is too large, ends early, or exceeds the memory limit.
    pub(crate) async fn rest(
        self,
        mut charge: Option<&mut ResponseCharge>,
    ) -> Result<Bytes, UpstreamError> {
        let mut whole = BytesMut::from(self.head);
        let mut body = self.body;
        while add_piece(&mut whole, &mut body, self.limit).await? {
            if let Some(charge) = &mut charge {
                charge.count(whole.len())?;
            }
        }
        let whole = whole.freeze();
        Ok(match charge {
            Some(charge) => charge.hold(whole),
            None => whole,
        })
    }
}

/// Adds the next piece. Returns false at the end of the body.
async fn add_piece(
    whole: &mut BytesMut,
    body: &mut ResponseBody,
    limit: usize,
) -> Result<bool, UpstreamError> {
    let Some(frame) = body.frame().await else { return Ok(false) };
    let frame = frame?;
    if let Ok(data) = frame.into_data() {
        if whole.len() + data.len() > limit {
            return Err(UpstreamError::TooLarge { limit });
        }
        make_room(whole, data.len());
        whole.extend_from_slice(&data);
        share_thread(data.len()).await;
    }
    Ok(true)
}

/// Returns the text after the opening brace of an object, if there is any.
fn first_member(object: &[u8]) -> Option<&[u8]> {
    let inside = object.trim_ascii_start().strip_prefix(b"{")?.trim_ascii_start();
    (!inside.is_empty()).then_some(inside)
}

/// Returns true if the first member of a result states that no input is requested.
fn is_complete(members: &[u8]) -> bool {
    let value = members.strip_prefix(b"\"resultType\"").map(<[u8]>::trim_ascii_start);
    let value = value.and_then(|value| value.strip_prefix(b":")).map(<[u8]>::trim_ascii_start);
    value.is_some_and(|value| value.starts_with(b"\"complete\""))
}

/// Servers whose answers end early, in the log.
static EARLY_ENDS: SharedFaultLog = SharedFaultLog::new();

struct PassingAnswer {
    first: Option<Bytes>,
    passed: usize,
    body: ResponseBody,
    scanner: Scanner,
    limit: usize,
    id: Id,
    server: ServerName,
    inbox: Arc<Inbox>,
    deadline: Deadline,
}

impl PassingAnswer {
    fn pieces(mut self) -> impl Stream<Item = Result<Bytes, Failure>> + Send {
        try_stream! {
            while let Some(piece) = self.piece().await.map_err(|fault| {
                let reason = self.inbox.describe(&fault);
                let text = format!("an answer ended early: {reason}");
                if let Some(line) = EARLY_ENDS.note_about(self.server.as_str(), &text) {
                    tracing::warn!(server = %self.server, "{line}");
                }
                self.inbox.fail(&self.server, fault)
            })? {
                yield piece;
            }
        }
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        loop {
            let frame = tokio::select! {
                frame = self.body.frame() => frame,
                after = self.deadline.passed() => return Err(UpstreamError::Timeout { after }),
            };
            let Some(frame) = frame else { return self.end() };
            let frame = frame?;
            let Ok(data) = frame.into_data() else { continue };
            self.deadline.extend();
            self.passed += data.len();
            if self.passed > self.limit {
                return Err(UpstreamError::TooLarge { limit: self.limit });
            }
            let part = self.scanner.feed(&data)?;
            check(&self.scanner, &self.id)?;
            if !part.is_empty() {
                return Ok(Some(data.slice(part)));
            }
        }
    }

    fn end(&self) -> Result<Option<Bytes>, UpstreamError> {
        if self.scanner.is_whole() && self.scanner.id().is_some() {
            Ok(None)
        } else {
            Err(UpstreamError::NoAnswer)
        }
    }
}

/// Checks the id, if it has arrived, against the request.
fn check(scanner: &Scanner, id: &Id) -> Result<(), UpstreamError> {
    match scanner.id() {
        Some(seen) if seen != id.raw() && !is_written_otherwise(seen, id) => {
            Err(UpstreamError::WrongId)
        }
        _ => Ok(()),
    }
}

/// Returns true if the id is the request's number, written as text or with zeros after the decimal
/// point.
#[cold]
fn is_written_otherwise(seen: &[u8], id: &Id) -> bool {
    let text = seen.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    text == Some(id.raw()) || whole_number(seen) == Some(id.raw())
}

/// Members of a result that requests input.
const INPUT_MEMBERS: [&[u8]; 2] = [b"\"inputRequests\"", b"\"input_required\""];
/// Responses below this size in bytes are read whole.
const PASS_FROM: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_results_that_begin_with_result_type_complete_are_known_to_be_complete() {
        for (result, complete) in [
            (r#"{"resultType":"complete","a":1}"#, true),
            (r#" { "resultType" : "complete"#, false),
            (r#" { "resultType" : "complete""#, true),
            (r#"{"resultType":"input_required""#, false),
            (r#"{"a":{"resultType":"complete"}"#, false),
            (r#"{"resultTypes":"complete""#, false),
            (r#"["resultType":"complete""#, false),
        ] {
            let said = first_member(result.as_bytes()).is_some_and(is_complete);
            assert_eq!(said, complete, "{result}");
        }
    }

    #[test]
    fn a_beginning_is_one_when_it_shows_a_member() {
        for (result, begun) in [("", false), (" { ", false), ("{}", true), ("{ \"", true)] {
            assert_eq!(first_member(result.as_bytes()).is_some(), begun, "{result}");
        }
    }
}
