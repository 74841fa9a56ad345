//! Which of a server's definitions clients see: trust, pins and scans.

use super::macros::{choice, section};
use super::reader::{ConfigReader, ConfigTable};
use super::setting::{Section, SectionPart, SettingRow};

section! {
    /// Which of a server's definitions clients see.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct DefinitionSettings {
        settings {
            /// Whether the definitions that the gateway first sees of the server are approved, and
            /// the annotations of its tools are believed.
            trusted: bool = false,
            /// What happens to a tool, prompt, resource or template of the server that is not what
            /// the gateway first saw, or what was approved. By default as `gateway.pins` says.
            pins: Option<PinsChoice>,
            /// What happens to a definition of the server with hidden characters, instructions for
            /// the model, encoded text or a misleading name. By default as `gateway.scan` says.
            scan: Option<ScanChoice>,
        }
    }
}

/// Its settings are in the table of the server itself.
impl SectionPart for DefinitionSettings {
    fn part_rows() -> Vec<SettingRow> {
        Self::setting_rows()
    }

    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        Self::read_fields(table, reader)
    }
}

choice! {
    /// What happens to a definition that has changed.
    pub enum PinsChoice {
        /// nothing; definitions are not compared
        "off" => Off,
        /// clients see it, and the log, `/status` and `trunkline pin diff` report it
        "warn" => Warn,
        /// it is absent from lists and cannot be called until `trunkline pin approve`; of a server
        /// that is not `trusted`, so is every definition
        "hold" => Hold,
    }
}

choice! {
    /// What happens to a definition in which a scan has found something.
    pub enum ScanChoice {
        /// nothing; definitions are not scanned
        "off" => Off,
        /// clients see it, and the log and `/status` report it
        "warn" => Warn,
        /// after a grave finding it is absent from lists and cannot be called until
        /// `trunkline pin approve`; minor findings are reported
        "hold" => Hold,
    }
}
