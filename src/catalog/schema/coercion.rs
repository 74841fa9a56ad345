//! Strings in arguments that stand for the one value that the schema wants.
//!
//! Models write `"3"` for 3, and lists as JSON text. A string is replaced only where its text is
//! JSON of a kind that the schema wants there, and where the schema does not want a string. All
//! other bytes stay as they are, and the result is checked like any other arguments.

use std::collections::BTreeMap;

use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind as Kind;
use serde_json::Value;
use serde_json::value::RawValue;

use super::violations::{MAX_COST_OF_ALL, expected_kinds, kind_names};
use super::{ArgumentSchema, CompiledRule, MAX_ARGUMENT_DEPTH};
use crate::jsonrpc::{Members, Splice, parse_strict, span_of};

/// Arguments in which strings were replaced by what they stand for.
#[derive(Debug, PartialEq, Eq)]
pub struct CoercedArguments {
    /// The raw arguments, which fit the schema.
    pub raw: Vec<u8>,
    /// The JSON pointers of what was replaced.
    pub paths: Vec<String>,
}

/// What replaces strings, by their JSON pointers.
type Replacements = BTreeMap<String, String>;

impl ArgumentSchema {
    /// The arguments that these stand for, if strings in them can be replaced so that they fit the
    /// schema.
    pub fn coerce(&self, arguments: &[u8]) -> Option<CoercedArguments> {
        let CompiledRule::Schema { checker, reach, .. } = &self.rule else { return None };
        let validator = checker.validator().ok()?;
        let (mut raw, mut paths) = (arguments.to_vec(), Vec::new());
        // A list that was a string may have strings for its items.
        for _ in 0..=MAX_ROUNDS {
            let value = parse_strict(&raw, MAX_ARGUMENT_DEPTH).ok()?;
            if validator.is_valid(&value) {
                return Some(CoercedArguments { raw, paths });
            }
            if reach.checking_cost(&raw) > MAX_COST_OF_ALL {
                return None;
            }
            let found = find_replacements(validator, &value);
            if found.is_empty() {
                return None;
            }
            raw = replace_strings(&raw, &found);
            paths.extend(found.into_keys());
        }
        None
    }
}

fn find_replacements(validator: &Validator, value: &Value) -> Replacements {
    let errors = validator.iter_errors(value).take(MAX_REPLACED);
    let found = errors.filter_map(|error| {
        let instance = error.instance();
        let text = instance.as_str()?.trim();
        let meant = parse_strict(text.as_bytes(), MAX_ARGUMENT_DEPTH).ok()?;
        let is_wanted = match error.kind() {
            Kind::Type { kind } => kind_names(kind).iter().any(|name| is_of_kind(&meant, name)),
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
                expected_kinds(context, instance)?.iter().any(|name| is_of_kind(&meant, name))
            }
            _ => false,
        };
        // Valid JSON has line breaks between its values only, where a server on standard input would
        // take them for the end of the message.
        let line = || text.replace(['\n', '\r'], " ");
        is_wanted.then(|| (error.instance_path().as_str().to_owned(), line()))
    });
    found.collect()
}

/// Whether a value is the number, boolean, array or object that a schema wants.
fn is_of_kind(value: &Value, name: &str) -> bool {
    match value {
        Value::Number(number) => name == "number" || (name == "integer" && !number.is_f64()),
        Value::Bool(_) => name == "boolean",
        Value::Array(_) => name == "array",
        Value::Object(_) => name == "object",
        Value::Null | Value::String(_) => false,
    }
}

fn replace_strings(raw: &[u8], found: &Replacements) -> Vec<u8> {
    let mut splice = Splice::new(raw);
    collect_edits(&mut splice, (raw, raw), "", found);
    splice.finish().into()
}

/// Walks down to the strings that are replaced, past all that holds none of them.
fn collect_edits(
    splice: &mut Splice<'_>,
    (whole, part): (&[u8], &[u8]),
    path: &str,
    found: &Replacements,
) {
    let inside = format!("{path}/");
    if !found.range(inside.clone()..).next().is_some_and(|(first, _)| first.starts_with(&inside)) {
        return;
    }
    for (key, member) in children(part) {
        let path = format!("{inside}{key}");
        let member = member.get().as_bytes();
        match (found.get(&path), span_of(whole, member)) {
            (Some(text), Some(span)) => {
                splice.replace(span, text.clone());
            }
            _ => collect_edits(splice, (whole, member), &path, found),
        }
    }
}

/// The members of an object or an array, by their segments in a JSON pointer.
fn children(raw: &[u8]) -> Vec<(String, &RawValue)> {
    match raw.trim_ascii_start().first() {
        Some(b'{') => {
            let members = Members::parse(raw).map(|members| members.0).unwrap_or_default();
            let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
            members.into_iter().map(|(key, member)| (escaped(&key), member)).collect()
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_slice(raw).unwrap_or_default();
            items.into_iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect()
        }
        _ => Vec::new(),
    }
}

/// The most strings that are replaced in one round.
const MAX_REPLACED: usize = 64;
/// The most rounds of replacing.
const MAX_ROUNDS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn coerced(schema: &str, arguments: &str) -> Option<(String, Vec<String>)> {
        let schema = ArgumentSchema::compile(schema.as_bytes()).unwrap();
        assert!(schema.check(Some(arguments.as_bytes())).is_err(), "{arguments}");
        let coerced = schema.coerce(arguments.as_bytes())?;
        assert!(schema.check(Some(&coerced.raw)).is_ok());
        Some((String::from_utf8(coerced.raw).unwrap(), coerced.paths))
    }

    const SCHEMA: &str = r#"{"type":"object","properties":{
        "n":{"type":"integer"},"x":{"type":"number"},"b":{"type":"boolean"},
        "l":{"type":"array","items":{"type":"integer"}},"o":{"type":"object","required":["k"]},
        "m":{"type":["integer","null"]},"any":{"anyOf":[{"type":"array"},{"type":"null"}]},
        "t":{"type":"object","properties":{"a/b~c":{"type":"array","items":{"type":"number"}}}},
        "s":{"type":"string","minLength":3},"e":{"anyOf":[{"type":"string","minLength":3},{"type":"integer"}]},
        "z":{"type":"null"}}}"#;

    #[test]
    fn a_string_becomes_the_value_that_the_schema_wants() {
        for (arguments, expected, paths) in [
            (r#"{ "n": "3", "s":"abc"}"#, r#"{ "n": 3, "s":"abc"}"#, &["/n"][..]),
            (r#"{"n":" -7 ","big":1.50}"#, r#"{"n":-7,"big":1.50}"#, &["/n"]),
            (r#"{"x":"1e3","b":"false"}"#, r#"{"x":1e3,"b":false}"#, &["/b", "/x"]),
            (r#"{"l":"[1, 2]"}"#, r#"{"l":[1, 2]}"#, &["/l"]),
            (r#"{"l":"[\"1\", 2]"}"#, r#"{"l":[1, 2]}"#, &["/l", "/l/0"]),
            (r#"{"l":[1,"2",3]}"#, r#"{"l":[1,2,3]}"#, &["/l/1"]),
            (r#"{"o":"{\"k\": \"\\u00e9\"}"}"#, r#"{"o":{"k": "\u00e9"}}"#, &["/o"]),
            (r#"{"l":"[1,\n2]"}"#, r#"{"l":[1, 2]}"#, &["/l"]),
            (r#"{"m":"4","any":"[]"}"#, r#"{"m":4,"any":[]}"#, &["/any", "/m"]),
            (r#"{"t":{"a\/b~c":["1"]}}"#, r#"{"t":{"a\/b~c":[1]}}"#, &["/t/a~1b~0c/0"]),
        ] {
            let (raw, found) = coerced(SCHEMA, arguments).unwrap_or_else(|| panic!("{arguments}"));
            assert_eq!(
                (raw.as_str(), found),
                (expected, paths.iter().map(ToString::to_string).collect())
            );
        }
    }

    #[test]
    fn what_is_ambiguous_or_still_wrong_is_left_alone() {
        for arguments in [
            r#"{"n":"three"}"#,
            r#"{"n":"3.5"}"#,
            r#"{"n":"007"}"#,
            r#"{"n":"0x10"}"#,
            r#"{"n":true}"#,
            r#"{"n":["3"]}"#,
            r#"{"b":"yes"}"#,
            r#"{"b":"1"}"#,
            r#"{"b":"True"}"#,
            r#"{"l":"1,2"}"#,
            r#"{"l":"[1,\"x\"]"}"#,
            r#"{"o":"{\"k\":1,\"k\":2}"}"#,
            r#"{"o":"{}"}"#,
            r#"{"s":5}"#,
            r#"{"e":"3"}"#,
            r#"{"z":"null"}"#,
            r#"{"n":"3","b":"maybe"}"#,
            r#"{"n":"3","n":"4"}"#,
        ] {
            assert_eq!(coerced(SCHEMA, arguments), None, "{arguments}");
        }
    }
}
