//! Limits of the memory for request bodies, in total and for each client.
//!
//! A body that arrives in one piece, as most do, is not counted. Any other body is counted by its
//! bytes from its first piece until its last byte is dropped, when its request has been served.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};

use crate::call::Failure;
use crate::shares::{Holder, Share, ShareBoundError, ShareBounds};

use crate::downstream::McpService;
use crate::downstream::access::caller::RequestSender;

/// The sender of a request body, and the bounds that it counts towards.
pub(crate) struct BodyBudget<'a> {
    mcp: &'a McpService,
    from: &'a RequestSender,
    head: &'a Parts,
    bounds: ShareBounds,
}

/// A request body that takes its memory from a budget.
pub(crate) struct BudgetedBody<'a, B> {
    inner: B,
    budget: BodyBudget<'a>,
    share: Option<Share>,
    counted: Option<CountedEarly>,
}

/// Reasons for a [`BudgetedBody`] to fail.
pub(crate) enum BudgetedBodyError {
    /// The connection failed before the end of the body.
    Broken,
    /// The client's rate or a budget is used up.
    OverLimit(Failure),
}

/// Marks a request that was counted towards its client's rate before its body was read.
#[derive(Debug, Clone)]
pub(crate) struct CountedEarly {
    /// Reason to refuse a request in a Legacy session once its id is known.
    pub(crate) refusal: Option<Failure>,
}

/// Marks a message for an event stream of 2024-11-05. It is counted when it is passed on to the stream's
/// session, by the replica that has the stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedAtStream;

impl<'a> BodyBudget<'a> {
    pub(crate) fn new(mcp: &'a McpService, from: &'a RequestSender, head: &'a Parts) -> Self {
        let limits = &from.snapshot.config.gateway.limits;
        // One body of the largest size always fits.
        let each = limits.bodies_each.max(limits.body);
        let bounds = ShareBounds { all: limits.bodies.max(limits.body), each };
        Self { mcp, from, head, bounds }
    }

    /// Counts the request towards its client's rate, unless another replica has counted it, or it counts
    /// later: one in the session of another replica counts there, or, if that is gone, when it is answered
    /// here. Outside of a Legacy session, a request over the rate is refused before its body is read.
    fn count_request(&self) -> Result<Option<CountedEarly>, Failure> {
        let RequestSender { caller, peer, snapshot } = self.from;
        let Parts { headers, extensions, .. } = self.head;
        let is_counted = extensions.get::<CountedEarly>().is_some()
            || extensions.get::<CountedAtStream>().is_some()
            || self.mcp.is_counted_later(headers, caller);
        if is_counted {
            return Ok(None);
        }
        let admitted = self.mcp.gateway.admit_request(snapshot, caller.principal(), peer.addr.ip());
        let refusal = match admitted {
            Ok(()) => None,
            Err(failure) if self.mcp.session_of(headers, caller).is_ok() => Some(failure),
            Err(failure) => return Err(failure),
        };
        Ok(Some(CountedEarly { refusal }))
    }

    /// Counts the first bytes of the request towards the budgets.
    fn open(&self, bytes: usize) -> Result<Share, Failure> {
        let RequestSender { caller, peer, .. } = self.from;
        let holder = Holder::identify(caller.principal(), peer.addr.ip());
        self.mcp.bodies.take(&holder, bytes, self.bounds).map_err(over_budget)
    }
}

impl<'a, B> BudgetedBody<'a, B> {
    pub(crate) fn new(inner: B, budget: BodyBudget<'a>) -> Self {
        Self { inner, budget, share: None, counted: None }
    }

    /// Returns the connection's own body, to be drained.
    pub(crate) fn into_inner(self) -> B {
        self.inner
    }

    /// Returns the result of counting the request towards its client's rate, if it was counted.
    pub(crate) fn counted(&mut self) -> Option<CountedEarly> {
        self.counted.take()
    }

    /// Counts the request, and the first of several pieces of its body.
    fn begin(&mut self, bytes: usize) -> Result<(), Failure> {
        self.counted = self.budget.count_request()?;
        self.share = Some(self.budget.open(bytes)?);
        Ok(())
    }

    /// Returns the whole body, counted for as long as any part of it is kept.
    pub(crate) fn hold(self, whole: Bytes) -> Bytes {
        match self.share {
            Some(share) => share.hold(whole),
            None => whole,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for BudgetedBody<'_, B> {
    type Data = Bytes;
    type Error = BudgetedBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BudgetedBodyError>>> {
        let this = &mut *self;
        let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(cx)) else {
            return Poll::Ready(None);
        };
        let Ok(frame) = frame else { return Poll::Ready(Some(Err(BudgetedBodyError::Broken))) };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let taken = match &mut this.share {
            None if this.inner.is_end_stream() => Ok(()),
            None => this.begin(bytes),
            Some(share) => share.grow(bytes, this.budget.bounds).map_err(over_budget),
        };
        Poll::Ready(Some(taken.map(|()| frame).map_err(BudgetedBodyError::OverLimit)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

fn over_budget(bound: ShareBoundError) -> Failure {
    let limit = match bound {
        ShareBoundError::All => "bodies",
        ShareBoundError::Each => "bodies_each",
    };
    Failure::OverLimit { limit: limit.to_owned(), retry_after: BODY_RETRY_AFTER }
}

/// Time after which a client may try again: bodies are in memory for as long as a request takes.
const BODY_RETRY_AFTER: Duration = Duration::from_secs(1);
