//! Tasks: their owners, their servers, and the ids in replies about them.

mod at;
mod bridge;
pub(super) mod drive;
mod questions;

pub(super) use questions::TaskQuestions;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::call::{
    Call, Failure, InternalFault, NativeName, Params, Principal, Reply, ResultBody, ResultType,
    ServerName,
};
use crate::catalog::{ServerOffers, TaskForm, TaskSupport, ToolEntry};
use crate::era::tasks::form;
use crate::era::tasks::ids::{TaskIds, TaskOrigin};
use crate::era::tasks::rename::{TaskIdPlace, rename};
use crate::mcp::meta::TASKS;
use crate::mcp::{Era, Method, ProtocolVersion};
use crate::policy::Permitted;
use crate::snapshot::{Snapshot, View};
use crate::text::clip;

use super::input::Requester;
use super::route::Route;
use at::TaskAt;

/// Task ids as one principal knows them.
pub(super) struct OwnTasks {
    pub(super) ids: TaskIds,
    pub(super) owner: Principal,
    /// The tool of the tasks that are named, if its results are changed.
    pub(super) tool: Option<NativeName>,
}

impl OwnTasks {
    /// Returns the public id of a server's task.
    pub(super) fn public_id(&self, server: &ServerName, native: &str) -> String {
        let (server, tool) = (server.clone(), self.tool.clone());
        self.ids.public(&self.owner, &TaskOrigin { server, tool, native })
    }

    /// Returns the task with this id.
    ///
    /// # Errors
    /// [`Failure::UnknownTask`] if the id does not belong to this principal.
    pub(super) fn find_origin<'a>(&self, id: &'a str) -> Result<TaskOrigin<'a>, Failure> {
        self.ids.origin(&self.owner, id).ok_or_else(|| unknown_task(id))
    }

    /// Replaces a server's task ids with public ones; `None` if there are none.
    pub(super) fn rename_ids(
        &self,
        server: &ServerName,
        raw: &[u8],
        place: TaskIdPlace,
    ) -> Option<Bytes> {
        rename(raw, place, |native| self.public_id(server, native))
    }
}

/// Refuses a task method that clients of this version do not have.
///
/// # Errors
/// [`Failure::MethodNotFound`], and [`Failure::CapabilityNeeded`] if a Modern client did not
/// declare task support.
pub(super) fn check_method(call: &Call) -> Result<(), Failure> {
    let client = &call.context.client;
    let known = match client.version.era() {
        Era::Modern => call.method != Method::TasksResult,
        Era::Legacy => {
            client.version >= ProtocolVersion::V2025_11_25 && call.method != Method::TasksUpdate
        }
    };
    if !known {
        return Err(Failure::MethodNotFound { method: call.method.as_str().to_owned() });
    }
    if client.version.era() == Era::Modern && !client.abilities().tasks {
        return Err(Failure::tasks_needed());
    }
    Ok(())
}

/// Returns the tool that created a task; its settings decide how the final result is changed. It
/// must still be listed: otherwise these settings are unknown.
///
/// # Errors
/// [`Failure::UnknownTask`].
pub(super) fn find_tool_of_task<'a>(
    view: &'a View,
    (server, tool): (&ServerName, &NativeName),
    id: &str,
) -> Result<&'a ToolEntry, Failure> {
    view.catalog.find_listed_tool(server, tool).ok_or_else(|| unknown_task(id))
}

/// Effects of tasks on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskMode {
    /// Both sides have the same form of tasks, or none: the call is sent as it came.
    Unchanged,
    /// A Modern client's params contain a member without meaning in Modern that the Legacy server
    /// would read as a request for a task: it is removed.
    Removed,
    /// A Modern client with task support calls a Legacy server's tool, which
    /// is asked to run as a task.
    Requested,
    /// A client without task support calls a Legacy server's tool that only runs
    /// as a task: the gateway waits for the result.
    Awaited,
    /// A client that waits for the end of tasks calls a tool of a Modern server, which may insist on
    /// a task.
    AwaitedIfNeeded,
    /// A Modern client asks about a Legacy server's task.
    Bridged,
}

impl TaskMode {
    /// Chooses the mode of this call.
    ///
    /// # Errors
    /// [`Failure::UnknownTask`] if a Legacy client asks about a Modern task: Legacy clients never
    /// receive one.
    pub(super) fn choose(call: &Call, route: &Route<'_>, view: &View) -> Result<Self, Failure> {
        let client = &call.context.client;
        let is_modern = client.version.era() == Era::Modern;
        let list = view.list(route.server());
        let form = list.and_then(|list| list.offers.task_form());
        let (has_legacy, has_modern) =
            (form == Some(TaskForm::Legacy), form == Some(TaskForm::Modern));
        if call.method.is_task_request() {
            return match (is_modern, has_legacy, has_modern) {
                (true, true, _) => Ok(Self::Bridged),
                (false, false, true) => Err(unknown_task(call.params.task().unwrap_or_default())),
                _ => Ok(Self::Unchanged),
            };
        }
        let Some(tool) = route.tool else { return Ok(Self::Unchanged) };
        let support = if has_legacy { tool.tasks } else { TaskSupport::Forbidden };
        let asks = has_legacy && form::asks_for_task(call.params.raw());
        Ok(match support {
            _ if asks && !is_modern => Self::Unchanged,
            TaskSupport::Optional | TaskSupport::Required if client.abilities().tasks => {
                Self::Requested
            }
            TaskSupport::Required => Self::Awaited,
            _ if has_modern && client.awaits_tasks() => Self::AwaitedIfNeeded,
            _ if asks => Self::Removed,
            TaskSupport::Optional | TaskSupport::Forbidden => Self::Unchanged,
        })
    }

    /// Returns the params that this mode needs; `None` if they stay unchanged.
    pub(super) fn rewrite_params(self, call: &Call) -> Result<Option<Params>, Failure> {
        let raw = match self {
            Self::Requested | Self::Awaited => Some(form::as_task(call.params.raw())),
            Self::Removed => Some(form::without_task(call.params.raw())),
            Self::Unchanged | Self::AwaitedIfNeeded | Self::Bridged => None,
        };
        let params = raw.map(|raw| Params::parse(Some(raw))).transpose();
        Ok(params.map_err(InternalFault::Params)?)
    }
}

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

pub(super) fn unknown_task(id: &str) -> Failure {
    Failure::UnknownTask { id: clip(id, MAX_ID).to_owned() }
}

/// The longest id that an error repeats.
const MAX_ID: usize = 256;
