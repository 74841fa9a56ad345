//! Configured quotas, and the choice of those that a call is charged to.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::call::{Context, Failure, Named, NativeName, Principal, ProfileName, ServerName};
use crate::clock;
use crate::config::{Config, Quota};
use crate::policy::limits::server_rates::ServerRates;
use crate::policy::limits::taking::LimitLevel;
use crate::policy::target::CallTarget;
use crate::shares::Holder;

use super::{ChargedQuota, LeasedCalls, QuotaLedger};

/// All quotas of a configuration.
#[derive(Debug)]
pub(crate) struct SetQuotas {
    ledger: Arc<QuotaLedger>,
    clients: Named<Arc<str>, Quota>,
    /// For each user of an issuer.
    issuers: Named<Arc<str>, Quota>,
    profiles: Named<ProfileName, Quota>,
    servers: Named<ServerName, Quota>,
    tools: Named<ServerName, Named<NativeName, Quota>>,
}

/// The quotas that apply to one call: checked before the call waits for a slot, and charged once it
/// has one.
#[derive(Debug)]
pub(crate) struct CallQuotas<'a> {
    ledger: &'a QuotaLedger,
    charged: Vec<ChargedQuota>,
    cost: NonZeroU32,
    /// Calls of the quotas that replicas share; `None` if the gateway is alone.
    leased: Option<LeasedCalls>,
}

impl CallQuotas<'_> {
    /// Checks that the call has room in all of them, and charges nothing.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.ledger.check(&self.charged, self.cost, clock::unix_now())
    }

    /// Takes the call from the quotas that replicas share, until it is charged or dropped.
    ///
    /// # Errors
    /// Those of [`QuotaLedger::lease`].
    pub(crate) async fn lease(&mut self) -> Result<(), Failure> {
        self.leased = self.ledger.lease(&self.charged, self.cost, clock::unix_now()).await?;
        Ok(())
    }

    /// Returns the calls that each of them still admits, and charges nothing.
    pub(crate) fn levels(&self) -> Vec<LimitLevel> {
        self.ledger.levels(&self.charged, self.cost, clock::unix_now())
    }

    /// Charges the call to all of them, or to none if another call has used up one since the check.
    pub(crate) fn charge(self) -> Result<(), Failure> {
        if let Some(leased) = self.leased {
            leased.keep();
            return Ok(());
        }
        self.ledger.charge(&self.charged, self.cost, clock::unix_now())
    }
}

impl SetQuotas {
    /// Returns the quotas of a configuration; `None` if it sets none.
    pub(crate) fn of(config: &Config, ledger: &Arc<QuotaLedger>) -> Option<Self> {
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

    /// Returns the quotas that apply to a call; `None` if there are none.
    pub(crate) fn find_for_call(
        &self,
        context: &Context,
        target: &CallTarget,
        cost: NonZeroU32,
    ) -> Option<CallQuotas<'_>> {
        let charged = self.find(context, target);
        (!charged.is_empty()).then_some(CallQuotas {
            ledger: &self.ledger,
            charged,
            cost,
            leased: None,
        })
    }

    /// Returns the rest of a caller's own quotas, and of those of each caller at servers and tools
    /// that it has used in their current windows.
    pub(crate) fn levels_of_caller(&self, who: &Principal, holder: &Holder) -> Vec<LimitLevel> {
        let own = self.find_own(who, holder);
        let describe = || Some(holder.describe());
        let servers = self.servers.iter().map(|(server, quota)| {
            charged(&ServerRates::limit_name(server, None), describe(), *quota)
        });
        let tools = self.tools.iter().flat_map(|(server, tools)| {
            tools.iter().map(move |(tool, quota)| {
                charged(&ServerRates::limit_name(server, Some(tool)), describe(), *quota)
            })
        });
        let each: Vec<_> = servers.chain(tools).collect();
        let levels = |quotas: &[ChargedQuota]| {
            self.ledger.levels(quotas, NonZeroU32::MIN, clock::unix_now())
        };
        let used = levels(&each).into_iter().zip(&each);
        let used = used.filter(|(level, quota)| level.remaining < u64::from(quota.setting.calls()));
        levels(&own).into_iter().chain(used.map(|(level, _)| level)).collect()
    }

    /// Returns the quotas of a caller itself.
    fn find_own(&self, who: &Principal, holder: &Holder) -> Vec<ChargedQuota> {
        let of_client = match who {
            Principal::Client(name) => self.clients.get(name).map(|quota| (name, quota)),
            Principal::User(_) | Principal::Anonymous => None,
        };
        let of_client =
            of_client.map(|(name, quota)| charged(&format!("client:{name}"), None, *quota));
        let of_issuer = who.issuer().and_then(|issuer| {
            let quota = self.issuers.get(issuer)?;
            Some(charged(&format!("issuer:{issuer}"), Some(holder.describe()), *quota))
        });
        of_client.into_iter().chain(of_issuer).collect()
    }

    fn find(&self, context: &Context, target: &CallTarget) -> Vec<ChargedQuota> {
        let mut found = Vec::new();
        let holder = Holder::of_context(context);
        let describe = || Some(holder.describe());
        let (server, tool) = (&target.server, target.tool_name());
        let of_tool = tool.and_then(|tool| self.tools.get(server)?.get(tool));
        if let Some(quota) = of_tool {
            found.push(charged(&ServerRates::limit_name(server, tool), describe(), *quota));
        }
        if let Some(quota) = self.servers.get(server) {
            found.push(charged(&ServerRates::limit_name(server, None), describe(), *quota));
        }
        found.extend(self.find_own(&context.principal, &holder));
        let profile = context.endpoint.profile();
        if let Some(quota) = self.profiles.get(profile) {
            found.push(charged(&format!("profile:{profile}"), None, *quota));
        }
        found
    }
}

fn charged(limit: &str, holder: Option<String>, quota: Quota) -> ChargedQuota {
    ChargedQuota { limit: format!("quota:{limit}"), holder, setting: quota }
}
