//! State of the limits, which outlives snapshots.
//!
//! A reload compiles new [`PolicyLimits`] from the configuration and reuses the buckets and gates
//! in the [`LimitRegistry`] that have the same name and settings, so that a reload refills no
//! bucket. Unused ones are dropped with the last snapshot that used them.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::call::{Context, Failure, Named, NativeName, Principal, ProfileName, ServerName};
use crate::clock;
use crate::cluster::UsedItems;
use crate::config::{ArgumentsChoice, Config, Rate, ServerConfig};
use crate::policy::interceptors::{InterceptorRegistry, Interceptors};
use crate::policy::limits::breaker::{Breaker, BreakerPass, BreakerReports, BreakerSubject};
use crate::policy::limits::failed_logins::FailedLogins;
use crate::policy::limits::gate::{Gate, GateSettings, GateShare};
use crate::policy::limits::retry_budget::RetryBudget;
use crate::policy::limits::server_rates::{HolderBuckets, ServerRates, ToolRates};
use crate::policy::limits::taking::{LimitLevel, RateTaker};
use crate::policy::quotas::QuotaLedger;
use crate::policy::quotas::set_quotas::{CallQuotas, SetQuotas};
use crate::policy::target::CallTarget;
use crate::shares::{
    AddressBuckets, Bucket, Holder, KeyedBuckets, LargeWork, PermitSource, UsedConsents,
};
use crate::telemetry::events::EventSender;
use crate::telemetry::metrics::Metrics;

/// All buckets and gates in use.
#[derive(Debug, Default)]
pub struct LimitRegistry {
    buckets: SharedTable<(String, Rate), Bucket>,
    keyed: SharedTable<Rate, AddressBuckets>,
    failed_logins: SharedTable<Rate, FailedLogins>,
    users: SharedTable<Rate, KeyedBuckets<Arc<str>>>,
    holders: SharedTable<(String, Rate), HolderBuckets>,
    quotas: Arc<QuotaLedger>,
    gates: SharedTable<(ServerName, GateSettings), Gate>,
    retry_budgets: SharedTable<ServerName, RetryBudget>,
    breakers: Mutex<Vec<KnownBreaker>>,
    interceptors: InterceptorRegistry,
    reports: Option<(Arc<Metrics>, EventSender)>,
    large_work: Arc<LargeWork>,
    consents: Arc<UsedConsents>,
    /// State that replicas share; `None` if the gateway is alone.
    shared: Option<SharedLimits>,
}

/// The limits that replicas share.
#[derive(Debug, Clone)]
pub struct SharedLimits {
    /// Permits of rates.
    pub rates: Arc<dyn PermitSource>,
    /// Items that are used once.
    pub items: Arc<UsedItems>,
}

/// A breaker, and the configuration of its server: another server of the same name gets a new
/// breaker.
type KnownBreaker = (Arc<ServerConfig>, Weak<Breaker>);

/// Values that are shared while any reference to them exists.
#[derive(Debug)]
struct SharedTable<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for SharedTable<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> SharedTable<K, V> {
    fn find(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let mut all = self.0.lock();
        all.retain(|_, held| held.strong_count() > 0);
        if let Some(held) = all.get(&key).and_then(Weak::upgrade) {
            return held;
        }
        let new = Arc::new(make());
        all.insert(key, Arc::downgrade(&new));
        new
    }
}

impl LimitRegistry {
    /// Creates a registry that reports transitions of breakers, and continues the quotas of an
    /// earlier run.
    pub fn new(metrics: Arc<Metrics>, events: EventSender, quotas: Arc<QuotaLedger>) -> Self {
        Self { reports: Some((metrics, events)), quotas, ..Self::default() }
    }

    /// Returns the registry with the limits that replicas share, if there are others.
    #[must_use]
    pub fn sharing(self, shared: Option<SharedLimits>) -> Self {
        Self { shared, ..self }
    }

    /// Returns the source of permits of rates that replicas share; `None` if the gateway is alone.
    fn shared_rates(&self) -> Option<&Arc<dyn PermitSource>> {
        self.shared.as_ref().map(|shared| &shared.rates)
    }

    /// Returns the counts of quotas.
    pub fn quotas(&self) -> &Arc<QuotaLedger> {
        &self.quotas
    }

    /// Returns the limits of a configuration, with the state of those that were in use before.
    pub fn limits(&self, config: &Config) -> PolicyLimits {
        let gateway = config.gateway.rate.map(|rate| {
            // It protects this process, and is not shared.
            self.buckets.find(("gateway".into(), rate), || Bucket::new(rate))
        });
        let address = config
            .gateway
            .client_rate
            .map(|rate| self.keyed.find(rate, || AddressBuckets::new(rate)));
        let failed_logins = config.gateway.failed_logins;
        let source = self.shared_rates();
        let new_logins = |rate| FailedLogins::new(rate).shared_by(source, rate);
        let failed_logins =
            failed_logins.map(|rate| self.failed_logins.find(rate, || new_logins(rate)));
        let users = config.gateway.client_rate.filter(|_| !config.issuers.is_empty());
        let new_users = |rate| {
            KeyedBuckets::new(rate).shared_as("user", source, |name: &Arc<str>| name.to_string())
        };
        let users = users.map(|rate| self.users.find(rate, || new_users(rate)));
        let clients = config.clients.iter().filter_map(|client| {
            let rate = client.rate.or(config.gateway.client_rate)?;
            let bucket = self.bucket(&client_limit(&client.name), rate);
            Some((Arc::clone(&client.name), bucket))
        });
        let clients: Named<_, _> = clients.collect();
        let profiles = config.profiles.iter().filter_map(|profile| {
            let bucket = self.bucket(&profile_limit(profile.name.as_str()), profile.rate?);
            Some((profile.name.clone(), bucket))
        });
        let profiles: Named<_, _> = profiles.collect();
        let servers = config.servers.iter();
        let servers: Named<_, _> = servers
            .map(|server| (server.name.clone(), self.server_limits(server, config)))
            .collect();
        let has_rates = users.is_some()
            || !clients.is_empty()
            || !profiles.is_empty()
            || servers.values().any(|server| !server.rates.are_unset());
        let large_work = Arc::clone(&self.large_work);
        let quotas = SetQuotas::of(config, &self.quotas);
        let interceptors = self.interceptors.interceptors(config);
        PolicyLimits {
            gateway,
            address,
            failed_logins,
            users,
            clients,
            profiles,
            quotas,
            interceptors,
            servers,
            large_work,
            consents: Arc::clone(&self.consents),
            shares_rates: has_rates && self.shared.is_some(),
            used_items: self.shared.as_ref().map(|shared| Arc::clone(&shared.items)),
        }
    }

    fn server_limits(&self, server: &Arc<ServerConfig>, config: &Config) -> ServerLimits {
        let name = &server.name;
        let settings = GateSettings {
            in_flight: server.in_flight,
            queue: server.queue,
            queue_timeout: server.queue_timeout,
            each: config.distinguishes_clients().then(|| GateShare {
                in_flight: config.share_of(server.in_flight),
                queue: config.share_of(server.queue),
            }),
        };
        let own_arguments = server.tools.overrides.iter();
        let own_arguments = own_arguments
            .filter_map(|(native, tool)| Some((native.clone(), tool.transforms.arguments.choice?)));
        ServerLimits {
            arguments: server.arguments,
            own_arguments: own_arguments.collect(),
            rates: self.server_rates(server),
            gate: self.gates.find((name.clone(), settings), || Gate::new(settings)),
            retry_budget: self.retry_budgets.find(name.clone(), RetryBudget::default),
            breaker: self.breaker(server),
        }
    }

    fn server_rates(&self, server: &ServerConfig) -> ServerRates {
        let name = &server.name;
        let tools = server.tools.overrides.iter().filter_map(|(native, tool)| {
            let limit = || ServerRates::limit_name(name, Some(native));
            let rates = ToolRates {
                all: tool.rate.map(|rate| self.bucket(&limit(), rate)),
                each: tool.rate_each.map(|rate| self.holder_buckets(limit(), rate)),
                cost: NonZeroU32::new(tool.cost).unwrap_or(NonZeroU32::MIN),
            };
            (!rates.are_unset()).then(|| (native.clone(), rates))
        });
        let limit = || ServerRates::limit_name(name, None);
        ServerRates {
            all: server.rate.map(|rate| self.bucket(&limit(), rate)),
            each: server.rate_each.map(|rate| self.holder_buckets(limit(), rate)),
            tools: tools.collect(),
        }
    }

    fn holder_buckets(&self, limit: String, rate: Rate) -> Arc<HolderBuckets> {
        let source = self.shared_rates();
        let name = format!("each:{limit}");
        let new = || HolderBuckets::new(rate).shared_as(&name, source, Holder::describe);
        self.holders.find((limit, rate), new)
    }

    /// Returns the breaker of a server, if it has one: the one in use, if neither its settings nor
    /// the server's address have changed.
    fn breaker(&self, server: &Arc<ServerConfig>) -> Option<Arc<Breaker>> {
        let settings = server.breaker?;
        let mut known = self.breakers.lock();
        known.retain(|(_, held)| held.strong_count() > 0);
        let same = |config: &ServerConfig| {
            config.name == server.name
                && config.breaker == server.breaker
                && config.target == server.target
        };
        let held = known.iter().find(|(config, _)| same(config));
        if let Some(held) = held.and_then(|(_, held)| held.upgrade()) {
            return Some(held);
        }
        let reports = self.reports.as_ref().map(|(metrics, events)| BreakerReports {
            metrics: metrics.server(server.name.as_str()),
            events: events.clone(),
        });
        let subject = BreakerSubject::Server(server.name.clone());
        let new = Arc::new(Breaker::new(subject, settings, reports));
        known.push((Arc::clone(server), Arc::downgrade(&new)));
        Some(new)
    }

    fn bucket(&self, name: &str, rate: Rate) -> Arc<Bucket> {
        let source = self.shared_rates();
        let new = || Bucket::new(rate).shared_as(name, source);
        self.buckets.find((name.to_owned(), rate), new)
    }
}

/// The limits of one snapshot.
#[derive(Debug)]
pub struct PolicyLimits {
    gateway: Option<Arc<Bucket>>,
    /// For clients without a key.
    address: Option<Arc<AddressBuckets>>,
    /// Failed attempts with keys and tokens, by address.
    pub(super) failed_logins: Option<Arc<FailedLogins>>,
    /// For users of issuers.
    users: Option<Arc<KeyedBuckets<Arc<str>>>>,
    clients: Named<Arc<str>, Arc<Bucket>>,
    profiles: Named<ProfileName, Arc<Bucket>>,
    /// `None` if there are no quotas.
    quotas: Option<SetQuotas>,
    /// `None` if there are no interceptors.
    pub(super) interceptors: Option<Interceptors>,
    servers: Named<ServerName, ServerLimits>,
    pub(super) large_work: Arc<LargeWork>,
    pub(super) consents: Arc<UsedConsents>,
    /// True if replicas share rates, and some are set: they are provided before they are taken.
    pub(super) shares_rates: bool,
    /// Items that replicas use once; `None` if the gateway is alone.
    pub(super) used_items: Option<Arc<UsedItems>>,
}

impl PolicyLimits {
    /// Returns true if replicas share limits.
    pub(super) fn are_shared(&self) -> bool {
        self.used_items.is_some()
    }

    /// Checks the rates of a request of any method: the client's own, then the whole gateway's.
    pub(super) fn check_request(
        &self,
        who: &Principal,
        address: IpAddr,
        taker: &mut impl RateTaker,
    ) -> Result<(), Failure> {
        match who {
            Principal::Client(name) => {
                if let Some(bucket) = self.clients.get(name) {
                    taker.take_one(bucket, || client_limit(name))?;
                }
            }
            Principal::User(name) => {
                if let Some(buckets) = &self.users {
                    taker.take_keyed(buckets, name, NonZeroU32::MIN, || USER_LIMIT.into())?;
                }
            }
            Principal::Anonymous => self.check_address(address, taker)?,
        }
        let gateway = self.gateway.as_ref();
        gateway.map_or(Ok(()), |bucket| taker.take_one(bucket, || GATEWAY_LIMIT.into()))
    }

    pub(super) fn check_address(
        &self,
        address: IpAddr,
        taker: &mut impl RateTaker,
    ) -> Result<(), Failure> {
        let Some(buckets) = &self.address else { return Ok(()) };
        taker.take_of_address(buckets, address, NonZeroU32::MIN)
    }

    /// Checks the rates that servers share: the profile's, and the extra cost of the call at the
    /// client's and the gateway's, which have counted it as one request.
    pub(super) fn check_shared(
        &self,
        context: &Context,
        cost: NonZeroU32,
        taker: &mut impl RateTaker,
    ) -> Result<(), Failure> {
        let profile = context.endpoint.profile();
        if !self.profiles.is_empty()
            && let Some(bucket) = self.profiles.get(profile)
        {
            taker.take(bucket, cost, || profile_limit(profile))?;
        }
        match NonZeroU32::new(cost.get() - 1) {
            Some(more) => self.check_more(context, more, taker),
            None => Ok(()),
        }
    }

    fn check_more(
        &self,
        context: &Context,
        more: NonZeroU32,
        taker: &mut impl RateTaker,
    ) -> Result<(), Failure> {
        match &context.principal {
            Principal::Client(name) => {
                if let Some(bucket) = self.clients.get(name) {
                    taker.take(bucket, more, || client_limit(name))?;
                }
            }
            Principal::User(name) => {
                if let Some(buckets) = &self.users {
                    taker.take_keyed(buckets, name, more, || USER_LIMIT.into())?;
                }
            }
            Principal::Anonymous => {
                if let Some(buckets) = &self.address {
                    taker.take_of_address(buckets, context.address, more)?;
                }
            }
        }
        let gateway = self.gateway.as_ref();
        gateway.map_or(Ok(()), |bucket| taker.take(bucket, more, || GATEWAY_LIMIT.into()))
    }

    /// Returns the quotas that apply to a call; `None` if there are none.
    pub(super) fn find_quotas(
        &self,
        context: &Context,
        target: &CallTarget,
        cost: NonZeroU32,
    ) -> Option<CallQuotas<'_>> {
        self.quotas.as_ref()?.find_for_call(context, target, cost)
    }

    /// Returns the rest of a caller's quotas, and of the rates and quotas of each caller at servers
    /// and tools, as far as it has used them.
    pub(super) fn levels_of_caller(&self, who: &Principal, address: IpAddr) -> Vec<LimitLevel> {
        let holder = Holder::identify(who, address);
        let quotas = self.quotas.iter().flat_map(|quotas| quotas.levels_of_caller(who, &holder));
        let rates = self.servers.iter();
        let rates = rates.flat_map(|(name, limits)| limits.rates().used_levels(name, &holder));
        quotas.chain(rates).collect()
    }

    pub(super) fn server(&self, server: &ServerName) -> Option<&ServerLimits> {
        self.servers.get(server)
    }
}

/// The name of the limit of all clients in errors and metrics.
pub(super) const GATEWAY_LIMIT: &str = "gateway";
/// The name of the limit of a user.
const USER_LIMIT: &str = "client";

/// Returns the name of a client's limit in errors and metrics.
fn client_limit(client: &str) -> String {
    format!("client:{client}")
}

/// Returns the name of a profile's limit.
fn profile_limit(profile: &str) -> String {
    format!("profile:{profile}")
}

/// The limits of one server.
#[derive(Debug)]
pub struct ServerLimits {
    rates: ServerRates,
    gate: Arc<Gate>,
    retry_budget: Arc<RetryBudget>,
    breaker: Option<Arc<Breaker>>,
    arguments: ArgumentsChoice,
    /// Settings of the tools that have their own.
    own_arguments: Named<NativeName, ArgumentsChoice>,
}

impl ServerLimits {
    /// Returns the treatment of arguments that do not fit the schema of this tool.
    pub(super) fn arguments(&self, tool: &NativeName) -> ArgumentsChoice {
        self.own_arguments.get(tool).copied().unwrap_or(self.arguments)
    }

    /// Returns the rates of the server and its tools.
    pub(super) fn rates(&self) -> &ServerRates {
        &self.rates
    }

    /// Checks whether the server's breaker would let a call through.
    pub(super) fn check_breaker(&self) -> Result<(), Failure> {
        self.breaker.as_ref().map_or(Ok(()), |breaker| breaker.check(clock::now()))
    }

    /// Passes the server's breaker, if there is one.
    pub(super) fn enter_breaker(&self) -> Result<Option<BreakerPass>, Failure> {
        self.breaker.as_ref().map(|breaker| breaker.enter(clock::now())).transpose()
    }

    /// Returns a pass for a follow-up of a call, which is sent unconditionally.
    pub(super) fn follow_up(&self) -> Option<BreakerPass> {
        self.breaker.as_ref().map(Breaker::follow_up)
    }

    /// Returns the server's circuit breaker, if there is one.
    pub fn breaker(&self) -> Option<&Arc<Breaker>> {
        self.breaker.as_ref()
    }

    /// Returns the budget for retries of the server's calls.
    pub fn retry_budget(&self) -> &Arc<RetryBudget> {
        &self.retry_budget
    }

    /// Returns the server's gate.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }
}
