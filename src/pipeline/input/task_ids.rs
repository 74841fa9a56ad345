//! The ids of tasks, as each principal knows them.

use bytes::Bytes;

use crate::call::{Failure, NativeName, Principal, ServerName};
use crate::era::tasks::ids::{TaskIds, TaskOrigin};
use crate::era::tasks::rename::{TaskIdPlace, rename};

use super::unknown::unknown_task;

/// Task ids as one principal knows them.
pub(crate) struct OwnTasks {
    pub(crate) ids: TaskIds,
    pub(crate) owner: Principal,
    /// The tool of the tasks that are named, if its results are changed.
    pub(crate) tool: Option<NativeName>,
}

impl OwnTasks {
    /// Returns the public id of a server's task.
    fn public_id(&self, server: &ServerName, native: &str) -> String {
        let (server, tool) = (server.clone(), self.tool.clone());
        self.ids.public(&self.owner, &TaskOrigin { server, tool, native })
    }

    /// Returns the task with this id.
    ///
    /// # Errors
    /// [`Failure::UnknownTask`] if the id does not belong to this principal.
    pub(crate) fn find_origin<'a>(&self, id: &'a str) -> Result<TaskOrigin<'a>, Failure> {
        self.ids.origin(&self.owner, id).ok_or_else(|| unknown_task(id))
    }

    /// Replaces a server's task ids with public ones; `None` if there are none.
    pub(crate) fn rename_ids(
        &self,
        server: &ServerName,
        raw: &[u8],
        place: TaskIdPlace,
    ) -> Option<Bytes> {
        rename(raw, place, |native| self.public_id(server, native))
    }
}
