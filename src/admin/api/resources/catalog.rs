//! The catalog: every element that servers list, also those that no client sees.

mod names;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::tools::{UnlistedServer, limit_reasons, unlisted_servers};
use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::definitions::shown_name;
use crate::admin::{UseTimes, last_use};
use crate::call::{NativeName, ProfileName};
use crate::catalog::{Kind, ListedDefinition};
use crate::config::{ConfigPlaces, quote_segment};
use crate::pipeline::hiding_setting;
use crate::policy::ScreenedDefinition;
use crate::snapshot::{Snapshot, SnapshotServer};
use crate::telemetry::metrics::Metrics;
use names::{
    CatalogNames, ListedNameSet, MAX_CATALOG_CALLERS, caller_views, listed_name_of, listed_names,
};

/// Every element.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CatalogPage {
    /// Explanation of the tokens.
    estimate: &'static str,
    /// The time from which on uses are known: the start of the process or, with
    /// `gateway.state_dir`, of the first one that kept them.
    counted_since: Timestamp,
    /// In file order of servers, then in the order of their lists.
    elements: Vec<ElementStatus>,
    /// The servers whose elements are missing, because they are disabled or have listed nothing.
    unlisted: Vec<UnlistedServer>,
}

/// A tool, prompt, resource or resource template.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ElementStatus {
    /// `tools`, `prompts`, `resources` or `resourceTemplates`.
    kind: &'static str,
    /// The server.
    server: String,
    /// The server's own name for it, or its URI.
    native: String,
    /// The name or URI for clients; `None` if no client sees it.
    public: Option<String>,
    /// The tokens of its definition in a model's context, by estimate.
    tokens: usize,
    /// The profiles that show it. Rules and scopes may hide it from some of their clients.
    profiles: Vec<String>,
    /// The first 200 callers of the configuration that see it in some profile, by rules as well:
    /// clients, and `anonymous` where no credential is required. Users of issuers are not known, and
    /// neither are the clients that have an element by their capabilities.
    clients: Vec<String>,
    /// The time of the last call since `counted_since`, refused ones included. A resource that a
    /// template covers counts for the template.
    last_used_at: Option<Timestamp>,
    /// True if it waits for approval.
    held: bool,
    /// The reasons that it is held, reported or hidden.
    reasons: Vec<String>,
}

/// Lists the elements.
pub(crate) async fn list_elements(request: EndpointRequest) -> EndpointAnswer {
    let snapshot = request.report.gateway.snapshots.load_full();
    let places = request.report.notes().file.places.clone();
    // Counting tokens takes up to some seconds.
    let metrics = Arc::clone(&request.report.gateway.metrics);
    let uses = request.report.uses.times();
    let counted_since = uses.since().unwrap_or(request.report.started_at);
    let describe_page = move || CatalogPage {
        estimate: "o200k_base; other models differ",
        counted_since,
        elements: describe_elements(&snapshot, &metrics, &places, &uses),
        unlisted: unlisted_servers(&snapshot)
            .into_iter()
            .chain(disabled_servers(&snapshot))
            .collect(),
    };
    let built = request.report.evaluations.evaluate(describe_page).await;
    let internal =
        |error: tokio::task::JoinError| ApiProblem::new(ProblemCode::Internal, error.to_string());
    let mut page = built.map_err(internal)?;
    limit_reasons(&mut page.unlisted, request.role);
    answer(&page)
}

fn describe_elements(
    snapshot: &Snapshot,
    metrics: &Metrics,
    places: &ConfigPlaces,
    uses: &UseTimes,
) -> Vec<ElementStatus> {
    let others = snapshot.views_of_some_clients(MAX_OTHER_VIEWS);
    let known = KnownFacts { metrics, places, uses };
    let mut survey = CatalogSurvey::of(snapshot, known);
    let others = others.iter().map(|(name, view)| (name.clone(), CatalogNames::of(&view.catalog)));
    survey.others = others.collect();
    let (mut elements, mut definitions) = (Vec::new(), Vec::new());
    for member in snapshot.servers() {
        survey.add_elements(member, &mut elements, &mut definitions);
    }
    // `trunkline top` shows the tokens of servers once they are counted.
    snapshot.report_tokens();
    let counts = snapshot.count_definitions(&definitions);
    for (element, tokens) in elements.iter_mut().zip(counts) {
        element.tokens = tokens;
    }
    elements
}

/// Returns the disabled servers. Their lists are not known before they run again.
fn disabled_servers(snapshot: &Snapshot) -> impl Iterator<Item = UnlistedServer> {
    snapshot.config.servers.iter().filter_map(|server| {
        let disabled = snapshot.disabled.find(&server.name)?;
        let (by, name) = (&disabled.by, server.name.to_string());
        let reason = Some(format!("it is disabled by {by}: trunkline enable {name}"));
        Some(UnlistedServer { name, reason })
    })
}

/// Facts about elements beside the snapshot.
#[derive(Clone, Copy)]
struct KnownFacts<'a> {
    metrics: &'a Metrics,
    places: &'a ConfigPlaces,
    uses: &'a UseTimes,
}

/// The names of a snapshot, prepared for look-ups.
struct CatalogSurvey<'a> {
    snapshot: &'a Snapshot,
    known: KnownFacts<'a>,
    /// The names for clients without a profile.
    shown: CatalogNames<'a>,
    /// The elements as they list them.
    listed: HashMap<(Kind, String), Bytes>,
    /// Names for clients that have lists of their own, by profile.
    others: Vec<(String, CatalogNames<'a>)>,
    /// Callers, with the names and URIs of each view that they have.
    callers: Vec<(String, Vec<Arc<ListedNameSet>>)>,
    /// The names and URIs of each profile.
    profiles: Vec<(String, ListedNameSet)>,
}

/// An element of a server's lists.
struct SurveyedElement<'a> {
    kind: Kind,
    native: &'a NativeName,
    /// True if the server lists it for all clients.
    is_for_all: bool,
    /// The finding about its definition.
    finding: Option<&'a ScreenedDefinition>,
}

impl<'a> CatalogSurvey<'a> {
    fn of(snapshot: &'a Snapshot, known: KnownFacts<'a>) -> Self {
        let catalog = &snapshot.plain.catalog;
        let kinds = [Kind::Tools, Kind::Prompts, Kind::Resources, Kind::Templates].into_iter();
        let listed = kinds.flat_map(|kind| {
            let items = catalog.list(kind).items();
            items.filter_map(move |raw| Some(((kind, listed_name_of(kind, &raw)?), raw)))
        });
        let configured = snapshot.config.profiles.iter().map(|profile| profile.name.clone());
        let default = snapshot.profile(ProfileName::DEFAULT).is_none().then(ProfileName::default);
        let profiles = configured
            .chain(default)
            .map(|name| (name.to_string(), listed_names(&snapshot.profile_view(&name).catalog)));
        Self {
            snapshot,
            known,
            shown: CatalogNames::of(catalog),
            listed: listed.collect(),
            others: Vec::new(),
            profiles: profiles.collect(),
            callers: caller_views(snapshot),
        }
    }

    /// Adds the elements of a server, from its list for all clients and from those for some, with
    /// their definitions.
    fn add_elements(
        &self,
        member: &SnapshotServer,
        elements: &mut Vec<ElementStatus>,
        definitions: &mut Vec<Bytes>,
    ) {
        let mut seen = HashSet::new();
        for (place, list) in member.server.known_lists().iter().enumerate() {
            let findings = self.snapshot.screen.findings_in(list);
            for one in list.definitions() {
                let ListedDefinition { kind: any_kind, native, raw, .. } = one;
                let Some(kind) = any_kind.listed().filter(|kind| *kind != Kind::Skills) else {
                    continue;
                };
                if !seen.insert((kind, native.clone())) {
                    continue;
                }
                let is_this =
                    |found: &&ScreenedDefinition| found.kind == any_kind && found.native == *native;
                let finding = findings.iter().find(is_this);
                let element = SurveyedElement { kind, native, is_for_all: place == 0, finding };
                let described = self.describe(member, &element);
                let public = described.public.clone().map(|public| (kind, public));
                let shown = public.and_then(|public| self.listed.get(&public));
                definitions.push(shown.unwrap_or(raw).clone());
                elements.push(described);
            }
        }
    }

    fn describe(&self, member: &SnapshotServer, element: &SurveyedElement<'_>) -> ElementStatus {
        let (kind, native) = (element.kind, element.native);
        let server = &member.config.name;
        let mut public = self.shown.find(server, kind, native);
        let has = |names: &ListedNameSet| {
            public.as_ref().is_some_and(|public| names.contains(&(kind, public.clone())))
        };
        let profiles = self.profiles.iter().filter(|(_, names)| has(names));
        let mut profiles: Vec<_> = profiles.map(|(name, _)| name.clone()).collect();
        let clients = self.callers_of(kind, public.as_deref());
        if !element.is_for_all {
            for (profile, names) in &self.others {
                let Some(name) = names.find(server, kind, native) else { continue };
                public.get_or_insert(name);
                if !profiles.contains(profile) {
                    profiles.push(profile.clone());
                }
            }
        }
        let mut status = ElementStatus {
            kind: kind.member(),
            server: server.to_string(),
            native: shown_name(native),
            tokens: 0,
            last_used_at: self.last_use(member, kind, native),
            held: element.finding.is_some_and(|finding| finding.held),
            public,
            profiles,
            clients,
            reasons: Vec::new(),
        };
        let found = element.finding.iter().flat_map(|it| &it.reasons).map(ToString::to_string);
        status.reasons = found.chain(self.hidden_reason(member, element, &status)).collect();
        status
    }

    /// Returns the reason that some or all clients do not see an element that is not held.
    fn hidden_reason(
        &self,
        member: &SnapshotServer,
        element: &SurveyedElement<'_>,
        status: &ElementStatus,
    ) -> Option<String> {
        if status.held {
            return None;
        }
        let hiding = || hiding_setting(&member.config.tools, element.native);
        if element.kind == Kind::Tools
            && let Some((setting, cure)) = hiding()
        {
            let setting = format!("servers.{}.{setting}", quote_segment(&status.server));
            let line = self.known.places.line_of(&setting);
            let line = line.map(|line| format!(", line {line}")).unwrap_or_default();
            return Some(format!("hidden by {setting}{line}: {cure}"));
        }
        if !element.is_for_all {
            let reason = "listed for some clients only: by their capabilities, era or account";
            return Some(reason.to_owned());
        }
        if status.public.is_none() {
            return Some("hidden by the settings of its server, or by its name".to_owned());
        }
        if status.profiles.is_empty() {
            return Some("no profile shows it".to_owned());
        }
        let all_are_known = self.callers.len() < MAX_CATALOG_CALLERS;
        let is_hidden = status.clients.is_empty() && !self.callers.is_empty() && all_are_known;
        is_hidden.then(|| {
            "rules, scopes or profiles hide it from every client of the configuration".to_owned()
        })
    }

    /// Returns the callers that see an element.
    fn callers_of(&self, kind: Kind, public: Option<&str>) -> Vec<String> {
        let Some(public) = public else { return Vec::new() };
        let element = (kind, public.to_owned());
        let sees = |views: &[Arc<ListedNameSet>]| views.iter().any(|it| it.contains(&element));
        let callers = self.callers.iter().filter(|(_, views)| sees(views));
        callers.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the time of the last call of an element, in this run or an earlier one.
    fn last_use(
        &self,
        member: &SnapshotServer,
        kind: Kind,
        native: &NativeName,
    ) -> Option<Timestamp> {
        let KnownFacts { metrics, uses, .. } = self.known;
        let own = last_use(metrics, member, kind, native);
        let own = own.and_then(|at| Timestamp::try_from(at).ok());
        own.max(uses.element(member.config.name.as_str(), kind, native.as_str()))
    }
}

/// Limit of the views of clients with lists of their own that are compared.
const MAX_OTHER_VIEWS: usize = 50;
