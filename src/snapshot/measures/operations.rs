//! Metric handles of operations, by method.

use std::sync::Arc;

use crate::mcp::Method;
use crate::telemetry::metrics::Operation;

/// One handle for each method that is sent to servers, looked up in advance.
#[derive(Debug)]
pub struct Operations {
    calls: Arc<Operation>,
    prompts: Arc<Operation>,
    reads: Arc<Operation>,
    directories: Arc<Operation>,
    skills: Arc<Operation>,
    completions: Arc<Operation>,
    tasks: [Arc<Operation>; 4],
    others: Arc<Operation>,
}

impl Operations {
    /// Looks up the handle of each method with `handle`.
    pub fn new(handle: impl Fn(&'static str) -> Arc<Operation>) -> Self {
        Self {
            calls: handle("tools/call"),
            prompts: handle("prompts/get"),
            reads: handle("resources/read"),
            directories: handle("resources/directory/read"),
            skills: handle("skills/get"),
            completions: handle("completion/complete"),
            tasks: ["tasks/get", "tasks/update", "tasks/cancel", "tasks/result"].map(&handle),
            // Clients choose the methods: a series for each would be unbounded.
            others: handle("other"),
        }
    }

    /// Returns the handle of a method.
    pub fn of(&self, method: &Method) -> &Arc<Operation> {
        let [get, update, cancel, result] = &self.tasks;
        match method {
            Method::TasksGet => get,
            Method::TasksUpdate => update,
            Method::TasksCancel => cancel,
            Method::TasksResult => result,
            Method::ToolsCall => &self.calls,
            Method::PromptsGet => &self.prompts,
            Method::ResourcesRead => &self.reads,
            Method::DirectoryRead => &self.directories,
            Method::SkillsGet => &self.skills,
            Method::Complete => &self.completions,
            _ => &self.others,
        }
    }
}
