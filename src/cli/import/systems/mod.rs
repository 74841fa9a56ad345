//! The configurations of systems that call MCP servers on behalf of many agents. Besides servers
//! they say which agent may use which tools: profiles.

pub(super) mod action_servers;
pub(super) mod ava;
pub(super) mod openlegion;
pub(super) mod signalwire;
