//! Fields of one object of a foreign configuration. Each is taken once; the remaining ones have no
//! counterpart.

use serde_json::{Map, Value as Json};

use super::imported::{ImportedFile, ImportedServer, ImportedText};
use super::references::ReferenceContext;

/// An object with fields that are taken one by one.
pub(crate) struct ForeignFields<'a> {
    /// Path of the object, such as `mcpServers.github`.
    path: String,
    fields: Map<String, Json>,
    references: &'a ReferenceContext,
    pub(crate) notes: Vec<String>,
}

/// A field that differs from its program's documentation. The message names types and never values:
/// a value may be a secret.
#[derive(Debug, thiserror::Error)]
pub enum FieldFault {
    /// The value is of another kind.
    #[error("{path}: expected {expected}, found {found}")]
    Kind {
        /// Path of the field, such as `mcpServers.files.args`.
        path: String,
        /// The documented kind.
        expected: &'static str,
        /// The kind of the value.
        found: &'static str,
    },
    /// The field is missing.
    #[error("{path}: expected {expected}")]
    Missing {
        /// Path of the field.
        path: String,
        /// The documented kind.
        expected: &'static str,
    },
}

impl<'a> ForeignFields<'a> {
    /// Opens the fields of a value.
    ///
    /// # Errors
    /// The value is not an object.
    pub(crate) fn open(
        path: impl Into<String>,
        value: &Json,
        references: &'a ReferenceContext,
    ) -> Result<Self, FieldFault> {
        let path = path.into();
        match value {
            Json::Object(fields) => {
                Ok(Self { path, fields: fields.clone(), references, notes: Vec::new() })
            }
            other => Err(wrong_kind(&path, "an object", other)),
        }
    }

    fn take(&mut self, name: &str) -> Option<Json> {
        // Not `swap_remove`: the order of the rest is the order of the notes.
        self.fields.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Takes fields without meaning for a gateway.
    pub(crate) fn skip(&mut self, names: &[&str]) {
        for name in names {
            self.take(name);
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|value| !value.is_null())
    }

    pub(crate) fn is_object(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(Json::is_object)
    }

    /// Takes a plain text.
    pub(crate) fn take_string(&mut self, name: &str) -> Result<Option<String>, FieldFault> {
        match self.take(name) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_kind(&self.field_path(name), "a text", &other)),
        }
    }

    /// Takes a required plain text.
    pub(crate) fn require_string(
        &mut self,
        name: &str,
        expected: &'static str,
    ) -> Result<String, FieldFault> {
        self.take_string(name)?.ok_or_else(|| self.report_missing(name, expected))
    }

    pub(crate) fn report_missing(&self, name: &str, expected: &'static str) -> FieldFault {
        FieldFault::Missing { path: self.field_path(name), expected }
    }

    /// Takes a text with references.
    pub(crate) fn take_text(&mut self, name: &str) -> Result<Option<ImportedText>, FieldFault> {
        Ok(self.take_string(name)?.map(|text| self.split_text(&text)))
    }

    pub(crate) fn take_bool(&mut self, name: &str) -> Result<Option<bool>, FieldFault> {
        match self.take(name) {
            None => Ok(None),
            Some(Json::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(wrong_kind(&self.field_path(name), "true or false", &other)),
        }
    }

    /// Takes a non-negative number.
    pub(crate) fn take_number(&mut self, name: &str) -> Result<Option<f64>, FieldFault> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if number >= 0.0 => Ok(Some(number)),
            _ => Err(wrong_kind(&self.field_path(name), "a number", &value)),
        }
    }

    /// Takes a list of plain texts; a single text is a list of one.
    pub(crate) fn take_strings(&mut self, name: &str) -> Result<Vec<String>, FieldFault> {
        let path = self.field_path(name);
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Json::String(text)) => Ok(vec![text]),
            Some(Json::Array(items)) => {
                items.into_iter().map(|item| read_scalar(&path, item)).collect()
            }
            Some(other) => Err(wrong_kind(&path, "a list of texts", &other)),
        }
    }

    /// Takes a list of plain texts; `None` if it is missing.
    pub(crate) fn take_list(&mut self, name: &str) -> Result<Option<Vec<String>>, FieldFault> {
        if self.has(name) { self.take_strings(name).map(Some) } else { Ok(None) }
    }

    /// Takes a list of texts with references.
    pub(crate) fn take_texts(&mut self, name: &str) -> Result<Vec<ImportedText>, FieldFault> {
        let texts = self.take_strings(name)?;
        Ok(texts.iter().map(|text| self.split_text(text)).collect())
    }

    /// Takes a table of texts with references.
    pub(crate) fn take_pairs(
        &mut self,
        name: &str,
    ) -> Result<Vec<(String, ImportedText)>, FieldFault> {
        let path = self.field_path(name);
        let pairs = match self.take(name) {
            None => return Ok(Vec::new()),
            Some(Json::Object(pairs)) => pairs,
            Some(other) => return Err(wrong_kind(&path, "a table of texts", &other)),
        };
        let mut taken = Vec::new();
        for (key, value) in pairs {
            if value.is_null() {
                continue;
            }
            let text = read_scalar(&format!("{path}.{key}"), value)?;
            taken.push((key, self.split_text(&text)));
        }
        Ok(taken)
    }

    /// Takes an object.
    pub(crate) fn take_object(&mut self, name: &str) -> Result<Option<Self>, FieldFault> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => Self::open(self.field_path(name), &value, self.references).map(Some),
        }
    }

    /// Takes a list of objects.
    pub(crate) fn take_objects(&mut self, name: &str) -> Result<Vec<Self>, FieldFault> {
        let path = self.field_path(name);
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Json::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(at, item)| Self::open(format!("{path}[{at}]"), item, self.references))
                .collect(),
            Some(other) => Err(wrong_kind(&path, "a list", &other)),
        }
    }

    /// Takes a list of objects. A text in the list is short for an object with one field.
    pub(crate) fn take_objects_or_texts(
        &mut self,
        name: &str,
        field: &str,
    ) -> Result<Vec<Self>, FieldFault> {
        if let Some(Json::Array(items)) = self.fields.get_mut(name) {
            for item in items.iter_mut().filter(|item| item.is_string()) {
                *item = serde_json::json!({ field: item.take() });
            }
        }
        self.take_objects(name)
    }

    pub(crate) fn split_text(&mut self, text: &str) -> ImportedText {
        self.references.split_text(text, &mut self.notes)
    }

    pub(crate) fn references(&self) -> &'a ReferenceContext {
        self.references
    }

    /// Returns the notes, and one for each remaining field.
    pub(crate) fn finish(mut self) -> Vec<String> {
        let names = self.fields.iter().filter(|(_, value)| !value.is_null());
        let left: Vec<_> = names.map(|(name, _)| format!("`{name}` has no counterpart")).collect();
        self.notes.extend(left);
        self.notes
    }

    pub(crate) fn field_path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

/// A table of servers within a document.
pub(crate) struct ServerTable<'a> {
    /// The keys that lead to it.
    pub(crate) path: Vec<String>,
    pub(crate) entries: &'a Map<String, Json>,
}

impl<'a> ServerTable<'a> {
    /// Finds the table at some keys; `None` if it is missing.
    ///
    /// # Errors
    /// The value at the keys is not a table.
    pub(crate) fn find(document: &'a Json, path: &[&str]) -> Result<Option<Self>, FieldFault> {
        let mut value = document;
        for key in path {
            value = match value.get(key) {
                None | Some(Json::Null) => return Ok(None),
                Some(inner) => inner,
            };
        }
        let path: Vec<_> = path.iter().map(|key| (*key).to_owned()).collect();
        match value {
            Json::Object(entries) => Ok(Some(Self { path, entries })),
            other => Err(wrong_kind(&path.join("."), "a table of servers", other)),
        }
    }

    /// Reads each entry. An unreadable one is noted and omitted.
    pub(crate) fn read_entries(
        &self,
        references: &ReferenceContext,
        file: &mut ImportedFile,
        mut read: impl FnMut(&str, ForeignFields<'_>) -> Result<ImportedServer, FieldFault>,
    ) {
        for (name, entry) in self.entries {
            let path = format!("{}.{name}", self.path.join("."));
            let server =
                ForeignFields::open(path, entry, references).and_then(|fields| read(name, fields));
            match server {
                Ok(server) => {
                    file.servers.push(ImportedServer { table: self.path.clone(), ..server });
                }
                Err(fault) => file.leave_out(name, &fault),
            }
        }
    }
}

/// Returns a text, or the text of a number or boolean: YAML writes `8080` for both.
fn read_scalar(path: &str, value: Json) -> Result<String, FieldFault> {
    match value {
        Json::String(text) => Ok(text),
        Json::Number(number) => Ok(number.to_string()),
        Json::Bool(value) => Ok(value.to_string()),
        other => Err(wrong_kind(path, "a text", &other)),
    }
}

fn wrong_kind(path: &str, expected: &'static str, found: &Json) -> FieldFault {
    let found = match found {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    };
    FieldFault::Kind { path: path.to_owned(), expected, found }
}
