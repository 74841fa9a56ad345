//! The requests of Modern clients about tasks of Legacy servers.

use bytes::Bytes;

use crate::call::{Answer, Call, Failure, ResultBody};
use crate::era::tasks::form::{Outcome, Status, Task, acknowledged, lift};
use crate::mcp::{Method, code};
use crate::pipeline::input::{Asker, answered};

use super::at::{TaskAt, answer};

/// Answers one.
///
/// # Cancel safety
/// Dropped, nothing is left but that what was asked may have happened.
pub(in crate::pipeline) async fn call(
    call: &Call,
    at: &TaskAt,
    asker: &Asker,
) -> Result<Answer, Failure> {
    match call.method {
        Method::TasksUpdate => update(call, at, asker).await,
        Method::TasksCancel => cancel(at).await,
        _ => get(at, asker).await,
    }
}

/// How a task is. One that has ended is told with what came of it, one that
/// wants to know something with what that is.
async fn get(at: &TaskAt, asker: &Asker) -> Result<Answer, Failure> {
    let answered = at.ask(Method::TasksGet).await?;
    let Answer::Result(result) = &answered else { return Ok(answered) };
    let task = Task::parse(result.raw()).ok_or_else(|| at.bad("a task that is none"))?;
    let outcome = match task.status {
        Status::Working | Status::Cancelled => Outcome::Nothing(task.status),
        Status::Completed | Status::Failed => Outcome::Ended(answer(at.outcome().await?).await?),
        Status::InputRequired => match asker.inputs.questions.asked(at, asker).await? {
            Some(requests) => Outcome::Asks(requests),
            // Nothing that this client could answer, or nothing any more.
            None => Outcome::Nothing(Status::Working),
        },
    };
    let lifted = lift(&task, &outcome);
    result.with(lifted).map(Answer::Result).map_err(|fault| at.bad(&fault.to_string()))
}

/// Answers what a task wants to know.
async fn update(call: &Call, at: &TaskAt, asker: &Asker) -> Result<Answer, Failure> {
    let input = answered(call)?.unwrap_or_default();
    if !asker.inputs.questions.answer(at, asker, input.responses) {
        // Nobody waits for these. A task that is not there is an error all the same.
        if let answer @ Answer::Error(_) = at.ask(Method::TasksGet).await? {
            return Ok(answer);
        }
    }
    acknowledge()
}

/// Ends a task. One that has ended already is no error to a Modern client.
async fn cancel(at: &TaskAt) -> Result<Answer, Failure> {
    let Answer::Error(error) = at.ask(Method::TasksCancel).await? else { return acknowledge() };
    let over = error.code() == code::INVALID_PARAMS
        && matches!(at.ask(Method::TasksGet).await?, Answer::Result(_));
    if over { acknowledge() } else { Ok(Answer::Error(error)) }
}

fn acknowledge() -> Result<Answer, Failure> {
    let raw: Bytes = acknowledged();
    ResultBody::parse(raw)
        .map(Answer::Result)
        .map_err(|fault| Failure::Internal { detail: fault.to_string() })
}
