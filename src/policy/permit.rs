//! The proof that a call has passed.

use std::sync::Arc;

use crate::call::{Failure, NativeName, PublicName, ServerName, Slot};
use crate::catalog::Tool;

/// Where a call goes: the catalog's answer to its name.
#[derive(Debug, Clone)]
pub struct Target {
    /// The server that owns the tool.
    pub server: ServerName,
    /// The tool's name at that server.
    pub native: NativeName,
    /// The tool's name towards clients.
    pub public: PublicName,
    /// The tool, with its compiled schema.
    pub tool: Arc<Tool>,
}

impl Target {
    pub(super) fn check_arguments(&self, arguments: Option<&[u8]>) -> Result<(), Failure> {
        self.tool
            .arguments
            .check(arguments)
            .map_err(|violations| Failure::InvalidArguments { violations: violations.to_string() })
    }
}

/// Something that has passed the policy, with where it may go.
#[derive(Debug)]
pub struct Permitted<T> {
    inner: T,
    target: Target,
    slot: Option<Slot>,
}

impl<T> Permitted<T> {
    // Visible to this room alone: that is the whole point of the type.
    pub(super) fn new(inner: T, target: Target, slot: Option<Slot>) -> Self {
        Self { inner, target, slot }
    }

    /// What was permitted.
    pub fn get(&self) -> &T {
        &self.inner
    }

    /// Where it may go.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Takes the place among the calls in flight, to be held with the reply.
    pub fn take_slot(&mut self) -> Option<Slot> {
        self.slot.take()
    }
}
