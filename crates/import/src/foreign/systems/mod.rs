//! Configurations of systems that call MCP servers on behalf of many agents. Besides servers they
//! contain the tools of each agent: profiles.

pub(crate) mod action_servers;
pub(crate) mod ava;
pub(crate) mod openlegion;
pub(crate) mod signalwire;
