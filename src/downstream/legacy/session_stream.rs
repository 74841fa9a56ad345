//! The GET stream of a Legacy session: messages to its client outside of calls.

use std::sync::Arc;

use async_stream::stream;
use bytes::Bytes;
use futures_util::Stream;
use http::Response;
use tokio::sync::watch;

use crate::call::{Drain, Failure};
use crate::codec::sse;
use crate::jsonrpc;
use crate::pipeline::{Gateway, log_refused_stream};
use crate::telemetry::metrics::Entered;

use super::outbox::{Merge, OutboxReader, ReplayStart, Sent};
use super::resumption;
use super::session::{ClientSession, Listens, SessionUse};
use crate::downstream::access::caller::{AccessWatch, VerifiedCaller};
use crate::downstream::responses::body::frames;
use crate::downstream::responses::list_changes::{ListChanges, WantedLists};
use crate::downstream::responses::open_streams::StreamPlace;
use crate::downstream::responses::response;
use crate::downstream::{Body, McpService};

/// An open GET stream.
struct SessionStream {
    session: Arc<ClientSession>,
    gateway: Arc<Gateway>,
    reader: OutboxReader,
    changes: ListChanges,
    ticks: watch::Receiver<u64>,
    keep_alive: std::time::Duration,
    drain: Drain,
    standing: AccessWatch,
    _held: (StreamPlace, Entered, SessionUse, Listens),
}

impl SessionStream {
    fn events(self, opening: Bytes) -> impl Stream<Item = Bytes> + Send {
        stream! {
            // Moved as a whole, with the guards that it holds until its end.
            let mut this = self;
            // At once, so that proxies forward the head of the response.
            yield opening;
            let (session, gateway) = (&this.session, &this.gateway);
            let Some((context, _)) = session.knows() else { return };
            loop {
                tokio::select! {
                    biased;
                    () = session.closed().cancelled() => return,
                    () = this.standing.revoked() => return,
                    () = this.drain.started() => return,
                    Ok(()) = this.ticks.changed() => {
                        for method in this.changes.to(gateway.shown(context)) {
                            let message = jsonrpc::notification(method, None);
                            session.outbox().push(&message, Merge::With(method));
                        }
                    }
                    told = gateway.news(session.subscriber(), context) => {
                        for told in told {
                            let params = told.params(None);
                            if session.hears(&told.method, params.as_ref()) {
                                let message = jsonrpc::notification(&told.method, params.as_deref());
                                session.outbox().push(&message, Merge::Never);
                            }
                        }
                    }
                    sent = this.reader.next() => match sent {
                        Some(Sent::Event(event)) => for frame in frames(event) {
                            yield frame;
                        },
                        Some(Sent::Pause(_)) => {}
                        None => return,
                    },
                    () = tokio::time::sleep(this.keep_alive) => yield sse::comment(),
                }
            }
        }
    }
}

impl McpService {
    /// Opens the stream of a session's messages outside of calls.
    pub(in crate::downstream) fn open_session_stream(
        &self,
        session: &Arc<ClientSession>,
        start: ReplayStart,
        caller: &VerifiedCaller,
    ) -> Response<Body> {
        let (limit, keep_alive) = self.limits();
        session.note_request();
        let Some((context, known)) = session.knows() else {
            return response::refusal(None, &Failure::SessionLost);
        };
        let narrowing = context.endpoint.narrowing.as_ref();
        let place = match self.streams.enter(session.holder(), narrowing, limit) {
            Ok(place) => place,
            Err(failure) => {
                log_refused_stream(None, context, &failure);
                return response::refusal(None, &failure);
            }
        };
        let mut ticks = self.gateway.changes();
        // Announces at once the changes since the client last requested a list: those before it
        // opens a stream, or lost with one.
        ticks.mark_changed();
        let reader = session.outbox().read(start);
        let opening = resumption::opening(session, &reader);
        let open = SessionStream {
            reader,
            changes: ListChanges::since(known, WantedLists::ALL),
            ticks,
            gateway: Arc::clone(&self.gateway),
            keep_alive,
            drain: self.drain.clone(),
            standing: self.watch_access(caller),
            _held: (
                place,
                self.gateway.metrics.open_streams().enter(),
                SessionUse::begin(session),
                session.listens(),
            ),
            session: Arc::clone(session),
        };
        response::with_events(Body::stream(open.events(opening)))
    }
}
