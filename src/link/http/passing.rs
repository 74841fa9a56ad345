//! A large JSON answer, passed on as it comes.
//!
//! Most answers are small: they are read whole, checked and rewritten where
//! they must be. One that is larger than [`PASS_FROM`] is handed on piece by
//! piece, so that it is neither held whole nor late. The envelope's id is
//! compared as soon as it is seen; one that comes behind the result and is
//! another's breaks the answer off.

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body_util::BodyExt;
use hyper::body::Body as _;

use crate::call::{Failure, Passing, ServerName};
use crate::jsonrpc::body::BodyError;
use crate::jsonrpc::{self, Frame, Id, Scanner};
use crate::link::LinkFault;
use crate::link::deadline::Deadline;
use crate::link::peer::MAX_DEPTH;
use crate::mcp::Era;
use crate::wire::{Body, WireFault};

use super::Shared;

/// An answer of which so much has come.
pub(super) struct Begun {
    head: Bytes,
    body: Body,
    limit: usize,
}

/// Reads a body whole if it is small.
///
/// # Errors
/// The body's own.
pub(super) async fn read(
    mut body: Body,
    limit: usize,
) -> Result<Result<Bytes, Begun>, BodyError<WireFault>> {
    // One that says that it is too large is refused while there is still
    // something to be said instead.
    if body.size_hint().lower() > limit as u64 {
        return Err(BodyError::TooLarge { limit });
    }
    let mut head = BytesMut::new();
    loop {
        let Some(frame) = body.frame().await else { return Ok(Ok(head.freeze())) };
        let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else { continue };
        if head.len() + data.len() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        if head.is_empty() && body.is_end_stream() {
            return Ok(Ok(data));
        }
        head.extend_from_slice(&data);
        if head.len() >= PASS_FROM {
            return Ok(Err(Begun { head: head.freeze(), body, limit }));
        }
    }
}

impl Begun {
    /// Passes the result on, if it has begun; otherwise, as for an answer that
    /// begins with something else, reads the rest.
    ///
    /// # Errors
    /// [`LinkFault`] where it cannot be the answer to `id`, or cannot be read.
    pub(super) async fn pass(
        self,
        id: &Id,
        shared: &Shared,
        mut deadline: Deadline,
    ) -> Result<Result<Passing, Frame>, LinkFault> {
        let mut scanner = Scanner::new(MAX_DEPTH);
        let begun = scanner.feed(&self.head).ok().filter(|_| scanner.has_result());
        // What asks for input is read, however large: its state is sealed. One
        // that does not show it in all of its head keeps a state that is no good.
        let asks = shared.peer.era() == Era::Modern
            && ASKS.iter().any(|sign| memchr::memmem::find(&self.head, sign).is_some());
        let begun = begun.filter(|_| !asks);
        let Some(first) = begun else {
            let whole = tokio::select! {
                whole = self.rest() => whole?,
                after = deadline.passed() => return Err(LinkFault::Timeout { after }),
            };
            return Ok(Err(jsonrpc::parse(&whole, MAX_DEPTH)?));
        };
        check(&scanner, id)?;
        let first = self.head.slice(first);
        let passed = self.head.len();
        let way = OnTheWay {
            first: Some(first),
            passed,
            body: self.body,
            scanner,
            limit: self.limit,
            id: id.clone(),
            server: shared.server.clone(),
            deadline,
        };
        let pieces = stream::unfold(Some(way), OnTheWay::step);
        Ok(Ok(Passing::new(shared.server.clone(), shared.peer.era(), pieces)))
    }

    /// All of it.
    ///
    /// # Errors
    /// [`LinkFault`] where it is too large or breaks off.
    pub(super) async fn rest(self) -> Result<Bytes, LinkFault> {
        let mut whole = BytesMut::from(self.head);
        let mut body = self.body;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| LinkFault::Broken(Box::new(error)))?;
            let Ok(data) = frame.into_data() else { continue };
            if whole.len() + data.len() > self.limit {
                return Err(LinkFault::TooLarge { limit: self.limit });
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    }
}

struct OnTheWay {
    first: Option<Bytes>,
    passed: usize,
    body: Body,
    scanner: Scanner,
    limit: usize,
    id: Id,
    server: ServerName,
    deadline: Deadline,
}

impl OnTheWay {
    async fn step(way: Option<Self>) -> Option<(Result<Bytes, Failure>, Option<Self>)> {
        let mut way = way?;
        match way.piece().await {
            Ok(Some(piece)) => Some((Ok(piece), Some(way))),
            Ok(None) => None,
            Err(fault) => {
                tracing::warn!(server = %way.server, fault = %fault.chain(), "an answer breaks off");
                Some((Err(fault.into_failure(&way.server)), None))
            }
        }
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, LinkFault> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        loop {
            let frame = tokio::select! {
                frame = self.body.frame() => frame,
                after = self.deadline.passed() => return Err(LinkFault::Timeout { after }),
            };
            let Some(frame) = frame else { return self.end() };
            let frame = frame.map_err(|error| LinkFault::Broken(Box::new(error)))?;
            let Ok(data) = frame.into_data() else { continue };
            self.deadline.extend();
            self.passed += data.len();
            if self.passed > self.limit {
                return Err(LinkFault::TooLarge { limit: self.limit });
            }
            let part = self.scanner.feed(&data)?;
            check(&self.scanner, &self.id)?;
            if !part.is_empty() {
                return Ok(Some(data.slice(part)));
            }
        }
    }

    fn end(&self) -> Result<Option<Bytes>, LinkFault> {
        if self.scanner.is_whole() && self.scanner.id().is_some() {
            Ok(None)
        } else {
            Err(LinkFault::NoAnswer)
        }
    }
}

/// Whether the id, as far as it is known, is that of the request.
fn check(scanner: &Scanner, id: &Id) -> Result<(), LinkFault> {
    match scanner.id() {
        Some(seen) if seen != id.raw() => Err(LinkFault::WrongId),
        _ => Ok(()),
    }
}

/// Signs of a result that asks for input.
const ASKS: [&[u8]; 2] = [b"\"inputRequests\"", b"\"input_required\""];
/// Answers up to this size are read whole.
const PASS_FROM: usize = 256 * 1024;
