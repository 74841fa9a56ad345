//! The GET stream of a Legacy session: what its client is told outside of its
//! calls.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use tokio::sync::watch;

use crate::call::Drain;
use crate::jsonrpc::{self, sse};
use crate::mcp::{Era, notification};
use crate::telemetry::metrics::Entered;

use super::answer;
use super::caller::{Caller, Standing};
use super::outbox::{Merge, Reader, Sent, Start};
use super::session::{Busy, Session};
use super::stream::Place;
use super::streamed;
use super::{Body, Front};

/// An open GET stream.
struct Outside {
    session: Arc<Session>,
    /// Said at once, so that proxies pass the head of the answer on.
    first: Option<Bytes>,
    reader: Reader,
    changes: watch::Receiver<u64>,
    keep_alive: std::time::Duration,
    drain: Drain,
    standing: Standing,
    _held: (Place, Entered, Busy),
}

impl Outside {
    async fn step(outside: Option<Self>) -> Option<(Bytes, Option<Self>)> {
        let mut this = outside?;
        if let Some(first) = this.first.take() {
            return Some((first, Some(this)));
        }
        loop {
            tokio::select! {
                biased;
                () = this.session.closed().cancelled() => return None,
                () = this.standing.lost() => return None,
                () = this.drain.started() => return None,
                Ok(()) = this.changes.changed() => {
                    this.changes.mark_unchanged();
                    let message = jsonrpc::notification(notification::TOOLS_CHANGED, None);
                    this.session.outbox().push(&message, Merge::With(notification::TOOLS_CHANGED));
                }
                sent = this.reader.next() => match sent? {
                    Sent::Event(event) => return Some((event, Some(this))),
                    Sent::Pause(_) => {}
                },
                () = tokio::time::sleep(this.keep_alive) => {
                    return Some((sse::comment(), Some(this)));
                }
            }
        }
    }
}

impl Front {
    /// Opens the stream of a session's messages outside of calls.
    pub(super) fn outside(
        &self,
        session: &Arc<Session>,
        start: Start,
        caller: &Caller,
    ) -> Response<Body> {
        let (limit, keep_alive) = self.limits();
        let place = match self.streams.enter(limit) {
            Ok(place) => place,
            Err(failure) => return answer::refusal(None, &failure, Era::Legacy),
        };
        let reader = session.outbox().read(start);
        let outside = Outside {
            first: Some(streamed::opening(session, &reader)),
            reader,
            changes: session.untold(self.gateway.changes()),
            keep_alive,
            drain: self.drain.clone(),
            standing: self.standing(caller),
            _held: (place, self.gateway.metrics.streams().enter(), Busy::begin(session)),
            session: Arc::clone(session),
        };
        answer::with_events(Body::stream(stream::unfold(Some(outside), Outside::step)))
    }
}
