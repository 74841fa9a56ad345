//! Values with values of other calls in them.

use serde_json::{Value as Json, json};

use crate::faults::problem::SettingFault;
use crate::reader::setting::Setting;
use crate::reader::{ConfigNode, ConfigReader};
use crate::sections::transforms::{MessageTemplate, TemplatePart, ValuePath, plain_json};

/// The arguments of a call: JSON with texts that may contain paths.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueTemplate {
    /// A value without paths, as JSON text.
    Fixed(Box<str>),
    /// The value at a path, of any type.
    Value(ValuePath),
    /// A text with values in it.
    Text(MessageTemplate),
    /// An array of such values.
    Array(Vec<ValueTemplate>),
    /// An object of such values.
    Object(Vec<(String, ValueTemplate)>),
}

impl ValueTemplate {
    /// Reads a value; `None` if a text in it is not a template.
    pub fn parse(value: &Json) -> Option<Self> {
        Some(match value {
            Json::String(text) => Self::parse_text(text)?,
            Json::Array(items) => {
                Self::Array(items.iter().map(Self::parse).collect::<Option<_>>()?)
            }
            Json::Object(members) => {
                let members = members.iter();
                let members =
                    members.map(|(name, value)| Some((name.clone(), Self::parse(value)?)));
                Self::Object(members.collect::<Option<_>>()?)
            }
            fixed => Self::Fixed(fixed.to_string().into()),
        })
    }

    fn parse_text(text: &str) -> Option<Self> {
        let template = MessageTemplate::parse(text)?;
        let parts = template.parts().iter();
        let mut parts =
            parts.filter(|part| !matches!(part, TemplatePart::Text(text) if text.is_empty()));
        Some(match (parts.next(), parts.next()) {
            (None, _) => Self::Fixed("\"\"".into()),
            (Some(TemplatePart::Text(text)), None) => {
                Self::Fixed(Json::from(text.as_str()).to_string().into())
            }
            (Some(TemplatePart::Value(path)), None) => Self::Value(path.clone()),
            _ => Self::Text(template),
        })
    }

    /// All paths in it.
    pub fn paths(&self) -> Vec<&ValuePath> {
        match self {
            Self::Fixed(_) => Vec::new(),
            Self::Value(path) => vec![path],
            Self::Text(template) => template.paths().collect(),
            Self::Array(items) => items.iter().flat_map(Self::paths).collect(),
            Self::Object(members) => members.iter().flat_map(|(_, value)| value.paths()).collect(),
        }
    }
}

impl Setting for ValueTemplate {
    type Value = Self;

    fn kind_word() -> String {
        "table, with paths within `{ }` in its texts".into()
    }

    fn example_value() -> String {
        "{ id = \"{lookup.id}\" }".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        node.expect_table(reader)?;
        let template = Self::parse(&plain_json(node, reader)?);
        if template.is_none() {
            node.report_fault(reader, SettingFault::ArgumentTemplate);
        }
        template
    }

    fn json_schema() -> Json {
        json!({ "type": "object" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_one_path_keeps_the_kind_of_its_value() {
        let template = ValueTemplate::parse(&json!({
            "a": "{x.y}", "b": "n: {x}", "c": ["{{}}", 7, { "d": "{ z }" }], "e": "",
        }));
        let ValueTemplate::Object(members) = template.unwrap() else { panic!("no object") };
        let [(_, a), (_, b), (_, c), (_, e)] = &members[..] else { panic!("{members:?}") };
        assert!(matches!(a, ValueTemplate::Value(path) if path.steps().eq(["x", "y"])));
        assert!(matches!(b, ValueTemplate::Text(_)));
        assert_eq!(*e, ValueTemplate::Fixed("\"\"".into()));
        let ValueTemplate::Array(items) = c else { panic!("{c:?}") };
        assert_eq!(items[0], ValueTemplate::Fixed("\"{}\"".into()));
        assert_eq!(items[1], ValueTemplate::Fixed("7".into()));
        assert_eq!(c.paths().len(), 1);
        assert_eq!(ValueTemplate::parse(&json!(["{"])), None);
    }
}
