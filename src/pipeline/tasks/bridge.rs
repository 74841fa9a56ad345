//! The requests of Modern clients about tasks of Legacy servers.

use bytes::Bytes;

use crate::call::{Answer, Call, Failure, ResultBody};
use crate::era::tasks::form::{Task, TaskOutcome, TaskStatus, acknowledged, lift};
use crate::mcp::{Method, code};
use crate::pipeline::input::{Requester, read_modern_input};

use super::at::{TaskAt, await_answer};

/// Answers one.
///
/// # Cancel safety
/// Dropped, nothing is left but that what was asked may have happened.
pub(in crate::pipeline) async fn answer_task_request(
    call: &Call,
    at: &TaskAt,
    asker: &Requester,
) -> Result<Answer, Failure> {
    match call.method {
        Method::TasksUpdate => update_task(call, at, asker).await,
        Method::TasksCancel => cancel_task(at).await,
        _ => get_task(at, asker).await,
    }
}

/// How a task is. One that has ended is told with what came of it, one that
/// wants to know something with what that is.
async fn get_task(at: &TaskAt, asker: &Requester) -> Result<Answer, Failure> {
    let answered = at.request_answer(Method::TasksGet).await?;
    let Answer::Result(result) = &answered else { return Ok(answered) };
    let task = Task::parse(result.raw()).ok_or_else(|| at.bad_answer("a task that is none"))?;
    let outcome = match task.status {
        TaskStatus::Working | TaskStatus::Cancelled => TaskOutcome::Nothing(task.status),
        TaskStatus::Completed | TaskStatus::Failed => {
            TaskOutcome::Ended(await_answer(at.request_outcome().await?).await?)
        }
        TaskStatus::InputRequired => match asker.inputs.questions.asked(at, asker).await? {
            Some(requests) => TaskOutcome::Asks(requests),
            // Nothing that this client could answer, or nothing any more.
            None => TaskOutcome::Nothing(TaskStatus::Working),
        },
    };
    let lifted = lift(&task, &outcome);
    result.with(lifted).map(Answer::Result).map_err(|fault| at.bad_answer(&fault.to_string()))
}

/// Answers what a task wants to know.
async fn update_task(call: &Call, at: &TaskAt, asker: &Requester) -> Result<Answer, Failure> {
    let input = read_modern_input(call)?.unwrap_or_default();
    if !asker.inputs.questions.answer(at, asker, input.responses) {
        // Nobody waits for these. A task that is not there is an error all the same.
        if let answer @ Answer::Error(_) = at.request_answer(Method::TasksGet).await? {
            return Ok(answer);
        }
    }
    acknowledge()
}

/// Ends a task. One that has ended already is no error to a Modern client.
async fn cancel_task(at: &TaskAt) -> Result<Answer, Failure> {
    let Answer::Error(error) = at.request_answer(Method::TasksCancel).await? else {
        return acknowledge();
    };
    let over = error.code() == code::INVALID_PARAMS
        && matches!(at.request_answer(Method::TasksGet).await?, Answer::Result(_));
    if over { acknowledge() } else { Ok(Answer::Error(error)) }
}

fn acknowledge() -> Result<Answer, Failure> {
    let raw: Bytes = acknowledged();
    ResultBody::parse(raw)
        .map(Answer::Result)
        .map_err(|fault| Failure::Internal { detail: fault.to_string() })
}
