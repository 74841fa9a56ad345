//! Metric handles of principals and profiles.

use std::sync::Arc;

use crate::call::{Named, Principal, ProfileName};
use crate::config::Config;
use crate::telemetry::metrics::{CallMetrics, Metrics};

/// One handle for each configured client, issuer and profile: requests cannot create
/// more.
#[derive(Debug)]
pub(crate) struct PrincipalCounts {
    clients: Named<Arc<str>, Arc<CallMetrics>>,
    /// One for all users of an issuer, by its name: the number of users is unbounded.
    issuers: Named<Arc<str>, Arc<CallMetrics>>,
    anonymous: Arc<CallMetrics>,
    profiles: Named<ProfileName, Arc<CallMetrics>>,
}

impl PrincipalCounts {
    pub(crate) fn new(config: &Config, metrics: &Metrics) -> Self {
        let clients = config.clients.iter().map(|client| &client.name);
        let issuers = config.issuers.iter().map(|issuer| issuer.name.as_str());
        let profiles = config.profiles.iter().map(|profile| profile.name.clone());
        Self {
            clients: clients.map(|name| (Arc::clone(name), metrics.client(name))).collect(),
            issuers: issuers
                .map(|name| (name.into(), metrics.client(&format!("{name}:*"))))
                .collect(),
            anonymous: metrics.client(Principal::Anonymous.as_str()),
            profiles: profiles
                .chain([ProfileName::default()])
                .map(|name| (name.clone(), metrics.profile_metrics(name.as_str())))
                .collect(),
        }
    }

    pub(crate) fn client(&self, who: &Principal) -> Option<&Arc<CallMetrics>> {
        match who {
            Principal::Client(name) => self.clients.get(name),
            Principal::User(_) => self.issuers.get(who.issuer()?),
            Principal::Anonymous => Some(&self.anonymous),
        }
    }

    pub(crate) fn profile(&self, name: &str) -> Option<&Arc<CallMetrics>> {
        self.profiles.get(name)
    }
}
