//! `/tools`: the tokens that tools take up in a model's context, by estimate.

use schemars::JsonSchema;
use serde::Serialize;

use crate::snapshot::{ProfileTokens, TokenReport};

/// The page.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ToolsPage {
    /// Explanation of the numbers.
    pub estimate: &'static str,
    /// The tokens of all tools.
    pub tokens: usize,
    /// Every profile.
    pub profiles: Vec<ProfileTokenStatus>,
    /// Every server, in file order.
    pub servers: Vec<ServerTokenStatus>,
    /// Every tool, in listing order.
    pub tools: Vec<ToolTokenStatus>,
}

/// The tokens of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProfileTokenStatus {
    /// Its name.
    pub name: String,
    /// Discovery of its tools: `all`, `search`, `auto` or `code`.
    pub discovery: &'static str,
    /// Number of its tools.
    pub tools: usize,
    /// The tokens of their whole definitions.
    pub all_tokens: usize,
    /// Number of tools in the list for a client with unknown capabilities.
    pub listed: usize,
    /// The tokens of these.
    pub listed_tokens: usize,
    /// `budget` of the profile.
    pub budget: Option<usize>,
}

/// The tokens of a server's tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServerTokenStatus {
    /// Its name.
    pub name: String,
    /// Number of its tools.
    pub tools: usize,
    /// The tokens of their definitions.
    pub tokens: usize,
}

/// The tokens of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ToolTokenStatus {
    /// Its public name.
    pub name: String,
    /// Its server; `None` for the gateway itself.
    pub server: Option<String>,
    /// The tokens of its definition.
    pub tokens: usize,
}

impl ToolsPage {
    /// Builds the page of a report.
    pub fn of(report: &TokenReport) -> Self {
        let servers = report.servers.iter().map(|server| ServerTokenStatus {
            name: server.name.to_string(),
            tools: server.tools,
            tokens: server.tokens,
        });
        let tools = report.tools.iter().map(|tool| ToolTokenStatus {
            name: tool.name.to_string(),
            server: tool.origin.as_ref().map(|(server, _)| server.to_string()),
            tokens: tool.tokens,
        });
        Self {
            estimate: "o200k_base; other models differ",
            tokens: report.tools.iter().map(|tool| tool.tokens).sum(),
            profiles: report.profiles.iter().map(profile_status).collect(),
            servers: servers.collect(),
            tools: tools.collect(),
        }
    }
}

/// Returns the tokens of a profile, for a page.
pub(super) fn profile_status(profile: &ProfileTokens) -> ProfileTokenStatus {
    ProfileTokenStatus {
        name: profile.name.to_string(),
        discovery: profile.discovery.as_str(),
        tools: profile.tools,
        all_tokens: profile.all_tokens,
        listed: profile.listed.len(),
        listed_tokens: profile.listed_tokens(),
        budget: profile.budget,
    }
}
