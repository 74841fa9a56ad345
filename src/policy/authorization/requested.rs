//! What a call asks for, in the one form that rules know.

use std::sync::Arc;

use crate::catalog::{CatalogElement, ElementBasis, Kind, Tool};
use crate::policy::CallTarget;

/// The element that a call asks for.
#[derive(Debug, Clone)]
pub struct RequestedElement {
    /// Its kind.
    pub kind: Kind,
    /// Its public name or URI, as lists have it, however the client wrote it.
    pub public: Box<str>,
    /// Its server's own name or URI.
    pub native: Box<str>,
    /// The tool, for a tool.
    pub tool: Option<Arc<Tool>>,
    /// In which way the call is about it.
    pub basis: RequestBasis,
}

/// In which way a call is about an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBasis {
    /// It asks for the element itself.
    Itself,
    /// It reads the user interface of a tool that the caller sees (MCP Apps).
    Interface,
    /// It is about a task that the tool has created: the arguments were judged then.
    Task,
}

impl RequestedElement {
    /// The element of the catalog.
    pub(super) fn as_element<'a>(&'a self, target: &'a CallTarget) -> CatalogElement<'a> {
        CatalogElement {
            kind: self.kind,
            server: Some(&target.server),
            public: &self.public,
            native: &self.native,
            tool: self.tool.as_deref().map(Tool::as_listed),
            basis: match self.basis {
                RequestBasis::Interface => ElementBasis::Interface,
                RequestBasis::Itself | RequestBasis::Task => ElementBasis::Itself,
            },
        }
    }
}
