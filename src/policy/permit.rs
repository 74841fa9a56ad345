//! The proof that policy has admitted a call.

use std::sync::Arc;

use crate::call::{Edits, Failure, InFlightSlot, NativeName, Params, ServerName};
use crate::catalog::Tool;

/// Where a call goes, and what the server is told instead of what the client
/// said: the catalog's answer to its name or URI.
#[derive(Debug, Clone)]
pub struct CallTarget {
    /// The server that owns what is asked for.
    pub server: ServerName,
    /// The server's own name, or URI, of what is asked for; none where the
    /// method says it all.
    pub native: Option<NativeName>,
    /// The tool with its compiled schema, where a tool is called.
    pub tool: Option<Arc<Tool>>,
    /// What stands elsewhere in the params for the server than for the client.
    pub edits: Box<Edits>,
}

impl CallTarget {
    /// A call of this tool.
    pub fn tool(server: &ServerName, tool: &Arc<Tool>, edits: Box<Edits>) -> Self {
        let native = Some(tool.native.clone());
        Self { server: server.clone(), native, tool: Some(Arc::clone(tool)), edits }
    }

    /// The tool that is called, by its native name.
    pub(super) fn tool_name(&self) -> Option<&NativeName> {
        self.tool.as_ref().map(|tool| &tool.native)
    }

    pub(super) fn check_arguments(&self, params: &Params) -> Result<(), Failure> {
        let Some(tool) = &self.tool else { return Ok(()) };
        tool.arguments
            .check_outlined(params.arguments(), params.arguments_parts())
            .map_err(|violations| Failure::InvalidArguments { violations: violations.to_string() })
    }
}

/// Something that policy has admitted, and the server that it may go to.
#[derive(Debug)]
pub struct Permitted<T> {
    /// Boxed, because it goes through many hands.
    inner: Box<T>,
    target: CallTarget,
    slot: Option<InFlightSlot>,
}

impl<T> Permitted<T> {
    // Private to this module: nothing else can permit a call.
    pub(super) fn new(inner: Box<T>, target: CallTarget, slot: Option<InFlightSlot>) -> Self {
        Self { inner, target, slot }
    }

    /// What was permitted.
    pub fn get(&self) -> &T {
        &self.inner
    }

    /// Where it may go.
    pub fn target(&self) -> &CallTarget {
        &self.target
    }

    /// Takes the place among the calls in flight, to be held with the reply.
    pub fn take_slot(&mut self) -> Option<InFlightSlot> {
        self.slot.take()
    }
}
