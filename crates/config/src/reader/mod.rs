//! The reader: the position in the parsed text, and the faults found so far. It knows kinds of values
//! that many settings share, and no setting; sections are read through it.

pub(crate) mod docs;
pub(crate) mod macros;
pub(crate) mod places;
pub(crate) mod setting;
pub(crate) mod values;
pub(crate) mod wording;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::Environment;
use crate::faults::FoundProblem;
use crate::faults::problem::SettingFault;
use crate::source::secret::Secret;
use setting::{Section, Setting, SettingRow};
use wording::{AnyTable, expected_kind, nearest_choice, quote_segment, shorten_text};

/// The context and the findings of a reading. Reading does not stop at the first fault: each reader
/// adds its faults and returns `None`, and the next one continues.
pub(super) struct ConfigReader<'a> {
    /// The folder of relative paths.
    pub(super) folder: &'a Path,
    pub(super) surroundings: &'a dyn Environment,
    pub(super) found: Vec<FoundProblem>,
    /// The byte ranges of secrets in the text: never shown.
    pub(super) hidden: Vec<Range<usize>>,
    /// The values of secrets and of substitutions, with the keys of their settings.
    pub(super) secrets: Vec<(String, Secret)>,
    /// Every file named by a substitution.
    pub(super) files: BTreeSet<PathBuf>,
    /// Every command line of a substitution.
    pub(super) commands: BTreeSet<String>,
}

impl<'a> ConfigReader<'a> {
    pub(super) fn new(folder: &'a Path, surroundings: &'a dyn Environment) -> Self {
        let (found, hidden, secrets, files, commands) = Default::default();
        Self { folder, surroundings, found, hidden, secrets, files, commands }
    }

    pub(super) fn report_fault(&mut self, span: Range<usize>, key: &str, problem: SettingFault) {
        self.found.push(FoundProblem::located(span, key.to_owned(), problem));
    }

    /// Resolves a path relative to the file's folder.
    pub(super) fn resolve_path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }
}

/// One value of the file, with its key.
pub(super) struct ConfigNode<'a> {
    pub(super) value: &'a DeValue<'a>,
    pub(super) span: Range<usize>,
    /// The full key, such as `servers.github.url`.
    pub(super) key: String,
    /// The last segment of the key, and its span.
    name: &'a str,
    name_span: Range<usize>,
}

/// One table of the file.
pub(super) struct ConfigTable<'a> {
    entries: &'a DeTable<'a>,
    /// The full key, such as `servers.github`; empty for the whole file.
    pub(super) key: String,
    /// The last segment of the key.
    pub(super) name: &'a str,
    /// The span of that segment.
    pub(super) name_span: Range<usize>,
}

impl<'a> ConfigNode<'a> {
    /// The last segment of the key, unescaped.
    pub(super) fn key_name(&self) -> &'a str {
        self.name
    }

    pub(super) fn report_fault(&self, reader: &mut ConfigReader<'_>, problem: SettingFault) {
        reader.report_fault(self.span.clone(), &self.key, problem);
    }

    /// Reports a fault of the key rather than of the value.
    pub(super) fn report_fault_at_key(&self, reader: &mut ConfigReader<'_>, problem: SettingFault) {
        reader.report_fault(self.name_span.clone(), &self.key, problem);
    }

    /// The part of the file with these bytes of the value's text; the whole value if that is
    /// unknown, because the file has another spelling of the text.
    pub(super) fn span_within(&self, text: &str, at: Range<usize>) -> Range<usize> {
        let quotes = self.span.len().saturating_sub(text.len());
        let before = match quotes {
            // "…" or '…'
            2 => 1,
            // Three of them, and the line end after the first ones, which is not part of the text.
            6..=8 => quotes - 3,
            _ => return self.span.clone(),
        };
        if at.is_empty() {
            return self.span.clone();
        }
        let start = self.span.start + before;
        start + at.start..start + at.end
    }

    /// Reports that the value does not have the TOML type of `S`.
    pub(super) fn refuse_kind<S: Setting>(&self, reader: &mut ConfigReader<'_>) {
        self.report_kind::<S>(S::correction(), reader);
    }

    /// Reports that the value does not have the TOML type of `S`, with its correction.
    pub(super) fn report_kind<S: Setting>(&self, right: String, reader: &mut ConfigReader<'_>) {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        let problem = SettingFault::Kind { expected: expected_kind::<S>(), found, right };
        self.report_fault(reader, problem);
    }

    /// Reports that the text cannot be parsed as an `S`.
    pub(super) fn refuse_text<S: Setting>(&self, text: &str, reader: &mut ConfigReader<'_>) {
        self.report_text::<S>(text, S::correction(), reader);
    }

    /// Reports that the text cannot be parsed as an `S`, with its correction.
    pub(super) fn report_text<S: Setting>(
        &self,
        text: &str,
        right: String,
        reader: &mut ConfigReader<'_>,
    ) {
        let (expected, found) = (expected_kind::<S>(), shorten_text(text));
        self.report_fault(reader, SettingFault::Text { expected, found, right });
    }

    pub(super) fn refuse_choice(
        &self,
        text: &str,
        choices: &[&'static str],
        reader: &mut ConfigReader<'_>,
    ) {
        let (found, choices) = (shorten_text(text), choices.to_vec());
        let meant = nearest_choice(text, &choices);
        self.report_fault(reader, SettingFault::Choice { found, meant, choices });
    }

    /// The value as a table; any other type is a fault.
    pub(super) fn expect_table(&self, reader: &mut ConfigReader<'_>) -> Option<ConfigTable<'a>> {
        let Some(table) = self.as_table() else {
            self.refuse_kind::<AnyTable>(reader);
            // The value may contain a secret.
            reader.hidden.push(self.span.clone());
            return None;
        };
        Some(table)
    }

    /// The value as a table, if it is one.
    pub(super) fn as_table(&self) -> Option<ConfigTable<'a>> {
        let DeValue::Table(entries) = self.value else { return None };
        let (key, name_span) = (self.key.clone(), self.name_span.clone());
        Some(ConfigTable { entries, key, name: self.name, name_span })
    }

    /// The items of the value as an array; any other type is a fault.
    pub(super) fn expect_items<S: Setting>(
        &self,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Vec<ConfigNode<'a>>> {
        let items = self.items();
        if items.is_none() {
            self.refuse_kind::<S>(reader);
        }
        items
    }

    /// The items of the value, if it is an array.
    pub(super) fn items(&self) -> Option<Vec<ConfigNode<'a>>> {
        let DeValue::Array(items) = self.value else { return None };
        let item = |(index, item): (usize, &'a toml::Spanned<DeValue<'a>>)| ConfigNode {
            value: item.get_ref(),
            span: item.span(),
            key: format!("{}[{index}]", self.key),
            name: self.name,
            name_span: item.span(),
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// The value as a string, as written; any other type is a fault.
    pub(super) fn expect_string<S: Setting>(
        &self,
        reader: &mut ConfigReader<'_>,
    ) -> Option<&'a str> {
        let DeValue::String(text) = self.value else {
            self.refuse_kind::<S>(reader);
            return None;
        };
        Some(text)
    }

    /// The value as a string, in a setting without substitution: a substitution is rejected rather
    /// than taken literally.
    pub(super) fn expect_plain_string<S: Setting>(
        &self,
        reader: &mut ConfigReader<'_>,
    ) -> Option<&'a str> {
        let text = self.expect_string::<S>(reader)?;
        if text.contains("${env:") || text.contains("${file:") {
            self.report_fault(reader, SettingFault::NoSubstitution);
            return None;
        }
        Some(text)
    }
}

impl<'a> ConfigTable<'a> {
    /// The whole file.
    pub(super) fn root_table(entries: &'a DeTable<'a>) -> Self {
        Self { entries, key: String::new(), name: "", name_span: 0..0 }
    }

    /// The value under a key.
    pub(super) fn find_node(&self, key: &str) -> Option<ConfigNode<'a>> {
        self.entries.get_key_value(key).map(|(name, value)| self.child_node(name, value))
    }

    /// The table under a key; `None` if the key is missing or its value is no table.
    pub(crate) fn find_table(&self, key: &str) -> Option<Self> {
        self.find_node(key)?.as_table()
    }

    /// The tables below the table under a key, in file order: those of `[servers.NAME]` under
    /// `servers`.
    pub(crate) fn find_tables(&self, key: &str) -> Vec<Self> {
        self.find_nodes(key).iter().filter_map(ConfigNode::as_table).collect()
    }

    /// The values of the table under a key, in file order.
    pub(crate) fn find_nodes(&self, key: &str) -> Vec<ConfigNode<'a>> {
        self.find_table(key).map(|table| table.all_nodes()).unwrap_or_default()
    }

    /// Every value, in file order.
    pub(super) fn all_nodes(&self) -> Vec<ConfigNode<'a>> {
        let mut nodes: Vec<_> =
            self.entries.iter().map(|(name, value)| self.child_node(name, value)).collect();
        nodes.sort_by_key(|node| node.name_span.start);
        nodes
    }

    fn child_node(
        &self,
        name: &'a toml::Spanned<toml::de::DeString<'a>>,
        value: &'a toml::Spanned<DeValue<'a>>,
    ) -> ConfigNode<'a> {
        let segment = quote_segment(name.get_ref());
        let key = if self.key.is_empty() { segment } else { format!("{}.{segment}", self.key) };
        ConfigNode {
            value: value.get_ref(),
            span: value.span(),
            key,
            name: name.get_ref(),
            name_span: name.span(),
        }
    }

    /// Reads one setting: its value, otherwise its default, otherwise its absent value.
    pub(super) fn read_setting<S: Setting>(
        &self,
        key: &'static str,
        default: Option<&'static str>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<S::Value> {
        if let Some(node) = self.find_node(key) {
            return S::read_value(&node, reader);
        }
        if let Some(text) = default {
            return self.read_default::<S>(text, reader);
        }
        let absent = S::absent_value();
        if absent.is_none() {
            let missing = SettingFault::Missing { key, example: S::example_value() };
            reader.report_fault(self.name_span.clone(), &self.key, missing);
        }
        absent
    }

    /// Reads a default from the text of its declaration; a test reads all of them.
    fn read_default<S: Setting>(
        &self,
        text: &'static str,
        reader: &mut ConfigReader<'_>,
    ) -> Option<S::Value> {
        match DeValue::parse(text) {
            Ok(value) => {
                let (key, name_span) = (self.key.clone(), self.name_span.clone());
                let (span, value) = (name_span.clone(), value.get_ref());
                S::read_value(&ConfigNode { value, span, key, name: self.name, name_span }, reader)
            }
            Err(error) => {
                let problem =
                    SettingFault::Syntax { message: error.message().to_owned(), help: None };
                reader.report_fault(self.name_span.clone(), &self.key, problem);
                None
            }
        }
    }

    /// Rejects every key without a row.
    pub(super) fn refuse_unknown(&self, rows: &[SettingRow], reader: &mut ConfigReader<'_>) {
        let known: Vec<_> = rows.iter().filter(|row| !row.any).map(|row| row.key).collect();
        let tables = rows.iter().any(|row| row.any);
        for node in self.all_nodes() {
            if known.contains(&node.name) || (tables && node.as_table().is_some()) {
                continue;
            }
            let (meant, known) = (nearest_choice(node.name, &known), known.clone());
            node.report_fault_at_key(reader, SettingFault::UnknownKey { meant, known });
        }
    }
}

/// A setting's value, or its default. Silent, because its own faults are already reported.
pub(crate) fn setting_value<Sec: Section, S: Setting>(
    table: &ConfigTable<'_>,
    key: &str,
    reader: &ConfigReader<'_>,
) -> Option<S::Value> {
    let row = Sec::setting_rows().into_iter().find(|row| row.key == key)?;
    let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
    table.read_setting::<S>(row.key, row.default, quiet)
}
