//! Requests of Modern clients about tasks of Legacy servers.

use bytes::Bytes;

use crate::call::{Answer, Call, Failure, InternalFault, ResultBody, ServerFault, TaskFault};
use crate::era::tasks::form::{Task, TaskOutcome, TaskStatus, acknowledged, lift};
use crate::mcp::{Method, code};
use crate::pipeline::input::task_at::{TaskAt, await_answer};
use crate::pipeline::input::{Requester, read_modern_input};

/// Answers a task request.
///
/// # Cancel safety
/// If the future is dropped, the server may or may not have processed the request.
pub(super) async fn answer_task_request(
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

/// Answers `tasks/get`: the status of the task, with the result if the task has ended and the input
/// requests if it needs input.
async fn get_task(at: &TaskAt, asker: &Requester) -> Result<Answer, Failure> {
    let answered = at.request_answer(Method::TasksGet).await?;
    let Answer::Result(result) = &answered else { return Ok(answered) };
    let task = Task::parse(result.raw()).ok_or_else(|| at.bad_task(TaskFault::Malformed))?;
    let outcome = match task.status {
        TaskStatus::Working | TaskStatus::Cancelled => TaskOutcome::Nothing(task.status),
        TaskStatus::Completed | TaskStatus::Failed => {
            TaskOutcome::Ended(await_answer(at.request_outcome().await?).await?)
        }
        TaskStatus::InputRequired => match asker.inputs.questions.asked(at, asker).await? {
            Some(requests) => TaskOutcome::Asks(requests),
            // There are no input requests that this client could answer, or none any longer.
            None => TaskOutcome::Nothing(TaskStatus::Working),
        },
    };
    let lifted = lift(&task, &outcome);
    let result = result.with(lifted).map_err(|fault| at.bad_answer(ServerFault::Answer(fault)));
    result.map(Answer::Result)
}

/// Answers `tasks/update`: passes the client's answers to the task.
async fn update_task(call: &Call, at: &TaskAt, asker: &Requester) -> Result<Answer, Failure> {
    let input = read_modern_input(call)?.unwrap_or_default();
    if !asker.inputs.questions.answer(at, asker, input.responses) {
        // No input request is pending for these answers. An unknown task is an error all the same.
        if let answer @ Answer::Error(_) = at.request_answer(Method::TasksGet).await? {
            return Ok(answer);
        }
    }
    acknowledge()
}

/// Cancels a task. A Modern client gets no error for a task that has ended already.
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
    Ok(ResultBody::parse(raw).map(Answer::Result).map_err(InternalFault::Result)?)
}
