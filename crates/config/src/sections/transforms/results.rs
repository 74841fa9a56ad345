//! `result` of one tool: the short message that is made from a result, and its size.

use super::template::{MessageTemplate, ValuePath};
use crate::faults::problem::SettingFault;
use crate::reader::macros::{choice, section};
use crate::reader::setting::{Section, SectionPart, SettingRow, TextSetting};
use crate::reader::values::pattern::Pattern;
use crate::reader::values::units::SizeSetting;
use crate::reader::{ConfigReader, ConfigTable};

section! {
    /// The message that clients get instead of the text of a result, and the size of results.
    /// Results that ask for input or create a task stay as they are, and those that report an error
    /// keep their text.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct ResultSettings {
        parts {
            /// The form and size.
            bounds: ResultBounds,
        }
        settings {
            /// The location of the value that becomes the message: a path such as `summary.text`,
            /// or a JSON pointer such as `/items/0/title`. It leads into `structuredContent`, or
            /// into the text if there is none and the text is JSON.
            field: Option<ValuePath>,
            /// The message, with a path within `{ }` for each value in it; `{{` and `}}` are
            /// braces. With `field`, the paths start there. A value that is missing is empty, and
            /// the log has a warning.
            template: Option<MessageTemplate>,
            /// The message if there is nothing to make one from. By default the result is
            /// unchanged.
            fallback: Option<String>,
            /// Keeps or drops structured content, from which the message may have been made.
            structured: StructuredChoice = "keep",
        }
    }
}

section! {
    /// The form and size of the results of all tools of the server, unless a tool has its own.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct ResultBounds {
        settings {
            /// The largest result that clients get, at least `"1KiB"`. By default any size that
            /// `max_response` allows.
            max_size: Option<usize> as Option<ResultSize>,
            /// Action for a larger one, by default `"truncate"`.
            when_larger: Option<WhenLarger>,
            /// The characters to strip from the texts of results, and from texts within texts that
            /// are JSON; by default none.
            strip: Option<Vec<StripChoice>>,
            /// The form of a text that is JSON, by default unchanged.
            format: Option<FormatChoice>,
            /// The MIME types of images, sounds and resources in results that clients get; `*` matches
            /// any number of characters. A sentence replaces others. By default all.
            mime_types: Option<Vec<Pattern>>,
        }
    }
}

impl ResultBounds {
    /// These bounds, with `others` as defaults.
    pub(super) fn or(self, others: &Self) -> Self {
        Self {
            max_size: self.max_size.or(others.max_size),
            when_larger: self.when_larger.or(others.when_larger),
            strip: self.strip.or_else(|| others.strip.clone()),
            format: self.format.or(others.format),
            mime_types: self.mime_types.or_else(|| others.mime_types.clone()),
        }
    }

    /// Returns true if larger results are kept.
    #[inline]
    pub fn keep_results(&self) -> bool {
        self.max_size.is_some() && self.when_larger == Some(WhenLarger::Resource)
    }

    /// Returns true if results are changed.
    pub(super) fn change_results(&self) -> bool {
        let strips = self.strip.as_ref().is_some_and(|strip| !strip.is_empty());
        let formats = self.format.is_some_and(|format| format != FormatChoice::Json);
        strips || formats || self.max_size.is_some() || self.mime_types.is_some()
    }
}

/// The settings of the size are in the table of the result itself.
impl SectionPart for ResultBounds {
    fn part_rows() -> Vec<SettingRow> {
        Self::setting_rows()
    }

    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        Self::read_fields(table, reader)
    }
}

/// A size with room for a sentence about the omitted part.
struct ResultSize;

impl TextSetting for ResultSize {
    type Value = usize;
    const WORD: &'static str = SizeSetting::WORD;
    const EXAMPLE: &'static str = "\"32KiB\"";
    const RULE: &'static str = SizeSetting::RULE;

    fn parse_text(text: &str, reader: &ConfigReader<'_>) -> Result<Option<usize>, SettingFault> {
        match SizeSetting::parse_text(text, reader)? {
            Some(..1024) => Err(SettingFault::Range { min: "1KiB".into(), max: "2GiB".into() }),
            size => Ok(size),
        }
    }

    fn schema_pattern() -> Option<&'static str> {
        SizeSetting::schema_pattern()
    }
}

choice! {
    /// Action for a result that is larger than `max_size`.
    pub enum WhenLarger {
        /// arrays are cut at an element and texts at a character, and a sentence describes the
        /// missing part
        "truncate" => Truncate,
        /// clients get an error with its size
        "error" => Error,
        /// like `truncate`, and the whole can be read for a time as a resource, also in ranges, by the
        /// client that made the call (`gateway.limits.kept_results`)
        "resource" => Resource,
    }
}

choice! {
    /// The characters to strip from the texts of results.
    pub enum StripChoice {
        /// control characters, except tabs and line ends
        "control" => Control,
        /// ANSI escape sequences, such as colours
        "ansi" => Ansi,
        /// invisible characters, such as zero-width spaces, tags and bidirectional controls
        "invisible" => Invisible,
    }
}

choice! {
    /// The form of a text of a result that is JSON.
    pub enum FormatChoice {
        /// unchanged
        "json" => Json,
        /// without whitespace between its tokens
        "compact" => Compact,
        /// an array of flat objects as CSV, if that is shorter; anything else as `compact`
        "csv" => Csv,
    }
}

choice! {
    /// The check of results against the `outputSchema` of their tool.
    pub enum OutputCheck {
        /// they are not checked
        "off" => Off,
        /// the log has a warning about each that does not fit
        "warn" => Warn,
        /// clients get an error instead of it
        "enforce" => Enforce,
    }
}

choice! {
    /// Keeps or drops the value that a message was made from.
    pub enum StructuredChoice {
        /// `structuredContent` has it, even if it came as text; a value that is no object is its
        /// member `result`
        "keep" => Keep,
        /// clients get no `structuredContent`, and do not see an `outputSchema`
        "drop" => Drop,
    }
}

#[allow(clippy::derivable_impls, reason = "`choice!` declares the enum, without a default")]
impl Default for StructuredChoice {
    fn default() -> Self {
        Self::Keep
    }
}

impl ResultSettings {
    /// Returns true if a message is made.
    #[inline]
    pub fn makes_message(&self) -> bool {
        self.field.is_some() || self.template.is_some() || self.fallback.is_some()
    }
}
