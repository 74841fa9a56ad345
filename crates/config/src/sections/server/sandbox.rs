//! `[servers.NAME.sandbox]`: the permissions of a child process.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};
use toml::de::{DeTable, DeValue};

use crate::faults::problem::SettingFault;
use crate::reader::macros::section;
use crate::reader::setting::{Section, SectionOutline, SectionPart, Setting, TextSetting};
use crate::reader::values::numbers::CountSetting;
use crate::reader::values::units::{DurationSetting, parse_scaled};
use crate::reader::{ConfigNode, ConfigReader, ConfigTable};
use crate::sections::gateway::gateway_files::GatewayFiles;

section! {
    /// The permissions of a child process. `sandbox = true` is a sandbox with the defaults. The
    /// server does not start if the system cannot enforce the whole configuration.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SandboxConfig {
        parts {
            /// The gateway's own files.
            gateway_files: GatewayFiles,
            /// Its own user, if the gateway assigns one.
            own_user: Option<OwnUser>,
        }
        settings {
            /// Allows the child to read and run the usual files of programs: `/usr`, `/bin`,
            /// `/lib`, the folders of `PATH`, its program and the folder of that; and to read its
            /// `cwd`, `/proc`, and those files of `/etc`, `/dev` and `/sys` that any program may
            /// need. Folders that contain the configuration, or another file of the gateway, are
            /// left out; `trunkline check` prints the `read` that is needed instead.
            system: bool = true,
            /// Further files and folders that it may read.
            read: Vec<PathBuf> = [],
            /// Files and folders that it may read and write.
            write: Vec<PathBuf> = [],
            /// Files and folders that it may read and run.
            execute: Vec<PathBuf> = [],
            /// Gives it a folder of its own for temporary files, in `TMPDIR`, which is removed when
            /// it ends, or at the next start if the gateway was killed.
            private_tmp: bool = true,
            /// The bytes that its temporary files may take together. A child that exceeds them is
            /// stopped within a second or two. Folders and empty files count as 4 KiB each.
            tmp_size: u64 as AmountSetting = "1GiB",
            /// The TCP ports that it may connect to, at any address. By default all; with `[]` none. With
            /// `[]` here and in `bind` it has no internet sockets.
            connect: Option<Vec<usize>> as Option<Vec<CountSetting<1, 65_535>>>,
            /// The TCP ports that it may listen on. By default all; with `[]` none.
            bind: Option<Vec<usize>> as Option<Vec<CountSetting<1, 65_535>>>,
            /// Allows UDP to any port, for name resolution, if it may connect to a TCP port.
            udp: bool = true,
            /// Allows sockets of paths, such as those of docker, ssh-agent and D-Bus. Pairs of
            /// sockets, by which its own processes talk to each other, are always allowed.
            unix: bool = false,
            /// Allows changes of the metadata of all files of its user, also of those that it may
            /// not write: with `true` modes, times, owners and extended attributes, with `false`
            /// none. By default modes and times, which npm, uv and git change, and those only with
            /// `write`.
            metadata: Option<bool>,
            /// Allows files in memory that can be run as programs.
            memfd: bool = false,
            /// Blocks signals to processes outside of the sandbox, and connections to their
            /// abstract sockets. This needs Linux 6.12. With `true` the server does not start on an
            /// older kernel. By default it does, with a warning in the log, in `/status` and by
            /// `trunkline check`.
            scopes: Option<bool>,
            /// Refuses system calls that no server needs, such as those to trace other processes,
            /// to mount, to load kernel modules and to create namespaces.
            syscalls: bool = true,
            /// The memory that each of its processes may address. Programs reserve more than they use:
            /// node needs some GiB.
            memory: Option<u64> as Option<AmountSetting>,
            /// The number of processes and threads that its user may have. Not enforced for root: set
            /// `user`.
            processes: Option<usize> as Option<CountSetting<1, 1_000_000>>,
            /// The number of files that each of its processes may have open.
            open_files: Option<usize> as Option<CountSetting<8, 1_000_000>>,
            /// The size of each file that it writes.
            file_size: Option<u64> as Option<AmountSetting>,
            /// The processor time that each of its processes may use.
            cpu_time: Option<Duration> as Option<DurationSetting>,
            /// The user that it runs as: a name of `/etc/passwd`, or `UID:GID`. Only root can choose
            /// one. By default the gateway's own.
            user: Option<ChildUser>,
        }
    }
}

/// A sandbox as a table, or `true` for the defaults and `false` for none.
pub(crate) struct SandboxSetting;

impl Setting for SandboxSetting {
    type Value = Option<SandboxConfig>;

    fn kind_word() -> String {
        "table, or boolean".into()
    }

    fn example_value() -> String {
        "true".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self::Value> {
        match node.value {
            DeValue::Boolean(false) => Some(None),
            DeValue::Boolean(true) => {
                let empty = DeTable::new();
                SandboxConfig::read_fields(&ConfigTable::root_table(&empty), reader).map(Some)
            }
            _ => <SandboxConfig as Setting>::read_value(node, reader).map(Some),
        }
    }

    fn absent_value() -> Option<Self::Value> {
        Some(None)
    }

    fn json_schema() -> Json {
        json!({ "anyOf": [{ "type": "boolean" }, <SandboxConfig as Setting>::json_schema()] })
    }

    fn section_outline() -> Option<SectionOutline> {
        <SandboxConfig as Setting>::section_outline()
    }
}

/// A number of bytes up to 1 TiB.
pub(crate) struct AmountSetting;

impl TextSetting for AmountSetting {
    type Value = u64;
    const OFF: bool = true;
    const WORD: &'static str = "size";
    const EXAMPLE: &'static str = "\"4GiB\"";
    const RULE: &'static str = "a whole number with KiB, MiB or GiB";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<u64>, SettingFault> {
        const MEMORY_UNITS: [(&str, u64); 3] =
            [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
        match parse_scaled(text, &MEMORY_UNITS) {
            None => Ok(None),
            Some(bytes) if (1..=1 << 40).contains(&bytes) => Ok(Some(bytes)),
            Some(_) => Err(SettingFault::Range { min: "1KiB".into(), max: "1024GiB".into() }),
        }
    }

    fn schema_pattern() -> Option<&'static str> {
        Some("^[0-9]+(KiB|MiB|GiB)$")
    }
}

/// Numbers of users, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UidRange {
    /// The smallest.
    pub first: u32,
    /// The largest.
    pub last: u32,
}

impl TextSetting for UidRange {
    type Value = Self;
    const WORD: &'static str = "range";
    const EXAMPLE: &'static str = "\"200000-200999\"";
    const RULE: &'static str = "FIRST-LAST, from 1 to 4294967294";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        let range = text.split_once('-');
        let range = range.and_then(|(first, last)| first.parse().ok().zip(last.parse().ok()));
        Ok(range
            .filter(|(first, last)| (1..=*last).contains(first) && *last < u32::MAX)
            .map(|(first, last)| Self { first, last }))
    }
}

/// The user that the gateway assigns to a child: one of a range, by the name of its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnUser {
    /// The name of the server.
    pub server: String,
    /// The numbers that may be assigned.
    pub range: UidRange,
    /// The folder with the homes of all children.
    pub folder: PathBuf,
}

/// `None` until the whole configuration is read ([`Config::read`](crate::Config::read)).
impl SectionPart for Option<OwnUser> {
    fn read_part(_: &ConfigTable<'_>, _: &mut ConfigReader<'_>) -> Option<Self> {
        Some(None)
    }
}

/// The user that a child runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildUser {
    /// By the name in `/etc/passwd`.
    Name(String),
    /// By number.
    Ids {
        /// The user.
        user: u32,
        /// The group.
        group: u32,
    },
}

impl fmt::Display for ChildUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ids { user, group } => write!(f, "{user}:{group}"),
        }
    }
}

impl TextSetting for ChildUser {
    type Value = Self;
    const WORD: &'static str = "user";
    const EXAMPLE: &'static str = "\"nobody\"";
    const RULE: &'static str = "a name, or UID:GID";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        if let Some((user, group)) = text.split_once(':') {
            let ids = user.parse().ok().zip(group.parse().ok());
            return Ok(ids.map(|(user, group)| Self::Ids { user, group }));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let is_name = !text.is_empty() && text.chars().all(allowed);
        let is_name = is_name && !text.starts_with(|c: char| c.is_ascii_digit());
        Ok(is_name.then(|| Self::Name(text.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ConfigSource, ServerKind, SystemEnvironment};

    fn sandbox(value: &str) -> Result<Option<SandboxConfig>, String> {
        let bytes = format!("[servers.s]\ncommand = \"x\"\nsandbox = {value}").into_bytes();
        let source = ConfigSource { name: "gateway.toml".into(), folder: "/f".into(), bytes };
        let config = Config::read(&source, &SystemEnvironment).map_err(|it| it.to_string())?;
        let ServerKind::Command(command) = &config.servers[0].target else { unreachable!() };
        Ok(command.sandbox.clone())
    }

    #[test]
    fn a_sandbox_is_true_or_a_table() {
        assert_eq!(sandbox("false"), Ok(None));
        assert_eq!(sandbox("true"), sandbox("{}"));
        let plain = sandbox("true").unwrap().unwrap();
        assert!(plain.system && plain.private_tmp && plain.syscalls && plain.connect.is_none());
        assert_eq!(plain.scopes, None);
        let table = sandbox("{ read = [\"x\"], connect = [], user = \"7:8\", memory = \"4GiB\" }");
        let table = table.unwrap().unwrap();
        assert_eq!((table.read, table.connect), (vec!["/f/x".into()], Some(Vec::new())));
        assert_eq!(table.user, Some(ChildUser::Ids { user: 7, group: 8 }));
        assert_eq!(table.memory, Some(4 << 30));
    }

    #[test]
    fn faults_of_a_sandbox_are_reported_with_their_key() {
        for (value, key, problem) in [
            ("1", "servers.s.sandbox", "expected a table"),
            ("{ reed = [] }", "servers.s.sandbox.reed", "unknown key"),
            ("{ connect = [0] }", "servers.s.sandbox.connect", "out of range"),
            ("{ memory = \"4\" }", "servers.s.sandbox.memory", "is not"),
            ("{ user = \"a b\" }", "servers.s.sandbox.user", "is not"),
        ] {
            let faults = sandbox(value).unwrap_err();
            assert!(faults.contains(key) && faults.contains(problem), "{value}: {faults}");
        }
    }
}
