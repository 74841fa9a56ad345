//! The catalog: the lists of all servers merged into one, with unique names.
//!
//! It answers three questions. Which elements may a client use ([`Catalog::find_tool`],
//! [`Catalog::prompt`], [`Catalog::uris`]: hidden tools are not in the catalog, so they cannot be
//! called)? Which bytes does a list response contain ([`Catalog::list`]: prepared bytes, with every
//! field as the server sent it, except for the public name, URI or description, and texts that name
//! hidden tools)? And has a list changed ([`CatalogList::digest`])?
//!
//! Each tool is validated and compiled once ([`Tool`]), and so is each prompt, resource and
//! template ([`CatalogItem`]); an invalid one is left out. The result of the merge depends only on
//! the configuration and the lists, never on timing or on the order in which servers answered.
//!
//! `policy` decides if *this* principal may call a tool; `upstream` fetches lists. Everything in
//! this crate takes values and returns values: it does no input or output and uses no clock. The
//! one source of randomness is the nonce of a sealed cursor.

#![warn(unreachable_pub)]

mod signatures;
mod views;
mod uris;
mod lists;
mod selection;
mod elements;
mod repair;
mod scan;
mod kind;
mod uri_forms;
mod param_headers;
mod schema;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

pub use trunkline_search::{
    AnalysedElement, Analyser, DocumentId, MAX_DIMENSIONS, MAX_DOCUMENTS, MAX_EMBEDDED_TEXT,
    MAX_GROUPS, MAX_MEMBERS, MAX_QUERY_BYTES, MAX_QUERY_WORDS, QuestionMeaning, SearchDocument,
    SearchHit, SearchIndex, SearchQuery, SynonymGroups, TextVector, embedded_question,
    embedded_text, read_word_lists,
};

use trunkline_config::OwnToolConfig;
use trunkline_core::text::clip;
use trunkline_protocol::call::{Named, NativeName, PublicName, ServerName};

pub use elements::definition::{DefinitionDigest, canonical_definition};
pub use elements::held::{HeldDefinitions, HeldName};
pub use elements::item::{CatalogItem, FieldKind, ItemError, MAX_URI};
pub use elements::offers::{ServerOffers, ServerWords, TaskForm};
pub use elements::tool::{HeaderRules, SchemaExemption, TaskSupport, Tool, ToolHints};
pub use elements::tool_transform::{ResultTransform, ToolTransform, TransformFault};
pub use kind::{ByKind, DefinitionKind, Kind};
pub use lists::cursor::SealedCursors;
pub use lists::list::{CatalogList, Digest, ListPage, ListPosition, listed_name};
pub use lists::merge::{ElementOrigin, MergeFault, MergeSource};
pub use lists::naming::{MAX_PUBLIC_NAME, Naming};
pub use lists::rules::{ServerRules, ToolChange};
pub use lists::server_list::{
    CacheScope, Freshness, ListRules, ListedDefinition, RejectedElement, RepairedElement,
    ServerList,
};
pub use param_headers::{
    AnnotationError, ParamHeader, ParamKind, find_param_headers, headers_for, verify_headers,
};
use repair::legacy_tool;
pub use scan::{ConfusableNames, ScanFindings, ScanRule};
pub use schema::{
    ArgumentEditFault, ArgumentSchema, CoercedArguments, MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH,
    SchemaError, is_usable_pattern,
};
pub use selection::visibility::{CatalogElement, ElementBasis, ElementFilter};
pub use selection::{Scope, Selection, are_about_server};
pub use signatures::code_api::CodeFunction;
pub use signatures::signature::ToolSignature;
pub use uri_forms::{
    BoundTemplate, ResultShape, UriSpellings, UriTemplate, fold_authority, hide_children,
    normal_form, rewrite_uris,
};
pub use uris::{
    CatalogUris, ElementSpellings, PublicReference, ReleasedCheck, UriMode, UriPattern,
    split_public,
};
pub use views::hidden_names::HiddenNames;
use views::hidden_tools::HiddenTools;
pub use views::identities::ElementIdentities;
pub use views::meta_tools::{
    ALWAYS_LOAD, DEFAULT_FOUND_TOOLS, MAX_FOUND, MetaListRules, MetaListing, meta_tool,
};
use views::own_tools::compile_own_tools;

use uris::VisibleResources;

/// One tool in the catalog.
#[derive(Debug)]
pub struct ToolEntry {
    /// The name that clients call it by.
    pub public: PublicName,
    /// The server that has it.
    pub server: ServerName,
    /// The tool as the server listed it, or as the configuration changes it.
    pub tool: Arc<Tool>,
    /// True if lists show other texts than those of its server: the configuration describes it, or
    /// some texts name tools that the caller may not use.
    pub is_redescribed: bool,
    /// The changes of its results; `None` if there are none.
    pub results: Option<Arc<ResultTransform>>,
}

impl ToolEntry {
    /// The name that the server calls it by.
    #[inline]
    pub fn native(&self) -> &NativeName {
        &self.tool.native
    }
}

/// The rules of building the catalog.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The scheme of public names of tools and prompts.
    pub naming: Naming,
    /// The URIs that clients see.
    pub uris: UriMode,
    /// The tools of the gateway itself.
    pub own_tools: Vec<OwnToolConfig>,
    /// True if clients have the meta-tools.
    pub has_meta_tools: bool,
}

/// Everything that all servers list, immutable.
#[derive(Debug)]
pub struct Catalog {
    entries: Vec<ToolEntry>,
    by_name: Named<PublicName, usize>,
    /// The tools of servers with user interfaces (MCP Apps), by native names that are unique among
    /// them.
    of_apps: Named<NativeName, usize>,
    /// The tools of the gateway itself, before all others in lists.
    own: Vec<Arc<Tool>>,
    prompts: Named<PublicName, ElementOrigin>,
    uris: CatalogUris,
    lists: ByKind<CatalogList>,
    /// The functions of code, named when they are first asked for.
    functions: OnceLock<Vec<CodeFunction>>,
}

impl Catalog {
    /// Merges the servers' lists and keeps the elements in scope; `sources` are the configured
    /// servers in file order. Names are assigned among all of them, so that a smaller scope shows
    /// fewer tools, but under the same names.
    pub fn merge(
        rules: &Rules,
        sources: &[MergeSource<'_>],
        scope: &Scope,
    ) -> (Self, Vec<MergeFault>) {
        let mut warnings = Vec::new();
        let own = compile_own_tools(&rules.own_tools, scope, &mut warnings);
        let mut tools = lists::merge::name_tools(rules, sources, &mut warnings);
        tools.retain(|one| one.is_shown(Kind::Tools, Some(&one.item), scope));
        let held_tools: Vec<_> = tools.extract_if(.., |one| one.held).collect();
        let hidden = scope.has_rights().then(|| HiddenTools::collect(sources, &tools));
        let hidden = hidden.unwrap_or_default();
        hidden.leave_out_of_tools(&mut tools);
        let mut prompts = lists::merge::name_prompts(&rules.naming, sources, &mut warnings);
        prompts.retain(|one| !one.held && one.is_shown(Kind::Prompts, None, scope));
        for one in &mut prompts {
            hidden.leave_out_of_item(Kind::Prompts, one.server, &mut one.item);
        }
        let interfaces =
            tools.iter().flat_map(|one| one.item.interface().map(|uri| (one.server, uri)));
        let visible = VisibleResources { scope, interfaces: interfaces.collect() };
        let (uris, resources, templates) =
            CatalogUris::build_from(rules.uris, sources, &visible, &mut warnings);
        let fresh = ByKind::from_fn(|kind| strictest_freshness(sources, kind));

        let capacity = tools.iter().map(|one| one.item.shown().len() + MAX_PUBLIC_NAME + 1).sum();
        let write_own = own.iter().map(|tool| -> ElementWriter<'_> {
            Box::new(|out: &mut Vec<u8>| out.extend_from_slice(tool.shown()))
        });
        let write = tools.iter().map(|one| -> ElementWriter<'_> {
            let public_uri = |uri| uris.public_uri(one.server, uri);
            Box::new(move |out: &mut Vec<u8>| {
                let bytes = one.other_bytes.as_ref().unwrap_or(one.item.bytes());
                bytes.splice(&one.name, one.description, public_uri, one.offers, out);
            })
        });
        let write = write_own.chain(write);
        let mut tool_list = CatalogList::write_list(Kind::Tools, fresh.tools, capacity, write);
        let mut all_tools = own.iter().chain(tools.iter().map(|one| &one.item));
        if all_tools.any(|tool| tool.has_legacy_form()) {
            tool_list = tool_list.with_legacy_form(Kind::Tools, legacy_tool);
        }
        let write = prompts.iter().map(|one| |out: &mut Vec<u8>| one.item.splice(&one.name, out));
        let prompt_list = CatalogList::write_list(Kind::Prompts, fresh.prompts, 0, write);
        let shown = |kind, mut all: Vec<uris::ShownResource<'_>>| {
            for one in &mut all {
                // A resource made of a template has the form of the template.
                let kind = if one.field.is_some() { Kind::Templates } else { kind };
                hidden.leave_out_of_item(kind, one.server, &mut one.item);
            }
            let write = all
                .iter()
                .map(|one| |out: &mut Vec<u8>| one.item.splice_as(one.field, &one.public, out));
            CatalogList::write_list(kind, *fresh.get(kind), 0, write)
        };
        let lists = ByKind {
            tools: tool_list,
            prompts: prompt_list,
            resources: shown(Kind::Resources, resources),
            templates: shown(Kind::Templates, templates),
            skills: list_skills(&uris, sources, fresh.skills),
        };

        let entries: Vec<_> = tools
            .into_iter()
            .map(|one| ToolEntry {
                public: PublicName::new(&one.name),
                server: one.server.clone(),
                is_redescribed: one.description.is_some() || one.other_bytes.is_some(),
                tool: one.item,
                results: one.results,
            })
            .collect();
        let by_name =
            entries.iter().enumerate().map(|(i, entry)| (entry.public.clone(), i)).collect();
        let prompts = prompts.into_iter().map(|one| {
            let origin =
                ElementOrigin { server: one.server.clone(), native: one.item.native.clone() };
            (PublicName::new(&one.name), origin)
        });
        let of_apps = app_tools(&entries, &held_tools);
        let prompts = prompts.collect();
        let functions = OnceLock::new();
        (Self { entries, by_name, of_apps, own, prompts, uris, lists, functions }, warnings)
    }

    /// The tool with a public name. An app (MCP Apps) knows the tools of its server by their native
    /// names, and a host passes its calls on: a native name is accepted if no other tool has it.
    #[inline]
    pub fn find_tool(&self, public: &str) -> Option<&ToolEntry> {
        let place = self.by_name.get(public).or_else(|| self.of_apps.get(public));
        place.and_then(|place| self.entries.get(*place))
    }

    /// The tool of the gateway itself with this name.
    #[inline]
    pub fn find_own_tool(&self, name: &str) -> Option<&Arc<Tool>> {
        self.own.iter().find(|tool| tool.native.as_str() == name)
    }

    /// The names of the tools of the gateway itself, which come first in the list.
    #[inline]
    pub fn own_tool_names(&self) -> impl Iterator<Item = &str> {
        self.own.iter().map(|tool| tool.native.as_str())
    }

    /// The tool with a server's own name.
    #[inline]
    pub fn find_listed_tool(&self, server: &ServerName, native: &NativeName) -> Option<&ToolEntry> {
        self.entries.iter().find(|entry| entry.server == *server && entry.native() == native)
    }

    /// A tool as it is listed, by its public name.
    pub fn listed_tool(&self, public: &str) -> Option<Bytes> {
        let own = || self.own.iter().position(|tool| tool.native.as_str() == public);
        let place = self.by_name.get(public).map(|place| self.own.len() + place).or_else(own)?;
        self.list(Kind::Tools).item(place)
    }

    /// Returns true if a tool has a user interface.
    #[inline]
    pub fn has_interfaces(&self) -> bool {
        self.entries.iter().any(|entry| entry.tool.interface().next().is_some())
    }

    /// The prompt with a public name.
    #[inline]
    pub fn prompt(&self, public: &str) -> Option<(&PublicName, &ElementOrigin)> {
        self.prompts.get_key_value(public)
    }

    /// The URIs of all resources.
    #[inline]
    pub fn uris(&self) -> &CatalogUris {
        &self.uris
    }

    /// All tools in listing order: file order of servers, then each server's own.
    #[inline]
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &ToolEntry> {
        self.entries.iter()
    }

    /// Returns true if clients see any tool, prompt, resource or template of a server.
    pub fn shows_any_of(&self, server: &ServerName) -> bool {
        self.entries.iter().any(|entry| entry.server == *server)
            || self.prompts.values().any(|origin| origin.server == *server)
            || self.uris.lists_any_of(server)
    }

    /// The list of a kind: file order of servers, then each server's own order.
    #[inline]
    pub fn list(&self, kind: Kind) -> &CatalogList {
        self.lists.get(kind)
    }
}

/// Appends one element to a list.
type ElementWriter<'a> = Box<dyn FnOnce(&mut Vec<u8>) + 'a>;

/// The tools of servers with user interfaces, by native names that are unique among them. The names
/// of held ones stay reserved.
fn app_tools(
    entries: &[ToolEntry],
    held: &[lists::merge::NameCandidate<'_, Tool>],
) -> Named<NativeName, usize> {
    let has_interface = |tool: &Tool| tool.interface().next().is_some();
    let with_interfaces = entries.iter().filter(|entry| has_interface(&entry.tool));
    let servers: HashSet<_> = with_interfaces.map(|entry| &entry.server).collect();
    let held_with_interfaces = held.iter().filter(|one| has_interface(&one.item));
    let of_held: HashSet<_> = held_with_interfaces.map(|one| one.server).collect();
    let held =
        held.iter().filter(|one| servers.contains(one.server) || of_held.contains(one.server));
    let mut ambiguous: HashSet<&NativeName> = held.map(|one| &one.item.native).collect();
    let mut found: Named<NativeName, usize> = Named::default();
    for (place, entry) in entries.iter().enumerate() {
        if servers.contains(&entry.server) && found.insert(entry.native().clone(), place).is_some()
        {
            ambiguous.insert(entry.native());
        }
    }
    found.retain(|name, _| !ambiguous.contains(name));
    found
}

/// The skills that clients see: those with a `SKILL.md` that they may read.
fn list_skills(
    uris: &CatalogUris,
    sources: &[MergeSource<'_>],
    freshness: Freshness,
) -> CatalogList {
    let lists = sources.iter().filter_map(|source| Some((source.server, source.list?)));
    let skills = lists.flat_map(|(server, list)| list.skills.iter().map(move |one| (server, one)));
    let origin = |server, skill: &CatalogItem| {
        uris.find_origin(&uris.public_uri(server, skill.native.as_str()))
    };
    let shown = skills.filter(|(server, skill)| {
        origin(server, skill).is_some_and(|origin| origin.server == **server)
    });
    let write = shown.map(|(server, skill)| {
        let public = |native: &str| match uris.public_uri(server, native) {
            Cow::Owned(public) => Some(public),
            Cow::Borrowed(_) => None,
        };
        move |out: &mut Vec<u8>| skill.splice_skill(public, out)
    });
    CatalogList::write_list(Kind::Skills, freshness, 0, write)
}

fn strictest_freshness(sources: &[MergeSource<'_>], kind: Kind) -> Freshness {
    let said =
        sources.iter().filter_map(|source| source.list).map(|list| *list.freshness.get(kind));
    said.reduce(Freshness::stricter).unwrap_or_default()
}

/// At most 120 characters of foreign text: enough to recognise it, too few to flood a log.
fn clip_foreign_text(text: &str) -> String {
    clip(text, 120).to_owned()
}
