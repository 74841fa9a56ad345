//! Extracts the words of a JSON Schema, in one pass without building a value.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::fields::Field;

/// Calls `keep` with each text in a raw schema that describes the parameters: their names, titles,
/// descriptions and enumerated values. `arguments` of prompts are read the same way. A schema that
/// is not valid JSON is read up to the fault.
pub(crate) fn visit_schema(raw: &str, keep: &mut dyn FnMut(Field, &str)) {
    let mut reader = serde_json::Deserializer::from_str(raw);
    let seed = SchemaPart { keep, role: PartRole::Schema, depth: 0 };
    // The texts before a fault are kept.
    let _ = seed.deserialize(&mut reader);
}

/// The role of the next value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PartRole {
    /// A schema, or a list of them.
    Schema,
    /// A map from names of parameters to schemas.
    Properties,
    /// A map from names that are not shown to schemas.
    Definitions,
    /// A text, or a list of texts.
    Text,
    /// The name of a prompt's argument.
    Name,
}

struct SchemaPart<'a> {
    keep: &'a mut dyn FnMut(Field, &str),
    role: PartRole,
    /// The number of levels of parameters between the root and the value.
    depth: usize,
}

impl SchemaPart<'_> {
    fn part(&mut self, role: PartRole, depth: usize) -> SchemaPart<'_> {
        SchemaPart { keep: self.keep, role, depth }
    }

    fn keep_name(&mut self, name: &str) {
        let field = if self.depth == 0 { Field::ParameterName } else { Field::ParameterText };
        (self.keep)(field, name);
    }
}

impl<'de> DeserializeSeed<'de> for SchemaPart<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for SchemaPart<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON Schema")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Key<'de>>()? {
            let key = &*key.0;
            let depth = self.depth;
            let next = match self.role {
                PartRole::Schema => keyword_role(key),
                PartRole::Properties if depth < MAX_LEVELS => {
                    self.keep_name(key);
                    Some(PartRole::Schema)
                }
                PartRole::Definitions if depth < MAX_LEVELS => Some(PartRole::Schema),
                _ => None,
            };
            match next {
                Some(PartRole::Schema) => {
                    let deeper = usize::from(self.role != PartRole::Schema || key == "items");
                    map.next_value_seed(self.part(PartRole::Schema, depth + deeper))?;
                }
                Some(role) => map.next_value_seed(self.part(role, depth))?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let (role, depth) = (self.role, self.depth);
        while items.next_element_seed(self.part(role, depth))?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(mut self, text: &str) -> Result<(), E> {
        match self.role {
            PartRole::Text => (self.keep)(Field::ParameterText, text),
            PartRole::Name => self.keep_name(text),
            _ => {}
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A member's name.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// The role of a keyword's value; `None` if it has no words.
fn keyword_role(keyword: &str) -> Option<PartRole> {
    Some(match keyword {
        "properties" => PartRole::Properties,
        "$defs" | "definitions" => PartRole::Definitions,
        "title" | "description" | "enum" | "const" => PartRole::Text,
        // The name of a prompt's argument.
        "name" => PartRole::Name,
        "items" | "anyOf" | "oneOf" | "allOf" | "additionalProperties" => PartRole::Schema,
        _ => return None,
    })
}

/// The most levels of parameters within parameters.
const MAX_LEVELS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(raw: &str) -> Vec<(Field, String)> {
        let mut found = Vec::new();
        visit_schema(raw, &mut |field, text| found.push((field, text.to_owned())));
        found
    }

    #[test]
    fn names_and_texts_are_found_at_every_level() {
        let found = texts(
            r#"{"type":"object","required":["x"],"properties":{
                "repo":{"type":"string","description":"The repository","default":"no"},
                "labels":{"type":"array","items":{"enum":["bug",7,null]}},
                "options":{"type":"object","properties":{"state":{"anyOf":[{"const":"open"},{"type":"null"}]}}}}}"#,
        );
        let expected = [
            (Field::ParameterName, "repo"),
            (Field::ParameterText, "The repository"),
            (Field::ParameterName, "labels"),
            (Field::ParameterText, "bug"),
            (Field::ParameterName, "options"),
            (Field::ParameterText, "state"),
            (Field::ParameterText, "open"),
        ];
        assert_eq!(found, expected.map(|(field, text)| (field, text.to_owned())));
    }

    #[test]
    fn arguments_of_prompts_are_parameters() {
        let found = texts(r#"[{"name":"topic","description":"What it is about","required":true}]"#);
        assert_eq!(found[0], (Field::ParameterName, "topic".to_owned()));
        assert_eq!(found[1], (Field::ParameterText, "What it is about".to_owned()));
    }

    #[test]
    fn a_fault_ends_the_reading() {
        let found = texts(r#"{"properties":{"a":{},"b":"#);
        assert_eq!(
            found,
            [(Field::ParameterName, "a".to_owned()), (Field::ParameterName, "b".to_owned())]
        );
        assert!(texts("").is_empty() && texts("7").is_empty());
    }

    #[test]
    fn deep_schemas_are_read_to_a_bound() {
        let deep = format!("{}{{}}{}", r#"{"properties":{"p":"#.repeat(60), "}}".repeat(60));
        assert!(texts(&deep).len() <= MAX_LEVELS + 1);
    }
}
