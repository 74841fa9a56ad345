//! Agents, which list once after connecting.

use serde_json::json;

use super::upstream::Era;
use super::{Gateway, Host, Way};

/// A client that lists once.
#[derive(Debug, Clone, Copy)]
pub enum Agent {
    Modern,
    Legacy,
    ModernOverStdio,
    LegacyOverStdio,
}

pub const AGENTS: [Agent; 4] =
    [Agent::Modern, Agent::Legacy, Agent::ModernOverStdio, Agent::LegacyOverStdio];

impl Agent {
    /// Returns the agents of an era: over HTTP, and over standard streams.
    pub fn of(era: Era) -> [Self; 2] {
        match era {
            Era::Modern => [Self::Modern, Self::ModernOverStdio],
            Era::Legacy => [Self::Legacy, Self::LegacyOverStdio],
        }
    }

    /// Returns the names in its first list.
    pub async fn list_tools(self, gateway: &Gateway) -> Vec<String> {
        let mut host = Host::of(gateway, Way::Here);
        let answer = match self {
            Self::Modern => return gateway.modern().tool_names().await,
            Self::Legacy => return gateway.legacy().await.tool_names().await,
            Self::ModernOverStdio => host.modern("tools/list", json!({})).await,
            Self::LegacyOverStdio => {
                host.initialize().await;
                host.request("tools/list", json!({})).await
            }
        };
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}
