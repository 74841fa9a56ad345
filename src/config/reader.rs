//! The walk over the parsed text: where one stands, and what was found wrong.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::Environment;
use super::fault::FoundProblem;
use super::problem::ConfigProblem;
use super::setting::{Setting, SettingRow};
use super::wording::{AnyTable, expected_kind, nearest_choice, quote_segment, shorten_text};

/// What a reading needs and what it gathers. Nothing that reads stops at the
/// first fault: it tells the reader, returns `None`, and the walk goes on.
pub(super) struct ConfigReader<'a> {
    /// Where relative paths start.
    pub(super) folder: &'a Path,
    pub(super) surroundings: &'a dyn Environment,
    pub(super) found: Vec<FoundProblem>,
    /// Where secrets stand in the text: never shown.
    pub(super) hidden: Vec<Range<usize>>,
    /// Every file that a substitution named.
    pub(super) files: BTreeSet<PathBuf>,
}

impl<'a> ConfigReader<'a> {
    pub(super) fn new(folder: &'a Path, surroundings: &'a dyn Environment) -> Self {
        let (found, hidden, files) = Default::default();
        Self { folder, surroundings, found, hidden, files }
    }

    pub(super) fn report_fault(&mut self, span: Range<usize>, key: &str, problem: ConfigProblem) {
        self.found.push(FoundProblem { span, key: key.to_owned(), problem });
    }

    /// A path of the file, made to start at its folder.
    pub(super) fn resolve_path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }
}

/// One value of the file, with the key that leads to it.
pub(super) struct ConfigNode<'a> {
    pub(super) value: &'a DeValue<'a>,
    pub(super) span: Range<usize>,
    /// Such as `servers.github.url`.
    pub(super) key: String,
    /// The last segment of the key, and where it stands.
    name: &'a str,
    name_span: Range<usize>,
}

/// One table of the file.
pub(super) struct ConfigTable<'a> {
    entries: &'a DeTable<'a>,
    /// Such as `servers.github`; empty for the whole file.
    pub(super) key: String,
    /// The last segment of the key.
    pub(super) name: &'a str,
    /// Where that segment stands.
    pub(super) name_span: Range<usize>,
}

impl<'a> ConfigNode<'a> {
    /// The last segment of the key, as it is meant.
    pub(super) fn key_name(&self) -> &'a str {
        self.name
    }

    pub(super) fn report_fault(&self, reader: &mut ConfigReader<'_>, problem: ConfigProblem) {
        reader.report_fault(self.span.clone(), &self.key, problem);
    }

    /// Tells of a fault in the key rather than in the value.
    pub(super) fn report_fault_at_key(
        &self,
        reader: &mut ConfigReader<'_>,
        problem: ConfigProblem,
    ) {
        reader.report_fault(self.name_span.clone(), &self.key, problem);
    }

    /// Tells that the value has another TOML type than `S` takes.
    pub(super) fn refuse_kind<S: Setting>(&self, reader: &mut ConfigReader<'_>) {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        let problem =
            ConfigProblem::Kind { expected: expected_kind::<S>(), found, right: S::correction() };
        self.report_fault(reader, problem);
    }

    /// Tells that the text does not read as an `S`.
    pub(super) fn refuse_text<S: Setting>(&self, text: &str, reader: &mut ConfigReader<'_>) {
        let (expected, right) = (expected_kind::<S>(), S::correction());
        self.report_fault(
            reader,
            ConfigProblem::Text { expected, found: shorten_text(text), right },
        );
    }

    pub(super) fn refuse_choice(
        &self,
        text: &str,
        choices: &[&'static str],
        reader: &mut ConfigReader<'_>,
    ) {
        let (found, choices) = (shorten_text(text), choices.to_vec());
        let meant = nearest_choice(text, &choices);
        self.report_fault(reader, ConfigProblem::Choice { found, meant, choices });
    }

    /// The table that the value must be.
    pub(super) fn expect_table(&self, reader: &mut ConfigReader<'_>) -> Option<ConfigTable<'a>> {
        let Some(table) = self.as_table() else {
            self.refuse_kind::<AnyTable>(reader);
            // Perhaps a secret is in it.
            reader.hidden.push(self.span.clone());
            return None;
        };
        Some(table)
    }

    /// The table that the value may be.
    pub(super) fn as_table(&self) -> Option<ConfigTable<'a>> {
        let DeValue::Table(entries) = self.value else { return None };
        let (key, name_span) = (self.key.clone(), self.name_span.clone());
        Some(ConfigTable { entries, key, name: self.name, name_span })
    }

    /// The values of the array that the value must be.
    pub(super) fn expect_items<S: Setting>(
        &self,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Vec<ConfigNode<'a>>> {
        let DeValue::Array(items) = self.value else {
            self.refuse_kind::<S>(reader);
            return None;
        };
        let item = |(index, item): (usize, &'a toml::Spanned<DeValue<'a>>)| ConfigNode {
            value: item.get_ref(),
            span: item.span(),
            key: format!("{}[{index}]", self.key),
            name: self.name,
            name_span: item.span(),
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// The string that the value must be, as it is written.
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

    /// The string that the value must be, in a setting without substitution:
    /// one is refused there rather than taken for plain text.
    pub(super) fn expect_plain_string<S: Setting>(
        &self,
        reader: &mut ConfigReader<'_>,
    ) -> Option<&'a str> {
        let text = self.expect_string::<S>(reader)?;
        if text.contains("${env:") || text.contains("${file:") {
            self.report_fault(reader, ConfigProblem::NoSubstitution);
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

    /// Every value, in the order of the file.
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

    /// Reads one setting, or its default by the same way, or what it is when absent.
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
            let missing = ConfigProblem::Missing { key, example: S::example_value() };
            reader.report_fault(self.name_span.clone(), &self.key, missing);
        }
        absent
    }

    /// Reads a default from the text of its declaration; a test reads them all.
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
                let problem = ConfigProblem::Syntax { message: error.message().to_owned() };
                reader.report_fault(self.name_span.clone(), &self.key, problem);
                None
            }
        }
    }

    /// Refuses every key that no row names.
    pub(super) fn refuse_unknown(&self, rows: &[SettingRow], reader: &mut ConfigReader<'_>) {
        let known: Vec<_> = rows.iter().filter(|row| !row.any).map(|row| row.key).collect();
        let tables = rows.iter().any(|row| row.any);
        for node in self.all_nodes() {
            if known.contains(&node.name) || (tables && node.as_table().is_some()) {
                continue;
            }
            let (meant, known) = (nearest_choice(node.name, &known), known.clone());
            node.report_fault_at_key(reader, ConfigProblem::UnknownKey { meant, known });
        }
    }
}
