//! The catalog: every element that servers list, also those that no client sees.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::definitions::shown_name;
use crate::call::{Context, NativeName, Principal, ProfileName, ServerName};
use crate::catalog::{Catalog, Kind};
use crate::clock;
use crate::policy::ScreenedDefinition;
use crate::snapshot::{Snapshot, SnapshotServer, TokenReport, View, ViewKey};
use crate::telemetry::metrics::{Metrics, UsedElement};

/// Every element.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CatalogPage {
    /// Explanation of the tokens.
    estimate: &'static str,
    /// In file order of servers, then in the order of their lists.
    elements: Vec<ElementStatus>,
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
    /// The tokens of a tool's definition in a model's context, by estimate.
    tokens: Option<usize>,
    /// The profiles that show it. Rules and scopes may hide it from some of their clients.
    profiles: Vec<String>,
    /// The first 200 callers of the configuration that see it in some profile, by rules as well:
    /// clients, and `anonymous` where no credential is required. Users of issuers are not known.
    clients: Vec<String>,
    /// The time of the last call since the start, refused ones included. A resource that a template
    /// covers counts for the template.
    last_used_at: Option<Timestamp>,
    /// True if it waits for approval.
    held: bool,
    /// The reasons that it is held, reported or hidden.
    reasons: Vec<String>,
}

/// Lists the elements.
pub(crate) async fn list_elements(request: EndpointRequest) -> EndpointAnswer {
    let snapshot = request.report.gateway.snapshots.load_full();
    // Counting tokens takes up to some seconds.
    let metrics = Arc::clone(&request.report.gateway.metrics);
    let built = spawn_blocking(move || build_page(&snapshot, &metrics)).await;
    answer(&built.map_err(|error| ApiProblem::new(ProblemCode::Internal, error.to_string()))?)
}

fn build_page(snapshot: &Snapshot, metrics: &Metrics) -> CatalogPage {
    let survey = CatalogSurvey::of(snapshot, metrics);
    let elements = snapshot.servers().flat_map(|member| survey.elements_of(member)).collect();
    CatalogPage { estimate: "o200k_base; other models differ", elements }
}

/// The names of a snapshot, prepared for look-ups.
struct CatalogSurvey<'a> {
    snapshot: &'a Snapshot,
    metrics: &'a Metrics,
    tokens: Arc<TokenReport>,
    /// Public names of prompts, by server and native name.
    prompts: HashMap<(ServerName, NativeName), String>,
    /// Callers, with the names and URIs of each view that they have.
    callers: Vec<(String, Vec<Arc<ListedNameSet>>)>,
    /// The names and URIs of each profile.
    profiles: Vec<(String, HashSet<(Kind, String)>)>,
    /// Those of clients without a profile.
    shown: HashSet<(Kind, String)>,
}

impl<'a> CatalogSurvey<'a> {
    fn of(snapshot: &'a Snapshot, metrics: &'a Metrics) -> Self {
        let catalog = &snapshot.plain.catalog;
        let shown = listed_names(catalog);
        let prompts = shown.iter().filter(|(kind, _)| *kind == Kind::Prompts);
        let prompts = prompts.filter_map(|(_, name)| {
            let (_, origin) = catalog.prompt(name)?;
            Some(((origin.server.clone(), origin.native.clone()), name.clone()))
        });
        let configured = snapshot.config.profiles.iter().map(|profile| profile.name.clone());
        let default = snapshot.profile(ProfileName::DEFAULT).is_none().then(ProfileName::default);
        let profiles = configured
            .chain(default)
            .map(|name| (name.to_string(), listed_names(&snapshot.profile_view(&name).catalog)));
        Self {
            snapshot,
            metrics,
            tokens: snapshot.report_tokens(),
            prompts: prompts.collect(),
            profiles: profiles.collect(),
            callers: caller_views(snapshot),
            shown,
        }
    }

    fn elements_of(&self, member: &SnapshotServer) -> Vec<ElementStatus> {
        let Some(list) = member.server.list() else { return Vec::new() };
        let findings = self.snapshot.screen.findings_in(&list);
        let listed = list.definitions().filter_map(|one| {
            let kind = one.kind.listed().filter(|kind| *kind != Kind::Skills)?;
            let is_this =
                |found: &&ScreenedDefinition| found.kind == one.kind && found.native == *one.native;
            Some(self.describe(member, kind, one.native, findings.iter().find(is_this)))
        });
        listed.collect()
    }

    fn describe(
        &self,
        member: &SnapshotServer,
        kind: Kind,
        native: &NativeName,
        finding: Option<&ScreenedDefinition>,
    ) -> ElementStatus {
        let server = &member.config.name;
        let public = self.public_name(server, kind, native);
        let held = finding.is_some_and(|finding| finding.held);
        let mut reasons: Vec<_> =
            finding.iter().flat_map(|it| &it.reasons).map(ToString::to_string).collect();
        if public.is_none() && !held {
            reasons.push("hidden by the settings of its server, or by its name".to_owned());
        }
        let has = |names: &HashSet<(Kind, String)>| {
            public.as_ref().is_some_and(|public| names.contains(&(kind, public.clone())))
        };
        let profiles = self.profiles.iter().filter(|(_, names)| has(names));
        let is_counted = |tool: &&crate::snapshot::ToolTokens| {
            tool.origin.as_ref().is_some_and(|(of, name)| of == server && name == native)
        };
        let counted = self.tokens.tools.iter().find(is_counted).filter(|_| kind == Kind::Tools);
        ElementStatus {
            kind: kind.member(),
            server: server.to_string(),
            native: shown_name(native),
            tokens: counted.map(|tool| tool.tokens),
            profiles: profiles.map(|(name, _)| name.clone()).collect(),
            clients: self.callers_of(kind, public.as_deref()),
            last_used_at: self.last_use(member, kind, native),
            public,
            held,
            reasons,
        }
    }

    /// Returns the callers that see an element.
    fn callers_of(&self, kind: Kind, public: Option<&str>) -> Vec<String> {
        let Some(public) = public else { return Vec::new() };
        let element = (kind, public.to_owned());
        let sees = |views: &[Arc<ListedNameSet>]| views.iter().any(|it| it.contains(&element));
        let callers = self.callers.iter().filter(|(_, views)| sees(views));
        callers.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the time of the last call of an element.
    fn last_use(
        &self,
        member: &SnapshotServer,
        kind: Kind,
        native: &NativeName,
    ) -> Option<Timestamp> {
        let server = member.config.name.as_str();
        let used = match kind {
            Kind::Tools => self.metrics.last_tool_use(server, native.as_str()),
            Kind::Prompts => member.metrics.last_use(UsedElement::Prompt, native.as_str()),
            Kind::Resources | Kind::Templates => {
                member.metrics.last_use(UsedElement::Resource, native.as_str())
            }
            Kind::Skills => None,
        };
        let age = clock::now().saturating_duration_since(used?);
        Timestamp::try_from(clock::wall_now() - age).ok()
    }

    /// Returns the name or URI for clients.
    fn public_name(&self, server: &ServerName, kind: Kind, native: &NativeName) -> Option<String> {
        let catalog = &self.snapshot.plain.catalog;
        match kind {
            Kind::Tools => {
                catalog.find_listed_tool(server, native).map(|entry| entry.public.to_string())
            }
            Kind::Prompts => self.prompts.get(&(server.clone(), native.clone())).cloned(),
            Kind::Resources | Kind::Templates | Kind::Skills => {
                let uri = catalog.uris().public_uri(server, native.as_str()).into_owned();
                self.shown.contains(&(kind, uri.clone())).then_some(uri)
            }
        }
    }
}

/// The names and URIs in the lists of a view.
type ListedNameSet = HashSet<(Kind, String)>;

/// Returns the callers of the configuration, with the names of each view that they have. Callers
/// with the same rights share their views.
fn caller_views(snapshot: &Snapshot) -> Vec<(String, Vec<Arc<ListedNameSet>>)> {
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
const MAX_CATALOG_CALLERS: usize = 200;

/// The names of an element in a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedNames {
    name: Option<String>,
    uri: Option<String>,
    uri_template: Option<String>,
}

/// Returns the names and URIs in the lists of a catalog.
fn listed_names(catalog: &Catalog) -> HashSet<(Kind, String)> {
    let all = [Kind::Tools, Kind::Prompts, Kind::Resources, Kind::Templates].into_iter();
    let names = all.flat_map(|kind| {
        catalog.list(kind).items().filter_map(move |raw| {
            let names: ListedNames = serde_json::from_slice(&raw).ok()?;
            let name = match kind {
                Kind::Resources => names.uri,
                Kind::Templates => names.uri_template,
                Kind::Tools | Kind::Prompts | Kind::Skills => names.name,
            };
            Some((kind, name?))
        })
    });
    names.collect()
}
