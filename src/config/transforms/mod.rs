//! What the configuration changes about the calls and results of one tool.

mod arguments;
mod json;

pub use arguments::{ArgumentEdit, ToolArguments};
pub use json::{ArgumentValue, TextPart};

use std::sync::Arc;

use super::macros::section;
use super::reader::{ConfigReader, ConfigTable};
use super::setting::{Section, SectionPart, SettingRow};

section! {
    /// What changes about the calls and results of one tool.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct TransformSettings {
        settings {
            /// What happens to arguments that do not fit its schema, by default as the server's
            /// `arguments` says; or what the gateway changes about single arguments.
            arguments: ToolArguments,
        }
    }
}

impl TransformSettings {
    /// Whether anything changes.
    pub fn is_empty(&self) -> bool {
        self.arguments.edits.is_empty()
    }
}

/// Its settings are in the table of the tool itself.
impl SectionPart for Arc<TransformSettings> {
    fn part_rows() -> Vec<SettingRow> {
        TransformSettings::setting_rows()
    }

    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        TransformSettings::read_fields(table, reader).map(Arc::new)
    }
}
