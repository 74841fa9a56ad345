//! The gateway's own files, which are withheld from children that get a folder with them.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::reader::setting::SectionPart;
use crate::reader::{ConfigReader, ConfigTable};
use crate::sections::server::ServerKind;
use crate::{Config, ConfigSource, Environment};

/// The configuration, its secrets, and the files and folders that the gateway writes: vault, state,
/// accepted definitions, audit log and events.
#[derive(Clone, Default, Eq)]
pub struct GatewayFiles(Arc<BTreeSet<PathBuf>>);

impl GatewayFiles {
    /// Collects the files of a configuration. `config.files` has those of substitutions.
    pub(crate) fn collect(
        config: &Config,
        source: &ConfigSource,
        surroundings: &dyn Environment,
    ) -> Self {
        let name = Path::new(&source.name).file_name().unwrap_or_default();
        let gateway = &config.gateway;
        let tls = gateway.tls.iter().map(|tls| tls.key.clone());
        let peer_key = config.cluster.iter().filter_map(|cluster| cluster.key.clone());
        let servers = config.servers.iter().filter_map(|server| match &server.target {
            ServerKind::Http(http) => http.oauth.as_ref(),
            ServerKind::Command(_) | ServerKind::OpenApi(_) => None,
        });
        let tokens = servers.flat_map(|oauth| {
            [&oauth.assertion_file, &oauth.subject_token_file, &oauth.actor_token_file]
        });
        let written = [
            Some(config.vault.path.clone()),
            gateway.state_dir.folder().map(Path::to_path_buf),
            gateway.pin_dir.clone(),
            config.audit.file.clone(),
            config.events.file.clone(),
            config.events.queue_dir.clone(),
            cache_folder(surroundings),
        ];
        let files = [source.folder.join(name)].into_iter().chain(config.files.iter().cloned());
        let files = files.chain(tls).chain(peer_key).chain(tokens.flatten().cloned());
        Self(Arc::new(files.chain(written.into_iter().flatten()).collect()))
    }

    /// Returns true if one of the files is in this folder or below it, or is this file.
    pub fn are_in(&self, folder: &Path) -> bool {
        !self.find_in(folder).is_empty()
    }

    /// Returns the content of a folder that has some of these files, without them: its files, and
    /// its folders. A folder with some of these files is replaced by the rest of its content.
    pub fn leave_out_of(&self, folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        self.collect_others(folder, &mut found);
        found.sort();
        found
    }

    fn collect_others(&self, folder: &Path, found: &mut Vec<PathBuf>) {
        let entries = folder.read_dir().into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let within = self.find_in(&path);
            if within.is_empty() {
                found.push(path);
            } else if !within.contains(&resolve(&path)) {
                self.collect_others(&path, found);
            }
        }
    }

    /// The files at or below a path, with every link resolved.
    fn find_in(&self, path: &Path) -> Vec<PathBuf> {
        let path = resolve(path);
        let files = self.0.iter().map(|file| resolve(file));
        files.filter(|file| file.starts_with(&path)).collect()
    }
}

/// The path without links. For a file that does not exist yet, its folder is resolved.
fn resolve(path: &Path) -> PathBuf {
    let resolved = path.canonicalize().ok().or_else(|| {
        let (folder, name) = (path.parent()?, path.file_name()?);
        Some(folder.canonicalize().ok()?.join(name))
    });
    resolved.unwrap_or_else(|| path.to_path_buf())
}

/// The folder where `trunkline stdio` keeps its state.
fn cache_folder(surroundings: &dyn Environment) -> Option<PathBuf> {
    let folder =
        |name| surroundings.variable(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    Some(caches?.join("trunkline"))
}

/// Compares folders only: another file in a folder that is already withheld from children restarts
/// none.
impl PartialEq for GatewayFiles {
    fn eq(&self, other: &Self) -> bool {
        let folders = |files: &Self| -> BTreeSet<_> {
            files.0.iter().filter_map(|file| file.parent().map(Path::to_path_buf)).collect()
        };
        folders(self) == folders(other)
    }
}

/// Prints no path: the fingerprint of a server does not depend on them.
impl fmt::Debug for GatewayFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GatewayFiles")
    }
}

/// Empty until the whole configuration is read ([`Config::read`]).
impl SectionPart for GatewayFiles {
    fn read_part(_: &ConfigTable<'_>, _: &mut ConfigReader<'_>) -> Option<Self> {
        Some(Self::default())
    }
}
