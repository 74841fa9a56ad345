//! What every format is read into: servers and profiles, and what of them has no counterpart.

use crate::config::Secret;

/// The servers and profiles of one file.
#[derive(Debug, Default)]
pub(super) struct ImportedFile {
    /// In the order of the file.
    pub(super) servers: Vec<ImportedServer>,
    /// In the order of the file.
    pub(super) profiles: Vec<ImportedProfile>,
    /// What concerns none of them alone, one sentence each.
    pub(super) notes: Vec<String>,
}

/// One server.
#[derive(Debug)]
pub(super) struct ImportedServer {
    /// Its name in the file, or one made from its URL.
    pub(super) name: String,
    pub(super) target: ImportedTarget,
    /// Further settings of `[servers.NAME]`, in order.
    pub(super) settings: Vec<(&'static str, SettingText)>,
    /// The tools that clients see, by native name.
    pub(super) allow: Vec<String>,
    /// The tools that clients do not see.
    pub(super) deny: Vec<String>,
    /// The settings of single tools.
    pub(super) tools: Vec<ImportedTool>,
    /// What has no counterpart, one sentence each.
    pub(super) notes: Vec<String>,
    /// Why it is written as a comment, if it is.
    pub(super) inactive: Option<String>,
}

impl ImportedServer {
    /// Has it written as a comment, because its own program does not start it.
    pub(super) fn mark_switched_off(&mut self) {
        self.inactive = Some("it is switched off where it was found".to_owned());
    }
}

/// How a server is reached.
#[derive(Debug, PartialEq)]
pub(super) enum ImportedTarget {
    Command {
        command: String,
        args: Vec<ImportedText>,
        env: Vec<(String, ImportedText)>,
        pass_env: Vec<String>,
        cwd: Option<String>,
    },
    Http {
        url: ImportedText,
        headers: Vec<(String, ImportedText)>,
        transport: Option<&'static str>,
    },
    /// An HTTP API whose OpenAPI document is found at its URL.
    OpenApi { url: ImportedText },
}

/// The value of a plain setting.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SettingText {
    Text(String),
    Number(i64),
    /// A table of names and texts.
    Pairs(Vec<(String, ImportedText)>),
}

/// The settings of one tool.
#[derive(Debug, Default)]
pub(super) struct ImportedTool {
    /// The server's own name for it.
    pub(super) native: String,
    pub(super) public: Option<String>,
    pub(super) description: Option<String>,
    /// Further settings, in order.
    pub(super) settings: Vec<(&'static str, String)>,
}

/// A profile: the tools or servers that one agent may use.
#[derive(Debug)]
pub(super) struct ImportedProfile {
    pub(super) name: String,
    /// Servers, by their name in the file.
    pub(super) servers: Option<Vec<String>>,
    /// Tools, by public name.
    pub(super) tools: Option<Vec<String>>,
    pub(super) notes: Vec<String>,
}

/// A text that may refer to variables and files, and may contain secrets.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ImportedText(pub(super) Vec<ImportedPiece>);

/// A piece of such a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ImportedPiece {
    Plain(String),
    /// The value of an environment variable.
    Variable(String),
    /// The contents of a file.
    File(String),
    /// To be moved to a file of its own.
    Secret(Secret),
}

impl ImportedText {
    #[cfg(test)]
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self(vec![ImportedPiece::Plain(text.into())])
    }

    /// The text of a setting that cannot refer to variables.
    ///
    /// # Errors
    /// It refers to one.
    pub(super) fn plain_text(&self) -> Result<String, String> {
        let plain = self.0.iter().map(|piece| match piece {
            ImportedPiece::Plain(text) => Ok(text.as_str()),
            ImportedPiece::Variable(name) => {
                Err(format!("it uses the variable {name}, which is possible in arguments only"))
            }
            _ => Err("it uses a file, which is possible in arguments only".to_owned()),
        });
        plain.collect()
    }

    /// Whether it is plain text without references.
    pub(super) fn is_plain(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, ImportedPiece::Plain(_)))
    }
}

impl ImportedServer {
    pub(super) fn new(name: impl Into<String>, target: ImportedTarget) -> Self {
        Self {
            name: name.into(),
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
