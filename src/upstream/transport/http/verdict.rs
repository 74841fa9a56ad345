//! What an answer says of a call, and of the server that gave it.

use http::StatusCode;

use crate::call::{Answer, Passing};
use crate::jsonrpc::{Frame, Id};
use crate::mcp::{Era, code};
use crate::upstream::UpstreamError;
use crate::upstream::interaction::deadline::Deadline;

use super::HttpShared;
use super::reception::{HttpReply, answer_in, refusal};

/// What a reception says that is no stream.
pub(super) enum SettledReply {
    Answer(Answer),
    Passing(Passing),
}

impl HttpShared {
    /// What a call's reception says that is no stream.
    pub(super) async fn settle(
        &self,
        reception: HttpReply,
        id: &Id,
        deadline: Deadline,
    ) -> Result<SettledReply, UpstreamError> {
        let answer = match reception {
            HttpReply::Message(frame) => answer_in(frame, id),
            HttpReply::Begun(begun) => match Box::pin(begun.pass(id, self, deadline)).await? {
                Ok(passing) => return Ok(SettledReply::Passing(passing)),
                Err(frame) => answer_in(frame, id),
            },
            HttpReply::Events(_) | HttpReply::Empty => Err(UpstreamError::NoAnswer),
            HttpReply::Refused { status, frame, .. } => self.refused(status, frame, id),
        };
        if let Err(fault) = &answer {
            self.doubt(fault);
        }
        Ok(SettledReply::Answer(self.checked(answer?)?))
    }

    /// What a refusal says. An error that answers no request, from a server
    /// that was Modern, is what a Legacy one says to a request outside of a
    /// session: it is no answer, but a sign that another server is there now.
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
                Err(UpstreamError::Status { status })
            }
            answer => Ok(answer),
        }
    }

    /// Takes the server for lost where a fault shows that what was learnt of
    /// it, or its address, no longer holds.
    pub(super) fn doubt(&self, fault: &UpstreamError) {
        let era_changed = self.peer.era() == Era::Modern
            && matches!(fault, UpstreamError::Status { status }
                if matches!(*status, StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST | StatusCode::METHOD_NOT_ALLOWED));
        if era_changed || matches!(fault, UpstreamError::Connect(_)) {
            self.lose(fault);
        }
    }

    pub(super) fn lose(&self, fault: &UpstreamError) {
        let reason = fault.chain();
        self.lost.send_if_modified(|lost| {
            let first = lost.is_none();
            lost.get_or_insert(reason);
            first
        });
    }

    /// An answer, its sender noted; doubts the server's era or list where the
    /// answer says so.
    pub(super) fn checked(&self, answer: Answer) -> Result<Answer, UpstreamError> {
        if let Answer::Error(error) = &answer {
            match error.code() {
                // Agreed between the gateway and this server: to the client it
                // would say that the gateway does not speak the client's.
                code::UNSUPPORTED_VERSION if self.peer.era() == Era::Modern => {
                    let fault = UpstreamError::Versions("others than it said".into());
                    self.lose(&fault);
                    return Err(fault);
                }
                // A tool's mirrored parameters are others than the list said.
                code::HEADER_MISMATCH => self.inbox.relist(),
                _ => {}
            }
        }
        Ok(answer.sent_by(&self.peer.info))
    }
}
