//! Text → [`Config`]; every fault at once, with line, key and help.
//!
//! This room is pure: [`Config::read`] takes bytes and what it may ask of the
//! world ([`Surroundings`]) and returns a whole configuration or all that is
//! wrong with it. Nothing is opened, started or resolved here; whether a
//! certificate is one, or a server answers, is for the rooms that use them.
//! Only [`Source::open`] and [`System`] touch the system, at the very edge.
//!
//! Every setting is declared once, by `section!` (`macros.rs`): its key, type,
//! kind, default and sentence. The structs that the other rooms use, the reader,
//! `docs/configuration.md` and the JSON Schema all come from that declaration
//! (`gateway.rs`, `server.rs`). Defaults are written as in the file and read the
//! same way, so a default that the reader would refuse cannot be.
//!
//! To add a setting, add its field there, and run the tests with `UPDATE_DOCS=1`.
//! To add a kind of value, implement `Text` (one string) or `Setting` for it.
//! Rules between settings stand in `check.rs`.
//!
//! serde is not used for reading, because it stops at the first fault and
//! forgets lines on the way.

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

pub use clients::{Client, KeyHash};
pub use docs::{json_schema, reference};
pub use fault::{Color, Fault, Faults};
pub use gateway::{
    Admin, Anonymous, Gateway, Limits, Log, LogFormat, Naming, Reload, Telemetry, Tls, Uris,
};
pub use pattern::Pattern;
pub use problem::{Problem, UrlProblem};
pub use profiles::Profile;
pub use rate::Rate;
pub use secret::Secret;
pub use server::{
    Command, EraChoice, Http, HttpTransport, Isolation, PASSED_ENV, Server, Start, Target,
    ToolOverride, Tools,
};
pub use source::{Source, Surroundings, System};

use std::path::PathBuf;
use std::sync::Arc;

use toml::de::DeTable;

use fault::Findings;
use macros::section;
use maps::{Named, Servers};
use reader::{Reader, Table};
use setting::{Part, Section};

section! {
    /// A whole configuration, as `gateway.toml` has it.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Config {
        parts {
            /// Every file that `${file:…}` named: when one changes, so does the configuration.
            files: Vec<PathBuf>,
        }
        settings {
            /// Where clients connect, and what holds for all of them.
            gateway: Gateway = {},
            /// The listener for operators.
            admin: Admin = {},
            /// What the gateway writes to its standard error.
            log: Log = {},
            /// OpenTelemetry traces and metrics.
            telemetry: Telemetry = {},
            /// The MCP servers, in the order of the file.
            servers: Vec<Arc<Server>> as Servers = {},
            /// Parts of what the servers offer, each at a URL of its own.
            profiles: Vec<Profile> as Named<Profile> = {},
            /// Who may call. Without any, whoever reaches the gateway.
            clients: Vec<Client> as Named<Client> = {},
        }
    }
}

impl Config {
    /// Reads a whole configuration.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of its lines.
    pub fn read(source: &Source, surroundings: &dyn Surroundings) -> Result<Self, Faults> {
        let mut reader = Reader::new(&source.folder, surroundings);
        let (text, problem) = text_of(source);
        let config = match problem {
            Some(problem) => {
                reader.fault(text.len()..text.len(), "", problem);
                None
            }
            None => read_text(text, &mut reader),
        };
        match config {
            Some(config) if reader.found.is_empty() => Ok(config),
            _ => Err(Faults::new(Findings {
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
    pub fn listen_on(&mut self, address: std::net::SocketAddr) -> Result<(), Problem> {
        if self.admin.listen.is_some_and(|admin| check::collide(address, admin)) {
            return Err(Problem::SameAddress);
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
            && self.gateway.anonymous == Anonymous::Loopback
            && check::is_open(self.gateway.listen)
    }

    /// Puts the log filter of the command line in the place of the file's.
    ///
    /// # Errors
    /// It does not parse.
    pub fn log_at(&mut self, level: &str) -> Result<(), Problem> {
        self.log.level = gateway::filter(level)?;
        Ok(())
    }
}

/// The text, or as much as is text, and what is wrong behind it.
fn text_of(source: &Source) -> (&str, Option<Problem>) {
    let len = source.bytes.len();
    if len > Source::MAX_LEN {
        return ("", Some(Problem::TooLarge { len, max: Source::MAX_LEN }));
    }
    let mut chunks = source.bytes.utf8_chunks();
    let text = chunks.next().map_or("", |chunk| chunk.valid());
    let problem = (text.len() < len).then_some(Problem::NotUtf8);
    // Some editors begin a file with a byte order mark; TOML says to skip it.
    (text.strip_prefix('\u{feff}').unwrap_or(text), problem)
}

/// Reads the text; the reader holds what is wrong with it.
fn read_text(text: &str, reader: &mut Reader<'_>) -> Option<Config> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let root = Table::root(document.get_ref());
    root.refuse_unknown(&Config::rows(), reader);
    let config = Config::fields(&root, reader);
    check::all(&root, reader);
    syntax::merge(text, &errors, &mut reader.found);
    config
}

/// [`Config::files`]. Parts are read last, when every substitution has been.
impl Part for Vec<PathBuf> {
    fn read(_: &Table<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        Some(reader.files.iter().cloned().collect())
    }
}
