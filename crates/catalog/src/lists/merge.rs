//! Merges lists: assigns public names to tools.
//!
//! The result depends only on the configuration, the file order and the lists. It does not depend
//! on the previous catalog, or on the order in which servers answered. A server that has not listed
//! yet has no tools here, and its names are free, except for configured names, which remain
//! reserved. A server that went away keeps its last list, so that all names stay the same.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, LazyLock};

use trunkline_config::TransformSettings;
use trunkline_protocol::call::{MetaTool, NativeName, PublicName, ServerName};

use super::naming::{NameForm, Naming};
use super::rules::ServerRules;
use super::server_list::{ListedElement, ServerList};
use crate::Rules;
use crate::elements::item::{CatalogItem, ItemError};
use crate::elements::offers::ServerOffers;
use crate::elements::tool::Tool;
use crate::elements::tool_bytes::ToolBytes;
use crate::elements::tool_transform::{ResultTransform, TransformFault};
use crate::kind::Kind;
use crate::selection::Scope;
use crate::selection::visibility::{CatalogElement, ElementBasis};

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
pub enum MergeFault {
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
    /// A tool has a longer name, because clients have a tool of their own with the shorter one.
    #[error("the name {reserved:?} is reserved: tool {tool} is named {public:?}")]
    NameReserved {
        /// The reserved name.
        reserved: PublicName,
        /// The name that it has.
        public: PublicName,
        /// The tool.
        tool: ElementOrigin,
    },
    /// The configuration overrides a tool that the server does not list.
    #[error("the configuration overrides tool {tool}, which that server does not list")]
    NoSuchTool {
        /// The tool.
        tool: ElementOrigin,
    },
    /// The configuration changes a tool in a way that the tool does not allow.
    #[error("tool {tool} is left out, because it cannot be changed as configured: {reason}")]
    ToolUnchangeable {
        /// The tool.
        tool: ElementOrigin,
        /// The reason.
        reason: TransformFault,
    },
    /// A tool of the gateway itself cannot be offered.
    #[error("the gateway's own tool {name:?} is left out: {reason}")]
    OwnToolInvalid {
        /// The tool.
        name: PublicName,
        /// The reason.
        reason: ItemError,
    },
    /// A server's tool has the configured name of a tool of the gateway itself.
    #[error("tool {tool} is left out: {public:?} is the name of a tool of the gateway itself")]
    OwnNameTaken {
        /// The name.
        public: PublicName,
        /// The tool of the server.
        tool: ElementOrigin,
    },
    /// The configuration changes an argument that the tool's schema does not declare.
    #[error("the configuration changes argument {argument:?}, which tool {tool} does not declare")]
    NoSuchArgument {
        /// The tool.
        tool: ElementOrigin,
        /// The argument.
        argument: String,
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
pub(crate) struct NameCandidate<'a, T> {
    pub server: &'a ServerName,
    pub item: Arc<T>,
    /// The changes of a tool's results.
    pub results: Option<Arc<ResultTransform>>,
    /// The configured description of a tool, instead of its server's.
    pub description: Option<&'a str>,
    /// The bytes of a tool in lists, instead of its own.
    pub other_bytes: Option<ToolBytes>,
    /// The capabilities of its server.
    pub offers: &'a ServerOffers,
    pub name: String,
    /// True if clients do not see it for now. They saw it before, so it keeps its name.
    pub held: bool,
    form: Option<NameForm>,
}

impl<'a, T: ListedElement> NameCandidate<'a, T> {
    /// Creates a candidate with the first form of its name.
    fn new(naming: &Naming, source: &MergeSource<'a>, kind: Kind, item: &Arc<T>) -> Self {
        let (native, form) = (item.native().as_str(), naming.first_form());
        Self {
            server: source.server,
            item: Arc::clone(item),
            results: None,
            description: None,
            other_bytes: None,
            offers: offers_of(source),
            name: naming.public_name(form, source.server, native),
            held: source.rules.held().holds(kind, native),
            form: Some(form),
        }
    }

    fn origin(&self) -> ElementOrigin {
        ElementOrigin { server: self.server.clone(), native: self.item.native().clone() }
    }

    /// Returns true if a scope shows the element, which is a tool if there is one.
    pub(crate) fn is_shown(&self, kind: Kind, tool: Option<&Tool>, scope: &Scope) -> bool {
        scope.admits(self.server, kind, &self.name)
            && scope.shows(&CatalogElement {
                kind,
                server: Some(self.server),
                public: &self.name,
                native: self.item.native().as_str(),
                tool: tool.map(Tool::as_listed),
                basis: ElementBasis::Itself,
            })
    }

    /// Takes the next form of the name; returns false if there is none.
    fn advance(&mut self, naming: &Naming) -> bool {
        let Some(next) = self.form.and_then(NameForm::next) else { return false };
        self.name = naming.public_name(next, self.server, self.item.native().as_str());
        self.form = Some(next);
        true
    }
}

/// Assigns public names to the tools that clients see, in listing order.
pub(crate) fn name_tools<'a>(
    rules: &Rules,
    sources: &[MergeSource<'a>],
    warnings: &mut Vec<MergeFault>,
) -> Vec<NameCandidate<'a, Tool>> {
    let (naming, own) = (&rules.naming, reserved_names(rules));
    warnings.extend(sources.iter().flat_map(unlisted_overrides));
    let renames = configured_names(sources, warnings);
    let mut candidates: Vec<_> =
        sources.iter().flat_map(|source| tool_candidates(naming, source, warnings)).collect();
    let is_own = |name: &str| own.contains(name);
    let taken = |name: &str| renames.contains_key(name) || naming.is_reserved(name) || is_own(name);
    resolve_clashes(naming, &mut candidates, taken);
    warnings.extend(candidates.iter().filter_map(|one| reserved_name(naming, one)));
    candidates.retain(|one| {
        let is_taken = is_own(&one.name);
        if is_taken {
            let (public, tool) = (PublicName::new(&one.name), one.origin());
            warnings.push(MergeFault::OwnNameTaken { public, tool });
        }
        !is_taken
    });
    drop_duplicates(Kind::Tools, candidates, &renames, warnings)
}

/// Assigns public names to the prompts that clients see, like those of tools.
pub(crate) fn name_prompts<'a>(
    naming: &Naming,
    sources: &[MergeSource<'a>],
    warnings: &mut Vec<MergeFault>,
) -> Vec<NameCandidate<'a, CatalogItem>> {
    let renames = HashMap::new();
    let mut candidates: Vec<_> =
        sources.iter().flat_map(|source| prompt_candidates(naming, source)).collect();
    resolve_clashes(naming, &mut candidates, |_| false);
    drop_duplicates(Kind::Prompts, candidates, &renames, warnings)
}

/// Warnings for overrides of tools that an available server does not list.
fn unlisted_overrides(source: &MergeSource<'_>) -> Vec<MergeFault> {
    let Some(list) = source.list else { return Vec::new() };
    let listed: HashSet<&str> = list.tools.iter().map(|tool| tool.native.as_str()).collect();
    let absent = source.rules.overrides().filter(|(native, _)| !listed.contains(native));
    let origin =
        |native| ElementOrigin { server: source.server.clone(), native: NativeName::new(native) };
    absent.map(|(native, _)| MergeFault::NoSuchTool { tool: origin(native) }).collect()
}

/// The configured names, each with the first tool that has it, listed or not.
fn configured_names<'a>(
    sources: &[MergeSource<'a>],
    warnings: &mut Vec<MergeFault>,
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
                warnings.push(MergeFault::NameTaken { kind, public, winner, loser: origin });
            } else {
                renames.insert(name.as_str(), origin);
            }
        }
    }
    renames
}

/// The visible tools of a server, with their preferred names.
fn tool_candidates<'a>(
    naming: &Naming,
    source: &MergeSource<'a>,
    warnings: &mut Vec<MergeFault>,
) -> Vec<NameCandidate<'a, Tool>> {
    let rules = source.rules;
    let tools = source.list.map_or(&[][..], |list| &list.tools);
    let tools = tools.iter().filter(|tool| rules.names(Kind::Tools, tool.native.as_str()));
    tools
        .filter_map(|tool| {
            let mut candidate = NameCandidate::new(naming, source, Kind::Tools, tool);
            if let Some(change) = rules.override_of(tool.native.as_str()) {
                candidate.description = change.description.as_deref();
                if let Some(given) = &change.name {
                    candidate.name = given.to_string();
                    candidate.form = None;
                }
            }
            if let Some(settings) = rules.transforms_of(tool.native.as_str()) {
                if settings.changes_listing() {
                    candidate.item = change_tool(source.server, tool, settings, warnings)?;
                }
                let follows = settings.follows_results();
                candidate.results = follows.then(|| Arc::new(ResultTransform::new(tool, settings)));
            }
            Some(candidate)
        })
        .collect()
}

/// The tool as the configuration changes it; `None` if that is impossible.
fn change_tool(
    server: &ServerName,
    tool: &Arc<Tool>,
    settings: &Arc<TransformSettings>,
    warnings: &mut Vec<MergeFault>,
) -> Option<Arc<Tool>> {
    let origin = || ElementOrigin { server: server.clone(), native: tool.native.clone() };
    match Tool::transform(tool, settings) {
        Ok((changed, unknown)) => {
            let unknown = unknown.into_iter();
            warnings.extend(
                unknown.map(|argument| MergeFault::NoSuchArgument { tool: origin(), argument }),
            );
            Some(changed)
        }
        Err(reason) => {
            warnings.push(MergeFault::ToolUnchangeable { tool: origin(), reason });
            None
        }
    }
}

/// The visible prompts of a server, with their preferred names.
fn prompt_candidates<'a>(
    naming: &Naming,
    source: &MergeSource<'a>,
) -> Vec<NameCandidate<'a, CatalogItem>> {
    let prompts = source.list.map_or(&[][..], |list| &list.prompts).iter();
    prompts
        .filter(|prompt| source.rules.names(Kind::Prompts, prompt.native.as_str()))
        .map(|prompt| NameCandidate::new(naming, source, Kind::Prompts, prompt))
        .collect()
}

fn offers_of<'a>(source: &MergeSource<'a>) -> &'a ServerOffers {
    static NO_OFFERS: LazyLock<ServerOffers> = LazyLock::new(ServerOffers::default);
    source.list.map_or(&NO_OFFERS, |list| &list.offers)
}

/// Moves candidates to the next form of their names, until no name is a duplicate that can move and
/// none is `taken`. Forms only advance, so this ends.
fn resolve_clashes<T: ListedElement>(
    naming: &Naming,
    candidates: &mut [NameCandidate<'_, T>],
    taken: impl Fn(&str) -> bool,
) {
    if naming.is_first_come() {
        move_later_ones(naming, candidates, taken);
    } else {
        while move_duplicates(naming, candidates, &taken) {}
    }
}

/// Moves each candidate with the name of an earlier one.
fn move_later_ones<T: ListedElement>(
    naming: &Naming,
    candidates: &mut [NameCandidate<'_, T>],
    taken: impl Fn(&str) -> bool,
) {
    let mut earlier = HashSet::with_capacity(candidates.len());
    for candidate in candidates.iter_mut().filter(|candidate| candidate.form.is_some()) {
        while taken(&candidate.name) || earlier.contains(&candidate.name) {
            if !candidate.advance(naming) {
                break;
            }
        }
        earlier.insert(candidate.name.clone());
    }
}

/// Moves every candidate with a duplicate name; returns true if any moved. All of them move,
/// including the first, so that a name means the same for any subset of them.
fn move_duplicates<T: ListedElement>(
    naming: &Naming,
    candidates: &mut [NameCandidate<'_, T>],
    taken: impl Fn(&str) -> bool,
) -> bool {
    let mut claims: HashMap<&str, usize> = HashMap::with_capacity(candidates.len());
    for candidate in candidates.iter().filter(|candidate| candidate.form.is_some()) {
        *claims.entry(&candidate.name).or_default() += 1;
    }
    let clashes = |name: &str| taken(name) || claims.get(name).is_some_and(|claims| *claims > 1);
    let clashing: Vec<_> = candidates.iter().map(|candidate| clashes(&candidate.name)).collect();
    let mut moved = false;
    for (candidate, _) in candidates.iter_mut().zip(clashing).filter(|(_, clashes)| *clashes) {
        moved |= candidate.advance(naming);
    }
    moved
}

/// A warning about a tool that has another name because its own is reserved.
fn reserved_name(naming: &Naming, candidate: &NameCandidate<'_, Tool>) -> Option<MergeFault> {
    let (origin, first) = (candidate.origin(), naming.first_form());
    candidate.form.filter(|form| *form != first)?;
    let reserved = naming.public_name(first, candidate.server, origin.native.as_str());
    naming.is_reserved(&reserved).then(|| MergeFault::NameReserved {
        reserved: PublicName::new(&reserved),
        public: PublicName::new(&candidate.name),
        tool: origin,
    })
}

/// Leaves out candidates with names that are still duplicates: configured names win, then the first
/// in order.
fn drop_duplicates<'a, T: ListedElement>(
    kind: Kind,
    candidates: Vec<NameCandidate<'a, T>>,
    renames: &HashMap<&str, ElementOrigin>,
    warnings: &mut Vec<MergeFault>,
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
            warnings.push(MergeFault::NameTaken { kind, public, winner, loser: origin });
        }
    }
    kept
}

/// Returns the names of the gateway's own tools, shown or not, and of its meta-tools: no other tool
/// may have one.
fn reserved_names(rules: &Rules) -> HashSet<&str> {
    let own = rules.own_tools.iter().map(|tool| tool.name.as_str());
    let meta = MetaTool::ALL.iter().filter(|_| rules.has_meta_tools).map(|tool| tool.name());
    own.chain(meta).collect()
}
