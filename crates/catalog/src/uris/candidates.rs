//! The listed resources and templates that clients see, and their URIs.

use std::borrow::Cow;
use std::sync::Arc;

use trunkline_protocol::call::{NativeName, ServerName};

use super::guarded::GuardedUris;
use super::{CatalogUris, OwnedTemplate, PublicReference, ResourceServer, ShownResource};
use crate::elements::held::HeldName;
use crate::elements::item::CatalogItem;
use crate::kind::Kind;
use crate::lists::merge::ElementOrigin;
use crate::selection::visibility::{CatalogElement, ElementBasis};
use crate::uri_forms::climbing::has_dot_segment;

/// A resource or template without its public form.
pub(super) struct ResourceCandidate<'a> {
    pub(super) server: &'a ServerName,
    pub(super) item: &'a Arc<CatalogItem>,
    pub(super) field: Option<&'static str>,
    /// Its URI or template, with bound variables filled in.
    pub(super) native: Cow<'a, str>,
    /// Its native template.
    pub(super) template: &'a NativeName,
    pub(super) bound: Arc<[(String, String)]>,
    /// The state of its URI; `None` if it is not held.
    pub(super) hold: Option<HeldName>,
}

impl CatalogUris {
    /// Assigns a candidate its public form, if the scope shows it.
    pub(super) fn publish_candidate<'a>(
        &mut self,
        kind: Kind,
        one: ResourceCandidate<'a>,
    ) -> Option<ShownResource<'a>> {
        let public = self.public_form(kind, &one);
        let is_interface = self.basis_of(kind, &one) == ElementBasis::Interface;
        let is_selected = is_interface || self.scope.admits(one.server, kind, &public);
        if !is_selected || self.is_barred(kind, &one, &public) {
            return None;
        }
        // Completion uses the server's own template, a read uses the bound URI.
        let native = match kind {
            Kind::Templates => one.template.clone(),
            _ => NativeName::new(&one.native),
        };
        let origin = ElementOrigin { server: one.server.clone(), native };
        self.shown.insert(public.clone(), PublicReference { origin, bound: one.bound });
        Some(ShownResource {
            server: one.server,
            item: Arc::clone(one.item),
            field: one.field,
            public,
        })
    }

    /// Passes to guarded servers the elements that a rule denies or a hold concerns. Two URIs with
    /// the same normal form are barred together.
    pub(super) fn bar_candidates(
        &mut self,
        templates: &[ResourceCandidate<'_>],
        resources: &[ResourceCandidate<'_>],
    ) {
        for (kind, candidates) in [(Kind::Templates, templates), (Kind::Resources, resources)] {
            for one in candidates {
                // No rule is needed to hide one with dot segments, and it does not bar another.
                let is_guarded =
                    self.guard_of(one.server).is_some() && !has_dot_segment(&one.native);
                if !is_guarded || !self.is_barred(kind, one, &self.public_form(kind, one)) {
                    continue;
                }
                let holder = self.servers.get_mut(one.server);
                match (holder.and_then(|holder| holder.guard.as_mut()), kind) {
                    (Some(guard), Kind::Templates) => guard.bar_template(&one.native),
                    (Some(guard), _) => guard.bar_uri(&one.native),
                    (None, _) => {}
                }
            }
        }
    }

    /// Passes to guarded servers the templates that clients see.
    pub(super) fn show_templates_to_guards(&mut self) {
        let of_server = |(name, holder): (&ServerName, &ResourceServer)| {
            holder.guard.as_ref()?;
            let is_shown = |one: &&OwnedTemplate| {
                self.shown.contains_key(&self.public_template(name, &one.text))
                    || self.shown.contains_key(&*self.public_uri(name, &one.text))
            };
            let texts = holder.templates.iter().filter(is_shown).map(|one| one.text.clone());
            Some((name.clone(), texts.collect::<Vec<_>>()))
        };
        let shown: Vec<_> = self.servers.iter().filter_map(of_server).collect();
        for (name, texts) in shown {
            if let Some(guard) = self.servers.get_mut(&name).and_then(|it| it.guard.as_mut()) {
                guard.show_templates(&texts);
            }
        }
    }

    /// Returns true if a rule or a hold hides a candidate, or one that can be the same.
    fn is_barred(&self, kind: Kind, one: &ResourceCandidate<'_>, public: &str) -> bool {
        let shows = || {
            self.scope.shows(&CatalogElement {
                kind,
                server: Some(one.server),
                public,
                native: &one.native,
                tool: None,
                basis: self.basis_of(kind, one),
            })
        };
        let is_like_barred = |guard: &GuardedUris| match kind {
            Kind::Templates => guard.bars_template(&one.native),
            _ => guard.bars_listed(&one.native),
        };
        one.hold.is_some() || self.guard_of(one.server).is_some_and(is_like_barred) || !shows()
    }

    fn basis_of(&self, kind: Kind, one: &ResourceCandidate<'_>) -> ElementBasis {
        let holder = self.servers.get(one.server).filter(|_| kind == Kind::Resources);
        if holder.is_some_and(|holder| holder.shown_interfaces.contains(&*one.native)) {
            ElementBasis::Interface
        } else {
            ElementBasis::Itself
        }
    }

    fn public_form(&self, kind: Kind, one: &ResourceCandidate<'_>) -> String {
        match kind {
            Kind::Templates => self.public_template(one.server, &one.native),
            _ => self.public_uri(one.server, &one.native).into_owned(),
        }
    }

    fn guard_of(&self, server: &ServerName) -> Option<&GuardedUris> {
        self.servers.get(server)?.guard.as_ref()
    }
}
