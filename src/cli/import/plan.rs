//! From what was found to what is added: valid and unique names, no duplicates, secrets in files of
//! their own, and what cannot be used yet as a comment.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use crate::call::ServerName;
use crate::cli::gateway_file::{GatewayFile, GatewaySection, PendingFiles};
use crate::config::{Config, ConfigFaults, Secret, ServerConfig};
use crate::text::escape_controls;

use super::imported::{ImportedProfile, ImportedServer, ImportedTarget};
use super::names::{profile_name, server_name, unique_name};
use super::new_server::NewServer;
use super::render::{SecretPaths, comment_out, render_profile, render_server};
use super::secrets::mark_secrets;
use super::sources::FoundConfig;

/// What an import adds.
#[derive(Debug, Default)]
pub(super) struct ImportPlan {
    pub(super) entries: Vec<PlannedEntry>,
    /// Sentences about the whole: duplicates, and what was left out.
    pub(super) notes: Vec<String>,
    pub(super) secrets: Vec<SecretFile>,
}

/// A table to add.
#[derive(Debug)]
pub(super) struct PlannedEntry {
    pub(super) section: GatewaySection,
    pub(super) name: String,
    /// Its TOML, with the comments above it.
    pub(super) block: String,
    /// Why it is written as a comment, if it is.
    pub(super) inactive: Option<String>,
}

/// A secret that moves to a file of its own.
#[derive(Debug)]
pub(super) struct SecretFile {
    /// Relative to the configuration's folder.
    pub(super) path: String,
    pub(super) text: Secret,
}

/// Makes the plan.
pub(super) fn plan_import(found: Vec<FoundConfig>, gateway: &GatewayFile) -> ImportPlan {
    let mut planner = Planner::new(gateway);
    for config in found {
        planner.plan_file(config);
    }
    planner.plan
}

/// The entries of a client's file that the gateway has as servers now, by their names in the file.
pub(super) fn find_known_entries(found: FoundConfig, gateway: &GatewayFile) -> Vec<String> {
    let planner = Planner::new(gateway);
    let is_known = |server: &ImportedServer| {
        let compiled = planner.compile(server, &server_name(&server.name));
        compiled.is_ok_and(|compiled| planner.find_known(&compiled).is_some())
    };
    let known = found.contents.servers.into_iter().filter(is_known);
    known.map(|server| server.name).collect()
}

struct Planner<'a> {
    gateway: &'a GatewayFile,
    /// The configuration as it is, if it is valid.
    existing: Option<Config>,
    /// The servers that are configured already or planned.
    known: Vec<Arc<ServerConfig>>,
    plan: ImportPlan,
}

impl<'a> Planner<'a> {
    fn new(gateway: &'a GatewayFile) -> Self {
        // A configuration that is invalid now is reported before it is written.
        let existing = gateway.read_config(&PendingFiles::default()).ok();
        let known = existing.iter().flat_map(|config| &config.servers).map(Arc::clone).collect();
        Self { gateway, existing, known, plan: ImportPlan::default() }
    }

    /// The server that does the same as this one, under whatever name.
    fn find_known(&self, compiled: &ServerConfig) -> Option<&Arc<ServerConfig>> {
        self.known.iter().find(|known| known.target == compiled.target)
    }

    fn plan_file(&mut self, found: FoundConfig) {
        let FoundConfig { label, contents } = found;
        let label = label.as_str();
        let notes = contents.notes.into_iter().map(|note| format!("{label}: {note}"));
        self.plan.notes.extend(notes);
        // The names in the file, and those that the servers have in the gateway.
        let mut names = HashMap::new();
        for mut server in contents.servers {
            mark_secrets(&mut server);
            let source_name = server.name.clone();
            if self.is_own_entry(&server) {
                let note = format!("{label}: `{source_name}` is this gateway itself");
                self.plan.notes.push(note);
                continue;
            }
            let name = self.plan_server(&server, label);
            names.insert(source_name, name);
        }
        for profile in contents.profiles {
            self.plan_profile(profile, &names, label);
        }
    }

    /// Plans a server, and returns its name in the gateway.
    fn plan_server(&mut self, server: &ImportedServer, label: &str) -> String {
        let wanted = server_name(&server.name);
        let compiled = self.compile(server, &wanted);
        if let Ok(compiled) = &compiled
            && let Some(known) = self.find_known(compiled)
        {
            let known = known.name.as_str().to_owned();
            let note = format!("{label}: `{}` is there already, as [servers.{known}]", server.name);
            self.plan.notes.push(note);
            return known;
        }
        let name = unique_name(&wanted, ServerName::MAX_LEN, |name| {
            self.is_taken(GatewaySection::Servers, name)
        });
        let inactive = inactive_reason(server, compiled.as_ref().err());
        if inactive.is_some() && self.is_commented(GatewaySection::Servers, &wanted) {
            let note = format!("{label}: `{}` is there already, as a comment", server.name);
            self.plan.notes.push(note);
            return wanted;
        }
        let block = {
            let mut files =
                SecretFiles { gateway: self.gateway, server: &name, plan: &mut self.plan };
            render_server(server, &name, &mut files)
        };
        let mut comments = origin_comment(label);
        if server.name != name {
            comments.push(format!("it was called `{}`", server.name));
        }
        comments.extend(server.notes.iter().cloned());
        if let Ok(mut compiled) = compiled
            && inactive.is_none()
        {
            if let Ok(name) = ServerName::new(&name) {
                Arc::make_mut(&mut compiled).name = name;
            }
            self.known.push(compiled);
        }
        self.push_entry(GatewaySection::Servers, &name, &block, comments, inactive);
        name
    }

    fn plan_profile(
        &mut self,
        mut profile: ImportedProfile,
        names: &HashMap<String, String>,
        label: &str,
    ) {
        let wanted = profile_name(&profile.name);
        if let Some(servers) = &mut profile.servers {
            for server in servers {
                if let Some(name) = names.get(server) {
                    server.clone_from(name);
                }
            }
        }
        if self.is_taken(GatewaySection::Profiles, &wanted)
            || self.is_commented(GatewaySection::Profiles, &wanted)
        {
            let note = format!("{label}: the profile `{}` is there already", profile.name);
            self.plan.notes.push(note);
            return;
        }
        let mut comments = origin_comment(label);
        if profile.name != wanted {
            comments.push(format!("it was called `{}`", profile.name));
        }
        comments.append(&mut profile.notes);
        let missing = self.missing_server(&profile);
        let inactive = missing.map(|server| {
            format!("[servers.{server}] is a comment or missing: it has to be there first")
        });
        let block = render_profile(&profile, &wanted);
        self.push_entry(GatewaySection::Profiles, &wanted, &block, comments, inactive);
    }

    fn push_entry(
        &mut self,
        section: GatewaySection,
        name: &str,
        block: &str,
        comments: Vec<String>,
        inactive: Option<String>,
    ) {
        let reason = inactive.iter().map(|reason| format!("not active: {reason}"));
        let mut lines = String::new();
        for line in comments.into_iter().chain(reason) {
            let _ = writeln!(lines, "# {}", escape_controls(&line));
        }
        let body = match &inactive {
            Some(_) => comment_out(block),
            None => block.to_owned(),
        };
        let (name, block) = (name.to_owned(), format!("{lines}{body}"));
        self.plan.entries.push(PlannedEntry { section, name, block, inactive });
    }

    /// Reads the server as the gateway would, with its secrets in place.
    fn compile(
        &self,
        server: &ImportedServer,
        name: &str,
    ) -> Result<Arc<ServerConfig>, CompileFault> {
        let mut files = TrialFiles {
            folder: self.gateway.folder(),
            pending: PendingFiles::default(),
            count: 0,
        };
        let text = render_server(server, name, &mut files);
        let config = self.gateway.read_piece(text, &files.pending)?;
        config.servers.into_iter().next().ok_or(CompileFault::Missing)
    }

    /// Whether an entry points a client at this gateway.
    fn is_own_entry(&self, server: &ImportedServer) -> bool {
        match &server.target {
            ImportedTarget::Command { command, args, .. } => {
                let program = command.rsplit('/').next().unwrap_or_default();
                let arguments = args.iter().filter_map(|arg| arg.plain_text().ok());
                let arguments: Vec<_> = arguments.collect();
                (program == "trunkline" && arguments.iter().any(|arg| arg == "stdio"))
                    || arguments.iter().any(|arg| self.is_own_url(arg))
            }
            ImportedTarget::Http { url, .. } | ImportedTarget::OpenApi { url } => {
                url.plain_text().is_ok_and(|url| self.is_own_url(&url))
            }
        }
    }

    fn is_own_url(&self, text: &str) -> bool {
        let Ok(url) = url::Url::parse(text) else { return false };
        let Some(gateway) = self.existing.as_ref().map(|config| &config.gateway) else {
            return false;
        };
        let is_local = url.host_str().is_some_and(|host| {
            matches!(host, "localhost" | "127.0.0.1" | "[::1]")
                || host == gateway.listen.ip().to_string()
                || gateway
                    .allowed_hosts
                    .iter()
                    .any(|allowed| allowed.split(':').next() == Some(host))
        });
        let port = url.port_or_known_default();
        is_local && port == Some(gateway.listen.port()) && url.path().starts_with("/mcp")
    }

    fn is_taken(&self, section: GatewaySection, name: &str) -> bool {
        let planned = |entry: &PlannedEntry| entry.section == section && entry.name == name;
        self.gateway.has_entry(section, name) || self.plan.entries.iter().any(planned)
    }

    /// Whether an earlier import added the entry as a comment.
    fn is_commented(&self, section: GatewaySection, name: &str) -> bool {
        let header = format!("#[{}.{name}]", section.key());
        self.gateway.text().lines().any(|line| line.trim_end() == header)
    }

    /// The first server of a profile that is not active.
    fn missing_server(&self, profile: &ImportedProfile) -> Option<String> {
        let is_active = |name: &&String| {
            self.gateway.has_entry(GatewaySection::Servers, name)
                || self.plan.entries.iter().any(|entry| {
                    entry.inactive.is_none()
                        && entry.section == GatewaySection::Servers
                        && entry.name == **name
                })
        };
        profile.servers.iter().flatten().find(|name| !is_active(name)).cloned()
    }
}

/// Where an entry comes from; what a person typed needs no comment.
fn origin_comment(label: &str) -> Vec<String> {
    if label == NewServer::LABEL { Vec::new() } else { vec![format!("from {label}")] }
}

/// Why a server does not compile.
enum CompileFault {
    Faults(ConfigFaults),
    Missing,
}

impl From<ConfigFaults> for CompileFault {
    fn from(faults: ConfigFaults) -> Self {
        Self::Faults(faults)
    }
}

/// Why a server can only be a comment.
fn inactive_reason(server: &ImportedServer, fault: Option<&CompileFault>) -> Option<String> {
    if server.inactive.is_some() {
        return server.inactive.clone();
    }
    match fault? {
        CompileFault::Missing => Some("it cannot be read".to_owned()),
        CompileFault::Faults(faults) => {
            let faults = faults.list().iter().take(3).map(|fault| fault.problem.to_string());
            Some(faults.collect::<Vec<_>>().join("; "))
        }
    }
}

/// Secrets of a server that is only tried.
struct TrialFiles {
    folder: PathBuf,
    pending: PendingFiles,
    count: usize,
}

impl SecretPaths for TrialFiles {
    fn secret_path(&mut self, _: &str, secret: &Secret) -> String {
        self.count += 1;
        let path = format!("trial-{}", self.count);
        self.pending.insert(self.folder.join(&path), secret.clone());
        path
    }
}

/// Secrets of a server that is planned: `secrets/SERVER.USAGE`.
struct SecretFiles<'a, 'b> {
    gateway: &'a GatewayFile,
    server: &'a str,
    plan: &'b mut ImportPlan,
}

impl SecretPaths for SecretFiles<'_, '_> {
    fn secret_path(&mut self, usage: &str, secret: &Secret) -> String {
        let usage: String = usage
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
            .take(64)
            .collect();
        let folder = self.gateway.folder();
        let stem = format!("{SECRETS_FOLDER}/{}.{usage}", self.server);
        let is_free = |path: &String| {
            // An existing file may be the secret of another server, or one that was changed since.
            !folder.join(path).exists() && self.plan.secrets.iter().all(|file| file.path != *path)
        };
        let numbered = (2..).map(|number| format!("{stem}-{number}"));
        let path = std::iter::once(stem.clone()).chain(numbered).find(is_free).unwrap_or_default();
        self.plan.secrets.push(SecretFile { path: path.clone(), text: secret.clone() });
        path
    }
}

/// Where the files with secrets are, beside the configuration.
pub(super) const SECRETS_FOLDER: &str = "secrets";
