//! A server that a person describes on the command line takes the same way as imported ones.

use super::imported::{ImportedFile, ImportedServer, ImportedTarget, ImportedText};
use super::references::{ReferenceContext, ReferenceNotation};
use super::sources::FoundConfig;

/// A server as described on the command line.
#[derive(Debug)]
pub(in crate::cli) enum NewServer {
    /// A child process.
    Command {
        /// Its name in the configuration.
        name: String,
        /// The program.
        command: String,
        /// The arguments.
        args: Vec<String>,
        /// The environment variables.
        env: Vec<(String, String)>,
    },
    /// An HTTP server.
    Http {
        /// Its name in the configuration.
        name: String,
        /// The endpoint.
        url: String,
        /// The headers of each request.
        headers: Vec<(String, String)>,
    },
}

/// Whether a new server is written or shown.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) enum AddMode {
    /// To the configuration.
    Write,
    /// To standard output.
    Preview,
}

impl NewServer {
    /// Where its settings come from, in messages.
    pub(super) const LABEL: &str = "the command line";

    /// Its name in the configuration.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Command { name, .. } | Self::Http { name, .. } => name,
        }
    }

    /// The server in the form of imported ones.
    pub(super) fn to_found(&self) -> FoundConfig {
        let target = match self {
            Self::Command { command, args, env, .. } => ImportedTarget::Command {
                command: command.clone(),
                args: args.iter().map(|arg| split_text(arg)).collect(),
                env: split_pairs(env),
                pass_env: Vec::new(),
                cwd: None,
            },
            Self::Http { url, headers, .. } => ImportedTarget::Http {
                url: split_text(url),
                headers: split_pairs(headers),
                transport: None,
            },
        };
        let servers = vec![ImportedServer::new(self.name(), target)];
        let contents = ImportedFile { servers, ..ImportedFile::default() };
        FoundConfig { label: Self::LABEL.to_owned(), contents }
    }
}

fn split_pairs(pairs: &[(String, String)]) -> Vec<(String, ImportedText)> {
    pairs.iter().map(|(name, text)| (name.clone(), split_text(text))).collect()
}

/// A text of the command line refers to variables as the configuration does.
fn split_text(text: &str) -> ImportedText {
    let context = ReferenceContext {
        notation: ReferenceNotation::Own,
        home: None,
        project: None,
        is_set: |_| true,
    };
    context.split_text(text, &mut Vec::new())
}
