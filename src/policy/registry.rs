//! The state of the limits, which outlives snapshots.
//!
//! A reload compiles new [`PolicyLimits`] from the configuration and reuses the
//! buckets and gates in the [`LimitRegistry`] that have the same name and settings,
//! so that a reload refills no bucket. Unused ones are dropped with the last
//! snapshot that used them.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::call::{Failure, Named, NativeName, ServerName};
use crate::config::{ArgumentsChoice, Config, Rate, ServerConfig};

use super::gate::{Gate, GateSettings, GateShare};
use super::large_work::LargeWork;
use super::limit_name;
use super::rate::{AddressBuckets, Bucket};
use super::retry_budget::RetryBudget;

/// All buckets and gates in use.
#[derive(Debug, Default)]
pub struct LimitRegistry {
    buckets: SharedTable<(String, Rate), Bucket>,
    keyed: SharedTable<Rate, AddressBuckets>,
    gates: SharedTable<(ServerName, GateSettings), Gate>,
    retry_budgets: SharedTable<ServerName, RetryBudget>,
    large_work: Arc<LargeWork>,
}

/// Values that are shared for as long as somebody holds them.
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
    /// The limits of a configuration, with the state of those that were in use
    /// before.
    pub fn limits(&self, config: &Config) -> PolicyLimits {
        let gateway = config.gateway.rate.map(|rate| self.bucket("gateway".into(), rate));
        let address = config
            .gateway
            .client_rate
            .map(|rate| self.keyed.find(rate, || AddressBuckets::new(rate)));
        let clients = config.clients.iter().filter_map(|client| {
            let rate = client.rate.or(config.gateway.client_rate)?;
            let bucket = self.bucket(client_limit(&client.name), rate);
            Some((Arc::clone(&client.name), bucket))
        });
        let clients = clients.collect();
        let servers = config.servers.iter();
        let servers = servers
            .map(|server| (server.name.clone(), self.server_limits(server, config)))
            .collect();
        let large_work = Arc::clone(&self.large_work);
        PolicyLimits { gateway, address, clients, servers, large_work }
    }

    fn server_limits(&self, server: &ServerConfig, config: &Config) -> ServerLimits {
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
        let tools = server.tools.overrides.iter().filter_map(|(native, tool)| {
            let bucket = self.bucket(limit_name(name, Some(native)), tool.rate?);
            Some((native.clone(), bucket))
        });
        let own_arguments = server.tools.overrides.iter();
        let own_arguments = own_arguments
            .filter_map(|(native, tool)| Some((native.clone(), tool.transforms.arguments.choice?)));
        ServerLimits {
            arguments: server.arguments,
            own_arguments: own_arguments.collect(),
            rate: server.rate.map(|rate| self.bucket(limit_name(name, None), rate)),
            tools: tools.collect(),
            gate: self.gates.find((name.clone(), settings), || Gate::new(settings)),
            retry_budget: self.retry_budgets.find(name.clone(), RetryBudget::default),
        }
    }

    fn bucket(&self, name: String, rate: Rate) -> Arc<Bucket> {
        self.buckets.find((name, rate), || Bucket::new(rate))
    }
}

/// The limits of one snapshot.
#[derive(Debug)]
pub struct PolicyLimits {
    gateway: Option<Arc<Bucket>>,
    /// For clients without a key.
    address: Option<Arc<AddressBuckets>>,
    clients: Named<Arc<str>, Arc<Bucket>>,
    servers: Named<ServerName, ServerLimits>,
    pub(super) large_work: Arc<LargeWork>,
}

impl PolicyLimits {
    pub(super) fn check_gateway(&self) -> Result<(), Failure> {
        self.gateway.as_ref().map_or(Ok(()), |bucket| bucket.check(|| "gateway".into()))
    }

    pub(super) fn check_address(&self, address: IpAddr) -> Result<(), Failure> {
        self.address.as_ref().map_or(Ok(()), |buckets| buckets.check(address))
    }

    pub(super) fn check_client(&self, name: &str) -> Result<(), Failure> {
        self.clients.get(name).map_or(Ok(()), |bucket| bucket.check(|| client_limit(name)))
    }

    pub(super) fn server(&self, server: &ServerName) -> Option<&ServerLimits> {
        self.servers.get(server)
    }
}

/// The name of a client's limit in errors and metrics.
fn client_limit(client: &str) -> String {
    format!("client:{client}")
}

/// The limits of one server.
#[derive(Debug)]
pub struct ServerLimits {
    rate: Option<Arc<Bucket>>,
    tools: Named<NativeName, Arc<Bucket>>,
    gate: Arc<Gate>,
    retry_budget: Arc<RetryBudget>,
    arguments: ArgumentsChoice,
    /// Of those tools that have their own.
    own_arguments: Named<NativeName, ArgumentsChoice>,
}

impl ServerLimits {
    /// What happens to arguments that do not fit the schema of this tool.
    pub(super) fn arguments(&self, tool: &NativeName) -> ArgumentsChoice {
        self.own_arguments.get(tool).copied().unwrap_or(self.arguments)
    }

    pub(super) fn check(
        &self,
        server: &ServerName,
        tool: Option<&NativeName>,
    ) -> Result<(), Failure> {
        if let Some(bucket) = tool.and_then(|tool| self.tools.get(tool)) {
            bucket.check(|| limit_name(server, tool))?;
        }
        self.rate.as_ref().map_or(Ok(()), |bucket| bucket.check(|| limit_name(server, None)))
    }

    /// How many of the server's calls may be made again.
    pub fn retry_budget(&self) -> &Arc<RetryBudget> {
        &self.retry_budget
    }

    /// The server's gate.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }
}
