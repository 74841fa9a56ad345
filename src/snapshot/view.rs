//! A view: the catalog as one kind of client sees it, with its lists prepared.

use std::sync::Arc;

use crate::call::{Abilities, Endpoint, Named, PublicName, ServerName};
use crate::catalog::{ByKind, Catalog, Digest, Kind, Scope, ServerList};
use crate::telemetry::metrics::ToolMetrics;

use super::PreparedListing;

/// What decides which view a client has. Clients with equal keys see the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ViewKey {
    /// Where it came in.
    pub endpoint: Endpoint,
    /// What servers may ask of it, where some list depends on that.
    pub abilities: Option<Abilities>,
}

/// A catalog and what was prepared of it. It never changes.
#[derive(Debug)]
pub struct View {
    /// What can be used, and by which names.
    pub catalog: Catalog,
    /// The lists, ready to be sent.
    pub listings: ByKind<PreparedListing>,
    /// The lists that it is made of; none for a server that has never listed.
    pub(super) lists: Named<ServerName, Arc<ServerList>>,
    /// The metric handles of the tools.
    pub(super) tools: Named<PublicName, Arc<ToolMetrics>>,
    /// What of all there is it shows.
    pub(super) scope: Scope,
}

/// The digests of what a view shows, as its change notices tell them apart: a
/// change of resources and one of their templates are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digests {
    /// Of the tools.
    pub tools: Digest,
    /// Of the prompts.
    pub prompts: Digest,
    /// Of the resources and of their templates.
    pub resources: [Digest; 2],
}

impl View {
    /// What a server listed, as this view has it.
    pub fn list(&self, server: &ServerName) -> Option<&Arc<ServerList>> {
        self.lists.get(server)
    }

    /// What of all there is it shows.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// What tells it from another view.
    pub fn digests(&self) -> Digests {
        let of = |kind| *self.catalog.list(kind).digest();
        Digests {
            tools: of(Kind::Tools),
            prompts: of(Kind::Prompts),
            resources: [of(Kind::Resources), of(Kind::Templates)],
        }
    }
}
