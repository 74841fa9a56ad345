//! Changes of the calls and results of one tool.

mod arguments;
mod json;
mod results;
mod schema;
mod template;

pub use arguments::{ArgumentEdit, ToolArguments};
pub(crate) use json::plain_json;
pub use json::{ArgumentValue, TextPart};
pub use results::{
    FormatChoice, OutputCheck, ResultBounds, ResultSettings, StripChoice, StructuredChoice,
    WhenLarger,
};
pub use schema::InputSchema;
pub use template::{MessageTemplate, TemplatePart, ValuePath};

use std::sync::Arc;
use std::time::Duration;

use super::server::ServerConfig;
use crate::reader::macros::section;
use crate::reader::setting::{Section, SectionPart, SettingRow};
use crate::reader::values::numbers::CountSetting;
use crate::reader::values::units::DurationSetting;
use crate::reader::{ConfigReader, ConfigTable};

section! {
    /// Changes of the calls and results of one tool.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct TransformSettings {
        settings {
            /// Validation of arguments against its schema, by default that of the server's
            /// `arguments`; or changes of single arguments.
            arguments: ToolArguments,
            /// The input schema that clients see and that arguments have to fit, instead of the
            /// server's own: a table, or the path of a JSON file. The server receives the arguments
            /// that fit it.
            input_schema: Option<InputSchema>,
            /// The check of results against the tool's `outputSchema`. By default that of the
            /// server's `check_output`.
            check_output: Option<OutputCheck>,
            /// The shape and size of results.
            result: ResultSettings = {},
            /// The number of retries of a failed call, by default that of the server's `retries`.
            retries: Option<usize> as Option<CountSetting<0, 5>>,
            /// The time after which a client receives a notification about a slow call of the tool.
            /// By default that of the server's `slow_after`.
            slow_after: Option<Duration> as Option<DurationSetting>,
            /// The text of that notification.
            slow_message: Option<String>,
        }
    }
}

impl TransformSettings {
    /// Returns true if nothing changes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.changes_arguments() && !self.follows_results()
    }

    /// Returns true if the way back of a call matters: its result, its failure, or its time.
    #[inline]
    pub fn follows_results(&self) -> bool {
        let is_retried = self.retries.is_some_and(|retries| retries > 0);
        self.changes_results() || self.slow_after.is_some() || is_retried
    }

    /// Returns true if the server gets other arguments than clients send, or clients see another
    /// schema.
    #[inline]
    pub fn changes_arguments(&self) -> bool {
        !self.arguments.edits.is_empty() || self.input_schema.is_some()
    }

    /// Returns true if clients see another tool than the server lists.
    #[inline]
    pub fn changes_listing(&self) -> bool {
        self.changes_arguments() || self.drops_structured()
    }

    /// Returns true if clients get no structured content.
    #[inline]
    pub fn drops_structured(&self) -> bool {
        self.result.structured == StructuredChoice::Drop
    }

    /// Returns true if results are checked or changed.
    #[inline]
    pub fn changes_results(&self) -> bool {
        let is_checked = self.check_output.is_some_and(|check| check != OutputCheck::Off);
        is_checked
            || self.result.makes_message()
            || self.drops_structured()
            || self.result.bounds.change_results()
    }

    /// The same settings, with those of the server as defaults.
    #[must_use]
    pub fn or_of_server(&self, server: &ServerConfig) -> Self {
        let mut settings = self.clone();
        settings.check_output = settings.check_output.or(Some(server.check_output));
        settings.result.bounds = settings.result.bounds.or(&server.result);
        settings.retries = settings.retries.or(server.retries);
        settings.slow_after = settings.slow_after.or(server.slow_after);
        settings.slow_message = settings.slow_message.or_else(|| server.slow_message.clone());
        settings
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
