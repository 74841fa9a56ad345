//! The traits of a setting: one declaration reads, documents and describes it.

use serde_json::Value as Json;

use super::{ConfigNode, ConfigReader, ConfigTable};

/// One kind of value: its reader and its description. `section!` pairs each field of the
/// configuration with one; a field of type `usize` may be a count or a size.
pub(crate) trait Setting {
    /// The type of a value.
    type Value;

    /// True if `"off"` means `None` for an optional setting.
    const OFF: bool = false;

    /// The kind's name in messages and docs, without an article.
    fn kind_word() -> String;

    /// A valid value, as written in the file.
    fn example_value() -> String;

    /// Returns the correction of a wrong value, as an imperative.
    fn correction() -> String {
        format!("write {}", Self::example_value())
    }

    /// Reads a value; `None` if a fault was reported to the reader.
    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self::Value>;

    /// The value without an entry in the file and without a default.
    fn absent_value() -> Option<Self::Value> {
        None
    }

    /// Its JSON Schema, without description and default.
    fn json_schema() -> Json;

    /// The tables below the setting, for the docs.
    fn section_outline() -> Option<SectionOutline> {
        None
    }

    /// The allowed words, with their meanings.
    fn allowed_words() -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

/// A value that is read from one string without substitution.
pub(crate) trait TextSetting {
    type Value;
    const OFF: bool = false;
    const WORD: &'static str;
    const EXAMPLE: &'static str;
    /// A description of the example, if the word does not suffice.
    const RULE: &'static str = "";

    /// Parses the text. `None` means only that it is not a [`TextSetting::WORD`].
    ///
    /// # Errors
    /// A more specific problem.
    fn parse_text(
        text: &str,
        reader: &ConfigReader<'_>,
    ) -> Result<Option<Self::Value>, crate::SettingFault>;

    /// Returns the likely meaning of a text that is not a [`TextSetting::WORD`], or of the number
    /// that was written in its place. The help of the fault shows it if it can be parsed.
    fn correct_text(_: &str) -> Option<String> {
        None
    }

    /// The regular expression of its JSON Schema.
    fn schema_pattern() -> Option<&'static str> {
        None
    }
}

/// A table with settings as its keys, as `section!` generates it.
pub(crate) trait Section: Sized {
    /// The sentences of its doc comment.
    const ABOUT: &'static [&'static str];

    /// Its settings, in the order of the docs.
    fn setting_rows() -> Vec<SettingRow>;

    /// Reads every setting first, so that every fault is reported, then builds the section.
    fn read_fields(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self>;
}

/// A part of a section that is not one key: the table's name, or a choice
/// between groups of keys.
pub(crate) trait SectionPart: Sized {
    /// The keys that the part reads.
    fn part_rows() -> Vec<SettingRow> {
        Vec::new()
    }

    /// Reads the part from the section's table.
    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self>;
}

/// A setting, for the docs, the schema and the check for unknown keys.
#[derive(Clone)]
pub(crate) struct SettingRow {
    /// Its key, or a placeholder for [`SettingRow::any`].
    pub(crate) key: &'static str,
    pub(crate) doc: &'static [&'static str],
    /// Its default, as written in the file.
    pub(crate) default: Option<&'static str>,
    /// True if the setting has no default and must be set.
    pub(crate) required: bool,
    /// True if the row applies to every key without its own row, if the value is a table.
    pub(crate) any: bool,
    pub(crate) word: fn() -> String,
    pub(crate) schema: fn() -> Json,
    pub(crate) outline: fn() -> Option<SectionOutline>,
    pub(crate) choices: fn() -> &'static [(&'static str, &'static str)],
}

/// A section, for the docs.
pub(crate) struct SectionOutline {
    /// The text after the key of its row: empty, or `.NAME`.
    pub(crate) suffix: &'static str,
    pub(crate) about: &'static [&'static str],
    pub(crate) rows: Vec<SettingRow>,
}

impl SettingRow {
    pub(crate) fn for_setting<S: Setting>(
        key: &'static str,
        doc: &'static [&'static str],
        default: Option<&'static str>,
    ) -> Self {
        Self {
            key,
            doc,
            default,
            required: default.is_none() && S::absent_value().is_none(),
            any: false,
            word: S::kind_word,
            schema: S::json_schema,
            outline: S::section_outline,
            choices: S::allowed_words,
        }
    }

    /// The same row for every key without its own row.
    pub(crate) fn for_any_key(self) -> Self {
        Self { any: true, required: false, ..self }
    }
}

/// Reads a section from a node: a table without unknown keys.
pub(crate) fn read_section<S: Section>(
    node: &ConfigNode<'_>,
    reader: &mut ConfigReader<'_>,
) -> Option<S> {
    let table = node.expect_table(reader)?;
    table.refuse_unknown(&S::setting_rows(), reader);
    S::read_fields(&table, reader)
}

/// The JSON Schema of a section.
pub(crate) fn section_schema(about: &[&str], rows: &[SettingRow]) -> Json {
    let described = |row: &SettingRow| {
        let mut schema = (row.schema)();
        if let Json::Object(fields) = &mut schema {
            fields.insert("description".into(), Json::from(join_lines(row.doc)));
            if let Some(default) = row.default.and_then(toml_to_json) {
                fields.insert("default".into(), default);
            }
        }
        schema
    };
    let (any, named): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.any);
    let properties: serde_json::Map<_, _> =
        named.iter().map(|row| (row.key.to_owned(), described(row))).collect();
    let required: Vec<_> = named.iter().filter(|row| row.required).map(|row| row.key).collect();
    let mut schema = serde_json::json!({
        "type": "object",
        "description": join_lines(about),
        "properties": properties,
        "additionalProperties": any.first().map_or(Json::Bool(false), |row| described(row)),
    });
    if let (false, Json::Object(fields)) = (required.is_empty(), &mut schema) {
        fields.insert("required".into(), Json::from(required));
    }
    schema
}

/// The lines of a doc comment as one paragraph.
pub(crate) fn join_lines(lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| line.trim()).collect();
    lines.join(" ").trim().to_owned()
}

/// Converts a default from TOML to JSON.
fn toml_to_json(toml: &str) -> Option<Json> {
    let document: toml::Table = format!("value = {toml}").parse().ok()?;
    serde_json::to_value(document.get("value")?).ok()
}
