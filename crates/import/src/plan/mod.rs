//! Plans the additions for the entries found: valid and unique names, no duplicates, secrets in
//! files of their own, and comments for entries that cannot be used yet.

pub(crate) mod apply;
pub(crate) mod compiled;
pub(crate) mod known;
pub(crate) mod names;
pub(crate) mod render;
pub(crate) mod secret_files;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use trunkline_catalog::Selection;
use trunkline_config::{ConfigFaults, ProfileConfig};
use trunkline_core::text::escape_controls;
use trunkline_protocol::call::ServerName;

use crate::gateway_file::{GatewayFile, GatewaySection};

use crate::documents::imported::{
    ImportedProfile, ImportedServer, ImportedTarget, ImportedText, InactiveEntryFault,
};
use crate::foreign::sources::FoundConfig;
use crate::secrets::{command_has_secret, mark_secrets};
use compiled::CompiledServer;
use known::{ComparedServer, KnownServers};
use names::{profile_name, server_name, unique_name};
use render::{comment_out, render_profile, render_server};
use secret_files::{SecretFile, SecretFiles};

/// Additions of an import.
#[derive(Debug, Default)]
pub(super) struct ImportPlan {
    pub(super) entries: Vec<PlannedEntry>,
    /// General notes: duplicates, and omitted entries.
    pub(super) notes: Vec<String>,
    pub(super) secrets: Vec<SecretFile>,
    /// Servers of the gateway that were found again, by name.
    pub(super) duplicates: Vec<String>,
}

/// A table to add.
#[derive(Debug)]
pub(super) struct PlannedEntry {
    pub(super) section: GatewaySection,
    pub(super) name: String,
    /// TOML of the entry, with the comments above it.
    pub(super) block: String,
    /// Reason that it is written as a comment, if it is.
    pub(super) inactive: Option<InactiveEntryFault>,
}

/// Makes the plan.
pub(super) fn plan_import(found: Vec<FoundConfig>, gateway: &GatewayFile) -> ImportPlan {
    let mut known = KnownServers::read(gateway);
    let notes = std::mem::take(&mut known.notes);
    let mut planner = Planner::new(gateway, known, ImportPlan { notes, ..ImportPlan::default() });
    for config in found {
        planner.plan_file(config);
    }
    planner.plan
}

/// An entry of a client's file.
#[derive(Debug)]
pub struct ForeignEntry {
    /// The keys that lead to its table.
    pub table: Vec<String>,
    /// Its key in the table.
    pub name: String,
}

/// The entries of a client's file that the gateway can replace.
#[derive(Debug, Default)]
pub struct ReplaceableEntries {
    /// In the order of the file.
    pub entries: Vec<ForeignEntry>,
    /// Reasons that other entries cannot be replaced.
    pub notes: Vec<String>,
}

/// Returns the entries that the gateway has as servers now, with the same tools. For a client of
/// one profile, also the entries of servers that the profile shows in full.
pub(super) fn find_replaceable(
    found: FoundConfig,
    gateway: &GatewayFile,
    profile: Option<&ProfileConfig>,
) -> ReplaceableEntries {
    let mut known = KnownServers::read(gateway);
    let mut replaceable =
        ReplaceableEntries { entries: Vec::new(), notes: std::mem::take(&mut known.notes) };
    for server in found.contents.servers {
        let compiled = CompiledServer::compile(&server, &server_name(&server.name), gateway);
        let Some((same, table)) = compiled.find_known(&known) else { continue };
        if server.inactive.is_some() {
            continue;
        }
        let hidden = same.list_hidden_tools(table);
        let mut differences = same.list_differences(table);
        differences.retain(|setting| setting.starts_with("tools.") && !hidden.contains(setting));
        differences.extend(hidden);
        let ImportedServer { name, table, .. } = server;
        if let Some(profile) = profile.filter(|profile| !shows_whole(profile, &same.config.name)) {
            let profile = &profile.name;
            replaceable
                .notes
                .push(format!("`{name}` stays: profile {profile} does not show all of it"));
            continue;
        }
        if differences.is_empty() {
            replaceable.entries.push(ForeignEntry { table, name });
        } else {
            let (differences, known) = (differences.join(", "), &same.config.name);
            replaceable.notes.push(format!(
                "`{name}` stays: {differences} of [servers.{known}] would show other tools"
            ));
        }
    }
    replaceable
}

/// Returns true if clients of a profile see all elements of a server.
fn shows_whole(profile: &ProfileConfig, server: &ServerName) -> bool {
    let names_elements =
        profile.tools.is_some() || profile.prompts.is_some() || profile.resources.is_some();
    !names_elements && Selection::from_profile(profile).admits_server(server)
}

struct Planner<'a> {
    gateway: &'a GatewayFile,
    /// Servers that are already configured or planned.
    known: KnownServers,
    plan: ImportPlan,
    /// Names of the planned entries.
    taken: HashSet<(&'static str, String)>,
    /// Active servers among them.
    active: HashSet<String>,
    /// Lines of the configuration that begin with `#[`, like entries in comments.
    comments: HashSet<String>,
}

impl<'a> Planner<'a> {
    fn new(gateway: &'a GatewayFile, known: KnownServers, plan: ImportPlan) -> Self {
        let text = gateway.text();
        let lines = text.lines().map(str::trim_end).filter(|line| line.starts_with("#["));
        let comments = lines.map(str::to_owned).collect();
        let (taken, active) = (HashSet::new(), HashSet::new());
        Self { gateway, known, plan, taken, active, comments }
    }

    fn plan_file(&mut self, found: FoundConfig) {
        let FoundConfig { label, contents } = found;
        let label = label.as_deref();
        let prefix = label.map(|label| format!("{label}: ")).unwrap_or_default();
        let notes = contents.notes.into_iter().map(|note| format!("{prefix}{note}"));
        self.plan.notes.extend(notes);
        // Maps the names in the file to the names of the servers in the gateway.
        let mut names = HashMap::new();
        for mut server in contents.servers {
            mark_secrets(&mut server);
            let source_name = server.name.clone();
            if self.known.is_gateway(&server) {
                self.note(label, &source_name, "is this gateway itself");
            } else if command_has_secret(&server) {
                let problem = "is left out: its command contains a secret; write program and \
                    arguments apart";
                self.note(label, &source_name, problem);
            } else {
                let name = self.plan_server(&server, label);
                names.insert(source_name, name);
            }
        }
        for profile in contents.profiles {
            self.plan_profile(profile, &names, label);
        }
    }

    fn note(&mut self, label: Option<&str>, name: &str, what: &str) {
        let label = label.map(|label| format!("{label}: ")).unwrap_or_default();
        self.plan.notes.push(format!("{label}`{name}` {what}"));
    }

    /// Plans a server, and returns its name in the gateway.
    fn plan_server(&mut self, server: &ImportedServer, label: Option<&str>) -> String {
        let wanted = server_name(&server.name);
        let compiled = CompiledServer::compile(server, &wanted, self.gateway);
        if let Some((known, table)) = compiled.find_known(&self.known) {
            let (name, differences) =
                (known.config.name.to_string(), known.list_differences(table));
            self.note_duplicate(label, server, &name, &differences);
            return name;
        }
        let inactive = inactive_reason(server, compiled.fault);
        if inactive.is_some() && self.is_commented_out(server, &wanted) {
            self.note(label, &server.name, "is there already, as a comment");
            return wanted;
        }
        let name = unique_name(&wanted, ServerName::MAX_LEN, |name| {
            self.is_taken(GatewaySection::Servers, name)
                || (inactive.is_some() && self.is_comment(GatewaySection::Servers, name))
        });
        let block = self.render_block(server, &name);
        let mut comments: Vec<_> = label.iter().map(|label| format!("from {label}")).collect();
        if server.name != name {
            comments.push(format!("it was called `{}`", server.name));
        }
        comments.extend(server.notes.iter().cloned());
        if let (Some((mut config, table)), None) = (compiled.complete, &inactive) {
            if let Ok(name) = ServerName::new(&name) {
                Arc::make_mut(&mut config).name = name;
            }
            self.known.add(ComparedServer { config, table });
        }
        self.push_entry(GatewaySection::Servers, &name, &block, comments, inactive);
        name
    }

    fn note_duplicate(
        &mut self,
        label: Option<&str>,
        server: &ImportedServer,
        known: &str,
        differences: &[String],
    ) {
        let mut what = format!("is there already, as [servers.{known}]");
        if !differences.is_empty() {
            let _ = write!(what, ", with another value of {}", differences.join(", "));
        }
        self.note(label, &server.name, &what);
        self.plan.duplicates.push(known.to_owned());
    }

    /// Returns the TOML of a server; its secrets become part of the plan.
    fn render_block(&mut self, server: &ImportedServer, name: &str) -> String {
        let mut files =
            SecretFiles { gateway: self.gateway, server: name, planned: &mut self.plan.secrets };
        render_server(server, name, &mut files)
    }

    /// Returns true if an earlier import added the same server as a comment.
    fn is_commented_out(&mut self, server: &ImportedServer, name: &str) -> bool {
        let planned = self.plan.secrets.len();
        let block = comment_out(&self.render_block(server, name));
        self.plan.secrets.truncate(planned);
        self.gateway.text().contains(block.trim_end())
    }

    fn plan_profile(
        &mut self,
        mut profile: ImportedProfile,
        names: &HashMap<String, String>,
        label: Option<&str>,
    ) {
        let wanted = profile_name(&profile.name);
        if let Some(servers) = &mut profile.servers {
            for server in servers {
                if let Some(name) = names.get(server) {
                    server.clone_from(name);
                }
            }
        }
        let section = GatewaySection::Profiles;
        if self.gateway.has_entry(section, &wanted) || self.is_comment(section, &wanted) {
            self.note(label, &profile.name, "is there already, as a profile");
            return;
        }
        // Two names of this import may differ only in characters that are invalid in a profile's
        // name.
        let wanted = unique_name(&wanted, MAX_PROFILE_CHARS, |name| {
            self.is_taken(section, name) || self.is_comment(section, name)
        });
        let mut comments: Vec<_> = label.iter().map(|label| format!("from {label}")).collect();
        if profile.name != wanted {
            comments.push(format!("it was called `{}`", profile.name));
        }
        comments.append(&mut profile.notes);
        let missing = self.missing_server(&profile);
        let inactive = missing.map(|server| InactiveEntryFault::MissingServer { server });
        let block = render_profile(&profile, &wanted);
        self.push_entry(section, &wanted, &block, comments, inactive);
    }

    fn push_entry(
        &mut self,
        section: GatewaySection,
        name: &str,
        block: &str,
        comments: Vec<String>,
        inactive: Option<InactiveEntryFault>,
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
        self.taken.insert((section.key(), name.to_owned()));
        if inactive.is_none() && section == GatewaySection::Servers {
            self.active.insert(name.to_owned());
        }
        let (name, block) = (name.to_owned(), format!("{lines}{body}"));
        self.plan.entries.push(PlannedEntry { section, name, block, inactive });
    }

    fn is_taken(&self, section: GatewaySection, name: &str) -> bool {
        self.gateway.has_entry(section, name)
            || self.taken.contains(&(section.key(), name.to_owned()))
    }

    /// Returns true if an entry of this name is a comment.
    fn is_comment(&self, section: GatewaySection, name: &str) -> bool {
        self.comments.contains(&format!("#[{}.{name}]", section.key()))
    }

    /// Returns the first inactive server of a profile.
    fn missing_server(&self, profile: &ImportedProfile) -> Option<String> {
        let is_active = |name: &&String| {
            self.active.contains(*name) || self.gateway.has_entry(GatewaySection::Servers, name)
        };
        profile.servers.iter().flatten().find(|name| !is_active(name)).cloned()
    }
}

/// Returns the reason that a server can only be a comment.
fn inactive_reason(
    server: &ImportedServer,
    fault: Option<ConfigFaults>,
) -> Option<InactiveEntryFault> {
    if server.inactive.is_some() {
        return server.inactive.clone();
    }
    if let ImportedTarget::Command { command, cwd, .. } = &server.target {
        let settings = [("command", Some(command)), ("cwd", cwd.as_ref())];
        for (setting, text) in settings {
            if !text.is_none_or(ImportedText::is_plain) {
                return Some(InactiveEntryFault::Unresolved { setting });
            }
        }
    }
    let faults = fault?;
    let faults = faults.list().iter().take(3).map(|fault| fault.problem.to_string()).collect();
    Some(InactiveEntryFault::Invalid { faults })
}

/// Maximum characters of a profile's name.
const MAX_PROFILE_CHARS: usize = 64;
