//! Configured daily quotas, and the choice of those that a call is charged to.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::call::{Context, Failure, Named, NativeName, Principal, ProfileName, ServerName};
use crate::config::{Config, DailyQuota};

use super::permit::CallTarget;
use super::quotas::{ChargedQuota, QuotaCharge, QuotaLedger};
use super::server_rates::ServerRates;
use super::shares::Holder;

/// All quotas of a configuration.
#[derive(Debug)]
pub(super) struct SetQuotas {
    ledger: Arc<QuotaLedger>,
    clients: Named<Arc<str>, DailyQuota>,
    /// For each user of an issuer.
    issuers: Named<Arc<str>, DailyQuota>,
    profiles: Named<ProfileName, DailyQuota>,
    servers: Named<ServerName, DailyQuota>,
    tools: Named<ServerName, Named<NativeName, DailyQuota>>,
}

impl SetQuotas {
    /// Returns the quotas of a configuration; `None` if it sets none.
    pub(super) fn of(config: &Config, ledger: &Arc<QuotaLedger>) -> Option<Self> {
        let clients = config.clients.iter();
        let issuers = config.issuers.iter();
        let profiles = config.profiles.iter();
        let servers = config.servers.iter();
        let tools = servers.clone().filter_map(|server| {
            let tools = server.tools.overrides.iter();
            let tools: Named<_, _> =
                tools.filter_map(|(name, tool)| Some((name.clone(), tool.quota_each?))).collect();
            (!tools.is_empty()).then(|| (server.name.clone(), tools))
        });
        let quotas = Self {
            ledger: Arc::clone(ledger),
            clients: clients.filter_map(|it| Some((Arc::clone(&it.name), it.quota?))).collect(),
            issuers: issuers
                .filter_map(|it| Some((it.name.as_str().into(), it.quota_each?)))
                .collect(),
            profiles: profiles.filter_map(|it| Some((it.name.clone(), it.quota?))).collect(),
            tools: tools.collect(),
            servers: servers.filter_map(|it| Some((it.name.clone(), it.quota_each?))).collect(),
        };
        let is_empty = quotas.clients.is_empty()
            && quotas.issuers.is_empty()
            && quotas.profiles.is_empty()
            && quotas.servers.is_empty()
            && quotas.tools.is_empty();
        (!is_empty).then_some(quotas)
    }

    /// Charges a call to all quotas that apply to it.
    pub(super) fn charge(
        &self,
        (context, target): (&Context, &CallTarget),
        cost: NonZeroU32,
        since_1970: Duration,
    ) -> Result<Option<QuotaCharge>, Failure> {
        let charged = self.find(context, target);
        if charged.is_empty() {
            return Ok(None);
        }
        self.ledger.charge(&charged, cost, since_1970).map(Some)
    }

    /// Returns the quotas that apply to a call.
    fn find(&self, context: &Context, target: &CallTarget) -> Vec<ChargedQuota> {
        let mut found = Vec::new();
        let mut add = |limit: String, holder: Option<String>, quota: &DailyQuota| {
            let limit = format!("quota:{limit}");
            found.push(ChargedQuota { limit, holder, most: quota.calls() });
        };
        let holder = || Some(Holder::identify(&context.principal, context.address).describe());
        let (server, tool) = (&target.server, target.tool_name());
        let of_tool = tool.and_then(|tool| self.tools.get(server)?.get(tool));
        if let Some(quota) = of_tool {
            add(ServerRates::limit_name(server, tool), holder(), quota);
        }
        if let Some(quota) = self.servers.get(server) {
            add(ServerRates::limit_name(server, None), holder(), quota);
        }
        if let Principal::Client(name) = &context.principal
            && let Some(quota) = self.clients.get(name)
        {
            add(format!("client:{name}"), None, quota);
        }
        if let Some(issuer) = context.principal.issuer()
            && let Some(quota) = self.issuers.get(issuer)
        {
            add(format!("issuer:{issuer}"), holder(), quota);
        }
        let profile = context.endpoint.profile();
        if let Some(quota) = self.profiles.get(profile) {
            add(format!("profile:{profile}"), None, quota);
        }
        found
    }
}
