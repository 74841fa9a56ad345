//! Edits a client's file in place: one entry is set, entries are removed, and the rest stays
//! unchanged, including comments and formatting.
//!
//! The result is parsed and compared with the intended document, so that the edit cannot damage a
//! file in an unsupported form.

use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde_json::Value as Json;
use toml_edit::{DocumentMut, Item, Table};

use trunkline_import::{ForeignEntry, Notation, jsonc_options, parse_document, remove_entry_text};

use super::yaml::edit_yaml;

/// Edit of a file.
#[derive(Debug)]
pub(super) struct FileEdit<'a> {
    /// The keys that lead to the table of servers.
    pub(super) table: &'a [String],
    /// The entry to set.
    pub(super) name: &'a str,
    pub(super) value: &'a Json,
    /// The entries to remove, each in a table of its own.
    pub(super) remove: &'a [ForeignEntry],
}

impl FileEdit<'_> {
    /// Returns the entries to remove besides the one that is set.
    pub(super) fn removed(&self) -> impl Iterator<Item = &ForeignEntry> {
        let is_set = |entry: &ForeignEntry| entry.name == self.name && entry.table == self.table;
        self.remove.iter().filter(move |entry| !is_set(entry))
    }
}

/// The form of the file is not supported by the edit.
#[derive(Debug, thiserror::Error)]
#[error("the file is written in a form that cannot be edited safely; add the entry by hand")]
pub(super) struct EditError;

/// Returns the text of the edited file.
///
/// # Errors
/// [`EditError`].
pub(super) fn edit_text(
    text: &str,
    notation: Notation,
    edit: &FileEdit<'_>,
) -> Result<String, EditError> {
    let edited = match notation {
        Notation::Json => edit_json(text, edit),
        Notation::Toml => edit_toml(text, edit),
        Notation::Yaml => edit_yaml(text, edit),
    };
    let edited = edited.ok_or(EditError)?;
    let before = parse_document("", text, notation).map_err(|_| EditError)?;
    let after = parse_document("", &edited, notation).map_err(|_| EditError)?;
    if after == intended_document(before, edit) { Ok(edited) } else { Err(EditError) }
}

/// Returns the intended document of the edit.
fn intended_document(document: Json, edit: &FileEdit<'_>) -> Json {
    let mut document = if document.is_object() { document } else { Json::Object(<_>::default()) };
    for entry in edit.removed() {
        let mut table = Some(&mut document);
        for key in &entry.table {
            table = table.and_then(|table| table.get_mut(key));
        }
        if let Some(fields) = table.and_then(Json::as_object_mut) {
            fields.shift_remove(&entry.name);
        }
    }
    let mut table = &mut document;
    for key in edit.table {
        let Some(fields) = table.as_object_mut() else { return Json::Null };
        table = fields.entry(key).or_insert(Json::Null);
        // A key without a value is an empty table in YAML.
        if table.is_null() {
            *table = Json::Object(<_>::default());
        }
    }
    let Some(fields) = table.as_object_mut() else { return Json::Null };
    fields.insert(edit.name.to_owned(), edit.value.clone());
    document
}

fn edit_json(text: &str, edit: &FileEdit<'_>) -> Option<String> {
    let root = CstRootNode::parse(text, &jsonc_options()).ok()?;
    for entry in edit.removed() {
        let mut table = root.object_value()?;
        for key in &entry.table {
            table = table.object_value(key)?;
        }
        table.get(&entry.name)?.remove();
    }
    let mut table: CstObject = root.object_value_or_create()?;
    for key in edit.table {
        table = table.object_value_or_create(key)?;
    }
    match table.get(edit.name) {
        Some(property) => property.set_value(input_value(edit.value)),
        None => drop(table.append(edit.name, input_value(edit.value))),
    }
    let edited = root.to_string();
    Some(if text.is_empty() { format!("{}\n", edited.trim_end()) } else { edited })
}

fn input_value(value: &Json) -> CstInputValue {
    match value {
        Json::Null => CstInputValue::Null,
        Json::Bool(value) => CstInputValue::Bool(*value),
        Json::Number(number) => CstInputValue::Number(number.to_string()),
        Json::String(text) => CstInputValue::String(text.clone()),
        Json::Array(items) => CstInputValue::Array(items.iter().map(input_value).collect()),
        Json::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), input_value(value)));
            CstInputValue::Object(fields.collect())
        }
    }
}

fn edit_toml(text: &str, edit: &FileEdit<'_>) -> Option<String> {
    let mut text = text.to_owned();
    for entry in edit.removed() {
        let table: Vec<_> = entry.table.iter().map(String::as_str).collect();
        text = remove_entry_text(&text, &table, &entry.name)?;
    }
    let mut document: DocumentMut = text.parse().ok()?;
    let mut table = document.as_table_mut();
    for key in edit.table {
        let inner = table.entry(key).or_insert_with(|| {
            let mut inner = Table::new();
            inner.set_implicit(true);
            Item::Table(inner)
        });
        table = inner.as_table_mut()?;
    }
    let mut entry = Table::new();
    for (name, value) in edit.value.as_object()? {
        entry.insert(name, Item::Value(toml_value(value)?));
    }
    // Comments above the header of the entry stay above it.
    if let Some(replaced) = table.get(edit.name).and_then(Item::as_table) {
        *entry.decor_mut() = replaced.decor().clone();
        entry.set_position(replaced.position());
    }
    table.insert(edit.name, Item::Table(entry));
    Some(document.to_string())
}

fn toml_value(value: &Json) -> Option<toml_edit::Value> {
    Some(match value {
        Json::String(text) => text.into(),
        Json::Bool(value) => (*value).into(),
        Json::Number(number) => number.as_i64()?.into(),
        Json::Array(items) => {
            let items: Option<Vec<_>> = items.iter().map(toml_value).collect();
            items?.into_iter().collect::<toml_edit::Array>().into()
        }
        Json::Object(fields) => {
            let mut table = toml_edit::InlineTable::new();
            for (name, value) in fields {
                table.insert(name, toml_value(value)?);
            }
            table.into()
        }
        Json::Null => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn edit(text: &str, notation: Notation, table: &[&str], remove: &[&str]) -> String {
        let table: Vec<_> = table.iter().map(|key| (*key).to_owned()).collect();
        let entry = |name: &&str| ForeignEntry { table: table.clone(), name: (*name).to_owned() };
        let remove: Vec<_> = remove.iter().map(entry).collect();
        let value = json!({ "url": "http://x/", "n": 1 });
        let edit = FileEdit { table: &table, name: "gate", value: &value, remove: &remove };
        edit_text(text, notation, &edit).unwrap()
    }

    #[test]
    fn json_keeps_its_comments_and_its_indentation() {
        let text = "{\n    // mine\n    \"theme\": \"dark\",\n    \"mcpServers\": {\n        \"a\": {\"command\": \"a\"}, // first\n        \"b\": {\"command\": \"b\"}\n    }\n}\n";
        let edited = edit(text, Notation::Json, &["mcpServers"], &["a"]);
        assert!(edited.contains("// mine") && edited.contains("\"theme\": \"dark\","), "{edited}");
        assert!(edited.contains("        \"b\": {\"command\": \"b\"},\n        \"gate\": {\n"));
        assert!(!edited.contains("\"a\""), "{edited}");
        for text in ["", "{}", "{ \"x\": 1 }"] {
            edit(text, Notation::Json, &["mcp", "servers"], &[]);
        }
    }

    #[test]
    fn an_entry_is_removed_from_its_own_table_and_stays_in_others() {
        let text = "{\"servers\": {\"a\": 1}, \"projects\": {\"/x\": {\"servers\": {\"a\": 2}}}}";
        let table = ["projects", "/x", "servers"].map(str::to_owned).to_vec();
        let remove = [ForeignEntry { table, name: "a".to_owned() }];
        let table = ["servers".to_owned()];
        let edit = FileEdit { table: &table, name: "gate", value: &json!(3), remove: &remove };
        let edited = edit_text(text, Notation::Json, &edit).unwrap();
        let edited: Json = serde_json::from_str(&edited).unwrap();
        let project = json!({ "/x": { "servers": {} } });
        assert_eq!(edited, json!({ "servers": { "a": 1, "gate": 3 }, "projects": project }));
    }

    #[test]
    fn toml_and_yaml_keep_their_comments() {
        let text = "model = \"x\" # mine\n\n[mcp_servers.a]\ncommand = \"a\"\n\n[mcp_servers.a.env]\nK = \"v\"\n\n# end\n[tui]\n";
        let edited = edit(text, Notation::Toml, &["mcp_servers"], &["a"]);
        assert!(edited.starts_with("model = \"x\" # mine\n") && edited.contains("# end\n[tui]"));
        let text = "# mine\nextensions:\n  a:\n    type: stdio # x\n    args:\n    - one\n\n  # about b\n  b:\n    type: stdio\nGOOSE_MODEL: x # last\n";
        let edited = edit(text, Notation::Yaml, &["extensions"], &["a"]);
        assert!(edited.starts_with("# mine\nextensions:\n  # about b\n  b:\n"), "{edited}");
        assert!(edited.ends_with("GOOSE_MODEL: x # last\n"), "{edited}");
        for text in ["", "a: 1\n", "a: 1", "extensions: {}\n", "extensions:\nb: 1\n"] {
            edit(text, Notation::Yaml, &["extensions"], &[]);
        }
    }

    #[test]
    fn comments_of_others_stay_when_toml_entries_are_removed_or_replaced() {
        let text = "# My settings\n\n# [mcp_servers.old]\n# command = \"old\"\n\n[mcp_servers.a]\ncommand = \"a\"\n\n# mine\n\n[mcp_servers.gate]\nurl = \"http://old\"\n";
        let edited = edit(text, Notation::Toml, &["mcp_servers"], &["a"]);
        for line in ["# My settings\n", "# [mcp_servers.old]\n# command = \"old\"\n", "# mine\n"] {
            assert!(edited.contains(line), "{edited}");
        }
        assert!(!edited.contains("command = \"a\"") && !edited.contains("http://old"), "{edited}");
    }

    #[test]
    fn a_file_that_the_edit_does_not_understand_is_not_edited() {
        let value = json!({ "url": "x" });
        let table = ["extensions".to_owned()];
        for (text, notation) in [
            ("extensions: {a: {type: stdio}}\n", Notation::Yaml),
            ("[1]", Notation::Json),
            ("{\"extensions\": 1}", Notation::Json),
            ("extensions = { a = 1 }\n", Notation::Toml),
        ] {
            let edit = FileEdit { table: &table, name: "gate", value: &value, remove: &[] };
            assert!(edit_text(text, notation, &edit).is_err(), "{text}");
        }
    }
}
