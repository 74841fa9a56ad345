//! The contents of `everything.json`: lists, templates to fill, resources by their URI.

use std::collections::BTreeMap;

use rmcp::ErrorData;
use rmcp::model::PaginatedRequestParams;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub struct Offered {
    pub tools: BTreeMap<String, Value>,
    pub prompts: BTreeMap<String, Value>,
    /// Resources in the file's order.
    pub resources: Vec<Value>,
    pub file: Value,
}

impl Offered {
    pub fn read() -> Self {
        let file: Value = serde_json::from_str(include_str!("../everything.json")).unwrap();
        let by_name = |kind: &str| {
            let each = file[kind].as_array().unwrap().iter();
            each.map(|one| (text(&one["listed"]["name"]), one.clone())).collect()
        };
        Self {
            tools: by_name("tools"),
            prompts: by_name("prompts"),
            resources: file["resources"].as_array().unwrap().clone(),
            file,
        }
    }

    /// Adds or removes a tool: one with a given name, or the additional one.
    pub fn change_tools(&mut self, arguments: &Value) {
        if let Some(name) = arguments["add"].as_str() {
            let about = "Was added while the server ran.";
            let words = format!("{name} was added while the server ran");
            let tool = json!({
                "listed": { "name": name, "description": about, "inputSchema": { "type": "object" } },
                "does": { "answer": [{ "type": "text", "text": words }] },
            });
            self.tools.insert(name.to_owned(), tool);
        }
        if let Some(name) = arguments["remove"].as_str() {
            self.tools.remove(name);
        }
        if arguments["add"].is_null() && arguments["remove"].is_null() {
            let added = self.file["added"]["tool"].clone();
            let name = text(&added["listed"]["name"]);
            if self.tools.remove(&name).is_none() {
                self.tools.insert(name, added);
            }
        }
    }

    /// Adds the additional prompt, or removes it again.
    pub fn change_prompts(&mut self) {
        let added = self.file["added"]["prompt"].clone();
        let name = text(&added["listed"]["name"]);
        if self.prompts.remove(&name).is_none() {
            self.prompts.insert(name, added);
        }
    }

    /// Adds the additional resource, or removes it again.
    pub fn change_resources(&mut self) {
        let added = self.file["added"]["resource"].clone();
        let before = self.resources.len();
        self.resources.retain(|resource| resource["listed"]["uri"] != added["listed"]["uri"]);
        if self.resources.len() == before {
            self.resources.push(added);
        }
    }

    pub fn contents(&self, uri: &str) -> Option<Value> {
        if let Some(known) = self.resources.iter().find(|one| one["listed"]["uri"] == uri) {
            return Some(known["contents"].clone());
        }
        self.file["resourceTemplates"].as_array().unwrap().iter().find_map(|template| {
            let pattern = template["listed"]["uriTemplate"].as_str().unwrap();
            let (before, rest) = pattern.split_once('{').unwrap();
            let (name, after) = rest.split_once('}').unwrap();
            let value = uri.strip_prefix(before)?.strip_suffix(after)?;
            let is_one_segment = !value.is_empty() && !value.contains('/');
            is_one_segment.then(|| fill(&template["contents"], &json!({ name: value })))
        })
    }

    pub fn completions(&self, of: &str, argument: &str, begun: &str) -> Vec<String> {
        let known = self.file["completions"][of][argument].as_array();
        let words = known.into_iter().flatten().map(text);
        words.filter(|word| word.starts_with(begun)).collect()
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Converts a value to a complete result of the SDK.
pub fn complete<T: DeserializeOwned>(mut value: Value) -> Result<T, ErrorData> {
    value["resultType"] = json!("complete");
    typed(value)
}

/// Converts a value in its wire form to a type of the SDK.
pub fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|fault| ErrorData::internal_error(fault.to_string(), None))
}

/// Returns a page of the listed elements, under `key`.
pub fn page<'a>(
    asked: Option<PaginatedRequestParams>,
    size: usize,
    key: &str,
    offered: impl Iterator<Item = &'a Value>,
) -> Result<Value, ErrorData> {
    let listed: Vec<&Value> = offered.map(|one| &one["listed"]).collect();
    let Some(cursor) = asked.and_then(|asked| asked.cursor) else {
        return Ok(cut(&listed, 0, size, key));
    };
    match cursor.parse() {
        Ok(begin) if begin < listed.len() => Ok(cut(&listed, begin, size, key)),
        _ => Err(ErrorData::invalid_params("no such cursor", None)),
    }
}

fn cut(listed: &[&Value], begin: usize, size: usize, key: &str) -> Value {
    let end = if size == 0 { listed.len() } else { listed.len().min(begin + size) };
    let mut page = json!({ key: listed[begin..end] });
    if end < listed.len() {
        page["nextCursor"] = json!(end.to_string());
    }
    page
}

/// Returns `value` with each `{a.b}` in its strings replaced by the value in `scope`.
pub fn fill(value: &Value, scope: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(key, each)| (key.clone(), fill(each, scope))).collect()
        }
        Value::Array(items) => items.iter().map(|each| fill(each, scope)).collect(),
        Value::String(words) => Value::String(fill_words(words, scope)),
        other => other.clone(),
    }
}

fn fill_words(words: &str, scope: &Value) -> String {
    let mut filled = String::new();
    let mut rest = words;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let is_path = |path: &&str| {
            path.starts_with(|first: char| first.is_ascii_alphabetic())
                && path.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c))
        };
        let Some(path) = after.split_once('}').map(|(path, _)| path).filter(is_path) else {
            filled.push('{');
            rest = after;
            continue;
        };
        let found = path.split('.').fold(scope, |at, name| &at[name]);
        match found {
            Value::String(words) => filled.push_str(words),
            other => filled.push_str(&other.to_string()),
        }
        rest = &after[path.len() + 1..];
    }
    filled + rest
}
