//! The common form of all formats: servers and profiles, and notes about settings without a
//! counterpart.

use trunkline_config::Secret;

use super::fields::FieldFault;

/// The servers and profiles of one file.
#[derive(Debug, Default)]
pub(crate) struct ImportedFile {
    /// In the order of the file.
    pub(crate) servers: Vec<ImportedServer>,
    /// In the order of the file.
    pub(crate) profiles: Vec<ImportedProfile>,
    /// Notes about the file in general, one sentence each.
    pub(crate) notes: Vec<String>,
}

impl ImportedFile {
    /// Notes that an entry is omitted.
    pub(crate) fn leave_out(&mut self, name: &str, fault: &FieldFault) {
        self.notes.push(format!("`{name}` is left out: {fault}"));
    }
}

/// One server.
#[derive(Debug)]
pub(crate) struct ImportedServer {
    /// Its name in the file, or a name derived from its URL.
    pub(crate) name: String,
    /// The keys that lead to the table with its entry.
    pub(crate) table: Vec<String>,
    pub(crate) target: ImportedTarget,
    /// Further settings of `[servers.NAME]`, in order.
    pub(crate) settings: Vec<(&'static str, SettingText)>,
    /// Tools that clients see, by native name.
    pub(crate) allow: Vec<String>,
    /// Tools that are hidden from clients.
    pub(crate) deny: Vec<String>,
    /// The settings of single tools.
    pub(crate) tools: Vec<ImportedTool>,
    /// Settings without a counterpart, one sentence each.
    pub(crate) notes: Vec<String>,
    /// Reason that it is written as a comment, if it is.
    pub(crate) inactive: Option<InactiveEntryFault>,
}

/// Reason that an entry cannot be used as it is, and becomes a comment.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InactiveEntryFault {
    /// Its own program does not start it.
    #[error("it is switched off where it was found")]
    SwitchedOff,
    /// A setting of its own program keeps it from being used.
    #[error("`{setting}` is false where it was found")]
    NotEnabled {
        /// The setting.
        setting: &'static str,
    },
    /// A setting refers to a value, which the gateway replaces in other settings only.
    #[error(
        "`{setting}` refers to a variable, which only `args`, `env`, `url` and `headers` can: write the value in its place"
    )]
    Unresolved {
        /// The gateway's setting.
        setting: &'static str,
    },
    /// A server of a profile is missing.
    #[error("[servers.{server}] is a comment or missing: add it first")]
    MissingServer {
        /// The server.
        server: String,
    },
    /// The gateway would refuse it.
    #[error("{}", faults.join("; "))]
    Invalid {
        /// The faults.
        faults: Vec<String>,
    },
}

impl ImportedServer {
    /// Restricts the tools to a list; an empty list allows no tool.
    pub(crate) fn allow_only(&mut self, tools: Vec<String>) {
        if tools.is_empty() {
            self.deny.push("*".to_owned());
        }
        self.allow.extend(tools);
    }

    /// Marks the entry as a comment, because its own program does not start it.
    pub(crate) fn mark_switched_off(&mut self) {
        self.inactive = Some(InactiveEntryFault::SwitchedOff);
    }
}

/// Address or program of a server.
#[derive(Debug, PartialEq)]
pub enum ImportedTarget {
    /// A child process.
    Command {
        /// The program: a path, or a name to look up.
        command: ImportedText,
        /// Its arguments.
        args: Vec<ImportedText>,
        /// Environment variables to set.
        env: Vec<(String, ImportedText)>,
        /// Environment variables to inherit.
        pass_env: Vec<String>,
        /// Its working directory.
        cwd: Option<ImportedText>,
    },
    /// An MCP server at a URL.
    Http {
        /// The endpoint.
        url: ImportedText,
        /// Headers of each request.
        headers: Vec<(String, ImportedText)>,
        /// The `transport` setting, if it is not the default.
        transport: Option<&'static str>,
    },
    /// An HTTP API with its OpenAPI document at its URL.
    OpenApi {
        /// The URL of the API.
        url: ImportedText,
        /// Headers of each request.
        headers: Vec<(String, ImportedText)>,
    },
}

/// The value of a plain setting.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SettingText {
    Text(String),
    Number(i64),
    /// A table of names and texts.
    Pairs(Vec<(String, ImportedText)>),
    /// The value of `sandbox`.
    Sandbox(SandboxPermissions),
}

/// The permissions of a sandbox beyond the usual ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxPermissions {
    /// Paths by permission: `read`, `write` or `execute`.
    pub paths: Vec<(&'static str, Vec<String>)>,
    /// Permissions without a path, such as `unix`.
    pub grants: Vec<&'static str>,
}

/// The settings of one tool.
#[derive(Debug, Default)]
pub(crate) struct ImportedTool {
    /// Its native name.
    pub(crate) native: String,
    pub(crate) public: Option<String>,
    pub(crate) description: Option<String>,
    /// Further settings, in order.
    pub(crate) settings: Vec<(&'static str, String)>,
}

/// A profile: the tools or servers that one agent may use.
#[derive(Debug)]
pub(crate) struct ImportedProfile {
    pub(crate) name: String,
    /// Servers, by their name in the file.
    pub(crate) servers: Option<Vec<String>>,
    /// Tools, by public name.
    pub(crate) tools: Option<Vec<String>>,
    pub(crate) notes: Vec<String>,
}

/// A text that may refer to variables and files, and may contain secrets.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ImportedText(pub(crate) Vec<ImportedPiece>);

/// A piece of such a text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ImportedPiece {
    Plain(String),
    /// The value of an environment variable.
    Variable(String),
    /// The contents of a file.
    File(String),
    /// A secret to move to a file of its own.
    Secret(Secret),
}

impl ImportedPiece {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Plain(text) if text.is_empty())
    }
}

impl ImportedText {
    /// Returns a text without references.
    pub fn plain(text: impl Into<String>) -> Self {
        Self(vec![ImportedPiece::Plain(text.into())])
    }

    /// Returns the text in readable form, with `${NAME}` for a variable.
    pub(crate) fn describe(&self) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            ImportedPiece::Plain(text) => text.clone(),
            ImportedPiece::Variable(name) => format!("${{{name}}}"),
            ImportedPiece::File(path) => format!("${{file:{path}}}"),
            ImportedPiece::Secret(_) => "***".to_owned(),
        });
        pieces.collect()
    }

    /// Returns the text with one more piece at its end.
    pub(crate) fn with_piece(mut self, piece: ImportedPiece) -> Self {
        match (self.0.last_mut(), piece) {
            (Some(ImportedPiece::Plain(last)), ImportedPiece::Plain(text)) => last.push_str(&text),
            (_, piece) if piece.is_empty() => {}
            (_, piece) => self.0.push(piece),
        }
        self
    }

    /// Returns true if a piece of it is a secret.
    pub(crate) fn has_secret(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, ImportedPiece::Secret(_)))
    }

    /// Returns true if it is plain text without references.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, ImportedPiece::Plain(_)))
    }
}

impl ImportedServer {
    pub(crate) fn new(name: impl Into<String>, target: ImportedTarget) -> Self {
        Self {
            name: name.into(),
            table: Vec::new(),
            target,
            settings: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            tools: Vec::new(),
            notes: Vec::new(),
            inactive: None,
        }
    }
}
