//! The lists of resources and templates, as clients see them.

use std::sync::Arc;

use trunkline_protocol::call::ServerName;

use super::{CatalogUris, OwnedTemplate, PUBLIC_URI_PREFIX, ResourceServer, UI_PREFIX, UI_SCHEME};
use crate::elements::held::HeldName;
use crate::elements::item::CatalogItem;

/// A resource or template to be listed.
pub(crate) struct ShownResource<'a> {
    pub(crate) server: &'a ServerName,
    pub(crate) item: Arc<CatalogItem>,
    /// Replaces the name of its key field.
    pub(crate) field: Option<&'static str>,
    pub(crate) public: String,
}

impl CatalogUris {
    /// Returns true if clients see a resource or template with this public URI in a list.
    #[inline]
    pub fn is_listed(&self, public: &str) -> bool {
        self.shown.contains_key(public)
    }

    /// Returns true if clients see a resource or template of a server in a list.
    pub(crate) fn lists_any_of(&self, server: &ServerName) -> bool {
        self.shown.values().any(|shown| shown.origin.server == *server)
    }

    /// Returns true if this is the user interface of a tool that clients see.
    #[inline]
    pub fn is_shown_interface(&self, server: &ServerName, native: &str) -> bool {
        self.servers.get(server).is_some_and(|holder| holder.shown_interfaces.contains(native))
    }
}

impl ResourceServer {
    /// The templates that other servers' URIs are distinguished from: those that clients see, or
    /// saw before they were held.
    pub(super) fn named_templates(&self) -> impl Iterator<Item = &OwnedTemplate> {
        self.templates.iter().filter(|one| one.hold != Some(HeldName::Unclaimed))
    }
}

/// The public form of a native URI after its server's prefix.
pub(crate) fn prefix_uri(server: &ServerName, native: &str) -> String {
    let prefix = if native.starts_with(UI_SCHEME) { UI_PREFIX } else { PUBLIC_URI_PREFIX };
    format!("{prefix}{server}/{native}")
}
