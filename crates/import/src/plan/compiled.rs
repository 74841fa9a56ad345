//! Servers in the form that the gateway would read.

use std::sync::Arc;

use trunkline_config::{ConfigFaults, ServerConfig};

use crate::gateway_file::{CompleteEnvironment, GatewayFile};

use super::known::{ComparedServer, KnownServers, entry_text};
use super::render::render_server;
use super::secret_files::TrialFiles;
use crate::documents::imported::ImportedServer;

/// A server in the form that the gateway would read, with its secrets in place.
pub(crate) struct CompiledServer {
    /// The server with stand-ins for variables that are not set here, and its table in the
    /// configuration.
    pub(crate) complete: Option<(Arc<ServerConfig>, toml::Table)>,
    /// Faults of the server in this environment.
    pub(crate) fault: Option<ConfigFaults>,
}

impl CompiledServer {
    pub(crate) fn compile(server: &ImportedServer, name: &str, gateway: &GatewayFile) -> Self {
        let mut files = TrialFiles::new(gateway);
        let text = render_server(server, name, &mut files);
        let document: toml::Table = text.parse().unwrap_or_default();
        let table = document.get("servers").and_then(|servers| servers.get(name)?.as_table());
        let environment = CompleteEnvironment(&files.pending);
        let config = table.map(|table| entry_text(name, table));
        let config = config.and_then(|text| gateway.read_piece(text, &environment).ok());
        let config = config.and_then(|config| config.servers.into_iter().next());
        let fault = gateway.read_piece(text, &files.pending).err();
        Self { complete: config.zip(table.cloned()), fault }
    }

    /// Returns the equivalent server of the gateway, and the table of this one.
    pub(crate) fn find_known<'k>(
        &self,
        known: &'k KnownServers,
    ) -> Option<(&'k ComparedServer, &toml::Table)> {
        let (config, table) = self.complete.as_ref()?;
        Some((known.find(config)?, table))
    }
}
