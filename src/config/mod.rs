//! Text → [`Config`], with all faults at once, each with line, key and help.
//!
//! This module is pure: [`Config::read`] takes bytes and an interface to the
//! system ([`Environment`]) and returns a whole configuration or all that is
//! wrong with it. Nothing is opened, started or resolved here; whether a
//! certificate is one, or a server answers, is for the rooms that use them.
//! Only [`ConfigSource::open`] and [`SystemEnvironment`] touch the system, at the very edge.
//!
//! Every setting is declared once, by `section!` (`macros.rs`): its key, type,
//! kind, default and description. The structs that other modules use, the reader,
//! `docs/configuration.md` and the JSON Schema are all generated from that
//! declaration (`gateway.rs`, `server.rs`). Defaults are written as in the file
//! and read the same way, so an invalid default is impossible.
//!
//! To add a setting, add its field there, and run the tests with `UPDATE_DOCS=1`.
//! To add a kind of value, implement `Text` (one string) or `Setting` for it.
//! Rules between settings are in `check.rs`.
//!
//! serde is not used for reading, because it stops at the first fault and loses
//! line numbers.

mod check;
mod clients;
mod docs;
mod fault;
mod gateway;
mod kinds;
mod macros;
mod maps;
mod network;
mod numbers;
mod pattern;
mod problem;
mod process;
mod profiles;
mod rate;
mod reader;
mod secret;
mod server;
mod setting;
mod source;
mod substitute;
mod syntax;
#[cfg(test)]
mod tests;
mod units;
mod wording;

pub use clients::{ClientConfig, KeyHash};
pub use docs::{json_schema, reference};
pub use fault::{Color, ConfigFault, ConfigFaults};
pub use gateway::{
    AdminConfig, AnonymousAccess, GatewayConfig, LimitsConfig, LogConfig, LogFormatChoice,
    NamingChoice, ReloadTrigger, TelemetryConfig, TlsConfig, UriChoice,
};
pub use pattern::Pattern;
pub use problem::{ConfigProblem, UrlProblem};
pub use profiles::ProfileConfig;
pub use rate::Rate;
pub use secret::Secret;
pub use server::{
    CommandConfig, EraChoice, HttpConfig, HttpTransport, Isolation, PASSED_ENV, ServerConfig,
    ServerKind, StartChoice, ToolOverride, ToolsConfig,
};
pub use source::{ConfigSource, Environment, SystemEnvironment};

use std::path::PathBuf;
use std::sync::Arc;

use toml::de::DeTable;

use fault::Findings;
use macros::section;
use maps::{NamedTables, ServerTables};
use reader::{ConfigReader, ConfigTable};
use setting::{Section, SectionPart};

section! {
    /// A whole configuration, as in `gateway.toml`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Config {
        parts {
            /// The files named by `${file:…}`: when one changes, the configuration is reloaded.
            files: Vec<PathBuf>,
        }
        settings {
            /// The listener for clients, and what applies to all of them.
            gateway: GatewayConfig = {},
            /// The admin listener.
            admin: AdminConfig = {},
            /// What the gateway writes to its standard error.
            log: LogConfig = {},
            /// OpenTelemetry traces and metrics.
            telemetry: TelemetryConfig = {},
            /// The MCP servers, in the order of the file.
            servers: Vec<Arc<ServerConfig>> as ServerTables = {},
            /// Subsets of the catalog, each at a URL of its own.
            profiles: Vec<ProfileConfig> as NamedTables<ProfileConfig> = {},
            /// The clients that may call. By default every client that reaches the gateway.
            clients: Vec<ClientConfig> as NamedTables<ClientConfig> = {},
        }
    }
}

impl Config {
    /// Reads a whole configuration.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of its lines.
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
            Some(config) if reader.found.is_empty() => Ok(config),
            _ => Err(ConfigFaults::new(Findings {
                name: &source.name,
                text,
                found: reader.found,
                hidden: reader.hidden,
                files: reader.files.into_iter().collect(),
            })),
        }
    }

    /// Puts the address of the command line in the place of the file's.
    ///
    /// An address that others can reach needs no `allowed_hosts` here, unlike
    /// in the file: until some are set, whoever calls the gateway by another
    /// name than localhost is refused, which is the safe side. A container
    /// listens on every address and leaves it to its host who gets there.
    ///
    /// # Errors
    /// It collides with the admin listener's.
    pub fn listen_on(&mut self, address: std::net::SocketAddr) -> Result<(), ConfigProblem> {
        if self.admin.listen.is_some_and(|admin| check::addresses_collide(address, admin)) {
            return Err(ConfigProblem::SameAddress);
        }
        self.gateway.listen = address;
        Ok(())
    }

    /// Whether others than this machine can reach a gateway that knows nobody,
    /// without the file's saying that they may. A file that says where to
    /// listen is refused for it; the command line is not, because a container
    /// listens on every address and leaves it to its host who gets there.
    pub fn is_open_to_anyone(&self) -> bool {
        self.clients.is_empty()
            && self.gateway.anonymous == AnonymousAccess::Loopback
            && check::is_reachable_by_others(self.gateway.listen)
    }

    /// Puts the log filter of the command line in the place of the file's.
    ///
    /// # Errors
    /// It does not parse.
    pub fn log_at(&mut self, level: &str) -> Result<(), ConfigProblem> {
        self.log.level = gateway::check_log_filter(level)?;
        Ok(())
    }
}

/// The text, or as much as is text, and what is wrong behind it.
fn decode_text(source: &ConfigSource) -> (&str, Option<ConfigProblem>) {
    let len = source.bytes.len();
    if len > ConfigSource::MAX_LEN {
        return ("", Some(ConfigProblem::TooLarge { len, max: ConfigSource::MAX_LEN }));
    }
    let mut chunks = source.bytes.utf8_chunks();
    let text = chunks.next().map_or("", |chunk| chunk.valid());
    let problem = (text.len() < len).then_some(ConfigProblem::NotUtf8);
    // Some editors begin a file with a byte order mark; TOML says to skip it.
    (text.strip_prefix('\u{feff}').unwrap_or(text), problem)
}

/// Reads the text; the reader holds what is wrong with it.
fn read_text(text: &str, reader: &mut ConfigReader<'_>) -> Option<Config> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let root = ConfigTable::root_table(document.get_ref());
    root.refuse_unknown(&Config::setting_rows(), reader);
    let config = Config::read_fields(&root, reader);
    check::check_settings(&root, reader);
    syntax::merge_syntax_errors(text, &errors, &mut reader.found);
    config
}

/// [`Config::files`]. Parts are read last, when every substitution has been.
impl SectionPart for Vec<PathBuf> {
    fn read_part(_: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        Some(reader.files.iter().cloned().collect())
    }
}
