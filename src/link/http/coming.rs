//! A call whose answer is yet to come.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use crate::call::{Event, Notice};
use crate::jsonrpc::{self, Frame, Id};
use crate::link::LinkFault;
use crate::link::deadline::Deadline;
use crate::mcp::{Era, notification};

use super::reception::{Events, answer_in};
use super::{ASIDE, Shared};

/// A call whose answer comes as a stream.
pub(super) struct Coming {
    pub(super) shared: Arc<Shared>,
    pub(super) id: Id,
    pub(super) events: Events,
    pub(super) deadline: Deadline,
    pub(super) unanswered: Unanswered,
}

impl Coming {
    pub(super) async fn step(coming: Option<Self>) -> Option<(Event, Option<Self>)> {
        let mut this = coming?;
        let answer = loop {
            let frame = tokio::select! {
                frame = this.events.next() => frame,
                after = this.deadline.passed() => Err(LinkFault::Timeout { after }),
            };
            match frame {
                Ok(Some(frame @ Frame::Response { .. })) => break answer_in(frame, &this.id),
                Ok(Some(Frame::Request { id, method, .. })) => {
                    this.shared.answer_server(&id, &method);
                }
                Ok(Some(Frame::Notification { method, params })) => {
                    if let Some(notice) = this.notice(method, params) {
                        return Some((Event::Notice(notice), Some(this)));
                    }
                }
                Ok(None) => break Err(LinkFault::NoAnswer),
                Err(fault) => break Err(fault),
            }
        };
        let answer = match answer {
            Ok(answer) => {
                this.unanswered.settle();
                Ok(this.shared.checked(answer))
            }
            Err(fault) => Err(fault.into_failure(&this.shared.server)),
        };
        Some((Event::Answer(answer), None))
    }

    fn notice(&mut self, method: String, params: Option<Bytes>) -> Option<Notice> {
        if method == notification::PROGRESS {
            self.deadline.extend();
            return Notice::progress(method, params?).map(|(notice, _)| notice);
        }
        if method == notification::TOOLS_CHANGED {
            self.shared.changed.notify_one();
        }
        None
    }
}

/// A call that has no answer yet. Dropped before it is settled, the call is
/// given up. The response is dropped with it, and to a Modern server that is
/// the cancellation; a Legacy one takes it for a lost connection and works on
/// (2025-11-25, Streamable HTTP, "Sending Messages"), so it is told.
pub(super) struct Unanswered {
    shared: Arc<Shared>,
    id: Option<Id>,
}

impl Unanswered {
    pub(super) fn new(shared: &Arc<Shared>, id: &Id) -> Self {
        let legacy = shared.peer.era() == Era::Legacy;
        Self { shared: Arc::clone(shared), id: legacy.then(|| id.clone()) }
    }

    /// There is nothing left to give up.
    pub(super) fn settle(&mut self) {
        self.id = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let params = [b"{\"requestId\":", id.raw(), b"}"].concat();
        let body = jsonrpc::notification(notification::CANCELLED, Some(&params));
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let mut headers = HeaderMap::new();
            shared.session.add_to(&mut headers);
            let _ = tokio::time::timeout(ASIDE, shared.client.post(&headers, body)).await;
        });
    }
}
