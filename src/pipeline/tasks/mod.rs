//! Tasks: requests about them between the eras, and calls that wait for their results.

mod bridge;
pub(super) mod drive;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::call::{Call, Failure, Reply, ResultBody, ResultType};
use crate::catalog::{ServerOffers, TaskForm};
use crate::era::tasks::rename::TaskIdPlace;
use crate::mcp::meta::TASKS;
use crate::mcp::{Era, Method, ProtocolVersion};
use crate::pipeline::input::Requester;
use crate::pipeline::input::task_at::TaskAt;
use crate::policy::Permitted;
use crate::snapshot::Snapshot;

/// Answers a Modern client's request about a Legacy server's task.
///
/// # Cancel safety
/// Dropping the future cancels the request.
pub(super) async fn bridge_request(
    snapshot: &Arc<Snapshot>,
    permitted: &Permitted<Call>,
    asker: &Requester,
) -> Result<Reply, Failure> {
    let (call, target) = (permitted.get(), permitted.target());
    let native = target.native.as_ref().map(ToString::to_string).unwrap_or_default();
    let at = TaskAt::new(snapshot, &target.server, native, &call.context);
    Ok(Reply::ready(bridge::answer_task_request(call, &at, asker).await))
}

/// Advertises the form of tasks that clients of this version know, if these servers offer any: each
/// era has its own form.
pub(super) fn advertise_tasks(
    all: &mut Map<String, Value>,
    servers: &[&ServerOffers],
    version: ProtocolVersion,
) {
    if version.era() == Era::Modern {
        if servers.iter().any(|offers| offers.task_form().is_some()) {
            let extensions = all.entry("extensions").or_insert_with(|| json!({}));
            if let Some(extensions) = extensions.as_object_mut() {
                extensions.insert(TASKS.into(), json!({}));
            }
        }
    } else if version >= ProtocolVersion::V2025_11_25
        && servers.iter().any(|offers| offers.task_form() == Some(TaskForm::Legacy))
    {
        // No `list`: on a shared server it would include the tasks of all clients.
        let tasks = json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
        all.insert("tasks".into(), tasks);
    }
}

/// Returns the place of task ids in a result of this method.
pub(super) fn task_id_place(method: &Method, result: &ResultBody) -> TaskIdPlace {
    match (method, result.kind()) {
        (Method::TasksGet | Method::TasksCancel, _) | (Method::ToolsCall, ResultType::Task) => {
            TaskIdPlace::Task
        }
        (Method::ToolsCall, _) => TaskIdPlace::Created,
        _ => TaskIdPlace::Meta,
    }
}
