//! The way back: from a client's URI to its server and the native URI.

use std::sync::Arc;

use trunkline_protocol::call::{NativeName, ServerName};

use super::{CatalogUris, PublicReference};
use crate::elements::item::MAX_URI;
use crate::kind::Kind;
use crate::lists::merge::ElementOrigin;
use crate::selection::Selection;
use crate::selection::visibility::{CatalogElement, ElementBasis};
use crate::uri_forms::climbing::has_only_stable_characters;
use crate::uri_forms::normal_form::{UriSpellings, normal_template};

/// Returns true if a result with this native URI of a server was released to the client.
pub type ReleasedCheck<'a> = &'a dyn Fn(&ServerName, &str) -> bool;

impl CatalogUris {
    /// The server and native URI for a public URI. It need not be listed, unless the server is
    /// guarded: a template covers many URIs, and servers may have unlisted ones. No URI is longer
    /// than [`MAX_URI`]: it is compared with patterns and kept by subscriptions.
    pub fn find_origin(&self, public: &str) -> Option<ElementOrigin> {
        self.find_origin_or_released(public, &|_, _| false)
    }

    /// The same for a client to which URIs were released in results: for a guarded server, these
    /// count as listed.
    pub fn find_origin_or_released(
        &self,
        public: &str,
        is_released: ReleasedCheck<'_>,
    ) -> Option<ElementOrigin> {
        if public.len() > MAX_URI || !has_only_stable_characters(public) {
            return None;
        }
        if let Some(shown) = self.shown.get(public) {
            return Some(shown.origin.clone());
        }
        let (server, native) = self
            .split_prefix(public)
            .or_else(|| Some((self.find_owner(public)?, public)))
            .or_else(|| Some((self.find_owner_of_spelling(public)?, public)))?;
        let holder = self.servers.get(server)?;
        let Some(guard) = &holder.guard else {
            return self.is_admitted(server, public, native).then(|| origin(server, native));
        };
        let spellings = UriSpellings::of(native);
        if holder.held.covers_uri(&spellings) {
            return None;
        }
        let own = guard.resolve(native, &spellings, |native| is_released(server, native))?;
        let public = self.public_uri(server, own);
        if let Some(shown) = self.shown.get(&*public) {
            return Some(shown.origin.clone());
        }
        self.is_admitted(server, &public, own).then(|| origin(server, own))
    }

    /// A public URI's or template's server and native form, for completion.
    pub fn find_reference(
        &self,
        public: &str,
        is_released: ReleasedCheck<'_>,
    ) -> Option<PublicReference> {
        let shown = self.shown.get(public).or_else(|| self.find_spelled_template(public));
        shown.cloned().or_else(|| {
            let origin = self.find_origin_or_released(public, is_released)?;
            Some(PublicReference { origin, bound: Arc::default() })
        })
    }

    /// Returns true if rules deny resources of a server, or its definitions are held, so that its URIs are
    /// compared by their normal forms.
    #[inline]
    pub fn guards(&self, server: &ServerName) -> bool {
        self.servers.get(server).is_some_and(|holder| holder.guard.is_some())
    }

    /// A listed template of a guarded server with the same normal form.
    fn find_spelled_template(&self, public: &str) -> Option<&PublicReference> {
        let (server, native) =
            self.split_prefix(public).or_else(|| Some((self.only.as_ref()?, public)))?;
        let holder = self.servers.get(server).filter(|holder| holder.guard.is_some())?;
        let normal = normal_template(native)?;
        let same = |text: &str| normal_template(text).as_deref() == Some(&*normal);
        let found = holder.templates.iter().find(|one| same(&one.text))?;
        self.shown.get(&self.public_template(server, &found.text))
    }

    /// The only guarded server that lists a URI with the same normal form.
    fn find_owner_of_spelling(&self, public: &str) -> Option<&ServerName> {
        let mut guarded =
            self.servers.iter().filter_map(|(name, holder)| Some((name, holder.guard.as_ref()?)));
        guarded.clone().next()?;
        let spellings = UriSpellings::of(public);
        let (name, _) =
            guarded.find(|(_, guard)| guard.find_listed(public, &spellings).is_some())?;
        let is_alone = guarded.all(|(_, guard)| guard.find_listed(public, &spellings).is_none());
        is_alone.then_some(name)
    }

    /// Returns true if the profile, the rules and the bound variables let a URI pass that is not shown.
    fn is_admitted(&self, server: &ServerName, public: &str, native: &str) -> bool {
        let Some(holder) = self.servers.get(server) else { return false };
        let covering = |one: &Selection| {
            let mut covering = holder.templates.iter().filter(|held| held.confines(native));
            covering
                .any(|held| one.admits(Kind::Templates, &self.public_template(server, &held.text)))
        };
        let shown = holder.shown_interfaces.contains(native);
        holder.allows(native)
            && (shown || self.scope.admits_uri(server, public, covering))
            && self.scope.shows(&CatalogElement {
                kind: Kind::Resources,
                server: Some(server),
                // Rules know one form of each URI, for all spellings of clients.
                public: &self.public_uri(server, native),
                native,
                tool: None,
                basis: if shown { ElementBasis::Interface } else { ElementBasis::Itself },
            })
    }
}

fn origin(server: &ServerName, native: &str) -> ElementOrigin {
    ElementOrigin { server: server.clone(), native: NativeName::new(native) }
}
