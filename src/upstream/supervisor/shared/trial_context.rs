//! The surroundings of a server that is tested apart from the running ones.

use std::sync::Arc;

use crate::telemetry::events::EventSender;
use crate::telemetry::metrics::Metrics;

use super::ServerContext;

impl ServerContext {
    /// Returns the context of a server that is tested apart from the running ones: it ends with the
    /// gateway and shares the limits of starts, and nothing that clients or later runs see.
    #[must_use]
    pub fn for_trial(&self) -> Self {
        Self {
            metrics: Arc::new(Metrics::new(env!("CARGO_PKG_VERSION"))),
            events: EventSender::disabled(),
            listed: Arc::default(),
            stop: self.stop.child_token(),
            hub: Arc::default(),
            store: None,
            grants: Arc::default(),
            sole_client: None,
            journals: Arc::default(),
            lists_by_era: Arc::default(),
            ..self.clone()
        }
    }
}
