//! The destination of a call, as the checks of `policy` see it.

use std::sync::Arc;

use crate::call::{ArgumentsError, Edits, NativeName, Params, ServerName};
use crate::catalog::Tool;
use crate::era::state::StateId;

use super::authorization::{AccessTarget, RequestedElement};

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

    /// Returns the part of the target that rules decide about.
    pub fn access(&self) -> AccessTarget<'_> {
        AccessTarget { server: &self.server, requested: self.requested.as_ref() }
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

/// Result of a first look at the arguments of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ArgumentsSeen {
    /// They fit the schema, or there is none.
    Valid,
    /// They are large for their schema, and have to be checked.
    Large,
    /// They violate the schema.
    Invalid(ArgumentsError),
    /// They have to be checked, and completed or replaced as configured.
    Incomplete,
}

/// The user's consent to a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Confirmation {
    /// The user was not asked.
    #[default]
    Missing,
    /// The user has agreed to this very call, as a sealed state proves.
    Given(Box<StateId>),
}

impl Confirmation {
    /// Returns true if the user has agreed.
    pub fn is_given(&self) -> bool {
        matches!(self, Self::Given(_))
    }
}
