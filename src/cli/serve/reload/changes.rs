//! The changes of a reload, in words.

use crate::config::Config;

/// Names of the tables and settings that differ between two configurations.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReloadChanges {
    added: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
}

impl ReloadChanges {
    /// Compares two configurations: each server, client, profile and so on by its name, and the
    /// other sections as wholes.
    pub(super) fn between(old: &Config, new: &Config) -> Self {
        let mut changes = Self::default();
        changes.compare_tables("servers", [&old.servers, &new.servers], |it| it.name.to_string());
        changes.compare_tables("tools", [&old.tools, &new.tools], |it| it.name.to_string());
        changes.compare_tables("interceptors", [&old.interceptors, &new.interceptors], |it| {
            it.name.to_string()
        });
        changes
            .compare_tables("profiles", [&old.profiles, &new.profiles], |it| it.name.to_string());
        changes.compare_tables("clients", [&old.clients, &new.clients], |it| it.name.to_string());
        changes.compare_tables("issuers", [&old.issuers, &new.issuers], |it| it.name.to_string());
        for (section, is_changed) in [
            ("gateway", old.gateway != new.gateway),
            ("admin", old.admin != new.admin),
            ("log", old.log != new.log),
            ("telemetry", old.telemetry != new.telemetry),
            ("events", old.events != new.events),
            ("audit", old.audit != new.audit),
            ("vault", old.vault != new.vault),
            ("cluster", old.cluster != new.cluster),
            ("policy", old.policy != new.policy),
            ("search", old.search != new.search),
            ("code", old.code != new.code),
        ] {
            if is_changed {
                changes.changed.push(section.to_owned());
            }
        }
        changes
    }

    fn compare_tables<T: PartialEq>(
        &mut self,
        section: &str,
        tables: [&Vec<T>; 2],
        name: impl Fn(&T) -> String,
    ) {
        let [old, new] = tables;
        let find = |among: &'_ [T], wanted: &T| {
            let wanted = name(wanted);
            among.iter().position(|it| name(it) == wanted)
        };
        for table in new {
            let shown = format!("{section}.{}", name(table));
            match find(old, table).and_then(|at| old.get(at)) {
                None => self.added.push(shown),
                Some(before) if before != table => self.changed.push(shown),
                Some(_) => {}
            }
        }
        let gone = old.iter().filter(|table| find(new, table).is_none());
        self.removed.extend(gone.map(|table| format!("{section}.{}", name(table))));
    }

    /// Describes the changes: `added servers.a; changed gateway; removed clients.b`.
    pub(super) fn describe(&self) -> String {
        let kinds =
            [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)];
        let parts: Vec<_> = kinds
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(verb, names)| format!("{verb} {}", list_names(names)))
            .collect();
        // The order of tables matters for names of tools.
        if parts.is_empty() { "the order has changed".to_owned() } else { parts.join("; ") }
    }
}

fn list_names(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(MAX_NAMED_TABLES).map(String::as_str).collect();
    match names.len().saturating_sub(MAX_NAMED_TABLES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Maximum number of names after each verb.
const MAX_NAMED_TABLES: usize = 20;

/// Warns of changes that need a restart: sockets, the log's format and the telemetry endpoint are
/// fixed for the process.
pub(super) fn warn_of_what_needs_a_restart(old: &Config, new: &Config) {
    let changed = [
        ("gateway.listen", old.gateway.listen != new.gateway.listen),
        ("gateway.threads", old.gateway.threads != new.gateway.threads),
        ("admin.listen", old.admin.listen != new.admin.listen),
        ("admin.socket", old.admin.socket != new.admin.socket),
        ("log.format", old.log.format != new.log.format),
        ("telemetry", old.telemetry != new.telemetry),
        ("events.queue_dir", old.events.queue_dir != new.events.queue_dir),
        ("cluster", !is_cluster_applied(old, new)),
        (
            "gateway.state_keys (between replicas)",
            new.cluster.is_some() && old.gateway.state_keys != new.gateway.state_keys,
        ),
    ];
    for (key, _) in changed.iter().filter(|(_, changed)| *changed) {
        tracing::warn!("{key} has changed: it takes effect at the next start");
    }
}

/// Returns true if the changes of `[cluster]` take effect at once.
fn is_cluster_applied(old: &Config, new: &Config) -> bool {
    match &old.cluster {
        Some(cluster) => cluster.is_applied_by(new.cluster.as_ref()),
        None => new.cluster.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigSource, SystemEnvironment};

    fn config(text: &str) -> Config {
        let (name, bytes) = ("gateway.toml".into(), text.as_bytes().to_vec());
        let source = ConfigSource { name, folder: ".".into(), bytes };
        Config::read(&source, &SystemEnvironment).unwrap()
    }

    #[test]
    fn a_reload_names_its_changes() {
        let old = "[servers.a]\ncommand = \"x\"\n[servers.b]\ncommand = \"x\"\n[servers.c]\ncommand = \"x\"\n\
                   [profiles.p]\nservers = [\"a\"]\n";
        let reordered = "[servers.b]\ncommand = \"x\"\n[servers.a]\ncommand = \"x\"\n[servers.c]\ncommand = \"x\"\n\
                         [profiles.p]\nservers = [\"a\"]\n";
        let new = "[gateway]\nnaming = \"none\"\n[log]\nlevel = \"debug\"\n[servers.a]\ncommand = \"x\"\n\
                   rate = \"1/s\"\n[servers.c]\ncommand = \"x\"\n[servers.d]\ncommand = \"x\"\n\
                   [profiles.q]\nservers = [\"a\"]\n";
        for (old, new, expected) in [
            (
                old,
                new,
                "added servers.d, profiles.q; changed servers.a, gateway, log; removed servers.b, \
                 profiles.p",
            ),
            (old, reordered, "the order has changed"),
        ] {
            let changes = ReloadChanges::between(&config(old), &config(new));
            assert_eq!(changes.describe(), expected);
        }
    }

    #[test]
    fn other_certificates_of_replicas_need_no_restart() {
        let text = |store: &str, cert: &str| {
            format!(
                "[gateway]\nstate_keys = [\"x\"]\n[cluster]\nstore = \"redis://{store}\"\n\
                 listen = \"127.0.0.1:7070\"\nadvertise = \"127.0.0.1:7070\"\n{cert}"
            )
        };
        let files = |folder: &str| {
            format!("cert = \"{folder}/a\"\nkey = \"{folder}/b\"\nca = \"{folder}/c\"\n")
        };
        let plain = config(&text("127.0.0.1", ""));
        let [old, new] = ["old", "new"].map(|it| config(&text("127.0.0.1", &files(it))));
        let moved = config(&text("[::1]", &files("new")));
        for (old, new, is_applied) in [
            (&old, &old, true),
            (&old, &new, true),
            (&old, &moved, false),
            (&plain, &new, false),
            (&old, &plain, false),
            (&config(""), &plain, false),
            (&plain, &config(""), false),
            (&config(""), &config(""), true),
        ] {
            assert_eq!(is_cluster_applied(old, new), is_applied, "{:?}", new.cluster);
        }
    }

    #[test]
    fn a_long_list_of_names_is_cut() {
        let names: Vec<_> = (0..23).map(|number| format!("s{number}")).collect();
        assert!(list_names(&names).ends_with(", s19 and 3 more"));
    }
}
