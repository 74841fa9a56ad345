//! The lists of tools that clients get, with their tokens: for `trunkline tools` and
//! `trunkline report`, also of a gateway that they start themselves.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::limit_text;
use crate::call::{ProfileName, ServerName};
use crate::catalog::{ToolSignature, listed_name};
use crate::config::AdminRole;
use crate::snapshot::{ProfileTokens, Snapshot};

/// The tools of all servers, and the lists of profiles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ToolListing {
    /// Explanation of the tokens.
    pub(crate) estimate: String,
    /// The profiles, or the requested one.
    pub(crate) profiles: Vec<ProfileListing>,
    /// Every server, in file order.
    pub(crate) servers: Vec<CountedServer>,
    /// Every tool of every server, as clients without a profile list it.
    pub(crate) tools: Vec<CountedTool>,
    /// The servers that have listed nothing.
    pub(crate) unlisted: Vec<UnlistedServer>,
}

/// The list of a profile, for a client with unknown capabilities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProfileListing {
    /// Its name.
    pub(crate) name: String,
    /// Number of its tools, without meta-tools.
    pub(crate) tools: usize,
    /// The tokens of their whole definitions.
    pub(crate) all_tokens: usize,
    /// `budget` of the profile.
    pub(crate) budget: Option<usize>,
    /// The list.
    pub(crate) listed: Vec<ListedSignature>,
}

/// A tool in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListedSignature {
    /// Its public name.
    pub(crate) name: String,
    /// Its parameters and the start of its description, on one line.
    pub(crate) signature: String,
    /// The tokens of its definition.
    pub(crate) tokens: usize,
}

/// The tools of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CountedServer {
    /// Its name.
    pub(crate) name: String,
    /// Number of its tools.
    pub(crate) tools: usize,
    /// The tokens of their definitions.
    pub(crate) tokens: usize,
    /// `tools.deny` of the server: the patterns that hide tools already.
    pub(crate) denied: Vec<String>,
}

/// A tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CountedTool {
    /// Its public name.
    pub(crate) name: String,
    /// Its server; `None` for the gateway itself.
    pub(crate) server: Option<String>,
    /// The server's own name for it.
    pub(crate) native: Option<String>,
    /// The tokens of its definition.
    pub(crate) tokens: usize,
}

/// A server that has listed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UnlistedServer {
    /// Its name.
    pub(crate) name: String,
    /// The reason, as in the status; `None` if it has not failed.
    pub(crate) reason: Option<String>,
}

impl ToolListing {
    /// Lists the tools of a snapshot, in all profiles or in one. Takes up to some seconds.
    pub(crate) fn of(snapshot: &Snapshot, only: Option<&ProfileName>) -> Self {
        let report = snapshot.report_tokens();
        let profiles = report.profiles.iter();
        let profiles = profiles.filter(|profile| only.is_none_or(|only| *only == profile.name));
        let servers = report.servers.iter().map(|server| CountedServer {
            name: server.name.to_string(),
            tools: server.tools,
            tokens: server.tokens,
            denied: denied_patterns(snapshot, &server.name),
        });
        let tools = report.tools.iter().map(|tool| {
            let origin = tool.origin.as_ref();
            let server = origin.map(|(server, _)| server.to_string());
            let native = origin.map(|(_, native)| native.to_string());
            CountedTool { name: tool.name.to_string(), server, native, tokens: tool.tokens }
        });
        Self {
            estimate: "o200k_base; other models differ".to_owned(),
            profiles: profiles.map(|profile| list_profile(snapshot, profile)).collect(),
            servers: servers.collect(),
            tools: tools.collect(),
            unlisted: unlisted_servers(snapshot),
        }
    }
}

impl ProfileListing {
    /// Returns the tokens of the list.
    pub(crate) fn listed_tokens(&self) -> usize {
        self.listed.iter().map(|tool| tool.tokens).sum()
    }
}

fn list_profile(snapshot: &Snapshot, profile: &ProfileTokens) -> ProfileListing {
    let counts: HashMap<_, _> =
        profile.listed.iter().map(|(name, tokens)| (name.as_str(), *tokens)).collect();
    let listed = snapshot.usual_tools(&profile.name);
    let listed = listed.iter().map(|raw| {
        let name = listed_name(raw).unwrap_or_default().into_owned();
        let tokens = counts.get(name.as_str()).copied().unwrap_or_default();
        ListedSignature { name, signature: ToolSignature::from_raw(raw).to_string(), tokens }
    });
    ProfileListing {
        name: profile.name.to_string(),
        tools: profile.tools,
        all_tokens: profile.all_tokens,
        budget: profile.budget,
        listed: listed.collect(),
    }
}

fn denied_patterns(snapshot: &Snapshot, server: &ServerName) -> Vec<String> {
    let denied = snapshot.server(server).map(|member| &member.config.tools.deny);
    denied.into_iter().flatten().map(|pattern| pattern.as_str().to_owned()).collect()
}

/// Returns each server that has listed nothing, with the reason.
pub(crate) fn unlisted_servers(snapshot: &Snapshot) -> Vec<UnlistedServer> {
    let silent = snapshot.servers().filter(|member| member.server.list().is_none());
    let unlisted = silent.map(|member| UnlistedServer {
        name: member.config.name.to_string(),
        reason: member.server.view().last_error.map(|(_, error)| error),
    });
    unlisted.collect()
}

/// Removes quotes of output from the reasons, for an operator who may not read output.
pub(super) fn limit_reasons(unlisted: &mut [UnlistedServer], role: AdminRole) {
    for reason in unlisted.iter_mut().filter_map(|server| server.reason.as_mut()) {
        limit_text(reason, role);
    }
}

/// Answers with the tools of the running gateway.
pub(crate) async fn list_tools(request: EndpointRequest) -> EndpointAnswer {
    let snapshot = request.report.gateway.snapshots.load_full();
    let only = match request.argument("profile") {
        Some(name) => Some(find_profile(&snapshot, name)?),
        None => None,
    };
    let turns = &request.report.evaluations;
    let listed = turns.evaluate(move || ToolListing::of(&snapshot, only.as_ref())).await;
    let mut listed =
        listed.map_err(|error| ApiProblem::new(ProblemCode::Internal, error.to_string()))?;
    limit_reasons(&mut listed.unlisted, request.role);
    answer(&listed)
}

/// The names of all tools, for completions.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ToolNames {
    /// In listing order.
    names: Vec<String>,
}

/// Answers with the names of tools, without counting their tokens.
pub(crate) fn list_names(request: &EndpointRequest) -> EndpointAnswer {
    let snapshot = request.report.gateway.snapshots.load_full();
    let entries = snapshot.plain.catalog.entries();
    answer(&ToolNames { names: entries.map(|entry| entry.public.to_string()).collect() })
}

fn find_profile(snapshot: &Snapshot, name: &str) -> Result<ProfileName, ApiProblem> {
    let known = ProfileName::new(name)
        .ok()
        .filter(|_| name == ProfileName::DEFAULT || snapshot.profile(name).is_some());
    let detail = || format!("the configuration has no profile {name:?}");
    known.ok_or_else(|| ApiProblem::new(ProblemCode::UnknownProfile, detail()))
}
