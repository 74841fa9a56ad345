//! A call whose answer comes as a stream of events.

use std::sync::Arc;

use bytes::Bytes;

use crate::call::{Event, Notice, Question};
use crate::jsonrpc::{self, Frame, Id};
use crate::link::LinkFault;
use crate::link::deadline::Deadline;
use crate::link::news::Listener;
use crate::link::peer::{answer_to_server, not_offered};
use crate::link::questions::{Questions, cancelled};
use crate::mcp::{Era, LogLevel, notification};

use super::Shared;
use super::reception::answer_in;
use super::resume::{Resumable, Said};

/// A request that the server may still be working on. Dropped before its end
/// it is cancelled: a Legacy server is told; to a Modern one the end of the
/// connection's stream, which the drop brings about, says it all.
pub(super) struct UnderWay {
    shared: Arc<Shared>,
    /// `None` once there is nothing left to cancel.
    id: Option<Id>,
}

impl UnderWay {
    pub(super) fn begin(shared: &Arc<Shared>, id: &Id) -> Self {
        let legacy = shared.peer.era() == Era::Legacy;
        Self { shared: Arc::clone(shared), id: legacy.then(|| id.clone()) }
    }

    /// Answered, or refused.
    pub(super) fn end(&mut self) {
        self.id = None;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            let params = [b"{\"requestId\":", id.raw(), b"}"].concat();
            let body = jsonrpc::notification(notification::CANCELLED, Some(&params));
            self.shared.send_aside(body);
        }
    }
}

/// A call whose answer comes as a stream. Dropped before the answer, it is
/// cancelled.
pub(super) struct Coming {
    pub(super) shared: Arc<Shared>,
    pub(super) id: Id,
    pub(super) events: Resumable,
    pub(super) deadline: Deadline,
    pub(super) questions: Questions,
    pub(super) under_way: UnderWay,
    /// The least severe log lines that the client gets.
    pub(super) hears: Option<LogLevel>,
    /// Those that come outside of the call's stream.
    pub(super) lines: Option<Arc<Listener>>,
}

impl Coming {
    /// The next event, and what is left of the call.
    pub(super) async fn step(coming: Option<Self>) -> Option<(Event, Option<Self>)> {
        let mut this = coming?;
        let answer = loop {
            let said = tokio::select! {
                said = this.events.next() => said,
                (id, response) = this.questions.answer() => {
                    if this.questions.close(&id, &mut this.deadline)
                        && let Err(fault) = this.shared.respond(&id, &response).await
                    {
                        break Err(fault);
                    }
                    continue;
                }
                line = next(this.lines.as_deref()) => {
                    return Some((Event::Notice(line), Some(this)));
                }
                after = this.deadline.passed() => break Err(LinkFault::Timeout { after }),
            };
            let frame = match said {
                Ok(Some(Said::Frame(frame))) => Ok(Some(frame)),
                Ok(Some(Said::Pause(wait))) => return Some((Event::Pause(wait), Some(this))),
                Ok(None) => Ok(None),
                Err(fault) => Err(fault),
            };
            match frame {
                Ok(Some(frame @ Frame::Response { .. })) => {
                    this.under_way.end();
                    break answer_in(frame, &this.id);
                }
                Ok(Some(Frame::Request { id, method, params })) => {
                    if let Some(event) = this.asks(id, method, params) {
                        return Some((event, Some(this)));
                    }
                }
                Ok(Some(Frame::Notification { method, params }))
                    if method == notification::CANCELLED =>
                {
                    let id = params.as_ref().and_then(cancelled);
                    let Some(id) = id else { continue };
                    if this.questions.close(&id, &mut this.deadline) {
                        return Some((Event::TookBack(id), Some(this)));
                    }
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
        let Self { shared, events, .. } = this;
        if answer.is_ok() {
            events.finish();
        }
        let answer = answer.and_then(|answer| shared.checked(answer));
        let answer = answer.map_err(|fault| fault.into_failure(&shared.server));
        Some((Event::Answer(answer), None))
    }

    /// A Legacy server's request on the call's stream. A Modern one sends none.
    fn asks(&mut self, id: Id, method: String, params: Option<Bytes>) -> Option<Event> {
        let question = Question { method, params };
        if question.is_known() && self.questions.open(&id, &mut self.deadline) {
            return Some(Event::Asks(id, question));
        }
        let refusal = if question.is_known() { not_offered } else { answer_to_server };
        self.shared.send_aside(refusal(&id, &question.method));
        None
    }

    fn notice(&mut self, method: String, params: Option<Bytes>) -> Option<Notice> {
        if method == notification::PROGRESS {
            self.deadline.extend();
            return Notice::progress(method, params?).map(|(notice, _)| notice);
        }
        if method == notification::MESSAGE {
            return Notice::line(method, params?, self.hears?);
        }
        self.shared.inbox.hear(&method, params.as_ref());
        None
    }
}

/// The next line for a call; for ever, while there is none.
async fn next(lines: Option<&Listener>) -> Notice {
    match lines {
        Some(lines) => lines.next().await,
        None => std::future::pending().await,
    }
}
