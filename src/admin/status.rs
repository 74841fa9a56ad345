//! The fields of `/status`. Times are RFC 3339, in UTC.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{ClusterStatus, ExpiryKind, ExpiryState, Finding, ProfileTokenStatus};
use crate::telemetry::metrics::ReloadOutcome;

/// The gateway's state at one time.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Status {
    /// The gateway's version.
    pub version: &'static str,
    /// Time of this status.
    pub now: Timestamp,
    /// Start of the process.
    pub started_at: Timestamp,
    /// State of the gateway as a whole.
    pub state: GatewayState,
    /// The running configuration; `None` before the first.
    pub configuration: Option<ConfigurationStatus>,
    /// The merged catalog.
    pub catalog: CatalogStatus,
    /// Every client of the configuration, in file order.
    pub clients: Vec<ClientStatus>,
    /// Every issuer of tokens in the configuration, in file order.
    pub issuers: Vec<IssuerStatus>,
    /// Legacy sessions of clients.
    pub sessions: usize,
    /// Open event streams towards clients.
    pub streams: usize,
    /// Open connections from clients.
    pub connections: usize,
    /// The audit log; `None` if there is none.
    pub audit: Option<AuditStatus>,
    /// Destinations of audit records and events.
    pub sinks: Vec<SinkStatus>,
    /// The other replicas; `None` without `[cluster]`.
    pub cluster: Option<ClusterStatus>,
    /// Certificates, CA certificates and keys with an end, the first to end first.
    pub expiries: Vec<ExpiryStatus>,
    /// Everything that needs an operator, errors first.
    pub findings: Vec<Finding>,
    /// Every server of the configuration, in file order.
    pub servers: Vec<ServerStatus>,
    /// The tokens of profiles as last counted. Empty before the first count, which happens when
    /// `/tools` is requested, or at once if a profile has a `budget`.
    pub profiles: Vec<ProfileTokenStatus>,
    /// Vectors for search by meaning; `None` if search uses words alone.
    pub embeddings: Option<EmbeddingsStatus>,
}

/// An element with an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExpiryStatus {
    /// Its kind.
    pub kind: ExpiryKind,
    /// The setting, such as `gateway.tls.cert`.
    pub name: String,
    /// The line of the setting in the file.
    pub line: Option<u32>,
    /// The element, with its article.
    pub subject: String,
    /// `valid`, `soon` from 21 days before the end, or `expired`.
    pub state: ExpiryState,
    /// Its end.
    pub expires_at: Timestamp,
    /// The action that is due before the end.
    pub cure: &'static str,
}

/// Vectors for search by meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EmbeddingsStatus {
    /// `model` or `service`.
    pub source: &'static str,
    /// Number of dimensions; `None` before the first answer of a service.
    pub dimensions: Option<usize>,
    /// Number of vectors.
    pub vectors: usize,
    /// Number of definitions that wait for theirs. Meanwhile search uses words.
    pub waiting: usize,
    /// The fault of the last request to the service; `None` if it succeeded.
    pub error: Option<String>,
}

/// The audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AuditStatus {
    /// Number of records that were written.
    pub written: u64,
    /// Number of records that were lost.
    pub dropped: u64,
    /// Bytes of records that wait to be written.
    pub queued_bytes: usize,
    /// The number of the last record: its `seq`.
    pub last_seq: u64,
    /// The hash of the last record, if records are chained.
    pub last_hash: Option<String>,
    /// The fault of the last attempt to open the log or to write a record; `None` if it succeeded.
    pub error: Option<String>,
    /// True if the log is required and cannot record requests, which are refused.
    pub refuses_requests: bool,
}

/// A destination of records or events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SinkStatus {
    /// `audit`, `events` or `events_queue`.
    pub name: &'static str,
    /// Its path or address; of a webhook only scheme, host and port.
    pub place: String,
    /// Reason that it cannot be opened or written; `None` if the last attempt succeeded.
    pub error: Option<String>,
}

/// An issuer of tokens, and its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct IssuerStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Number of its known keys; 0 before they were fetched, when no token can be verified.
    pub keys: usize,
    /// Time of the last successful fetch.
    pub fetched_at: Option<Timestamp>,
    /// The fault of the last fetch; the keys stay then.
    pub error: Option<String>,
    /// The reason that the gateway cannot pass on logins, if an attempt has failed.
    pub login_error: Option<String>,
}

/// States of the gateway as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GatewayState {
    /// There is no running configuration yet.
    Starting,
    /// Accepts calls.
    Ready,
    /// Calls in flight finish, new ones are refused.
    Draining,
}

/// The running configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConfigurationStatus {
    /// The file that it came from.
    pub path: String,
    /// A digest of its text, in hexadecimal digits: distinguishes replicas.
    pub digest: String,
    /// Time when it was loaded.
    pub loaded_at: Timestamp,
    /// Number of configurations loaded so far, including this one.
    pub generation: u64,
    /// The last attempt to replace it.
    pub last_reload: Option<ReloadStatus>,
}

/// An attempt to replace the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReloadStatus {
    /// Time of the attempt.
    pub at: Timestamp,
    /// Outcome of the attempt: `applied`, `unchanged`, `rejected` or `refused`.
    #[schemars(with = "String")]
    pub outcome: ReloadOutcome,
    /// All faults of the text, with line and key.
    pub faults: Vec<String>,
    /// The protections that it removes or weakens, with their keys. A configuration that was
    /// refused for them does not take effect.
    pub losses: Vec<String>,
    /// The ways to make a refused configuration take effect.
    pub accept: Option<String>,
}

/// A configured client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClientStatus {
    /// Its name.
    pub name: String,
    /// Its keys.
    pub keys: Vec<KeyStatus>,
}

/// A client's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KeyStatus {
    /// The first hexadecimal digits of its SHA-256: distinguishes a client's keys.
    pub sha256: String,
    /// Time of its expiry.
    pub expires_at: Option<Timestamp>,
    /// Time of the last use, to the second: in this process and, with `gateway.state_dir`, in earlier
    /// ones.
    pub last_used_at: Option<Timestamp>,
}

/// The merged catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CatalogStatus {
    /// Number of tools, before profiles narrow them.
    pub tools: usize,
    /// Number of prompts.
    pub prompts: usize,
    /// Number of resources.
    pub resources: usize,
    /// Number of resource templates.
    pub templates: usize,
    /// Number of skills.
    pub skills: usize,
    /// A digest of the lists, in hexadecimal digits: distinguishes replicas.
    pub digest: String,
    /// An entity tag for each list, in quotes: a digest of it as clients without a profile see it.
    pub etags: BTreeMap<&'static str, String>,
    /// Time of the last change of a list.
    pub changed_at: Option<Timestamp>,
}

/// Transport to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServerTransport {
    /// A child process.
    Stdio,
    /// An HTTP server.
    Http,
    /// A plain HTTP API with an OpenAPI document.
    OpenApi,
}

/// The protocol era of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServerEra {
    /// Sessions opened by `initialize`.
    Legacy,
    /// Stateless.
    Modern,
}

/// Time at which a server is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServerStart {
    /// With the gateway.
    Eager,
    /// With the first call that needs it.
    Lazy,
}

/// States of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// Not started: it is lazy, or was stopped for lack of calls.
    Idle,
    /// Started, not yet ready.
    Connecting,
    /// Accepts calls.
    Ready,
    /// Down; will be tried again at `next_retry_at`.
    Backoff,
    /// It requires a login: see `login`.
    Login,
    /// Down, too often or for a reason that an operator has to mend: not restarted before
    /// `next_retry_at`, unless an action in `cure` is taken.
    Failed,
    /// Removed from the configuration; its last calls finish.
    Stopping,
    /// Disabled by an operator: see `disabled`.
    Disabled,
}

impl ServerState {
    /// Returns the name as `/status` writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Backoff => "backoff",
            Self::Login => "login",
            Self::Failed => "failed",
            Self::Stopping => "stopping",
            Self::Disabled => "disabled",
        }
    }
}

/// The state of one server.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ServerStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Transport to it.
    pub transport: ServerTransport,
    /// Time at which it is started.
    pub start: ServerStart,
    /// The era of its first instance, once detected.
    pub era: Option<ServerEra>,
    /// All eras that it is known to speak.
    pub eras: Vec<ServerEra>,
    /// The protocol version spoken with it.
    pub protocol_version: Option<String>,
    /// Its description of itself.
    pub server_info: Option<ServerInfo>,
    /// Its state.
    pub state: ServerState,
    /// Start of this state.
    pub since: Timestamp,
    /// The operator that disabled it; `None` if it is not disabled.
    pub disabled: Option<DisabledStatus>,
    /// Time when it first became ready or first failed; `None` until then. Never reset, so that a
    /// restart does not make the gateway unready.
    pub first_verdict_at: Option<Timestamp>,
    /// The last error, even if it has recovered since.
    pub last_error: Option<LastError>,
    /// Login link for the operator, if it requires a login.
    pub login: Option<String>,
    /// True if the gateway has no account at it, and clients use their own.
    pub own_accounts_only: bool,
    /// Number of its tools in the catalog.
    pub tools: usize,
    /// The tokens of their definitions, by estimate; `None` before they are counted.
    pub tool_tokens: Option<usize>,
    /// Number of restarts after it went away.
    pub restarts: u32,
    /// Calls in flight.
    pub in_flight: usize,
    /// Calls that wait for a slot.
    pub queued: usize,
    /// Its circuit breaker; `None` if it has none.
    pub breaker: Option<BreakerStatus>,
    /// The child's process id.
    pub pid: Option<u32>,
    /// The replica that runs its child, if `instances` is `"one"`.
    pub replica: Option<String>,
    /// Time of the next attempt of a server in backoff or failed.
    pub next_retry_at: Option<Timestamp>,
    /// The actions that make a failed server start before that time.
    pub cure: Option<String>,
    /// Irregularities that do not stop it: tools left out, and the reasons.
    pub warnings: Vec<String>,
    /// Screening of its definitions.
    pub definitions: DefinitionStatus,
    /// Number of lines on standard output that are not messages.
    pub stdout_lines: usize,
    /// Dependence of its lists on client capabilities.
    pub lists_by_capabilities: ListDependenceStatus,
    /// The capabilities that it declared; `None` while it is not connected, or if they are too large.
    pub capabilities: Option<serde_json::Value>,
    /// Number of instances besides the first, which all other fields describe.
    pub instance_count: usize,
    /// The first instance, and the oldest others.
    pub instances: Vec<InstanceStatus>,
}

/// A server that an operator has disabled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DisabledStatus {
    /// The operator, as in the audit log.
    pub by: String,
    /// The time.
    pub at: Timestamp,
    /// True if it stays disabled after a restart of the gateway, which needs `gateway.state_dir`.
    pub survives_restart: bool,
}

/// A server's circuit breaker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BreakerStatus {
    /// `closed`, `open` or `half-open`.
    pub state: &'static str,
    /// Failures since the last call that succeeded, while it is closed.
    pub failures: usize,
    /// End of the time in which calls are refused, while it is open.
    pub until: Option<Timestamp>,
}

/// Screening of a server's definitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DefinitionStatus {
    /// True if the server is trusted.
    pub trusted: bool,
    /// Action for definitions that change: `off`, `warn` or `hold`.
    pub pins: &'static str,
    /// Action for definitions with scan findings: `off`, `warn` or `hold`.
    pub scan: &'static str,
    /// The reason that its accepted definitions cannot be used, if there is one.
    pub fault: Option<String>,
    /// Number of definitions that clients do not see until they are approved.
    pub held: usize,
    /// Number of held definitions that an operator has rejected.
    pub rejected: usize,
    /// Number of definitions that are reported only.
    pub reported: usize,
    /// The first of both kinds.
    pub found: Vec<DefinitionFinding>,
}

/// A definition that is held or reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DefinitionFinding {
    /// Its kind: `tools`, `prompts`, `resources`, `resourceTemplates` or `skills`.
    pub kind: &'static str,
    /// The server's own name for it, or its URI.
    pub name: String,
    /// SHA-256 of its canonical form.
    pub sha256: String,
    /// True if clients do not see it.
    pub held: bool,
    /// True if an operator has rejected it: it stays held.
    pub rejected: bool,
    /// The reasons.
    pub reasons: Vec<String>,
}

/// Dependence of a server's lists on client capabilities. If they depend on them, each set of
/// capabilities is listed by an instance of its own. Detected for child processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ListDependenceStatus {
    /// The finding.
    pub verdict: DependenceFinding,
    /// Time of the finding, possibly in an earlier run.
    pub since: Option<Timestamp>,
}

/// Findings about the dependence of lists on capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DependenceFinding {
    /// Not known yet.
    Unknown,
    /// All clients have the same lists.
    No,
    /// Clients may have different lists.
    Yes,
}

/// The state of one instance of a server: a child, or a session with it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct InstanceStatus {
    /// The reason for it, in words: `main`, `client capabilities: elicitation(form), roots`,
    /// `client ci's own`.
    pub reason: String,
    /// The era that is spoken with it; `None` before the first is connected.
    pub era: Option<ServerEra>,
    /// Its owner.
    pub owner: InstanceOwner,
    /// The client that owns it, if there is one.
    pub client: Option<String>,
    /// The client capabilities that the gateway declared to the server.
    pub capabilities: serde_json::Value,
    /// Its state.
    pub state: ServerState,
    /// Start of this state.
    pub since: Timestamp,
    /// Calls in flight.
    pub in_flight: u32,
    /// The child's process id.
    pub pid: Option<u32>,
    /// The last error, even if it has recovered since.
    pub last_error: Option<LastError>,
}

/// Owners of a server's instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstanceOwner {
    /// All clients with the same capabilities.
    Shared,
    /// One Legacy session.
    Session,
    /// One client without a session.
    Client,
}

/// A server's description of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServerInfo {
    /// Its own name.
    pub name: String,
    /// Its own version.
    pub version: String,
}

/// The last error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LastError {
    /// Time of the error.
    pub at: Timestamp,
    /// A sentence without secrets.
    pub message: String,
}
