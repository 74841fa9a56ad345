//! The keywords of JSON Schema 2020-12, and the values that its meta-schema allows.

use std::collections::HashSet;

use regex_syntax::ast::{self, parse::Parser};
use serde_json::Value;

use crate::schema::is_small_pattern;

/// The form of a keyword's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeywordForm {
    /// A subschema.
    Schema,
    /// Subschemas by name.
    SchemaMap,
    /// An array of one subschema or more.
    SchemaList,
    /// The name of a type, or an array of them.
    Types,
    /// An array of distinct strings.
    Names,
    /// Such arrays by name.
    NamesMap,
    /// Such arrays, or subschemas, by name.
    Dependencies,
    /// An array of anything.
    Array,
    /// A string.
    Text,
    /// A string that is a regular expression.
    Pattern,
    /// The name of a place.
    Anchor,
    /// A URI without a fragment.
    Identifier,
    /// `true` or `false`.
    Flag,
    /// A number.
    Number,
    /// A number above 0.
    Positive,
    /// A whole number, 0 or more.
    Count,
    /// Flags by URI.
    Vocabulary,
}

/// The form of a keyword's value; `None` if it may be anything.
pub(super) fn keyword_form(keyword: &str) -> Option<KeywordForm> {
    Some(match keyword {
        "items"
        | "additionalProperties"
        | "propertyNames"
        | "contains"
        | "not"
        | "if"
        | "then"
        | "else"
        | "unevaluatedItems"
        | "unevaluatedProperties"
        | "contentSchema" => KeywordForm::Schema,
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
            KeywordForm::SchemaMap
        }
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => KeywordForm::SchemaList,
        "type" => KeywordForm::Types,
        "required" => KeywordForm::Names,
        "dependentRequired" => KeywordForm::NamesMap,
        "dependencies" => KeywordForm::Dependencies,
        "enum" | "examples" => KeywordForm::Array,
        "title" | "description" | "$comment" | "format" | "contentEncoding"
        | "contentMediaType" | "$ref" | "$dynamicRef" | "$recursiveRef" => KeywordForm::Text,
        "pattern" => KeywordForm::Pattern,
        "$anchor" | "$dynamicAnchor" => KeywordForm::Anchor,
        "$id" => KeywordForm::Identifier,
        "uniqueItems" | "readOnly" | "writeOnly" | "deprecated" | "$recursiveAnchor" => {
            KeywordForm::Flag
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => KeywordForm::Number,
        "multipleOf" => KeywordForm::Positive,
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
        | "minContains" | "maxContains" => KeywordForm::Count,
        "$vocabulary" => KeywordForm::Vocabulary,
        _ => return None,
    })
}

/// Returns true if a plain value has its form. Does not check subschemas.
pub(super) fn has_form(form: KeywordForm, value: &Value) -> bool {
    match form {
        KeywordForm::Schema => value.is_object() || value.is_boolean(),
        KeywordForm::SchemaMap | KeywordForm::Dependencies => value.is_object(),
        KeywordForm::SchemaList => value.as_array().is_some_and(|all| !all.is_empty()),
        KeywordForm::Types => match value {
            Value::String(name) => is_type_name(name),
            Value::Array(all) => !all.is_empty() && is_distinct(all, is_type_name),
            _ => false,
        },
        KeywordForm::Names => value.as_array().is_some_and(|all| is_distinct(all, |_| true)),
        KeywordForm::NamesMap => value
            .as_object()
            .is_some_and(|all| all.values().all(|value| has_form(KeywordForm::Names, value))),
        KeywordForm::Array => value.is_array(),
        KeywordForm::Text | KeywordForm::Pattern => value.is_string(),
        KeywordForm::Anchor => value.as_str().is_some_and(is_anchor),
        KeywordForm::Identifier => {
            value.as_str().is_some_and(|id| !id.trim_end_matches('#').contains('#'))
        }
        KeywordForm::Flag => value.is_boolean(),
        KeywordForm::Number => value.is_number(),
        KeywordForm::Positive => value.as_f64().is_some_and(|number| number > 0.0),
        KeywordForm::Count => {
            value.as_f64().is_some_and(|number| number >= 0.0 && number.fract() == 0.0)
        }
        KeywordForm::Vocabulary => {
            value.as_object().is_some_and(|all| all.values().all(Value::is_boolean))
        }
    }
}

/// Returns true for the names of the seven types.
pub(super) fn is_type_name(text: &str) -> bool {
    ["null", "boolean", "object", "array", "number", "integer", "string"].contains(&text)
}

/// Returns true for a name that `$anchor` allows.
pub(super) fn is_anchor(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

fn is_distinct(all: &[Value], is_allowed: impl Fn(&str) -> bool) -> bool {
    let mut seen = HashSet::with_capacity(all.len());
    all.iter().all(|value| value.as_str().is_some_and(|text| is_allowed(text) && seen.insert(text)))
}

/// A regular expression of Python in the spelling of ECMA-262; `None` if nothing in it is specific
/// to Python.
pub(super) fn translate_pattern(pattern: &str) -> Option<String> {
    let mut translated = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut is_in_class = false;
    while let Some(first) = rest.chars().next() {
        let escaped = rest.chars().nth(1).filter(|_| first == '\\');
        let backreference = rest.strip_prefix("(?P=").and_then(|after| after.split_once(')'));
        let length = match (escaped, backreference) {
            (Some(next), _) => {
                let anchor = match next {
                    'A' if !is_in_class => Some("^"),
                    'Z' if !is_in_class => Some("$"),
                    _ => None,
                };
                let length = 1 + next.len_utf8();
                translated.push_str(anchor.unwrap_or(rest.get(..length).unwrap_or_default()));
                length
            }
            (None, Some((name, _))) if !is_in_class => {
                translated.push_str("\\k<");
                translated.push_str(name);
                translated.push('>');
                "(?P=".len() + name.len() + 1
            }
            (None, _) if !is_in_class && rest.starts_with("(?P<") => {
                translated.push_str("(?<");
                "(?P<".len()
            }
            (None, _) => {
                is_in_class = first == '[' || (is_in_class && first != ']');
                translated.push(first);
                first.len_utf8()
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    (translated != pattern).then_some(translated)
}

/// Returns true for a text that is no regular expression in any engine. A text that only takes too
/// long to compile is one.
pub(super) fn is_broken_pattern(pattern: &str, tries: &mut usize) -> bool {
    let Err(error) = Parser::new().parse(pattern) else { return false };
    // Engines differ in other things, such as look-around and `[]`.
    let is_broken = matches!(
        error.kind(),
        ast::ErrorKind::GroupUnclosed
            | ast::ErrorKind::GroupUnopened
            | ast::ErrorKind::GroupNameEmpty
            | ast::ErrorKind::GroupNameInvalid
            | ast::ErrorKind::GroupNameUnexpectedEof
            | ast::ErrorKind::RepetitionMissing
            | ast::ErrorKind::RepetitionCountInvalid
            | ast::ErrorKind::ClassRangeInvalid
            | ast::ErrorKind::EscapeUnexpectedEof
    );
    let is_unclosed_class = matches!(error.kind(), ast::ErrorKind::ClassUnclosed)
        && !pattern.contains("[]")
        && !pattern.contains("[^]")
        && pattern.matches('[').count() == 1;
    if (!is_broken && !is_unclosed_class) || *tries == 0 {
        return false;
    }
    *tries -= 1;
    !is_small_pattern(pattern)
}
