//! The configuration of a gateway with one server of another configuration, and without clients.

use std::sync::Arc;

use crate::source::NoEnvironment;
use crate::{Config, ConfigSource, LimitsConfig, ServerConfig};

impl Config {
    /// Returns a configuration with this server alone, under its own names. Nothing is counted, checked or
    /// changed: the gateway that sends the requests has done so. The limits of memory and time, and
    /// `state_keys`, are those of this configuration. `None` if the server cannot be described.
    pub fn of_one_server(&self, server: &ServerConfig) -> Option<Self> {
        let text = format!("{PLAIN_GATEWAY}[servers.{}]\n{PLAIN_SERVER}", server.name);
        let source = ConfigSource {
            name: "a server for other replicas".to_owned(),
            folder: ".".into(),
            bytes: text.into_bytes(),
        };
        let mut config = Self::read(&source, &NoEnvironment).ok()?;
        let plain = Arc::make_mut(config.servers.first_mut()?);
        *plain = ServerConfig {
            target: server.target.clone(),
            secrets: server.secrets.clone(),
            era: server.era,
            instances: server.instances,
            client_capabilities: server.client_capabilities,
            timeout: server.timeout,
            max_timeout: server.max_timeout,
            start_timeout: server.start_timeout,
            max_response: server.max_response,
            max_tools: server.max_tools,
            max_pages: server.max_pages,
            ..plain.clone()
        };
        config.gateway.limits = self.limits_of_one_sender();
        config.gateway.state_keys.clone_from(&self.gateway.state_keys);
        config.gateway.keep_alive = self.gateway.keep_alive;
        Some(config)
    }

    /// Returns the limits of this configuration, where one sender stands for all clients. A request may
    /// be longer than the client has sent it.
    fn limits_of_one_sender(&self) -> LimitsConfig {
        let limits = &self.gateway.limits;
        LimitsConfig {
            body: limits.body.saturating_mul(2),
            bodies_each: limits.bodies,
            unread_each: limits.unread,
            responses_each: limits.responses,
            parked_each: limits.parked,
            subscriptions: limits.all_subscriptions,
            share: 100,
            ..limits.clone()
        }
    }
}

/// Settings of the gateway that leave the elements of the server as they are.
const PLAIN_GATEWAY: &str = "[gateway]\nnaming = \"none\"\nuris = \"original\"\npins = \"off\"\n\
                             scan = \"off\"\nstate_dir = \"off\"\n";
/// Settings of the server that leave its calls as they are.
const PLAIN_SERVER: &str =
    "command = \"x\"\narguments = \"off\"\nin_flight = 100000\nread_cache = \"off\"\n";
