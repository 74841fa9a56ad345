//! The story of tasks: whose they are, where their ids lead, and what stands
//! in replies that are about them.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::call::{Call, Failure, Principal, ResultBody, ResultType, ServerName};
use crate::catalog::Offers;
use crate::era::tasks::ids::TaskIds;
use crate::era::tasks::rename::{Place, rename};
use crate::mcp::meta::TASKS;
use crate::mcp::{Era, Method, ProtocolVersion};

/// The ids of tasks as one principal knows them.
pub(super) struct OwnTasks {
    pub(super) ids: TaskIds,
    pub(super) owner: Principal,
}

impl OwnTasks {
    /// The id of a server's task.
    pub(super) fn public(&self, server: &ServerName, native: &str) -> String {
        self.ids.public(&self.owner, server, native)
    }

    /// Whose task it is, and by which id.
    ///
    /// # Errors
    /// [`Failure::UnknownTask`] where this principal was never given such an id.
    pub(super) fn native<'a>(&self, id: &'a str) -> Result<(ServerName, &'a str), Failure> {
        self.ids.native(&self.owner, id).ok_or_else(|| unknown(id))
    }

    /// What a server says about its task, under the id that the client knows.
    pub(super) fn rename(&self, server: &ServerName, raw: &[u8], place: Place) -> Option<Bytes> {
        rename(raw, place, |native| self.public(server, native))
    }
}

/// That a client of this kind knows this method at all, if it is about tasks.
///
/// # Errors
/// [`Failure::MethodNotFound`], and [`Failure::CapabilityNeeded`] where a
/// Modern client did not say that it knows tasks.
pub(super) fn check(call: &Call) -> Result<(), Failure> {
    if !call.method.is_of_a_task() {
        return Ok(());
    }
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

/// What a client of this version is told of tasks, of all that these servers
/// offer: each era has its own form of them.
pub(super) fn tell(all: &mut Map<String, Value>, servers: &[&Offers], version: ProtocolVersion) {
    if version.era() == Era::Modern {
        if servers.iter().any(|offers| offers.extends(TASKS)) {
            let extensions = all.entry("extensions").or_insert_with(|| json!({}));
            if let Some(extensions) = extensions.as_object_mut() {
                extensions.insert(TASKS.into(), json!({}));
            }
        }
    } else if version >= ProtocolVersion::V2025_11_25
        && servers.iter().any(|offers| offers.has_legacy_tasks())
    {
        // No list: it would be of all that everybody has at a shared server.
        let tasks = json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
        all.insert("tasks".into(), tasks);
    }
}

/// Where ids stand in a result of this method.
pub(super) fn place(method: &Method, result: &ResultBody) -> Place {
    match (method, result.kind()) {
        (Method::TasksGet | Method::TasksCancel, _) | (Method::ToolsCall, ResultType::Task) => {
            Place::Task
        }
        (Method::ToolsCall, _) => Place::Created,
        _ => Place::Meta,
    }
}

pub(super) fn unknown(id: &str) -> Failure {
    Failure::UnknownTask { id: id.chars().take(MAX_ID).collect() }
}

/// The longest id that an error repeats.
const MAX_ID: usize = 256;
