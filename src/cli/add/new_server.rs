//! A server described on the command line, which is added in the same way as imported ones.

use trunkline_import::{
    FoundConfig, ImportedTarget, ImportedText, ReferenceContext, ReferenceNotation,
};

/// A server described on the command line.
#[derive(Debug)]
pub(super) enum NewServer {
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
    /// A plain HTTP API. Its document is searched below its URL.
    Api {
        /// Its name in the configuration.
        name: String,
        /// The URL of the server.
        url: String,
        /// The headers of each request.
        headers: Vec<(String, String)>,
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

impl NewServer {
    /// Returns the server in the form of imported ones.
    pub(super) fn to_found(&self) -> FoundConfig {
        let target = match self {
            Self::Command { command, args, env, .. } => ImportedTarget::Command {
                command: ImportedText::plain(command),
                args: args.iter().map(|arg| split_text(arg)).collect(),
                env: split_pairs(env),
                pass_env: Vec::new(),
                cwd: None,
            },
            Self::Api { url, headers, .. } => {
                ImportedTarget::OpenApi { url: split_text(url), headers: split_pairs(headers) }
            }
            Self::Http { url, headers, .. } => ImportedTarget::Http {
                url: split_text(url),
                headers: split_pairs(headers),
                transport: None,
            },
        };
        let (Self::Command { name, .. } | Self::Api { name, .. } | Self::Http { name, .. }) = self;
        FoundConfig::typed(name, target)
    }
}

fn split_pairs(pairs: &[(String, String)]) -> Vec<(String, ImportedText)> {
    pairs.iter().map(|(name, text)| (name.clone(), split_text(text))).collect()
}

/// Splits a text of the command line, which refers to variables like the configuration.
fn split_text(text: &str) -> ImportedText {
    let context = ReferenceContext::without_folders(ReferenceNotation::Own);
    context.split_text(text, &mut Vec::new())
}
