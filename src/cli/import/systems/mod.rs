//! Configurations of systems that call MCP servers on behalf of many agents. Besides servers they
//! contain the tools of each agent: profiles.

pub(super) mod action_servers;
pub(super) mod ava;
pub(super) mod openlegion;
pub(super) mod signalwire;
