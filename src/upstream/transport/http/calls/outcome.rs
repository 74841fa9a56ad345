//! Meaning of responses for the call and for the server's state.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::{sleep, timeout};

use crate::call::{Answer, Failure, VersionFault};
use crate::jsonrpc::{Frame, Id};
use crate::mcp::{Era, code};
use crate::shares::Holder;
use crate::upstream::UpstreamError;
use crate::upstream::interaction::deadline::Deadline;
use crate::upstream::response_memory::ResponseCharge;

use super::large_result::{AnswerBounds, LargeResponse, PartialAnswer};
use super::reply::{HttpReply, answer_in, find_answer, refusal, status_error};
use crate::upstream::transport::http::HttpShared;
use crate::upstream::transport::http::probe::discover;

impl HttpShared {
    /// Returns the answer in the reply to a call. The reply is neither a stream nor too large to be
    /// buffered.
    pub(crate) fn answer(&self, reply: HttpReply, id: &Id) -> Result<Answer, UpstreamError> {
        let answer = match reply {
            HttpReply::Message(frame) => answer_in(frame, id),
            HttpReply::Events(_) | HttpReply::Begun(_) | HttpReply::Empty => {
                Err(UpstreamError::NoAnswer)
            }
            HttpReply::Refused { status, frame, body, retry_after } => self
                .refused(status, frame, id)
                .map_err(|_| status_error(status, &body, retry_after.as_ref())),
        };
        self.judge(answer)
    }

    /// Like [`answer`](Self::answer), but parses a large answer on another thread.
    pub(crate) async fn answer_large(
        &self,
        reply: HttpReply,
        id: &Id,
    ) -> Result<Answer, UpstreamError> {
        match reply {
            HttpReply::Message(frame) => {
                let answer = find_answer(frame, id).await;
                self.judge(answer)
            }
            reply => self.answer(reply, id),
        }
    }

    fn judge(&self, answer: Result<Answer, UpstreamError>) -> Result<Answer, UpstreamError> {
        if let Err(fault) = &answer {
            self.doubt(fault);
        }
        self.checked(answer?)
    }

    /// Begins to count the memory of a large response to a client.
    pub(crate) fn charge(&self, holder: &Holder) -> ResponseCharge {
        self.memory.charge(holder, self.limit)
    }

    /// Returns the limits for the rest of a large response to a client.
    pub(crate) fn bound(&self, deadline: Deadline, holder: &Holder) -> AnswerBounds {
        AnswerBounds { deadline, charge: self.charge(holder) }
    }

    /// Forwards a response that is too large to be buffered, if possible.
    pub(crate) async fn pass(
        &self,
        begun: PartialAnswer,
        id: &Id,
        bounds: AnswerBounds,
    ) -> Result<LargeResponse<Answer>, UpstreamError> {
        // Boxed to keep the usual call small: this is rare.
        match Box::pin(begun.pass(id, self, bounds)).await? {
            LargeResponse::Passing(passing) => Ok(LargeResponse::Passing(passing)),
            LargeResponse::Whole(frame) => {
                let answer = Box::pin(self.answer_large(HttpReply::Message(frame), id)).await?;
                Ok(LargeResponse::Whole(answer))
            }
        }
    }

    /// Converts an error to its outward form.
    pub(crate) fn fail(&self, fault: UpstreamError) -> Failure {
        self.inbox.fail(&self.server, fault)
    }

    /// Interprets an HTTP error. A Modern server that sends an error without an id, as Legacy
    /// servers do for a request outside a session, has been replaced by a different server, so the
    /// connection is lost.
    fn refused(
        &self,
        status: StatusCode,
        frame: Option<Frame>,
        id: &Id,
    ) -> Result<Answer, UpstreamError> {
        let nameless = matches!(frame, Some(Frame::Response { id: None, .. }));
        match refusal(status, frame, id)? {
            Answer::Error(error)
                if nameless
                    && self.peer.era() == Era::Modern
                    && !code::is_modern_code(error.code()) =>
            {
                Err(UpstreamError::of_status(status))
            }
            answer => Ok(answer),
        }
    }

    /// Marks the connection as lost if an error shows that the server is unreachable, and requests
    /// a check if the server's era may have changed. Closes idle connections if responses arrived
    /// in another order than the requests.
    pub(crate) fn doubt(&self, fault: &UpstreamError) {
        let may_have_changed = self.peer.era() == Era::Modern
            && matches!(fault, UpstreamError::Status { status, .. }
                if matches!(*status, StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST | StatusCode::METHOD_NOT_ALLOWED));
        if matches!(fault, UpstreamError::Connect(_)) {
            self.lose(fault);
        } else if matches!(fault, UpstreamError::WrongId) {
            self.client.close_idle_connections();
        } else if may_have_changed {
            self.doubts.send_replace(Some(fault.clone()));
        }
    }

    /// Checks a Modern server's identity whenever a response gives reason to doubt it. Marks the
    /// connection as lost unless the server is the same: one rejected call must not take the server
    /// from all clients.
    pub(crate) async fn settle_doubts(self: Arc<Self>) {
        let mut doubts = self.doubts.subscribe();
        while doubts.wait_for(Option::is_some).await.is_ok() {
            let doubt = self.doubts.send_replace(None);
            let peer = timeout(CHECK_TIMEOUT, discover(&self.client, self.limit)).await;
            let is_same = matches!(&peer, Ok(Ok(Some(peer))) if peer.version == self.peer.version);
            if let Some(fault) = doubt.filter(|_| !is_same) {
                return self.lose(&fault);
            }
            sleep(BETWEEN_CHECKS).await;
        }
    }

    pub(crate) fn lose(&self, fault: &UpstreamError) {
        self.lost.send_if_modified(|lost| {
            let first = lost.is_none();
            lost.get_or_insert_with(|| fault.clone());
            first
        });
    }

    /// Adds the sender to a response. Checks the server or lists it again if the response requires
    /// it.
    pub(crate) fn checked(&self, answer: Answer) -> Result<Answer, UpstreamError> {
        if let Answer::Error(error) = &answer {
            match error.code() {
                // The gateway negotiated this version. The client would misread the error as the
                // gateway's refusal of its own version.
                code::UNSUPPORTED_VERSION if self.peer.era() == Era::Modern => {
                    let fault = UpstreamError::Versions(VersionFault::Withdrawn);
                    self.doubts.send_replace(Some(fault.clone()));
                    return Err(fault);
                }
                // The tool's mirrored parameters differ from those in the list.
                code::HEADER_MISMATCH => self.inbox.relist(),
                _ => {}
            }
        }
        Ok(answer.sent_by(&self.peer.info))
    }
}

/// Time limit for a check of the server.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum time between two checks, because clients can cause them by their calls.
const BETWEEN_CHECKS: Duration = Duration::from_secs(1);
