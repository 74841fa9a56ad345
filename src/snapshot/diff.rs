//! What a new configuration changes: servers added, replaced, removed, kept.

use std::sync::Arc;

use crate::call::ServerName;
use crate::config::{Config, ServerConfig};

/// What becomes of each server, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReloadPlan {
    /// Goes on as it is. Its limits, times and tool rules may have changed:
    /// none of them needs another process.
    pub kept: Vec<ServerName>,
    /// Started anew beside the old one, which it then takes over from.
    pub replaced: Vec<ServerName>,
    /// New.
    pub added: Vec<ServerName>,
    /// No longer wanted.
    pub removed: Vec<ServerName>,
}

/// Compares two configurations.
pub fn plan(old: &Config, new: &Config) -> ReloadPlan {
    let mut plan = ReloadPlan::default();
    for server in &new.servers {
        let name = server.name.clone();
        match find(old, &name) {
            None => plan.added.push(name),
            Some(before) if lives_on(before, server) => plan.kept.push(name),
            Some(_) => plan.replaced.push(name),
        }
    }
    let gone = old.servers.iter().filter(|server| find(new, &server.name).is_none());
    plan.removed.extend(gone.map(|server| server.name.clone()));
    plan
}

fn find<'a>(config: &'a Config, name: &ServerName) -> Option<&'a Arc<ServerConfig>> {
    config.servers.iter().find(|server| server.name == *name)
}

/// Whether a server with the configuration `old` can go on under `new`: what
/// is read anew with each call does not count.
fn lives_on(old: &ServerConfig, new: &ServerConfig) -> bool {
    let as_it_runs = ServerConfig {
        timeout: old.timeout,
        max_timeout: old.max_timeout,
        rate: old.rate,
        in_flight: old.in_flight,
        queue: old.queue,
        queue_timeout: old.queue_timeout,
        tools: old.tools.clone(),
        resource_vars: old.resource_vars.clone(),
        read_cache: old.read_cache,
        ..new.clone()
    };
    *old == as_it_runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigSource, SystemEnvironment};

    fn config(text: &str) -> Config {
        let source = ConfigSource {
            name: "gateway.toml".into(),
            folder: ".".into(),
            bytes: text.as_bytes().to_vec(),
        };
        Config::read(&source, &SystemEnvironment).unwrap()
    }

    #[test]
    fn only_what_a_process_depends_on_replaces_it() {
        let old = config(
            "[servers.a]\ncommand = \"x\"\n[servers.b]\ncommand = \"x\"\n[servers.c]\ncommand = \"x\"\n[servers.d]\ncommand = \"x\"",
        );
        let new = config(
            "[servers.a]\ncommand = \"x\"\nrate = \"1/s\"\ntools.deny = [\"y\"]\n[servers.b]\ncommand = \"z\"\n[servers.e]\ncommand = \"x\"\n[servers.d]\ncommand = \"x\"",
        );
        let plan = plan(&old, &new);
        let names =
            |names: &[ServerName]| names.iter().map(|n| n.as_str().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&plan.kept), ["a", "d"]);
        assert_eq!(names(&plan.replaced), ["b"]);
        assert_eq!(names(&plan.added), ["e"]);
        assert_eq!(names(&plan.removed), ["c"]);
    }
}
