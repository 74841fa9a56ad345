//! Snapshots of one server of another snapshot, without the settings of clients.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::child::Guardian;
use crate::config::Config;
use crate::policy::{DefinitionGuard, QuotaLedger};
use crate::snapshot::DisabledAtStart;
use crate::telemetry::metrics::Metrics;
use crate::upstream::{self, ServerContext};

use super::{Snapshots, StartUp};

impl Snapshots {
    /// Publishes a running server alone: each element under its own name, for every caller, and with no
    /// other limits than its memory and time. It ends with the snapshots that have started it.
    pub fn of_one_server(
        server: &Arc<upstream::Server>,
        config: Config,
        metrics: &Arc<Metrics>,
    ) -> Arc<Self> {
        let startup = StartUp {
            config,
            surroundings: ServerContext::new(Guardian::none(), Arc::clone(metrics)),
            info: Bytes::from_static(b"{}"),
            definitions: DefinitionGuard::new(None),
            quotas: Arc::new(QuotaLedger::default()),
            shared_limits: None,
            disabled: DisabledAtStart::default(),
        };
        startup.surroundings.set_limits(&startup.config);
        let servers = HashMap::from([(server.name().clone(), Arc::clone(server))]);
        Self::with_servers(startup, servers, false)
    }
}
