//! A view: the catalog as clients with one key see it, with its lists prepared.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::call::{Abilities, Endpoint, Named, Principal, PublicName, ServerName};
use crate::catalog::{ByKind, CacheScope, Catalog, Digest, Kind, Scope, ServerList, ToolEntry};
use crate::mcp::Era;
use crate::policy::{CallerRights, RequestedElement};
use crate::telemetry::metrics::ToolMetrics;

use super::discovery::Discovery;
use crate::snapshot::PreparedListing;

/// The key of a view. Clients with equal keys see the same catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ViewKey {
    /// The endpoint of the client.
    pub endpoint: Endpoint,
    /// The client's abilities, if it has any.
    pub abilities: Option<Abilities>,
    /// The era of a Legacy client, if servers have other lists for Legacy clients than for Modern
    /// ones.
    pub era: Option<Era>,
    /// The client, if servers may have other lists for its own account.
    pub account: Option<Principal>,
    /// The client's rights, which a snapshot fills in; `None` if there are no rules.
    pub rights: Option<CallerRights>,
}

/// A catalog and its prepared lists. Immutable.
#[derive(Debug)]
pub struct View {
    /// The catalog: names, URIs and their origins.
    pub catalog: Catalog,
    /// The prepared results of list requests.
    pub listings: ByKind<PreparedListing>,
    /// The servers' lists that the view was built from; servers that have never
    /// listed are missing.
    pub(crate) lists: Named<ServerName, Arc<ServerList>>,
    /// The raw `serverInfo` that replaces the one in a server's results, where the server's own is
    /// not used.
    pub(crate) infos: HashMap<ServerName, Bytes>,
    /// Discovery of the tools; `None` if all are listed.
    pub discovery: Option<Discovery>,
    /// True if a large result that a client already has is answered with a reference.
    pub refers_to_repeats: bool,
    /// Data for calls of the tools besides the catalog.
    pub(crate) tools: Named<PublicName, ViewedTool>,
    /// The rights of the view's clients; `None` if there are no rules.
    pub(crate) rights: Option<CallerRights>,
    /// The selection that the view shows.
    pub(crate) scope: Scope,
    /// Cache scope of the view's lists.
    pub(crate) audience: CacheScope,
}

/// Data for calls of a tool besides the catalog.
#[derive(Debug)]
pub(crate) struct ViewedTool {
    /// Its metric handles.
    pub(crate) metrics: Arc<ToolMetrics>,
    /// The tool in the form that rules use, from its first call on.
    requested: OnceLock<Arc<RequestedElement>>,
}

impl ViewedTool {
    pub(crate) fn new(metrics: Arc<ToolMetrics>) -> Self {
        Self { metrics, requested: OnceLock::new() }
    }

    /// Returns the tool in the form that rules use, with their decisions about it.
    pub(crate) fn requested(
        &self,
        rights: &CallerRights,
        entry: &ToolEntry,
    ) -> &Arc<RequestedElement> {
        self.requested.get_or_init(|| Arc::new(RequestedElement::tool_for(rights, entry)))
    }
}

/// Digests of a view's lists, grouped like list-changed notifications: resources and their
/// templates together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digests {
    /// The tools.
    pub tools: Digest,
    /// The prompts.
    pub prompts: Digest,
    /// The resources and their templates.
    pub resources: [Digest; 2],
}

impl View {
    /// Returns the list of a server that this view was built from.
    pub fn list(&self, server: &ServerName) -> Option<&Arc<ServerList>> {
        self.lists.get(server)
    }

    /// Returns the raw `serverInfo` that replaces the one in a server's results; `None` if results
    /// may have any.
    pub fn info_instead(&self, server: &ServerName) -> Option<&Bytes> {
        if self.infos.is_empty() { None } else { self.infos.get(server) }
    }

    /// Returns the cache scope of the view's lists, as far as the gateway decides it.
    pub fn audience(&self) -> CacheScope {
        self.audience
    }

    /// Returns the selection that the view shows.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the digests of the view's lists.
    pub fn digests(&self) -> Digests {
        let of = |kind| *self.catalog.list(kind).digest();
        Digests {
            tools: of(Kind::Tools),
            prompts: of(Kind::Prompts),
            resources: [of(Kind::Resources), of(Kind::Templates)],
        }
    }
}
