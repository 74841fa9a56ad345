//! Files for secrets: `secrets/SERVER.USAGE`, beside the configuration.

use std::path::PathBuf;

use trunkline_config::Secret;
use trunkline_core::codec::file::read_file;

use crate::gateway_file::{GatewayFile, PendingFiles};

use super::render::SecretPaths;

/// A secret that moves to a file of its own.
#[derive(Debug)]
pub(crate) struct SecretFile {
    /// Path relative to the configuration's folder.
    pub(crate) path: String,
    pub(crate) text: Secret,
}

/// Secrets of a server during a trial compilation.
pub(crate) struct TrialFiles {
    folder: PathBuf,
    pub(crate) pending: PendingFiles,
    count: usize,
}

impl TrialFiles {
    pub(crate) fn new(gateway: &GatewayFile) -> Self {
        Self { folder: gateway.folder(), pending: PendingFiles::default(), count: 0 }
    }
}

impl SecretPaths for TrialFiles {
    fn secret_path(&mut self, _: &str, secret: &Secret) -> String {
        self.count += 1;
        let path = format!("trial-{}", self.count);
        self.pending.insert(self.folder.join(&path), secret.clone());
        path
    }
}

/// Secrets of a planned server.
pub(crate) struct SecretFiles<'a> {
    pub(crate) gateway: &'a GatewayFile,
    pub(crate) server: &'a str,
    pub(crate) planned: &'a mut Vec<SecretFile>,
}

impl SecretPaths for SecretFiles<'_> {
    fn secret_path(&mut self, usage: &str, secret: &Secret) -> String {
        let usage: String = usage
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
            .take(64)
            .collect();
        let folder = self.gateway.folder();
        let stem = format!("{SECRETS_FOLDER}/{}.{usage}", self.server);
        let numbered = (2..).map(|number| format!("{stem}-{number}"));
        for path in std::iter::once(stem.clone()).chain(numbered) {
            let file = folder.join(&path);
            let is_planned = self.planned.iter().any(|file| file.path == path);
            // An existing file may be a remainder of an earlier import, or the secret of another
            // server.
            match read_file(&file, MAX_SECRET) {
                Ok(text) if text == secret.expose().as_bytes() && !is_planned => return path,
                _ if is_planned || file.symlink_metadata().is_ok() => {}
                _ => {
                    self.planned.push(SecretFile { path: path.clone(), text: secret.clone() });
                    return path;
                }
            }
        }
        stem
    }
}

/// Maximum bytes of a secret that is compared with an existing file.
const MAX_SECRET: usize = 64 << 10;
/// Folder of the files with secrets, beside the configuration.
pub(crate) const SECRETS_FOLDER: &str = "secrets";
