//! Server requests during one call to a Legacy server.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::call::{Answers, Call, MAX_QUESTIONS, NativeName, Notice, Question};
use crate::era::tasks::rename;
use crate::jsonrpc::{self, Id, Response};
use crate::mcp::{Era, Method};
use crate::policy::CallTarget;

use crate::upstream::InstanceScope;
use crate::upstream::interaction::cancelled_calls::CancelledCalls;
use crate::upstream::interaction::deadline::Deadline;
use crate::upstream::interaction::server_link::ServerLink;
use crate::upstream::peer::{not_offered, too_many, unanswered};

/// Open questions of one call, and the channel for their answers.
pub(crate) struct CallQuestions {
    /// The questions with their sizes in bytes.
    open: Vec<(Id, usize)>,
    /// `None` if the client or the server does not support server requests.
    responses: Option<mpsc::Receiver<(Id, Response)>>,
    /// Sends the server a message outside the call.
    aside: Option<Box<dyn Fn(Bytes) + Send + Sync>>,
}

impl CallQuestions {
    /// Creates the questions of a call to a server of this era, initially none. Only Legacy servers
    /// send requests, and only to clients with the matching capabilities. Questions that are open
    /// when the call ends are answered with an error on `connection`, so that the server does not
    /// wait in vain.
    pub(crate) fn of<C: ServerLink>(
        call: &Call,
        era: Era,
        connection: &Arc<C>,
    ) -> (Self, Option<Answers>) {
        let can_be = era == Era::Legacy && call.context.client.abilities().any();
        // Room for the open questions, and for as many refusals.
        let way = can_be.then(|| mpsc::channel(2 * MAX_QUESTIONS));
        let (answers, responses) = way.unzip();
        let aside = can_be.then(|| {
            let connection = Arc::clone(connection);
            Box::new(move |message| connection.send(message)) as Box<_>
        });
        (Self { open: Vec::new(), responses, aside }, answers)
    }

    /// Returns true if this call accepts questions.
    pub(crate) fn can_be(&self) -> bool {
        self.responses.is_some()
    }

    /// Opens a question and pauses the deadline. Returns false if the call does not accept it, or
    /// if the open questions are too many or too large.
    pub(crate) fn open(&mut self, id: &Id, question: &Question, deadline: &mut Deadline) -> bool {
        let (size, waiting) = (question.size(), self.open.iter().map(|(_, size)| size).sum());
        let fits = self.open.is_empty() || size.saturating_add(waiting) <= OPEN_BYTES;
        let may = self.can_be()
            && fits
            && self.open.len() < 2 * MAX_QUESTIONS
            && !self.open.iter().any(|(open, _)| open == id);
        if may {
            deadline.pause();
            self.open.push((id.clone(), size));
        }
        may
    }

    /// Returns the error for a question that was not opened.
    pub(crate) fn refusal(&self, id: &Id, question: &Question) -> Bytes {
        if self.can_be() { too_many(id) } else { not_offered(id, question) }
    }

    /// Returns the next answer. Waits forever if the call accepts no questions.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn answer(&mut self) -> (Id, Response) {
        if let Some(responses) = &mut self.responses
            && let Some(answer) = responses.recv().await
        {
            return answer;
        }
        std::future::pending().await
    }

    /// Closes a question that was answered or cancelled. The last one resumes the deadline. Returns
    /// false if the question was not open.
    pub(crate) fn close(&mut self, id: &Id, deadline: &mut Deadline) -> bool {
        let before = self.open.len();
        self.open.retain(|(open, _)| open != id);
        if self.open.is_empty() {
            deadline.go_on();
        }
        self.open.len() < before
    }
}

impl Drop for CallQuestions {
    fn drop(&mut self) {
        if let Some(aside) = &self.aside {
            self.open.iter().for_each(|(id, _)| aside(unanswered(id)));
        }
    }
}

/// A message for a call that precedes its response and arrived outside its stream.
#[derive(Debug)]
pub(crate) enum SideMessage {
    Notice(Notice),
    /// A log notification of the server and its params.
    Line(String, Bytes),
    /// A server request, under the server's own id.
    Asks(Id, Question),
    /// The server cancelled a request, which may belong to another call.
    TookBack(Id),
}

impl SideMessage {
    /// Returns the size in bytes that counts while the message waits for its call.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Notice(notice) => notice.size(),
            Self::Line(method, params) => method.len() + params.len(),
            Self::Asks(_, question) => question.size(),
            Self::TookBack(_) => 0,
        }
    }
}

/// Client of a call, and the task that the call waits for.
pub(crate) struct CallOrigin {
    pub(crate) whose: InstanceScope,
    /// The task that the call waits for, by the server's own id, if it requests a task's result.
    task: Option<NativeName>,
}

impl CallOrigin {
    /// The origin of a call to this target.
    pub(crate) fn of(call: &Call, target: &CallTarget) -> Self {
        let task = target.native.clone().filter(|_| call.method == Method::TasksResult);
        Self { whose: InstanceScope::of(&call.context), task }
    }
}

/// Like [`tie`], for a server request. A request that names its task
/// (2025-11-25, Tasks, "Associating Task-Related Messages") belongs to the call
/// that waits for this task, whatever else is in flight.
pub(crate) fn tie_question<'a, T>(
    question: &Question,
    calls: impl Iterator<Item = (u64, &'a CallOrigin, Option<T>)> + Clone,
    cancelled_calls: &CancelledCalls,
) -> CallMatch<T> {
    let task = question.params.as_deref().and_then(rename::related);
    let of_task = |caller: &CallOrigin| {
        caller.task.as_ref().is_some_and(|own| Some(own.as_str()) == task.as_deref())
    };
    let waiting = calls.clone().filter(|(_, caller, _)| of_task(caller));
    match waiting.max_by_key(|(number, ..)| *number) {
        Some((.., Some(one))) => CallMatch::To(one),
        Some((.., None)) => CallMatch::Mute,
        None => {
            let calls = calls.map(|(number, caller, one)| (number, &caller.whose, one));
            tie(calls, cancelled_calls)
        }
    }
}

/// Result of matching a message without a call's id to a call.
pub(crate) enum CallMatch<T> {
    /// No call is in flight, or calls of several clients are. A cancelled call counts while the
    /// server may be working on it.
    Nobody,
    /// A call with a client that does not accept the message.
    Mute,
    /// This call, identified by the value that was passed with it.
    To(T),
}

/// Matches a server's message to a call in flight: to the only one, or to the newest if all belong
/// to one client, because the older ones have proceeded without an answer. Each call is passed with
/// its position in their order and, if it can accept the message, a value that identifies it.
pub(crate) fn tie<'a, T>(
    calls: impl Iterator<Item = (u64, &'a InstanceScope, Option<T>)>,
    cancelled_calls: &CancelledCalls,
) -> CallMatch<T> {
    let mut first = None;
    let mut newest: Option<(u64, T)> = None;
    for (number, caller, one) in calls {
        if *first.get_or_insert(caller) != caller {
            return CallMatch::Nobody;
        }
        if let Some(one) = one
            && newest.as_ref().is_none_or(|(newest, _)| number > *newest)
        {
            newest = Some((number, one));
        }
    }
    match (first, newest) {
        (None, _) => CallMatch::Nobody,
        (Some(caller), _) if cancelled_calls.is_anothers(caller) => CallMatch::Nobody,
        (Some(_), None) => CallMatch::Mute,
        (Some(_), Some((_, one))) => CallMatch::To(one),
    }
}

/// Builds the response to a server's request.
pub(crate) fn message(id: &Id, response: &Response) -> Bytes {
    match response {
        Response::Result(raw) => jsonrpc::response(id, raw),
        Response::Error(raw) => jsonrpc::error(Some(id), raw),
    }
}

/// Maximum size in bytes of the open questions of one call. A single question may exceed it.
const OPEN_BYTES: usize = 8 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Principal;

    #[test]
    fn a_question_about_a_task_is_of_the_call_that_waits_for_it() {
        let ann = InstanceScope::Principal(Principal::Client("ann".into()));
        let bob = InstanceScope::Principal(Principal::Anonymous);
        let caller = |whose: &InstanceScope, task: Option<&str>| CallOrigin {
            whose: whose.clone(),
            task: task.map(NativeName::new),
        };
        let about = |task: &str| Question {
            method: "elicitation/create".into(),
            params: Some(Bytes::from(format!(
                r#"{{"_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":"{task}"}}}}}}"#
            ))),
        };
        let calls = [caller(&ann, Some("1")), caller(&bob, Some("2")), caller(&bob, None)];
        let tied = |question: &Question| {
            let all = calls.iter().zip(1..).map(|(caller, number)| (number, caller, Some(number)));
            match tie_question(question, all, &CancelledCalls::default()) {
                CallMatch::To(number) => Some(number),
                CallMatch::Nobody | CallMatch::Mute => None,
            }
        };
        assert_eq!(
            (tied(&about("1")), tied(&about("2")), tied(&about("3"))),
            (Some(1), Some(2), None)
        );
        assert_eq!(tied(&Question { method: "roots/list".into(), params: None }), None);
    }

    #[test]
    fn server_messages_are_tied_to_the_newest_call_of_one_client() {
        let ann = InstanceScope::Principal(Principal::Client("ann".into()));
        let bob = InstanceScope::Principal(Principal::Anonymous);
        let (one, _one) = mpsc::channel(1);
        let (two, _two) = mpsc::channel(1);
        let cancelled_calls = CancelledCalls::default();
        let tied = |calls: &[(u64, &InstanceScope, Option<&mpsc::Sender<SideMessage>>)]| match tie(
            calls.iter().copied(),
            &cancelled_calls,
        ) {
            CallMatch::Nobody => "nobody",
            CallMatch::Mute => "mute",
            CallMatch::To(asides) if asides.same_channel(&one) => "one",
            CallMatch::To(_) => "two",
        };
        assert_eq!(tied(&[]), "nobody");
        assert_eq!(tied(&[(1, &ann, None)]), "mute");
        assert_eq!(tied(&[(1, &ann, Some(&one))]), "one");
        assert_eq!(tied(&[(2, &ann, Some(&two)), (1, &ann, Some(&one))]), "two");
        assert_eq!(tied(&[(2, &ann, None), (1, &ann, Some(&one))]), "one");
        assert_eq!(tied(&[(1, &ann, Some(&one)), (2, &bob, Some(&two))]), "nobody");
        cancelled_calls.add(3, bob.clone(), std::time::Duration::from_secs(1), None);
        assert_eq!(tied(&[(1, &ann, Some(&one))]), "nobody", "it may be of the other's call");
        assert_eq!(tied(&[(1, &ann, None)]), "nobody");
        assert_eq!(tied(&[(2, &bob, Some(&two))]), "two");
        cancelled_calls.answered(3);
        assert_eq!(tied(&[(1, &ann, Some(&one))]), "one");
    }
}
