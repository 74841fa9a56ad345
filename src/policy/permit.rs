//! The proof that policy has admitted a call.

use std::sync::Arc;

use crate::call::{Edits, InFlightSlot, NativeName, Params, ReplyWatch, ServerName};
use crate::catalog::Tool;

use super::arguments::ArgumentsSeen;
use super::authorization::RequestedElement;
use super::breaker::BreakerPass;
use super::confirmation::Confirmation;

/// The destination of a call, and the edits of its params for the server: the
/// catalog's answer to the call's name or URI.
#[derive(Debug, Clone)]
pub struct CallTarget {
    /// The server that owns the subject.
    pub server: ServerName,
    /// The server's own name, or URI, of the subject; none if the method has no
    /// subject.
    pub native: Option<NativeName>,
    /// The tool with its compiled schema, for a tool call.
    pub tool: Option<Arc<Tool>>,
    /// The requested element, as rules use it; set if there are rules. A call without it is about
    /// no listed element.
    pub requested: Option<Arc<RequestedElement>>,
    /// The user's consent to the call.
    pub confirmation: Confirmation,
    /// The edits that turn the client's params into the server's.
    pub edits: Box<Edits>,
}

impl CallTarget {
    /// Creates the target of a call of this tool.
    pub fn tool(server: &ServerName, tool: &Arc<Tool>, edits: Box<Edits>) -> Self {
        let native = Some(tool.native.clone());
        let (server, tool) = (server.clone(), Some(Arc::clone(tool)));
        let confirmation = Confirmation::default();
        Self { server, native, tool, requested: None, confirmation, edits }
    }

    /// Returns the native name of the tool to call.
    pub(super) fn tool_name(&self) -> Option<&NativeName> {
        self.tool.as_ref().map(|tool| &tool.native)
    }

    /// Checks the arguments of a call. For arguments that are large for their schema, it checks the
    /// outline alone.
    pub(super) fn see_arguments(&self, params: &Params) -> ArgumentsSeen {
        let Some(tool) = &self.tool else { return ArgumentsSeen::Valid };
        if tool.transform.as_ref().is_some_and(|it| it.settings.changes_arguments()) {
            return ArgumentsSeen::Incomplete;
        }
        let (arguments, parts) = (params.arguments(), params.arguments_parts());
        if let Some(raw) = arguments.filter(|raw| raw.len() > tool.arguments.cheap_length()) {
            let admitted = parts.is_some_and(|parts| tool.arguments.admits_at_sight(raw, parts));
            return if admitted { ArgumentsSeen::Valid } else { ArgumentsSeen::Large };
        }
        match tool.arguments.check_outlined(arguments, parts) {
            Ok(()) => ArgumentsSeen::Valid,
            Err(violations) => ArgumentsSeen::Invalid(violations),
        }
    }
}

/// A call or subscription that policy has admitted, and its destination.
#[derive(Debug)]
pub struct Permitted<T> {
    /// Boxed, because it is moved often.
    inner: Box<T>,
    target: CallTarget,
    slot: Option<InFlightSlot>,
    /// Reports the end of the call to the server's circuit breaker; `None` without one.
    pass: Option<Box<BreakerPass>>,
}

impl<T> Permitted<T> {
    // Private to this module, so that no other code can permit a call.
    pub(super) fn new(inner: Box<T>, target: CallTarget, slot: Option<InFlightSlot>) -> Self {
        Self { inner, target, slot, pass: None }
    }

    pub(super) fn watched_by(self, pass: Option<BreakerPass>) -> Self {
        Self { pass: pass.map(Box::new), ..self }
    }

    /// Returns the permitted call or subscription.
    pub fn get(&self) -> &T {
        &self.inner
    }

    /// Returns the destination.
    pub fn target(&self) -> &CallTarget {
        &self.target
    }

    /// Takes the watch that records the end of the call, if there is one.
    pub fn take_watch(&mut self) -> Option<Box<dyn ReplyWatch>> {
        self.pass.take().map(|pass| pass as Box<dyn ReplyWatch>)
    }

    /// Takes the slot among the calls in flight, to be held with the reply.
    pub fn take_slot(&mut self) -> Option<InFlightSlot> {
        self.slot.take()
    }
}
