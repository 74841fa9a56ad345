//! Bodies of HTTP/2 requests that are answered before they have arrived.
//!
//! A server that drops the rest of a body resets its stream (RFC 9113, 8.1). Some clients, such as
//! curl 7.88, then lose the complete response. So a small body that is under way is read to its end
//! first, within a time limit.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// The body of a request.
#[derive(Debug)]
pub struct RequestBody {
    /// `None` once the rest was given to a task.
    incoming: Option<Incoming>,
    leaving: LeftBody,
}

/// Treatment of a body that is not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeftBody {
    /// It is dropped: hyper closes the connection if that is needed.
    Dropped,
    /// A small one is drained.
    Drained,
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, leaving: LeftBody) -> Self {
        Self { incoming: Some(incoming), leaving }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.incoming {
            Some(incoming) => Pin::new(incoming).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(SizeHint::new, Body::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if self.leaving == LeftBody::Dropped || self.is_end_stream() {
            return;
        }
        let is_small = self.size_hint().lower() <= MAX_DRAINED;
        let Some(incoming) = self.incoming.take().filter(|_| is_small) else { return };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(timeout(DRAIN_TIME, drain_body(incoming)));
        }
    }
}

/// Reads a body to its end, or to the limit.
async fn drain_body(mut incoming: Incoming) {
    let mut read = 0;
    while let Some(Ok(frame)) = incoming.frame().await {
        read += frame.data_ref().map_or(0, |data| data.len() as u64);
        if read > MAX_DRAINED {
            return;
        }
    }
}

/// Limit of the bytes of a body that are drained.
const MAX_DRAINED: u64 = 64 << 10;
/// Time limit for the rest of a body to arrive.
const DRAIN_TIME: Duration = Duration::from_secs(1);
