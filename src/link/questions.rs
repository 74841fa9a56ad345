//! What a Legacy server asks in the middle of one call, on its link.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::call::{Answers, Call, MOST_QUESTIONS};
use crate::jsonrpc::{self, Id, Response, object};
use crate::mcp::Era;

use super::deadline::Deadline;

/// The questions of one call that are open, and the way of their answers.
pub(super) struct Questions {
    open: Vec<Id>,
    /// None where the call's client, or its server, is one of whom there are none.
    responses: Option<mpsc::Receiver<(Id, Response)>>,
}

impl Questions {
    /// Those of a call to a server of this era, none so far. Only a Legacy one
    /// asks, and only a client is asked that can be asked something.
    pub(super) fn of(call: &Call, era: Era) -> (Self, Option<Answers>) {
        let can_be = era == Era::Legacy && call.context.client.abilities().any();
        // Those that are open, and as many refusals.
        let way = can_be.then(|| mpsc::channel(2 * MOST_QUESTIONS));
        let (answers, responses) = way.unzip();
        (Self { open: Vec::new(), responses }, answers)
    }

    /// Whether there can be any.
    pub(super) fn can_be(&self) -> bool {
        self.responses.is_some()
    }

    /// The server asks; the deadline stands still until it is answered. False
    /// where it may not.
    pub(super) fn open(&mut self, id: &Id, deadline: &mut Deadline) -> bool {
        let may = self.can_be() && self.open.len() < 2 * MOST_QUESTIONS && !self.open.contains(id);
        if may {
            deadline.pause();
            self.open.push(id.clone());
        }
        may
    }

    /// The next answer; for ever, while there is none.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn answer(&mut self) -> (Id, Response) {
        if let Some(responses) = &mut self.responses
            && let Some(answer) = responses.recv().await
        {
            return answer;
        }
        std::future::pending().await
    }

    /// A question is answered, or taken back; the deadline goes on with the
    /// last. False where it was not open.
    pub(super) fn close(&mut self, id: &Id, deadline: &mut Deadline) -> bool {
        let before = self.open.len();
        self.open.retain(|open| open != id);
        if self.open.is_empty() {
            deadline.go_on();
        }
        self.open.len() < before
    }
}

/// Which request a `notifications/cancelled` takes back.
pub(super) fn cancelled(params: &Bytes) -> Option<Id> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    let cancelled: Cancelled<'_> = object(params).ok()?;
    Id::read(params, cancelled.request_id)
}

/// The message that answers a server's request.
pub(super) fn message(id: &Id, response: &Response) -> Bytes {
    match response {
        Response::Result(raw) => jsonrpc::response(id, raw),
        Response::Error(raw) => jsonrpc::error(Some(id), raw),
    }
}
