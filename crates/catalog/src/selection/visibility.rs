//! A caller's rights to see elements of the catalog, within the selection of its endpoint.

use std::fmt;

use trunkline_protocol::call::ServerName;

use crate::elements::tool::Tool;
use crate::kind::Kind;

/// Decides which elements one caller sees. `policy` implements it; the catalog calls it for each
/// element that the endpoint shows, and for each URI that is not listed.
pub trait ElementFilter: fmt::Debug + Send + Sync {
    /// Returns true if the caller may see this element.
    fn shows(&self, element: &CatalogElement<'_>) -> bool;

    /// Returns true if requests that name no element may reach this server.
    fn shows_unlisted(&self, server: &ServerName) -> bool;

    /// Returns true if the caller may learn of this server while its elements are unknown.
    fn may_hear_of(&self, server: &ServerName) -> bool;

    /// Returns true if the caller is denied some resource of this server, as far as is known before
    /// one is requested.
    fn denies_resources(&self, server: &ServerName) -> bool;
}

/// One element of the catalog, as rights see it.
#[derive(Debug, Clone, Copy)]
pub struct CatalogElement<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its server; `None` for a tool of the gateway itself.
    pub server: Option<&'a ServerName>,
    /// Its public name or URI, in the form that lists have.
    pub public: &'a str,
    /// Its server's own name or URI.
    pub native: &'a str,
    /// The tool as its server listed it, for a tool.
    pub tool: Option<&'a Tool>,
    /// The reason for its place in the catalog.
    pub basis: ElementBasis,
}

impl<'a> CatalogElement<'a> {
    /// A tool of the gateway itself.
    pub fn own_tool(name: &'a str) -> Self {
        Self {
            kind: Kind::Tools,
            server: None,
            public: name,
            native: name,
            tool: None,
            basis: ElementBasis::Itself,
        }
    }
}

/// The reason for an element's place in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementBasis {
    /// It is listed, or requested by its name or URI.
    Itself,
    /// A tool that the caller sees has it as its user interface (MCP Apps).
    Interface,
}
