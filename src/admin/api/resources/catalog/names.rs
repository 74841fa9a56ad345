//! Names in the lists of catalogs, and the callers who see them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;

use crate::call::{Context, NativeName, Principal, ProfileName, ServerName};
use crate::catalog::{Catalog, Kind};
use crate::clock;
use crate::snapshot::{Snapshot, View, ViewKey};

/// The names and URIs of a catalog, prepared for look-ups.
pub(super) struct CatalogNames<'a> {
    catalog: &'a Catalog,
    listed: ListedNameSet,
    tools: HashMap<(&'a ServerName, &'a NativeName), &'a str>,
    prompts: HashMap<(&'a ServerName, &'a NativeName), &'a str>,
}

impl<'a> CatalogNames<'a> {
    pub(super) fn of(catalog: &'a Catalog) -> Self {
        let listed = listed_names(catalog);
        let tools = catalog.entries();
        let tools = tools.map(|one| ((&one.server, one.native()), one.public.as_str()));
        let prompts = listed.iter().filter(|(kind, _)| *kind == Kind::Prompts);
        let prompts = prompts.filter_map(|(_, name)| {
            let (public, origin) = catalog.prompt(name)?;
            Some(((&origin.server, &origin.native), public.as_str()))
        });
        Self { catalog, tools: tools.collect(), prompts: prompts.collect(), listed }
    }

    /// Returns the name or URI for clients; `None` if the catalog does not list the element.
    pub(super) fn find(
        &self,
        server: &ServerName,
        kind: Kind,
        native: &NativeName,
    ) -> Option<String> {
        match kind {
            Kind::Tools => self.tools.get(&(server, native)).map(|name| (*name).to_owned()),
            Kind::Prompts => self.prompts.get(&(server, native)).map(|name| (*name).to_owned()),
            Kind::Resources | Kind::Templates | Kind::Skills => {
                let uri = self.catalog.uris().public_uri(server, native.as_str()).into_owned();
                let element = (kind, uri);
                self.listed.contains(&element).then_some(element.1)
            }
        }
    }
}

/// The names and URIs in the lists of a view.
pub(super) type ListedNameSet = HashSet<(Kind, String)>;

/// Returns the callers of the configuration, with the names of each view that they have. Callers
/// with the same rights share their views.
pub(super) fn caller_views(snapshot: &Snapshot) -> Vec<(String, Vec<Arc<ListedNameSet>>)> {
    let anonymous = (!snapshot.config.authenticates()).then_some(Principal::Anonymous);
    let clients = snapshot.config.clients.iter();
    let clients = clients.map(|client| Principal::Client(Arc::clone(&client.name)));
    let configured = snapshot.config.profiles.iter().map(|profile| profile.name.as_str());
    let profiles: BTreeSet<_> = std::iter::once(ProfileName::DEFAULT).chain(configured).collect();
    let mut known: Vec<(Arc<View>, Arc<ListedNameSet>)> = Vec::new();
    let mut names_of = |view: Arc<View>| {
        if let Some((_, names)) = known.iter().find(|(other, _)| Arc::ptr_eq(other, &view)) {
            return Arc::clone(names);
        }
        let names = Arc::new(listed_names(&view.catalog));
        known.push((view, Arc::clone(&names)));
        names
    };
    let callers = anonymous.into_iter().chain(clients).take(MAX_CATALOG_CALLERS);
    let views = callers.map(|caller| {
        let access = snapshot.identity.client_access(caller.as_str(), clock::unix_now());
        let grants = access.and_then(|access| access.grants);
        let views = profiles.iter().filter_map(|profile| {
            let endpoint = snapshot.endpoint(&caller, profile, None).ok()?;
            let context = Context::assumed(caller.clone(), grants.clone(), endpoint.clone());
            let key = ViewKey { endpoint, ..ViewKey::default() };
            Some(names_of(snapshot.view(&key, &context)))
        });
        let views = views.collect();
        let name = match &caller {
            Principal::Anonymous => "anonymous".to_owned(),
            caller => caller.as_str().to_owned(),
        };
        (name, views)
    });
    views.collect()
}

/// Limit of the callers whose views are compared.
pub(super) const MAX_CATALOG_CALLERS: usize = 200;

/// The names of an element in a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedNames {
    name: Option<String>,
    uri: Option<String>,
    uri_template: Option<String>,
}

/// Returns the names and URIs in the lists of a catalog.
pub(super) fn listed_names(catalog: &Catalog) -> ListedNameSet {
    let all = [Kind::Tools, Kind::Prompts, Kind::Resources, Kind::Templates].into_iter();
    let names = all.flat_map(|kind| {
        let named = catalog.list(kind).items();
        named.filter_map(move |raw| Some((kind, listed_name_of(kind, &raw)?)))
    });
    names.collect()
}

/// Returns the name or URI of an element in a list.
pub(super) fn listed_name_of(kind: Kind, raw: &Bytes) -> Option<String> {
    let names: ListedNames = serde_json::from_slice(raw).ok()?;
    match kind {
        Kind::Resources => names.uri,
        Kind::Templates => names.uri_template,
        Kind::Tools | Kind::Prompts | Kind::Skills => names.name,
    }
}
