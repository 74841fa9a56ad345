//! `trunkline serve`: assembles the gateway from the configuration to the sockets, and stops it in
//! order.

pub mod settings;

mod approvals;
mod audit_log;
pub(super) mod core_dumps;
mod event_delivery;
mod expiry_watch;
mod folders;
mod memory;
mod operator_doors;
mod quotas;
mod reload;
mod replicas;
mod server_summary;
pub(super) mod signals;
mod token_budgets;
pub(super) mod vault_keeper;
mod watch;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::admin::{ConfigActor, Expiry, LoadedFile, StatusReport, key_expiries};
use crate::call::{Drain, DrainSwitch, drain};
use crate::child::Guardian;
use crate::clock;
use crate::config::{Config, ConfigFaults, ConfigSource, LogFormatChoice};
use crate::downstream::McpService;
use crate::listener::{ListenError, Listener, LiveSettings, Workers, edge};
use crate::pipeline::{Gateway, own_info};
use crate::policy::BaselineError;
use crate::snapshot::{DisabledAtStart, Snapshots, StartUp};
use crate::telemetry::events::EventDelivery;
use crate::telemetry::log::{self, AccessLogSwitch, LogError, LogHandle, LogLevels};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otel::Otel;
use crate::upstream::ServerContext;

use super::preview::configuration::show_configuration;
use super::{
    ANY_ADMIN_HOST_WARNING, CommonArgs, OPEN_GATEWAY_WARNING, PUBLIC_ADMIN_WARNING, ReadFile,
    print_error, report_error,
};
pub(super) use audit_log::audit_settings;
use folders::{open_definitions, with_store};
pub use reload::Reloader;
use reload::history::note_start;
use replicas::ReplicaService;

/// Reason that the gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be listened on.
    #[error("{setting}")]
    Listen {
        /// The setting of the address.
        setting: &'static str,
        /// The error of the address.
        source: ListenError,
    },
    /// A setting turned out to be invalid at its use.
    #[error("{0}")]
    Settings(String),
    /// Settings turned out to be invalid at their use.
    #[error(transparent)]
    Faults(ConfigFaults),
    /// The threads that serve clients cannot be started.
    #[error("no threads could be started")]
    Threads(#[source] std::io::Error),
    /// The accepted definitions of servers cannot be stored.
    #[error(transparent)]
    Baselines(#[from] BaselineError),
    /// The configured vault cannot keep logins.
    #[error(transparent)]
    Vault(#[from] vault_keeper::VaultOpenError),
    /// The vault cannot be read.
    #[error(transparent)]
    VaultRows(#[from] crate::oauth::vault::VaultError),
    /// This gateway cannot be a replica.
    #[error("[cluster]")]
    Cluster(#[from] crate::cluster::ClusterError),
    /// The telemetry exporter cannot be started.
    #[error("telemetry")]
    Telemetry(#[from] crate::telemetry::otel::OtelError),
}

pub(super) fn run(common: CommonArgs) -> ExitCode {
    let file = match common.read_file() {
        Ok(file) => file,
        Err(code) => return code,
    };
    let log = match start_log(&file.config) {
        Ok(log) => log,
        Err(error) => return report_error(&error),
    };
    core_dumps::limit_core_dumps(&file.config);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&error),
    };
    let ended = runtime.block_on(async {
        let running = Running::start(file, &common.config.path, guardian()).await?;
        let reloader = running.share_reloader(common, Some(log));
        signals::until_told_to_stop(&running, &reloader).await;
        tokio::select! {
            () = running.stop() => {}
            // A second signal requests an immediate end. The guardian ends the remaining children.
            () = signals::told_to_stop() => tracing::warn!("second stop signal: exiting immediately"),
        }
        Ok::<_, ServeError>(())
    });
    // Threads that still compile a schema or read a file do not delay the exit.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => not_started(&error),
    }
}

/// Returns the guardian, which ends the children if this process is killed.
pub(super) fn guardian() -> Guardian {
    let executable = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("trunkline"));
    Guardian::when_needed(&executable)
}

pub(super) fn start_log(config: &Config) -> Result<LogHandle, LogError> {
    let format = match config.log.format {
        LogFormatChoice::Human => log::LogFormat::Human,
        LogFormatChoice::Json => log::LogFormat::Json,
    };
    log::init_log(levels(config), format)
}

/// Reports the reason that the gateway did not start, and returns the exit code.
pub(super) fn not_started(error: &ServeError) -> ExitCode {
    match error {
        ServeError::Settings(text) => print_error(text),
        ServeError::Faults(faults) => super::print_faults(faults),
        _ => return report_error(error),
    }
    super::CONFIG_FAULT.into_code()
}

/// Describes a loaded file for the status.
fn loaded_file(
    source: &ConfigSource,
    expiries: Vec<Expiry>,
    applied_by: ConfigActor,
) -> LoadedFile {
    let shown_text = show_configuration(source).into();
    let (digest, places) = (source.digest(), source.places());
    LoadedFile { digest, places, expiries, shown_text, applied_by }
}

fn levels(config: &Config) -> LogLevels<'_> {
    let access = if config.log.access { AccessLogSwitch::On } else { AccessLogSwitch::Off };
    LogLevels { directives: &config.log.level, access }
}

/// Listening addresses of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doors {
    /// The listener for clients.
    pub clients: Option<SocketAddr>,
    /// The admin listener.
    pub operators: Option<SocketAddr>,
}

impl Doors {
    /// Returns the addresses in a configuration.
    pub fn of(config: &Config) -> Self {
        Self { clients: Some(config.gateway.listen), operators: config.admin.listen }
    }
}

/// A running gateway.
pub struct Running {
    /// The address for clients; port 0 without a listener for them.
    pub address: SocketAddr,
    /// The admin address, if there is one.
    pub admin: Option<SocketAddr>,
    /// The gateway that serves the clients.
    pub gateway: Arc<Gateway>,
    /// The MCP endpoint of the clients.
    pub mcp: Arc<McpService>,
    report: Arc<StatusReport>,
    clients: LiveSettings,
    operators: LiveSettings,
    switch: DrainSwitch,
    admin_switch: DrainSwitch,
    client_listener: Option<JoinHandle<()>>,
    admin_listener: Option<JoinHandle<()>>,
    command_listener: Option<JoinHandle<()>>,
    follower: JoinHandle<()>,
    approvals: Option<JoinHandle<()>>,
    budgets: JoinHandle<()>,
    summary: JoinHandle<()>,
    expiries: JoinHandle<()>,
    quotas: Option<quotas::QuotaKeeper>,
    vault: Option<JoinHandle<()>>,
    replica: Option<replicas::RunningReplica>,
    otel: Mutex<Option<Otel>>,
    events: Arc<EventDelivery>,
    guardian: Guardian,
    doors: Doors,
    /// The worker threads that serve clients; the last to end.
    _workers: Arc<Workers>,
}

impl Running {
    /// Binds the addresses, then starts the servers and serves clients without waiting for the
    /// servers.
    ///
    /// # Errors
    /// [`ServeError`] if the gateway cannot run with this configuration at all.
    pub async fn start(
        file: ReadFile,
        path: &Path,
        guardian: Guardian,
    ) -> Result<Self, ServeError> {
        let doors = Doors::of(&file.config);
        Self::open(file, path, guardian, doors).await
    }

    /// Like [`start`](Self::start), with other addresses than the configuration's.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn open(
        file: ReadFile,
        path: &Path,
        guardian: Guardian,
        doors: Doors,
    ) -> Result<Self, ServeError> {
        let ReadFile { source, mut config } = file;
        memory::log_reduced(&memory::fit_control_group(&mut config));
        let settings = read_settings(&source, &config, doors)?;
        let certificates = settings.expiries();
        // Sockets first: two gateways on one address must not both start servers.
        let socket = bind("gateway.listen", doors.clients).await?;
        let workers = Arc::new(start_workers(socket.as_ref(), &config)?);
        let admin_socket = bind("admin.listen", doors.operators).await?;
        let command_socket = operator_doors::open_socket(&config, path);
        let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
        let replica = replicas::bind_replica(&config, settings.replicas, doors, &metrics).await?;
        let otel = settings::otel(&config, &metrics)?;
        let events = event_delivery::start_events(&config, &guardian, &metrics).await;
        let audit = audit_log::start_audit(&config, &metrics).await.map_err(ServeError::Threads)?;
        let surroundings = ServerContext::new(guardian.clone(), Arc::clone(&metrics))
            .with_events(events.sender().clone());
        surroundings.grants.set_audit(audit.clone());
        let records = replicas::share_records(replica.as_ref());
        let surroundings = with_store(surroundings, &config, path, records.clone()).await;
        let surroundings = replicas::join_cluster(replica.as_ref(), surroundings);
        let vault = vault_keeper::restore_grants(&config, &surroundings.grants).await?;
        let address = socket.as_ref().map(Listener::local_addr);
        surroundings.grants.set_base(settings::browser_url(&config, address));
        let surroundings =
            if doors.clients.is_some() { surroundings } else { surroundings.for_one_client() };
        let definitions = open_definitions(&config, path, records.clone()).await?;
        let (quotas, quota_file) = quotas::open_quotas(&config, path);
        let disabled = DisabledAtStart::open(&config, path).sharing(records, &config).await;
        let shared_limits = replicas::share_limits(replica.as_ref(), &quotas);
        let info = own_info();
        let startup =
            StartUp { config, surroundings, info, definitions, quotas, shared_limits, disabled };
        let snapshots = Snapshots::start(startup);
        let follower = tokio::spawn(Arc::clone(&snapshots).follow());
        let approvals = approvals::watch_approvals(&snapshots);
        let budgets = token_budgets::watch_budgets(&snapshots);
        let summary = server_summary::summarise_servers(&snapshots);
        let quotas = quota_file.map(|file| quotas::QuotaKeeper::start(file, snapshots.quotas()));
        let gateway = Arc::new(Gateway::new(snapshots, metrics, audit));
        gateway.calls.set_recent(gateway.snapshots.load().config.admin.recent);
        if let Some(otel) = &otel {
            gateway.tracing.store(Arc::new(otel.tracing()));
        }
        let (switch, draining) = drain();
        let (admin_switch, admin_draining) = drain();
        let cluster = replica.as_ref().map(|replica| Arc::clone(&replica.cluster));
        let mcp = McpService::in_cluster(Arc::clone(&gateway), draining.clone(), cluster);
        let admin = admin_socket.as_ref().map(Listener::local_addr);
        let report = StatusReport::new(Arc::clone(&gateway), Arc::clone(&mcp));
        let expiries = [certificates, key_expiries(&gateway.snapshots.load().config)];
        note_start(&report, path, source, expiries.concat()).await;
        let expiries = expiry_watch::watch_expiries(&report);
        let clients = LiveSettings::new(settings.clients);
        let replica = replica.map(|replica| {
            let service = ReplicaService { mcp: &mcp, report: &report, clients: &clients };
            replica.serve(Arc::clone(&workers), service)
        });
        let operators = LiveSettings::new(settings.operators);
        let refusals = operator_doors::report_refusals(&gateway);
        let client_listener = socket
            .map(|socket| socket.on(Arc::clone(&workers)).report_refusals(refusals))
            .map(|socket| socket.count_in(gateway.metrics.open_connections().clone()))
            .map(|socket| serve_clients(socket, clients.clone(), Arc::clone(&mcp), draining));
        let command_listener = command_socket.map(|socket| {
            operator_doors::serve_commands(socket, Arc::clone(&report), admin_draining.clone())
        });
        let admin_listener = admin_socket.map(|socket| {
            let report = report.clone();
            let socket = socket.report_refusals(operator_doors::report_refusals(&gateway));
            operator_doors::serve_operators(socket, operators.clone(), report, admin_draining)
        });
        tokio::spawn(warm_up());
        Ok(Self {
            address: address.unwrap_or(NO_ADDRESS),
            admin,
            gateway,
            mcp,
            report,
            clients,
            operators,
            switch,
            admin_switch,
            client_listener,
            admin_listener,
            command_listener,
            follower,
            approvals,
            budgets,
            summary,
            expiries,
            quotas,
            vault,
            replica,
            otel: Mutex::new(otel),
            events: Arc::new(events),
            guardian,
            doors,
            _workers: workers,
        })
    }

    /// Logs the addresses.
    fn announce(&self) {
        let config = &self.gateway.snapshots.load().config;
        let scheme = if config.gateway.tls.is_some() { "https" } else { "http" };
        let (servers, address) = (config.servers.len(), self.address);
        if address != NO_ADDRESS {
            tracing::info!(servers, "clients connect to {scheme}://{address}/mcp");
            if config.is_open_to_anyone() {
                tracing::warn!("{OPEN_GATEWAY_WARNING}");
            }
        }
        if let Some(admin) = self.admin {
            let scheme = if config.admin.tls { "https" } else { "http" };
            tracing::info!(
                "probes are at {scheme}://{admin}/readyz; operators use `trunkline status`, or a \
                 client with a role"
            );
            if config.admin.is_rebindable() {
                tracing::warn!("{ANY_ADMIN_HOST_WARNING}");
            }
            if config.admin.is_reachable_without_tls() {
                tracing::warn!("{PUBLIC_ADMIN_WARNING}");
            }
        }
    }

    /// Stops in order: no new connections, calls in flight complete within the drain time, then the
    /// servers, then the telemetry.
    pub async fn stop(self) {
        let within = self.gateway.snapshots.load().config.gateway.drain;
        tracing::info!(?within, "stopping: calls in flight may finish");
        self.report.draining();
        let stopping = clock::now();
        // Clients go on at other replicas while calls in flight complete here. Before the listeners
        // close: until then, requests for the sessions are forwarded from here.
        let mut handed_over = self.replica.as_ref().map(replicas::RunningReplica::hand_over);
        if let Some(handed_over) = &mut handed_over {
            let _ = timeout(HAND_OVER_PATIENCE, handed_over).await;
        }
        self.switch.start(within);
        if let Some(clients) = self.client_listener {
            let _ = clients.await;
        }
        if let Some(replica) = self.replica {
            if let Some(handed_over) = handed_over.filter(|it| !it.is_finished()) {
                let _ = handed_over.await;
            }
            // Until now, other replicas could forward messages for calls of this one's clients.
            replica.leave(within.saturating_sub(stopping.elapsed())).await;
        }
        self.gateway.snapshots.stop().await;
        // The admin listener answers probes until the drain is complete.
        self.admin_switch.start(ADMIN_DRAIN);
        for listener in [self.admin_listener, self.command_listener].into_iter().flatten() {
            let _ = listener.await;
        }
        self.follower.abort();
        self.budgets.abort();
        self.summary.abort();
        self.expiries.abort();
        if let Some(approvals) = self.approvals {
            approvals.abort();
        }
        if let Some(vault) = self.vault {
            vault.abort();
        }
        if let Some(quotas) = self.quotas {
            quotas.finish().await;
        }
        self.report.write_uses().await;
        self.events.finish(within.saturating_sub(stopping.elapsed()).max(EVENTS_PATIENCE)).await;
        audit_log::finish_audit(&self.gateway.audit).await;
        if let Some(otel) = self.otel.into_inner() {
            otel.shutdown(OTEL_PATIENCE).await;
        }
    }
}

/// Reads the settings of the listeners, and logs the faults of their certificates.
fn read_settings(
    source: &ConfigSource,
    config: &Config,
    doors: Doors,
) -> Result<settings::Listeners, ServeError> {
    audit_log::check_standard_output(config, doors).map_err(ServeError::Settings)?;
    let settings = settings::of(config)
        .map_err(|faults| ServeError::Faults(ConfigFaults::of_late(source, faults)))?;
    let of_replicas = settings.replicas.iter().flat_map(|it| &it.certificates.faults);
    for fault in settings.certificates.faults.iter().chain(of_replicas) {
        tracing::error!("{fault}");
    }
    Ok(settings)
}

/// Starts the threads that serve clients, if there is a listener for them.
fn start_workers(socket: Option<&Listener>, config: &Config) -> Result<Workers, ServeError> {
    match socket {
        Some(_) => Workers::start(config.gateway.threads).map_err(ServeError::Threads),
        None => Ok(Workers::none()),
    }
}

/// Initializes the cipher library's random number generator, which takes 20 ms once, so that
/// the start and the first seal do not wait for it.
async fn warm_up() {
    tokio::time::sleep(WARM_UP).await;
    // If there is no randomness, the first use reports it.
    let _ = tokio::task::spawn_blocking(|| aws_lc_rs::rand::fill(&mut [0; 1])).await;
}

async fn bind(
    setting: &'static str,
    address: Option<SocketAddr>,
) -> Result<Option<Listener>, ServeError> {
    let Some(address) = address else { return Ok(None) };
    let bound = Listener::bind(address).await;
    bound.map(Some).map_err(|source| ServeError::Listen { setting, source })
}

fn serve_clients(
    socket: Listener,
    settings: LiveSettings,
    mcp: Arc<McpService>,
    draining: Drain,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let live = settings.clone();
        let stack = move |peer| edge::clients(live.clone(), peer, Arc::clone(&mcp));
        let drained = socket.serve(settings, stack, draining).await;
        if drained.cut > 0 {
            tracing::warn!(connections = drained.cut, "cut at the end of the drain time");
        }
    })
}

/// The address without a listener.
const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Delay of the warm-up after the start, which keeps the processors busy.
const WARM_UP: Duration = Duration::from_secs(1);
/// Time limit for the end of the admin listener.
const ADMIN_DRAIN: Duration = Duration::from_millis(500);
/// Time for which the drain waits until the sessions are handed over to other replicas.
const HAND_OVER_PATIENCE: Duration = Duration::from_secs(1);
/// Time limit for sending the last events, even after the drain time.
const EVENTS_PATIENCE: Duration = Duration::from_secs(1);
/// Time limit for sending the last spans and metrics.
const OTEL_PATIENCE: Duration = Duration::from_secs(3);
