//! The effect of tasks on a call, which follows from its route.

use crate::call::{Call, Failure, InternalFault, NativeName, Params, ServerName};
use crate::catalog::{TaskForm, TaskSupport, ToolEntry};
use crate::era::tasks::form;
use crate::mcp::{Era, Method, ProtocolVersion};
use crate::pipeline::input::unknown::unknown_task;
use crate::snapshot::View;

use super::Route;

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
pub(crate) fn find_tool_of_task<'a>(
    view: &'a View,
    server: &ServerName,
    tool: &NativeName,
    id: &str,
) -> Result<&'a ToolEntry, Failure> {
    view.catalog.find_listed_tool(server, tool).ok_or_else(|| unknown_task(id))
}

/// Effects of tasks on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskMode {
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
    pub(crate) fn rewrite_params(self, call: &Call) -> Result<Option<Params>, Failure> {
        let raw = match self {
            Self::Requested | Self::Awaited => Some(form::as_task(call.params.raw())),
            Self::Removed => Some(form::without_task(call.params.raw())),
            Self::Unchanged | Self::AwaitedIfNeeded | Self::Bridged => None,
        };
        let params = raw.map(|raw| Params::parse(Some(raw))).transpose();
        Ok(params.map_err(InternalFault::Params)?)
    }
}
