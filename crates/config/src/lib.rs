//! Reads [`Config`] from text, with all faults at once, each with line, key and help.
//!
//! [`Config::read`] takes bytes and an interface to the system ([`Environment`]), and returns a
//! valid configuration or all of its faults. Values that refer to variables, files and programs, and
//! the folder of an embedding model, are read through that interface, so tests replace them. Module
//! `source` has the interface, and is the only one that reads files and runs programs. Reading is not
//! pure: a program of a `${command:…}` runs once and its output is kept for the process
//! ([`renew_outputs`]). No server is started, no certificate is opened and no name is resolved here.
//! The modules that use a certificate or a server find out if it works.
//!
//! Every setting is declared once, by `section!` (`reader/macros.rs`): its key, type, kind, default and
//! description. The structs that other modules use, the reader, `docs/configuration.md` and the
//! JSON Schema are all generated from that declaration (`sections/`). Defaults are
//! written as in the file and read the same way, so an invalid default is impossible.
//!
//! To add a setting, add its field there, and run the tests with `UPDATE_DOCS=1`. To add a kind of
//! value, implement `Text` (one string) or `Setting` for it. Rules between settings are in
//! `checks/`.
//!
//! serde is not used for reading, because it stops at the first fault and loses line numbers.

#![warn(unreachable_pub)]

mod checks;
mod sections;
mod reader;
mod faults;
mod one_server;
mod source;

#[cfg(test)]
mod tests;

pub use faults::cluster::ClusterFault;
pub use faults::condition::ConditionFault;
pub use faults::embeddings::EmbeddingSettingsFault;
pub use faults::issuer::IssuerFault;
pub use faults::oauth::OauthFault;
pub use faults::problem::SettingFault;
pub use faults::url::UrlFault;
pub use faults::{Color, ConfigFault, ConfigFaults, LateFault};
pub use reader::docs::{json_schema, reference};
pub use reader::places::ConfigPlaces;
pub use reader::values::pattern::Pattern;
pub use reader::wording::{nearest_choice, quote_segment};
pub use sections::call_text::{CallText, CallTextPart, forwarded_credentials};
pub use sections::clients::{CertificateName, ClientConfig, ClientKey, KeyHash};
pub use sections::confirm::ConfirmChoice;
pub use sections::count_unit::CountUnit;
pub use sections::definitions::{DefinitionSettings, PinsChoice, ScanChoice};
pub use sections::gateway::admin::{AdminConfig, AdminRole, SocketPlace};
pub use sections::gateway::audit::{AuditConfig, DigestChoice};
pub use sections::gateway::cluster::{ClusterConfig, DegradeChoice, PeerHost};
pub use sections::gateway::discovery::{
    CodeConfig, DiscoveryChoice, SearchConfig, SlimChoice, SlimConfig, ToolAppetite,
};
pub use sections::gateway::embeddings::EmbeddingsConfig;
pub use sections::gateway::events::EventsConfig;
pub use sections::gateway::gateway_files::GatewayFiles;
pub use sections::gateway::naming::{NameCase, NameFormat, NamingChoice};
pub use sections::gateway::network::{is_own_machine, is_safe_url};
pub use sections::gateway::store_url::{StoreHost, StoreKind, StoreUrl};
pub use sections::gateway::vault::VaultConfig;
pub use sections::gateway::{
    AnonymousAccess, ClientCertificates, GatewayConfig, LimitsConfig, LogConfig, LogFormatChoice,
    ReloadTrigger, StateDir, TelemetryConfig, TlsConfig, UriChoice,
};
pub use sections::interceptors::{
    InterceptedPhase, InterceptorConfig, InterceptorFailure, InterceptorMode, InterceptorName,
};
pub use sections::issuers::{IssuerConfig, IssuerName, ScopeName, TokenAlgorithm};
pub use sections::own_tools::{
    CallName, CallOrder, FixedObject, OwnCallConfig, OwnToolConfig, ROOT_ARGUMENTS, ValueTemplate,
};
pub use sections::policy::{
    Condition, ConditionCost, ConditionReads, ConditionValue, EvaluationFault, FailingTerm,
    MemberReads, PolicyConfig, RuleConfig, RuleEffect, RuleName, SplitCondition, ValueSize,
};
pub use sections::profiles::ProfileConfig;
pub use sections::quota::Quota;
pub use sections::rate::Rate;
pub use sections::server::aws::AwsConfig;
pub use sections::server::breaker::BreakerConfig;
pub use sections::server::command::{CommandConfig, child_inherits};
pub use sections::server::memory::ReducedBound;
pub use sections::server::oauth::{
    CallbackChoice, DpopChoice, ExchangedType, GrantKind, GrantOwnership, IdpConfig, OauthConfig,
    TokenEndpointAuth, is_scope_token,
};
pub use sections::server::openapi::{
    DocumentSource, EmptyStrings, HttpVerb, LoginConfig, OpenApiConfig, OperationForm,
    OperationRule, OutputSchemas, SchemeCredential, ServerProtocol,
};
pub use sections::server::sandbox::{ChildUser, OwnUser, SandboxConfig, UidRange};
pub use sections::server::server_secrets::ServerSecrets;
pub use sections::server::tools::{ToolOverride, ToolsConfig};
pub use sections::server::{
    ArgumentsChoice, CapabilitiesChoice, EraChoice, HttpConfig, HttpTransport, InstancesChoice,
    Isolation, ServerConfig, ServerKind, StartChoice,
};
pub use sections::subject_name::SubjectName;
pub use sections::transforms::{
    ArgumentEdit, ArgumentValue, FormatChoice, InputSchema, MessageTemplate, OutputCheck,
    ResultBounds, ResultSettings, StripChoice, StructuredChoice, TemplatePart, TextPart,
    ToolArguments, TransformSettings, ValuePath, WhenLarger,
};
pub use source::command_output::{CommandFault, renew_outputs, retain_outputs};
#[cfg(feature = "embedding-models")]
pub use source::embedding_model::{EmbeddingModel, EmbeddingModelFault};
pub use source::secret::{Secret, sensitive_headers};
#[cfg(not(feature = "embedding-models"))]
pub use source::unsupported_model::{
    UnsupportedModel as EmbeddingModel, UnsupportedModelFault as EmbeddingModelFault,
};
pub use source::{ConfigSource, Environment, SystemEnvironment, check_file_value};

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use toml::de::DeTable;

use faults::Findings;
use reader::macros::section;
use reader::setting::{Section, SectionPart};
use reader::{ConfigReader, ConfigTable};
use sections::named_tables::{NamedTables, ServerTables};
use source::NoEnvironment;

section! {
    /// A whole configuration, as in `gateway.toml`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Config {
        parts {
            /// The files named by `${file:…}`: when one changes, the configuration is reloaded.
            files: Vec<PathBuf>,
            /// The command lines of `${command:…}`.
            commands: BTreeSet<String>,
        }
        settings {
            /// The listener for clients, and settings for all of them.
            gateway: GatewayConfig = {},
            /// The admin listener.
            admin: AdminConfig = {},
            /// The gateway's log, on its standard error.
            log: LogConfig = {},
            /// OpenTelemetry traces and metrics.
            telemetry: TelemetryConfig = {},
            /// Lifecycle events for the operator's own programs.
            events: EventsConfig = {},
            /// The audit log: one record per decision.
            audit: AuditConfig = {},
            /// Logins at servers that survive a restart.
            vault: VaultConfig = {},
            /// Other gateways with the same clients. By default none.
            cluster: Option<ClusterConfig>,
            /// The MCP servers, in the order of the file.
            servers: Vec<Arc<ServerConfig>> as ServerTables = {},
            /// Tools of the gateway itself, in the order of the file.
            tools: Vec<OwnToolConfig> as NamedTables<OwnToolConfig> = {},
            /// Access rules.
            policy: PolicyConfig = {},
            /// Services that check or change calls and results.
            interceptors: Vec<InterceptorConfig> as NamedTables<InterceptorConfig> = {},
            /// Subsets of the catalog, each at a URL of its own.
            profiles: Vec<ProfileConfig> as NamedTables<ProfileConfig> = {},
            /// Search for tools, in profiles with `discovery`.
            search: SearchConfig = {},
            /// Execution of code, in profiles with `discovery = "code"`.
            code: CodeConfig = {},
            /// The clients that may call. By default every client that reaches the gateway.
            clients: Vec<ClientConfig> as NamedTables<ClientConfig> = {},
            /// The authorization servers that issue accepted access tokens. By default none.
            issuers: Vec<IssuerConfig> as NamedTables<IssuerConfig> = {},
        }
    }
}

impl Config {
    /// Reads a whole configuration.
    ///
    /// # Errors
    /// All faults, sorted by line.
    pub fn read(
        source: &ConfigSource,
        surroundings: &dyn Environment,
    ) -> Result<Self, ConfigFaults> {
        let mut reader = ConfigReader::new(&source.folder, surroundings);
        let (text, problem) = decode_text(source);
        let config = match problem {
            Some(problem) => {
                reader.report_fault(text.len()..text.len(), "", problem);
                None
            }
            None => read_text(text, &mut reader),
        };
        match config {
            Some(mut config) if reader.found.is_empty() => {
                let files = GatewayFiles::collect(&config, source, surroundings);
                config.complete_sandboxes(&files);
                config.settle_instances();
                Ok(config)
            }
            _ => Err(ConfigFaults::new(Findings {
                name: &source.name,
                text,
                found: reader.found,
                hidden: reader.hidden,
                files: reader.files.into_iter().collect(),
            })),
        }
    }

    /// Completes each sandbox from the rest of the configuration: the files that are withheld from
    /// its child, and the child's user.
    fn complete_sandboxes(&mut self, files: &GatewayFiles) {
        let (range, folder) = (self.gateway.sandbox_uids, self.gateway.sandbox_dir.clone());
        for server in &mut self.servers {
            let ServerKind::Command(command) = &server.target else { continue };
            if command.sandbox.is_none() {
                continue;
            }
            let server_name = server.name.to_string();
            if let ServerKind::Command(command) = &mut Arc::make_mut(server).target
                && let Some(sandbox) = &mut command.sandbox
            {
                sandbox.gateway_files = files.clone();
                let folder = folder.clone();
                sandbox.own_user =
                    range.map(|range| OwnUser { server: server_name, range, folder });
            }
        }
    }

    /// Without other replicas, each server has the instances of a gateway that is alone.
    fn settle_instances(&mut self) {
        if self.cluster.is_none() {
            for server in &mut self.servers {
                if server.instances != InstancesChoice::Each {
                    Arc::make_mut(server).instances = InstancesChoice::Each;
                }
            }
        }
    }

    /// Replaces the file's address with the command line's.
    ///
    /// Unlike in the file, an address that other machines can reach needs no `allowed_hosts` here:
    /// without them, requests for any name but localhost are rejected, which is the safe default. A
    /// container listens on every address and leaves access control to its host.
    ///
    /// # Errors
    /// The address collides with the admin listener's, or is reachable by other machines and
    /// `public_url` is missing beside `[issuers]`.
    pub fn listen_on(&mut self, address: std::net::SocketAddr) -> Result<(), SettingFault> {
        if self
            .admin
            .listen
            .is_some_and(|admin| checks::listeners::addresses_collide(address, admin))
        {
            return Err(SettingFault::SameAddress);
        }
        if checks::token_checks::needs_public_url(self, address) {
            return Err(IssuerFault::NoPublicUrl { address }.into());
        }
        self.gateway.listen = address;
        Ok(())
    }

    /// Returns true if other machines can reach a gateway without clients, and the file does not
    /// allow that. An address in the file is rejected for it; one on the command line is not,
    /// because a container listens on every address and leaves access control to its host.
    pub fn is_open_to_anyone(&self) -> bool {
        !self.authenticates()
            && self.gateway.anonymous == AnonymousAccess::Loopback
            && sections::gateway::network::is_reachable_by_others(self.gateway.listen)
    }

    /// Returns true if larger results of any tool are kept.
    pub fn keeps_results(&self) -> bool {
        self.servers.iter().any(|server| {
            let tools = server.tools.overrides.iter();
            let mut own = tools.map(|(_, tool)| tool.transforms.or_of_server(server));
            server.result.keep_results() || own.any(|own| own.result.bounds.keep_results())
        })
    }

    /// Returns true if clients of a profile have the meta-tools, or may have them.
    pub fn has_meta_tools(&self) -> bool {
        self.profiles.iter().any(ProfileConfig::has_meta_tools)
    }

    /// Returns true if requests without credentials are rejected.
    pub fn authenticates(&self) -> bool {
        !self.clients.is_empty() || !self.issuers.is_empty()
    }

    /// Returns true if there can be several clients, and requests identify their sender: more than
    /// one is configured, or the gateway is open to others and their addresses identify them.
    pub fn distinguishes_clients(&self) -> bool {
        match self.clients.len() {
            _ if !self.issuers.is_empty() => true,
            0 => self.gateway.anonymous == AnonymousAccess::Anyone,
            clients => clients > 1,
        }
    }

    /// One client's part of a limit that all clients share: `gateway.limits.share` of it, at least
    /// one; all of it if clients cannot be distinguished.
    pub fn share_of(&self, limit: usize) -> usize {
        if self.distinguishes_clients() { self.gateway.limits.share_of(limit) } else { limit }
    }

    /// The connections that one address may have: a share if there can be strangers, and all of
    /// them if only this machine's own programs can connect.
    pub fn connections_each(&self) -> usize {
        let limits = &self.gateway.limits;
        let own = !self.authenticates() && self.gateway.anonymous == AnonymousAccess::Loopback;
        if own { limits.connections } else { limits.share_of(limits.connections) }
    }

    /// Replaces the file's log filter with the command line's.
    ///
    /// # Errors
    /// The filter does not parse.
    pub fn log_at(&mut self, level: &str) -> Result<(), SettingFault> {
        self.log.level = sections::gateway::check_log_filter(level)?;
        Ok(())
    }
}

impl ConfigSource {
    /// Returns the lines of all settings.
    pub fn places(&self) -> ConfigPlaces {
        ConfigPlaces::of_text(decode_text(self).0)
    }

    /// Returns the text, and the byte ranges of its values that are secrets or may contain one.
    /// Reads no variable and no file, and runs no program.
    pub fn secret_spans(&self) -> (&str, Vec<Range<usize>>) {
        let text = decode_text(self).0;
        let mut reader = ConfigReader::new(&self.folder, &NoEnvironment);
        read_text(text, &mut reader);
        (text, reader.hidden)
    }
}

/// The text up to the first invalid byte, and a fault for the rest.
fn decode_text(source: &ConfigSource) -> (&str, Option<SettingFault>) {
    let len = source.bytes.len();
    let mut chunks = source.bytes.utf8_chunks();
    let text = chunks.next().map_or("", |chunk| chunk.valid());
    let problem = (text.len() < len).then_some(SettingFault::NotUtf8);
    // Some editors begin a file with a byte order mark; TOML ignores it.
    (text.strip_prefix('\u{feff}').unwrap_or(text), problem)
}

/// Reads the text; faults are added to the reader.
fn read_text(text: &str, reader: &mut ConfigReader<'_>) -> Option<Config> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let root = ConfigTable::root_table(document.get_ref());
    root.refuse_unknown(&Config::setting_rows(), reader);
    let config = Config::read_fields(&root, reader);
    checks::check_settings(&root, reader);
    faults::syntax::merge_syntax_errors(text, &errors, &mut reader.found);
    config
}

/// The value of [`Config::files`]. Parts are read last, after every substitution.
impl SectionPart for Vec<PathBuf> {
    fn read_part(_: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        Some(reader.files.iter().cloned().collect())
    }
}

/// The value of [`Config::commands`].
impl SectionPart for BTreeSet<String> {
    fn read_part(_: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        Some(reader.commands.clone())
    }
}
