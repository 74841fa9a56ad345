//! The requested element of a call, in the one form that rules use.

use std::sync::Arc;

use crate::call::{Call, ServerName};
use crate::catalog::{CatalogElement, ElementBasis, Kind, Tool, ToolEntry};
use crate::config::ConditionCost;

use super::decision::AccessDecision;
use super::rights::CallerRights;
use super::rule::SettledRule;

/// The element that a call requests.
#[derive(Debug, Clone)]
pub struct RequestedElement {
    /// Its kind.
    pub kind: Kind,
    /// Its public name or URI as listed, regardless of the client's spelling.
    pub public: Box<str>,
    /// Its server's own name or URI.
    pub native: Box<str>,
    /// The tool, for a tool.
    pub tool: Option<Arc<Tool>>,
    /// The relation of the call to it.
    pub basis: RequestBasis,
    /// Decisions that its view holds for the caller's rights; `None` if they are made with the
    /// call.
    pub standing: Option<ElementStanding>,
}

/// Decisions of the rules about an element, for all callers with equal rights.
#[derive(Debug, Clone)]
pub struct ElementStanding {
    pub(super) rights: CallerRights,
    /// The decision before any call: [`AccessDecision::Depends`] if each call is decided by itself.
    pub(super) decision: AccessDecision,
    /// Results of the rules, as far as settled.
    pub(super) settled: Arc<[SettledRule]>,
    /// True if calls with at most [`SMALL_ARGUMENTS`] are cheap to decide.
    decides_small_calls: bool,
}

impl ElementStanding {
    fn of(rights: &CallerRights, element: &CatalogElement<'_>) -> Self {
        let decision = rights.decide_listing(element);
        let cost = rights.call_cost_below(SMALL_ARGUMENTS, element);
        let decides_small_calls = cost <= ConditionCost::CHEAP;
        let settled = rights.settle(element);
        Self { rights: rights.clone(), decision, settled, decides_small_calls }
    }

    /// Returns true if a call is known to be cheap to decide.
    pub(super) fn is_cheap(&self, call: &Call) -> bool {
        let size = call.params.arguments().map_or(0, <[u8]>::len);
        self.decides_small_calls && size <= SMALL_ARGUMENTS
    }
}

/// The element of a call or subscription, and its server.
#[derive(Debug, Clone, Copy)]
pub struct AccessTarget<'a> {
    /// The server.
    pub server: &'a ServerName,
    /// The requested element; `None` if the call is about no listed element.
    pub requested: Option<&'a Arc<RequestedElement>>,
}

/// Relations of a call to an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBasis {
    /// It requests the element itself.
    Itself,
    /// It reads the user interface of a tool that the caller sees (MCP Apps).
    Interface,
    /// It is about a task that the tool has created: the arguments were judged then.
    Task,
}

impl RequestedElement {
    /// Creates the requested element for a tool. A call may name it in another way than lists do.
    pub fn tool(entry: &ToolEntry) -> Self {
        let (public, native) = (entry.public.as_str().into(), entry.native().as_str().into());
        let (kind, basis) = (Kind::Tools, RequestBasis::Itself);
        let tool = Some(Arc::clone(&entry.tool));
        Self { kind, public, native, tool, basis, standing: None }
    }

    /// Creates the requested element for a tool, with the rules' decisions for callers with these
    /// rights.
    pub fn tool_for(rights: &CallerRights, entry: &ToolEntry) -> Self {
        let tool = Self::tool(entry);
        let element = CatalogElement { server: Some(&entry.server), ..tool.as_unowned_element() };
        let standing = Some(ElementStanding::of(rights, &element));
        Self { standing, ..tool }
    }

    /// Returns the element of the catalog.
    pub(super) fn as_element<'a>(&'a self, target: AccessTarget<'a>) -> CatalogElement<'a> {
        CatalogElement { server: Some(target.server), ..self.as_unowned_element() }
    }

    fn as_unowned_element(&self) -> CatalogElement<'_> {
        CatalogElement {
            kind: self.kind,
            server: None,
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

/// Limit of the bytes of small arguments: the cost of conditions about them is estimated once for
/// all calls instead of for each.
const SMALL_ARGUMENTS: usize = 1024;
