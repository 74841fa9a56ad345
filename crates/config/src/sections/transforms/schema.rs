//! `input_schema` of one tool: a schema instead of the server's own.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use toml::de::DeValue;

use super::json::plain_json;
use crate::faults::problem::SettingFault;
use crate::reader::setting::Setting;
use crate::reader::{ConfigNode, ConfigReader};

/// A schema that the configuration has for a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct InputSchema(Arc<Map<String, Json>>);

impl InputSchema {
    /// The schema.
    #[inline]
    pub fn members(&self) -> &Map<String, Json> {
        &self.0
    }
}

impl Setting for InputSchema {
    type Value = Self;

    fn kind_word() -> String {
        "table, or the path of a JSON file".into()
    }

    fn example_value() -> String {
        "\"schemas/find.json\"".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let schema = if let DeValue::String(_) = node.value {
            read_schema_file(node, reader)?
        } else {
            node.expect_table(reader)?;
            plain_json(node, reader)?
        };
        match schema {
            Json::Object(members) if members.get("type") == Some(&json!("object")) => {
                Some(Self(Arc::new(members)))
            }
            _ => {
                node.report_fault(reader, SettingFault::InputSchema);
                None
            }
        }
    }

    fn json_schema() -> Json {
        json!({ "type": ["object", "string"] })
    }
}

fn read_schema_file(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Json> {
    let path = node.expect_plain_string::<InputSchema>(reader)?;
    let full = reader.resolve_path(path);
    let text = reader.surroundings.text(&full);
    reader.files.insert(full);
    let problem = match text {
        Ok(text) => match serde_json::from_str(&text) {
            Ok(schema) => return Some(schema),
            Err(_) => SettingFault::InputSchema,
        },
        Err(error) => SettingFault::File { path: path.to_owned(), error },
    };
    node.report_fault(reader, problem);
    None
}
