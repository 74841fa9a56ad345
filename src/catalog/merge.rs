//! Merging: which tool gets which public name.
//!
//! The result depends on the configuration, the file order and the lists
//! only; neither on which server answered first nor on the previous catalog. A
//! server that has not listed yet has no tools here, and its names are free,
//! except for configured names, which stay reserved. A server that went away
//! keeps its last list, so that all names stay the same.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, LazyLock};

use super::item::CatalogItem;
use super::kind::Kind;
use super::naming::{NameForm, NamingScheme};
use super::offers::ServerOffers;
use super::rules::{ServerRules, ToolChange};
use super::server_list::{ListedElement, ServerList};
use super::tool::Tool;
use crate::call::{NativeName, PublicName, ServerName};

/// One configured server, as input of the merge.
#[derive(Debug, Clone, Copy)]
pub struct MergeSource<'a> {
    /// The server.
    pub server: &'a ServerName,
    /// The configured rules for its lists.
    pub rules: &'a ServerRules,
    /// Its last known list; `None` until it has answered.
    pub list: Option<&'a ServerList>,
}

/// An element of a list, identified by its server and native name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementOrigin {
    /// The server.
    pub server: ServerName,
    /// Its native name or URI.
    pub native: NativeName,
}

impl fmt::Display for ElementOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of server {}", self.native.as_str(), self.server)
    }
}

/// A warning about a merge, for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeWarning {
    /// Two elements have the same public name, and neither may be renamed.
    #[error(
        "duplicate public name {public:?}: {noun} {winner} keeps it, {noun} {loser} is left out",
        noun = kind.noun()
    )]
    NameTaken {
        /// The kind of both.
        kind: Kind,
        /// The name.
        public: PublicName,
        /// The element that has it.
        winner: ElementOrigin,
        /// The element that is left out of the catalog.
        loser: ElementOrigin,
    },
    /// The configuration overrides a tool that the server does not list.
    #[error("the configuration overrides tool {tool}, which that server does not list")]
    NoSuchTool {
        /// The tool.
        tool: ElementOrigin,
    },
    /// The configuration binds a variable that no template of the server has.
    #[error("the configuration binds {name:?}, which no resource template of server {server} has")]
    NoSuchVariable {
        /// The server.
        server: ServerName,
        /// The variable.
        name: String,
    },
}

/// A tool or prompt that is being named.
pub(super) struct NameCandidate<'a, T> {
    pub server: &'a ServerName,
    pub item: &'a Arc<T>,
    pub description: Option<&'a str>,
    /// The capabilities of its server.
    pub offers: &'a ServerOffers,
    pub name: String,
    form: Option<NameForm>,
}

impl<T: ListedElement> NameCandidate<'_, T> {
    fn origin(&self) -> ElementOrigin {
        ElementOrigin { server: self.server.clone(), native: self.item.native().clone() }
    }
}

/// Assigns public names to the tools that clients see, in listing order.
pub(super) fn name_tools<'a>(
    naming: NamingScheme,
    sources: &[MergeSource<'a>],
    warnings: &mut Vec<MergeWarning>,
) -> Vec<NameCandidate<'a, Tool>> {
    warnings.extend(sources.iter().flat_map(unlisted_overrides));
    let renames = configured_names(sources, warnings);
    let mut candidates: Vec<_> =
        sources.iter().flat_map(|source| tool_candidates(naming, source)).collect();
    while resolve_clashes(&mut candidates, &renames) {}
    drop_duplicates(Kind::Tools, candidates, &renames, warnings)
}

/// Assigns public names to the prompts that clients see, like those of tools.
pub(super) fn name_prompts<'a>(
    naming: NamingScheme,
    sources: &[MergeSource<'a>],
    warnings: &mut Vec<MergeWarning>,
) -> Vec<NameCandidate<'a, CatalogItem>> {
    let renames = HashMap::new();
    let mut candidates: Vec<_> =
        sources.iter().flat_map(|source| prompt_candidates(naming, source)).collect();
    while resolve_clashes(&mut candidates, &renames) {}
    drop_duplicates(Kind::Prompts, candidates, &renames, warnings)
}

/// Warnings for overrides of tools that an available server does not list.
fn unlisted_overrides(source: &MergeSource<'_>) -> Vec<MergeWarning> {
    let Some(list) = source.list else { return Vec::new() };
    let listed: HashSet<&str> = list.tools.iter().map(|tool| tool.native.as_str()).collect();
    let absent = source.rules.overrides().filter(|(native, _)| !listed.contains(native));
    let origin =
        |native| ElementOrigin { server: source.server.clone(), native: NativeName::new(native) };
    absent.map(|(native, _)| MergeWarning::NoSuchTool { tool: origin(native) }).collect()
}

/// The configured names, each with the first tool that is given the name,
/// whether or not that tool is listed now.
fn configured_names<'a>(
    sources: &[MergeSource<'a>],
    warnings: &mut Vec<MergeWarning>,
) -> HashMap<&'a str, ElementOrigin> {
    let mut renames = HashMap::new();
    for source in sources {
        for (native, change) in source.rules.overrides() {
            let shown = source.rules.shows(Kind::Tools, native);
            let Some(name) = change.name.as_ref().filter(|_| shown) else {
                continue;
            };
            let origin =
                ElementOrigin { server: source.server.clone(), native: NativeName::new(native) };
            if let Some(winner) = renames.get(name.as_str()) {
                let (public, winner) = (name.clone(), ElementOrigin::clone(winner));
                let kind = Kind::Tools;
                warnings.push(MergeWarning::NameTaken { kind, public, winner, loser: origin });
            } else {
                renames.insert(name.as_str(), origin);
            }
        }
    }
    renames
}

/// The visible tools of a server, with their preferred names.
fn tool_candidates<'a>(
    naming: NamingScheme,
    source: &MergeSource<'a>,
) -> Vec<NameCandidate<'a, Tool>> {
    let (server, rules) = (source.server, source.rules);
    let tools = source.list.map_or(&[][..], |list| &list.tools);
    let offers = offers_of(source);
    let tools = tools.iter().filter(|tool| rules.shows(Kind::Tools, tool.native.as_str()));
    tools
        .map(|tool| {
            let change = rules.override_of(tool.native.as_str());
            let description = change.and_then(|change: &ToolChange| change.description.as_deref());
            let first = NameForm::first_for(naming);
            let (name, form) = match change.and_then(|change| change.name.as_ref()) {
                Some(given) => (given.to_string(), None),
                None => (first.public_name(server, tool.native.as_str()), Some(first)),
            };
            NameCandidate { server, item: tool, description, offers, name, form }
        })
        .collect()
}

/// The visible prompts of a server, with their preferred names.
fn prompt_candidates<'a>(
    naming: NamingScheme,
    source: &MergeSource<'a>,
) -> Vec<NameCandidate<'a, CatalogItem>> {
    let (server, first) = (source.server, NameForm::first_for(naming));
    let prompts = source.list.map_or(&[][..], |list| &list.prompts).iter();
    let offers = offers_of(source);
    prompts
        .filter(|prompt| source.rules.shows(Kind::Prompts, prompt.native.as_str()))
        .map(|prompt| {
            let name = first.public_name(server, prompt.native.as_str());
            let (description, form) = (None, Some(first));
            NameCandidate { server, item: prompt, description, offers, name, form }
        })
        .collect()
}

fn offers_of<'a>(source: &MergeSource<'a>) -> &'a ServerOffers {
    static NONE: LazyLock<ServerOffers> = LazyLock::new(ServerOffers::default);
    source.list.map_or(&NONE, |list| &list.offers)
}

/// Moves every candidate with a duplicate name to its next form; returns
/// whether any moved. All of them move, not all but the first, so a name means
/// the same whichever of them are present. Forms only advance, so this ends.
fn resolve_clashes<T: ListedElement>(
    candidates: &mut [NameCandidate<'_, T>],
    renames: &HashMap<&str, ElementOrigin>,
) -> bool {
    let mut claims: HashMap<&str, usize> = HashMap::with_capacity(candidates.len());
    for candidate in candidates.iter().filter(|candidate| candidate.form.is_some()) {
        *claims.entry(&candidate.name).or_default() += 1;
    }
    let clashes = |name: &str| {
        renames.contains_key(name) || claims.get(name).is_some_and(|claims| *claims > 1)
    };
    let moves: Vec<_> = candidates
        .iter()
        .map(|candidate| {
            candidate.form.and_then(NameForm::next).filter(|_| clashes(&candidate.name))
        })
        .collect();
    for (candidate, next) in candidates.iter_mut().zip(&moves) {
        if let Some(next) = *next {
            candidate.name = next.public_name(candidate.server, candidate.item.native().as_str());
            candidate.form = Some(next);
        }
    }
    moves.iter().any(Option::is_some)
}

/// Leaves out candidates whose names are still duplicates: configured names
/// win, then the first in order.
fn drop_duplicates<'a, T: ListedElement>(
    kind: Kind,
    candidates: Vec<NameCandidate<'a, T>>,
    renames: &HashMap<&str, ElementOrigin>,
    warnings: &mut Vec<MergeWarning>,
) -> Vec<NameCandidate<'a, T>> {
    let mut owners: HashMap<String, ElementOrigin> =
        renames.iter().map(|(name, owner)| ((*name).to_owned(), owner.clone())).collect();
    let mut kept = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        let origin = candidate.origin();
        let winner = owners.entry(candidate.name.clone()).or_insert_with(|| origin.clone());
        if *winner == origin {
            kept.push(candidate);
        } else if candidate.form.is_some() {
            // Duplicate configured names were reported when they were read.
            let (public, winner) = (PublicName::new(&candidate.name), winner.clone());
            warnings.push(MergeWarning::NameTaken { kind, public, winner, loser: origin });
        }
    }
    kept
}
