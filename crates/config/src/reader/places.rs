//! The positions of settings in the text, by their keys.
//!
//! They are kept beside a [`Config`](crate::Config) and not in it: a configuration whose lines have
//! moved is equal to the earlier one.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::{ConfigNode, ConfigTable};
use crate::decode_text;
use crate::faults::problem::SettingFault;
use crate::faults::{ConfigFaults, Findings, FoundProblem, LateFault, LineIndex};
use crate::source::ConfigSource;

/// The lines of all settings of a configuration, by their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigPlaces(BTreeMap<Box<str>, u32>);

impl ConfigPlaces {
    pub(crate) fn of_text(text: &str) -> Self {
        let lines = LineIndex::index_lines(text);
        let line = |span: Range<usize>| u32::try_from(lines.line_number(span.start)).unwrap_or(1);
        Self(SettingSpans::of_text(text).0.into_iter().map(|(key, at)| (key, line(at))).collect())
    }

    /// Returns the line of a setting such as `servers.github.url` or `clients.ci.keys[0]`, counted
    /// from 1. A setting that is not in the file has the line of the table that it belongs to.
    pub fn line_of(&self, key: &str) -> Option<u32> {
        find_nearest(&self.0, key).copied()
    }
}

/// The byte range of every setting, by its key: that of the value, or of the last segment of the
/// key for a table.
#[derive(Debug, Default)]
pub(crate) struct SettingSpans(BTreeMap<Box<str>, Range<usize>>);

impl SettingSpans {
    pub(crate) fn of_text(text: &str) -> Self {
        let (document, _) = DeTable::parse_recoverable(text);
        let mut spans = Self::default();
        for node in ConfigTable::root_table(document.get_ref()).all_nodes() {
            spans.add(&node);
        }
        spans
    }

    /// Returns the range of a setting, or of the nearest table that it belongs to.
    pub(crate) fn span_of(&self, key: &str) -> Option<Range<usize>> {
        find_nearest(&self.0, key).cloned()
    }

    fn add(&mut self, node: &ConfigNode<'_>) {
        let is_table = matches!(node.value, DeValue::Table(_));
        let span = if is_table { &node.name_span } else { &node.span };
        self.0.insert(node.key.as_str().into(), span.clone());
        let members = node.as_table().map(|table| table.all_nodes());
        for member in members.into_iter().chain(node.items()).flatten() {
            self.add(&member);
        }
    }
}

impl ConfigFaults {
    /// Locates faults that appeared when settings were used.
    pub fn of_late(source: &ConfigSource, faults: Vec<LateFault>) -> Self {
        let (text, _) = decode_text(source);
        let spans = SettingSpans::of_text(text);
        let locate = |LateFault { key, text, help }| {
            let span = spans.span_of(&key).unwrap_or(0..0);
            FoundProblem::located(span, key, SettingFault::AtUse { text, help })
        };
        let found = faults.into_iter().map(locate).collect();
        let (name, hidden, files) = (&source.name, Vec::new(), Vec::new());
        Self::new(Findings { name, text, found, hidden, files })
    }
}

/// Returns the value of a key or, without one, that of the longest key that it begins with.
fn find_nearest<'a, T>(all: &'a BTreeMap<Box<str>, T>, mut key: &str) -> Option<&'a T> {
    loop {
        if let Some(found) = all.get(key) {
            return Some(found);
        }
        key = key.get(..key.rfind(['.', '['])?)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_leads_to_its_line_through_arrays_inline_tables_and_dotted_keys() {
        let text = "\
gateway.listen = \"127.0.0.1:1\"
gateway.tls = { cert = \"a.pem\", key = \"a.key\" }
[servers.a]
command = \"a\"
args = [
  \"x\",
  \"y\",
]
tools.t.name = \"n\"
[servers.\"b.c\"]
url = \"http://b\"
[clients.ci]
keys = [
  \"0\",
  { hash = \"1\",
    expires = 2027-01-01 },
]
[[tests]]
name = 1
[[tests]]
name = 2
[policy.rules]
";
        let places = ConfigPlaces::of_text(text);
        for (key, line) in [
            ("gateway", Some(1)),
            ("gateway.listen", Some(1)),
            ("gateway.tls.key", Some(2)),
            ("servers.a", Some(3)),
            ("servers.a.args[1]", Some(7)),
            ("servers.a.tools.t.name", Some(9)),
            ("servers.\"b.c\".url", Some(11)),
            ("clients.ci.keys[0]", Some(14)),
            ("clients.ci.keys[1].hash", Some(15)),
            ("clients.ci.keys[1].expires", Some(16)),
            ("tests[1].name", Some(21)),
            ("policy.rules", Some(22)),
            // A setting with its default is in the table that it belongs to.
            ("servers.a.timeout", Some(3)),
            ("servers.\"b.c\".tools.t", Some(10)),
            ("clients.ci.keys[7]", Some(13)),
            ("vault.key", None),
        ] {
            assert_eq!(places.line_of(key), line, "{key}");
        }
    }

    #[test]
    fn a_broken_text_still_has_places() {
        let places = ConfigPlaces::of_text("[gateway]\nlisten = \n[admin]\nlisten = \"off\"\n");
        assert_eq!(places.line_of("admin.listen"), Some(4));
    }
}
