//! `[vault]`: the storage of logins at servers, which outlives the process.

use std::path::PathBuf;

use serde_json::Value as Json;

use crate::faults::problem::SettingFault;
use crate::reader::macros::section;
use crate::reader::setting::Setting;
use crate::reader::{ConfigNode, ConfigReader};
use crate::source::secret::Secret;

section! {
    /// The vault: a file with the grants and the registered clients of servers with OAuth. With a key
    /// they survive a restart; without one they are in memory only. Read at the start.
    #[derive(Debug, Clone, PartialEq)]
    pub struct VaultConfig {
        settings {
            /// The file. Only the gateway's own user may write to it.
            path: PathBuf = "trunkline.vault",
            /// The keys that seal it, of at least 32 bytes each, the newest first. Values sealed
            /// with an older key are sealed with the newest at the start.
            keys: Vec<Secret> as Vec<VaultKeySetting> = [],
        }
    }
}

impl VaultConfig {
    /// Returns true if there is a vault.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The fewest bytes of a key.
    pub const MIN_KEY_BYTES: usize = 32;
}

/// A key that is long enough.
pub(crate) struct VaultKeySetting;

impl Setting for VaultKeySetting {
    type Value = Secret;

    fn kind_word() -> String {
        <Secret as Setting>::kind_word()
    }

    fn example_value() -> String {
        "\"${file:/run/secrets/vault.key}\"".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Secret> {
        let secret = <Secret as Setting>::read_value(node, reader)?;
        if secret.expose().len() < VaultConfig::MIN_KEY_BYTES {
            node.report_fault(reader, SettingFault::ShortVaultKey);
            return None;
        }
        Some(secret)
    }

    fn json_schema() -> Json {
        <Secret as Setting>::json_schema()
    }
}
