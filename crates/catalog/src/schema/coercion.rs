//! Coerces arguments to the types that the schema requires.
//!
//! Models write `"3"` for 3, and lists as JSON text. A string is replaced only if its text is JSON
//! of a type that the schema allows there, and if the schema does not allow a string. Some clients
//! send `null` for each property that the model left out. It is dropped if the schema declares the
//! property and does not allow `null`; members of maps and items of arrays are kept. All other
//! bytes are unchanged, and the result is checked like any other arguments, so that a required
//! property is never dropped.

use std::collections::BTreeMap;

use jsonschema::error::ValidationErrorKind as Kind;
use jsonschema::{ValidationError, Validator};
use serde_json::Value;
use serde_json::value::RawValue;

use trunkline_core::text::escape_pointer_step;
use trunkline_jsonrpc::{Members, Splice, parse_strict, span_of};

use super::violations::{MAX_COST_OF_ALL, expected_kinds, kind_names};
use super::{ArgumentSchema, CompiledRule, MAX_ARGUMENT_DEPTH};

/// Arguments with coerced strings, and without rejected nulls.
#[derive(Debug, PartialEq, Eq)]
pub struct CoercedArguments {
    /// The raw arguments, which fit the schema.
    pub raw: Vec<u8>,
    /// The JSON pointers of the replaced and dropped values.
    pub paths: Vec<String>,
}

/// The coercions of values, by their JSON pointers.
type Coercions = BTreeMap<String, Coercion>;

/// The coercion of a value that the schema does not allow.
#[derive(Debug)]
enum Coercion {
    /// Replaces a string by its value: raw, on one line.
    Replace(String),
    /// Drops the member with this value.
    Drop,
}

impl ArgumentSchema {
    /// Coerces these arguments; `None` if replacing strings and dropping nulls does not make them
    /// fit the schema.
    pub fn coerce(&self, arguments: &[u8]) -> Option<CoercedArguments> {
        let CompiledRule::Schema { checker, reach, .. } = &self.rule else { return None };
        let validator = checker.validator().ok()?;
        let (mut raw, mut paths) = (arguments.to_vec(), Vec::new());
        // A list that was a string may have strings as its items.
        for _ in 0..=MAX_ROUNDS {
            let value = parse_strict(&raw, MAX_ARGUMENT_DEPTH).ok()?;
            if validator.is_valid(&value) {
                return Some(CoercedArguments { raw, paths });
            }
            if reach.checking_cost(&raw) > MAX_COST_OF_ALL {
                return None;
            }
            let found = find_coercions(validator, &value);
            if found.is_empty() {
                return None;
            }
            raw = apply_coercions(&raw, &found);
            paths.extend(found.into_keys());
        }
        None
    }
}

fn find_coercions(validator: &Validator, value: &Value) -> Coercions {
    let errors = validator.iter_errors(value).take(MAX_COERCED);
    let found = errors.filter_map(|error| {
        let coercion = match error.instance().as_ref() {
            Value::String(text) => replacement(&error, text.trim()).map(Coercion::Replace),
            Value::Null => forbids_null(&error).then_some(Coercion::Drop),
            _ => None,
        };
        Some((error.instance_path().as_str().to_owned(), coercion?))
    });
    found.collect()
}

/// The value of a string's text, if the schema requires one of its type.
fn replacement(error: &ValidationError<'_>, text: &str) -> Option<String> {
    let meant = parse_strict(text.as_bytes(), MAX_ARGUMENT_DEPTH).ok()?;
    let is_wanted = match error.kind() {
        Kind::Type { kind } => kind_names(kind).iter().any(|name| is_of_kind(&meant, name)),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            let others = context.iter().filter(|alternative| !allows_only_nothing(alternative));
            let kinds = expected_kinds(others, error.instance())?;
            kinds.iter().any(|name| is_of_kind(&meant, name))
        }
        _ => false,
    };
    // Valid JSON has line breaks only between its values, and a server on standard input would take
    // them for the end of the message.
    is_wanted.then(|| text.replace(['\n', '\r'], " "))
}

/// Returns true if the alternative with these errors is the empty string, which stands for an
/// absent argument: it allows no other string.
fn allows_only_nothing(errors: &[ValidationError<'_>]) -> bool {
    let [error] = errors else { return false };
    matches!(error.kind(), Kind::Constant { expected_value } if **expected_value == "")
}

/// Returns true if the schema does not allow `null` for a property that it declares.
fn forbids_null(error: &ValidationError<'_>) -> bool {
    let is_about_value = matches!(
        error.kind(),
        Kind::Type { .. }
            | Kind::Enum { .. }
            | Kind::Constant { .. }
            | Kind::AnyOf { .. }
            | Kind::OneOfNotValid { .. }
    );
    is_about_value && is_declared(error.evaluation_path().as_str(), error.instance_path().as_str())
}

/// Returns true if the rule at `evaluated` was reached through the declaration of the property at
/// `path`: after it, only rules for the same value follow.
fn is_declared(evaluated: &str, path: &str) -> bool {
    let Some((_, key)) = path.rsplit_once('/') else { return false };
    let declaration = format!("/properties/{key}/");
    let Some(at) = evaluated.rfind(&declaration) else { return false };
    let rules = evaluated.get(at + declaration.len()..).unwrap_or_default();
    let (on_the_way, _) = rules.rsplit_once('/').unwrap_or_default();
    let is_of_same_value =
        |rule: &str| SAME_VALUE.contains(&rule) || rule.bytes().all(|digit| digit.is_ascii_digit());
    on_the_way.split('/').all(is_of_same_value)
}

/// Returns true if a value is the number, boolean, array or object that a schema requires.
fn is_of_kind(value: &Value, name: &str) -> bool {
    match value {
        Value::Number(number) => name == "number" || (name == "integer" && !number.is_f64()),
        Value::Bool(_) => name == "boolean",
        Value::Array(_) => name == "array",
        Value::Object(_) => name == "object",
        Value::Null | Value::String(_) => false,
    }
}

fn apply_coercions(raw: &[u8], found: &Coercions) -> Vec<u8> {
    let mut splice = Splice::new(raw);
    collect_edits(&mut splice, JsonPart { whole: raw, part: raw }, "", found);
    splice.finish().into()
}

/// A value, and the text that it is a part of.
#[derive(Clone, Copy)]
struct JsonPart<'a> {
    whole: &'a [u8],
    part: &'a [u8],
}

/// Walks down to the values that are coerced, and skips the others.
fn collect_edits(splice: &mut Splice<'_>, json: JsonPart<'_>, path: &str, found: &Coercions) {
    let JsonPart { whole, part } = json;
    let inside = format!("{path}/");
    if !found.range(inside.clone()..).next().is_some_and(|(first, _)| first.starts_with(&inside)) {
        return;
    }
    let Some(open) = span_of(whole, part).map(|span| span.start) else { return };
    // The beginning of the member: after the bracket or the comma before it.
    let (mut begin, mut is_first) = (open + 1, true);
    for (key, member) in children(part) {
        let path = format!("{inside}{key}");
        let member = member.get().as_bytes();
        let Some(span) = span_of(whole, member) else { continue };
        let next = span.end + distance_to_next(whole.get(span.end..).unwrap_or_default());
        match found.get(&path) {
            Some(Coercion::Drop) if is_first => {
                splice.replace(begin..next, "");
            }
            Some(Coercion::Drop) => {
                splice.replace(begin - 1..span.end, "");
            }
            Some(Coercion::Replace(text)) => {
                splice.replace(span, text.clone());
                is_first = false;
            }
            None => {
                collect_edits(splice, JsonPart { whole, part: member }, &path, found);
                is_first = false;
            }
        }
        begin = next;
    }
}

/// The number of bytes from the end of a member to the beginning of the next: with the comma
/// between them, or none after the last.
fn distance_to_next(rest: &[u8]) -> usize {
    let comma = rest.iter().position(|byte| !byte.is_ascii_whitespace());
    comma.filter(|at| rest.get(*at) == Some(&b',')).map_or(0, |at| at + 1)
}

/// The members of an object or an array, by their segments in a JSON pointer.
fn children(raw: &[u8]) -> Vec<(String, &RawValue)> {
    match raw.trim_ascii_start().first() {
        Some(b'{') => {
            let members = Members::parse(raw).map(|members| members.0).unwrap_or_default();
            members.into_iter().map(|(key, member)| (escape_pointer_step(&key), member)).collect()
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_slice(raw).unwrap_or_default();
            items.into_iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect()
        }
        _ => Vec::new(),
    }
}

/// The most values that are coerced in one round.
const MAX_COERCED: usize = 64;
/// The most rounds of coercing.
const MAX_ROUNDS: usize = 4;
/// Keywords with subschemas for the same value, not for its members.
const SAME_VALUE: [&str; 6] = ["$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf"];

#[cfg(test)]
mod tests;
