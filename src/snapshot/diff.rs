//! The changes of a reload: servers added, replaced, removed, kept.

use std::sync::Arc;

use crate::call::ServerName;
use crate::config::{Config, ServerConfig};

/// Changes to each server, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReloadPlan {
    /// Servers that keep running. Their limits, timeouts and tool rules may have changed: none of
    /// these requires a restart.
    pub kept: Vec<ServerName>,
    /// Servers that are started again beside their old instance, and then replace it.
    pub replaced: Vec<ServerName>,
    /// Servers that are new in the configuration.
    pub added: Vec<ServerName>,
    /// Servers that are no longer configured.
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

/// Returns true if a server that was started with `old` can keep running under `new`: settings that
/// are read with each call do not matter.
fn lives_on(old: &ServerConfig, new: &ServerConfig) -> bool {
    let as_it_runs = ServerConfig {
        timeout: old.timeout,
        max_timeout: old.max_timeout,
        rate: old.rate,
        rate_each: old.rate_each,
        quota_each: old.quota_each,
        scopes: old.scopes.clone(),
        in_flight: old.in_flight,
        queue: old.queue,
        queue_timeout: old.queue_timeout,
        arguments: old.arguments,
        check_output: old.check_output,
        result: old.result.clone(),
        retries: old.retries,
        interceptors: old.interceptors.clone(),
        breaker: old.breaker,
        slow_after: old.slow_after,
        slow_message: old.slow_message.clone(),
        tools: old.tools.clone(),
        definitions: old.definitions.clone(),
        confirm: old.confirm,
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
    fn only_settings_that_a_process_depends_on_replace_it() {
        let old = config(
            "[servers.a]\ncommand = \"x\"\n[servers.b]\ncommand = \"x\"\n[servers.c]\ncommand = \"x\"\n[servers.d]\ncommand = \"x\"",
        );
        let new = config(
            "[servers.a]\ncommand = \"x\"\nrate = \"1/s\"\ntools.deny = [\"y\"]\narguments = \"coerce\"\n[servers.b]\ncommand = \"z\"\n[servers.e]\ncommand = \"x\"\n[servers.d]\ncommand = \"x\"",
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
