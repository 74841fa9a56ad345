//! What `/status` tells, field by field. Times are RFC 3339, in UTC.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::ProfileTokenStatus;
use crate::telemetry::metrics::ReloadOutcome;

/// How things stand at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The gateway's version.
    pub version: &'static str,
    /// When this status was taken.
    pub now: Timestamp,
    /// When the process started.
    pub started_at: Timestamp,
    /// What the gateway as a whole is doing.
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
    /// Every server of the configuration, in file order.
    pub servers: Vec<ServerStatus>,
    /// The tokens of profiles as they were counted last; empty before that, which is when `/tools` is
    /// asked for, or at once if a profile has a `budget`.
    pub profiles: Vec<ProfileTokenStatus>,
    /// The vectors that search by meaning compares; `None` if search goes by words alone.
    pub embeddings: Option<EmbeddingsStatus>,
}

/// The vectors that search by meaning compares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EmbeddingsStatus {
    /// `model` or `service`.
    pub source: &'static str,
    /// How many dimensions they have; `None` before the first answer of a service.
    pub dimensions: Option<usize>,
    /// How many there are.
    pub vectors: usize,
    /// How many definitions wait for theirs. Meanwhile search goes by words.
    pub waiting: usize,
    /// Why the last request to the service failed; `None` if it did not.
    pub error: Option<String>,
}

/// The audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditStatus {
    /// Records that were written.
    pub written: u64,
    /// Records that were lost.
    pub dropped: u64,
    /// Bytes of records that wait to be written.
    pub queued_bytes: usize,
    /// The number of the last record: its `seq`.
    pub last_seq: u64,
    /// The hash of the last record, if records are chained.
    pub last_hash: Option<String>,
    /// Why the last record could not be written; `None` if it was.
    pub error: Option<String>,
}

/// An issuer of tokens, and its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IssuerStatus {
    /// Its name in the configuration.
    pub name: String,
    /// How many of its keys are known; 0 before they were fetched, when no token can be verified.
    pub keys: usize,
    /// When they were fetched last.
    pub fetched_at: Option<Timestamp>,
    /// Why the last fetch failed; the keys stay then.
    pub error: Option<String>,
    /// Why logins that the gateway passes on cannot be, as far as was tried.
    pub login_error: Option<String>,
}

/// What the gateway as a whole is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GatewayState {
    /// There is no running configuration yet.
    Starting,
    /// Calls are taken.
    Ready,
    /// Calls in flight finish, new ones are not taken.
    Draining,
}

/// The configuration that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigurationStatus {
    /// The file it came from.
    pub path: String,
    /// A digest of its text, in hexadecimal digits: tells replicas apart.
    pub digest: String,
    /// When it was loaded.
    pub loaded_at: Timestamp,
    /// 1 for the first, one more for each that replaced another.
    pub generation: u64,
    /// The last attempt to replace it.
    pub last_reload: Option<ReloadStatus>,
}

/// An attempt to replace the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReloadStatus {
    /// When it was made.
    pub at: Timestamp,
    /// What became of it.
    pub outcome: ReloadOutcome,
    /// Everything that is wrong with the text, with line and key.
    pub faults: Vec<String>,
    /// The protections that it removes or weakens, with their keys. A configuration that was refused
    /// for them does not take effect.
    pub losses: Vec<String>,
    /// The way to have a refused configuration take effect.
    pub accept: Option<String>,
}

/// A configured client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientStatus {
    /// Its name.
    pub name: String,
    /// Its keys.
    pub keys: Vec<KeyStatus>,
}

/// A client's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyStatus {
    /// The first hexadecimal digits of its SHA-256: tells a client's keys apart.
    pub sha256: String,
    /// From when on it is refused.
    pub expires_at: Option<Timestamp>,
    /// When this process saw it last, to the second.
    pub last_used_at: Option<Timestamp>,
}

/// The merged catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CatalogStatus {
    /// How many tools there are, before profiles narrow them.
    pub tools: usize,
    /// How many prompts.
    pub prompts: usize,
    /// How many resources.
    pub resources: usize,
    /// How many resource templates.
    pub templates: usize,
    /// How many skills.
    pub skills: usize,
    /// A digest of the lists, in hexadecimal digits: tells replicas apart.
    pub digest: String,
    /// An entity tag for each list, in quotes: a digest of it as clients without a profile see it.
    pub etags: BTreeMap<&'static str, String>,
    /// When one of the lists changed last.
    pub changed_at: Option<Timestamp>,
}

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerEra {
    /// Sessions opened by `initialize`.
    Legacy,
    /// Stateless.
    Modern,
}

/// When a server is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerStart {
    /// With the gateway.
    Eager,
    /// With the first call that needs it.
    Lazy,
}

/// What a server is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// Not started: it is lazy, or was stopped for want of calls.
    Idle,
    /// Started, not yet ready.
    Connecting,
    /// Takes calls.
    Ready,
    /// Down; will be tried again at `next_retry_at`.
    Backoff,
    /// It asks for a login: see `login`.
    Login,
    /// Down, and too often: left alone until its `restart_window` is over or the configuration
    /// changes.
    Failed,
    /// Removed from the configuration; its last calls finish.
    Stopping,
}

impl ServerState {
    /// The name as `/status` writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Backoff => "backoff",
            Self::Login => "login",
            Self::Failed => "failed",
            Self::Stopping => "stopping",
        }
    }
}

/// How one server stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerStatus {
    /// Its name in the configuration.
    pub name: String,
    /// How it is reached.
    pub transport: ServerTransport,
    /// When it is started.
    pub start: ServerStart,
    /// The era of its first instance, once the probe knows.
    pub era: Option<ServerEra>,
    /// All eras that it is known to speak.
    pub eras: Vec<ServerEra>,
    /// The protocol version spoken with it.
    pub protocol_version: Option<String>,
    /// What it says it is.
    pub server_info: Option<ServerInfo>,
    /// What it is doing.
    pub state: ServerState,
    /// Since when.
    pub since: Timestamp,
    /// When it first became ready or first failed; `None` until then. Never
    /// taken back, so that a restart does not make the gateway unready.
    pub first_verdict_at: Option<Timestamp>,
    /// What went wrong last, even when it is well again.
    pub last_error: Option<LastError>,
    /// Where the operator logs in to it, if it asks for a login.
    pub login: Option<String>,
    /// Whether the gateway has no account at it, and clients use their own.
    pub own_accounts_only: bool,
    /// How many of its tools are in the catalog.
    pub tools: usize,
    /// The tokens of their definitions, by estimate; `None` before they are counted.
    pub tool_tokens: Option<usize>,
    /// How often it was started again after it went away.
    pub restarts: u32,
    /// Calls it is working on.
    pub in_flight: usize,
    /// Calls that wait for their turn.
    pub queued: usize,
    /// Its circuit breaker; `None` if it has none.
    pub breaker: Option<BreakerStatus>,
    /// The child's process id.
    pub pid: Option<u32>,
    /// When a server in backoff will be tried again.
    pub next_retry_at: Option<Timestamp>,
    /// What is odd but does not stop it: tools left out, and why.
    pub warnings: Vec<String>,
    /// Which of its definitions clients see.
    pub definitions: DefinitionStatus,
    /// How many lines it printed to standard output that are no messages.
    pub stdout_lines: u64,
    /// Whether its lists depend on what clients can do.
    pub lists_by_capabilities: ListDependenceStatus,
    /// How many instances it has besides the first, which all the rest is about.
    pub instance_count: usize,
    /// The first, and the others that have been there longest.
    pub instances: Vec<InstanceStatus>,
}

/// A server's circuit breaker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BreakerStatus {
    /// `closed`, `open` or `half-open`.
    pub state: &'static str,
    /// Failures since the last call that succeeded, while it is closed.
    pub failures: usize,
    /// Until when calls are refused, while it is open.
    pub until: Option<Timestamp>,
}

/// What is remarkable about a server's definitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DefinitionStatus {
    /// Whether the server is trusted.
    pub trusted: bool,
    /// What happens to definitions that change: `off`, `warn` or `hold`.
    pub pins: &'static str,
    /// What happens to definitions in which a scan finds something: `off`, `warn` or `hold`.
    pub scan: &'static str,
    /// Why its accepted definitions cannot be used, if they cannot.
    pub fault: Option<String>,
    /// How many clients do not see until they are approved.
    pub held: usize,
    /// How many are reported only.
    pub reported: usize,
    /// The first of both.
    pub found: Vec<DefinitionFinding>,
}

/// A definition that is held or reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DefinitionFinding {
    /// Its kind: `tools`, `prompts`, `resources`, `resourceTemplates` or `skills`.
    pub kind: &'static str,
    /// The server's own name for it, or its URI.
    pub name: String,
    /// SHA-256 of its canonical form.
    pub sha256: String,
    /// Whether clients do not see it.
    pub held: bool,
    /// The reasons.
    pub reasons: Vec<String>,
}

/// Whether a server's lists depend on what clients can do, so that each set of capabilities is
/// listed by an instance of its own. It is found out for child processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ListDependenceStatus {
    /// What is known.
    pub verdict: DependenceFinding,
    /// Since when, possibly an earlier run.
    pub since: Option<Timestamp>,
}

/// What is known of how lists depend on capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DependenceFinding {
    /// Nothing.
    Unknown,
    /// All clients have the same lists.
    No,
    /// Clients may have other lists.
    Yes,
}

/// How one instance of a server stands: a child, or a session with it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InstanceStatus {
    /// Why it is there, in words: `main`, `client capabilities: elicitation(form), roots`,
    /// `client ci's own`.
    pub reason: String,
    /// The era that is spoken with it; `None` while the first is not connected.
    pub era: Option<ServerEra>,
    /// Whose it is.
    pub owner: InstanceOwner,
    /// Which client's, where it is one's own.
    pub client: Option<String>,
    /// What the server was told that its clients can do.
    pub capabilities: serde_json::Value,
    /// What it is doing.
    pub state: ServerState,
    /// Since when.
    pub since: Timestamp,
    /// Calls it is working on.
    pub in_flight: u32,
    /// The child's process id.
    pub pid: Option<u32>,
    /// What went wrong last, even when it is well again.
    pub last_error: Option<LastError>,
}

/// Whose an instance of a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceOwner {
    /// All clients' that can do the same.
    Shared,
    /// One Legacy session's.
    Session,
    /// One client's that has no session.
    Client,
}

/// What a server says it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerInfo {
    /// Its own name.
    pub name: String,
    /// Its own version.
    pub version: String,
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastError {
    /// When.
    pub at: Timestamp,
    /// What, in a sentence without secrets.
    pub message: String,
}
