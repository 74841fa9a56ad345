//! A view: the catalog as clients with one key see it, with its lists prepared.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::call::{Abilities, Endpoint, Named, Principal, PublicName, ServerName};
use crate::catalog::{ByKind, CacheScope, Catalog, Digest, Kind, Scope, ServerList, ToolEntry};
use crate::mcp::Era;
use crate::policy::{CallerRights, RequestedElement};
use crate::telemetry::metrics::ToolMetrics;

use super::PreparedListing;
use super::discovery::Discovery;

/// The key of a view. Clients with equal keys see the same catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ViewKey {
    /// The endpoint of the client.
    pub endpoint: Endpoint,
    /// The client's abilities, if it has any.
    pub abilities: Option<Abilities>,
    /// The era of a Legacy client, where servers have other lists for Legacy
    /// clients than for Modern ones.
    pub era: Option<Era>,
    /// The client, where servers may have other lists for its own account.
    pub account: Option<Principal>,
    /// What the client may see, which a snapshot fills in; `None` if there are no rules.
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
    pub(super) lists: Named<ServerName, Arc<ServerList>>,
    /// The raw `serverInfo` that results of a server have instead of their own, where it is not the
    /// server's choice.
    pub(super) infos: HashMap<ServerName, Bytes>,
    /// How clients come to the tools; `None` if all are listed.
    pub discovery: Option<Discovery>,
    /// Whether a large result that a client has already is answered with a reference.
    pub refers_to_repeats: bool,
    /// What calls of the tools need besides the catalog.
    pub(super) tools: Named<PublicName, ViewedTool>,
    /// The rights of those who see the view; `None` if there are no rules.
    pub(super) rights: Option<CallerRights>,
    /// The selection that the view shows.
    pub(super) scope: Scope,
    /// Who may cache what the view shows.
    pub(super) audience: CacheScope,
}

/// What calls of a tool need besides the catalog.
#[derive(Debug)]
pub(super) struct ViewedTool {
    /// Its metric handles.
    pub(super) metrics: Arc<ToolMetrics>,
    /// The tool as rules know it, from its first call on.
    requested: OnceLock<Arc<RequestedElement>>,
}

impl ViewedTool {
    pub(super) fn new(metrics: Arc<ToolMetrics>) -> Self {
        Self { metrics, requested: OnceLock::new() }
    }

    /// The tool as rules know it, with what they say of it.
    pub(super) fn requested(
        &self,
        rights: &CallerRights,
        entry: &ToolEntry,
    ) -> &Arc<RequestedElement> {
        self.requested.get_or_init(|| Arc::new(RequestedElement::tool_for(rights, entry)))
    }
}

/// The digests of a view's lists, grouped as list-changed notifications are:
/// resources and their templates together.
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
    /// The list of a server, as this view was built from it.
    pub fn list(&self, server: &ServerName) -> Option<&Arc<ServerList>> {
        self.lists.get(server)
    }

    /// The raw `serverInfo` that results of a server have instead of their own; `None` if they may have
    /// any.
    pub fn info_instead(&self, server: &ServerName) -> Option<&Bytes> {
        if self.infos.is_empty() { None } else { self.infos.get(server) }
    }

    /// Who may cache what the view shows, as far as the gateway decides it.
    pub fn audience(&self) -> CacheScope {
        self.audience
    }

    /// The selection that the view shows.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The digests of the view's lists.
    pub fn digests(&self) -> Digests {
        let of = |kind| *self.catalog.list(kind).digest();
        Digests {
            tools: of(Kind::Tools),
            prompts: of(Kind::Prompts),
            resources: [of(Kind::Resources), of(Kind::Templates)],
        }
    }
}
