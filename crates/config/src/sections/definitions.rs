//! The visibility of a server's definitions for clients: trust, pins and scans.

use crate::reader::macros::{choice, section};
use crate::reader::setting::{Section, SectionPart, SettingRow};
use crate::reader::{ConfigReader, ConfigTable};

section! {
    /// The visibility of a server's definitions for clients.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct DefinitionSettings {
        settings {
            /// Approves the definitions that the gateway first sees of the server, and believes the
            /// annotations of its tools.
            trusted: bool = false,
            /// Action for a tool, prompt, resource or template of the server that differs from the
            /// first seen or the approved definition. By default that of `gateway.pins`.
            pins: Option<PinsChoice>,
            /// Action for a definition of the server with hidden characters, instructions for the
            /// model, encoded text or a misleading name. By default that of `gateway.scan`.
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
    /// Action for a definition that has changed.
    pub enum PinsChoice {
        /// none; definitions are not compared
        "off" => Off,
        /// clients see it, and the log, `/status` and `trunkline pin diff` report it
        "warn" => Warn,
        /// it is absent from lists and cannot be called until `trunkline pin approve`; for a server
        /// that is not `trusted`, this applies to every definition
        "hold" => Hold,
    }
}

choice! {
    /// Action for a definition with findings of a scan.
    pub enum ScanChoice {
        /// none; definitions are not scanned
        "off" => Off,
        /// clients see it, and the log and `/status` report it
        "warn" => Warn,
        /// after a grave finding it is absent from lists and cannot be called until
        /// `trunkline pin approve`; minor findings are reported
        "hold" => Hold,
    }
}
