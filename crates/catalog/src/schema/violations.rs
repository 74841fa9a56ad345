//! Violations of a schema by a call's arguments, in words that a model can act
//! on.
//!
//! The text names paths, rules and kinds only, never values: arguments may hold
//! secrets, and the text goes to the model, to logs and to traces.

use std::collections::BTreeSet;

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use trunkline_jsonrpc::JsonError;
use trunkline_protocol::call::{ArgumentsError, OtherViolations as Others};

use super::SchemaError;

/// The most violations that are listed.
pub(super) const MAX_LINES: usize = 10;

pub(super) fn unreadable(error: &JsonError) -> ArgumentsError {
    one_line(format!("(root): json: {error}"))
}

/// Arguments that cannot be checked are rejected.
pub(super) fn unchecked(error: &SchemaError) -> ArgumentsError {
    one_line(format!("(root): the arguments cannot be checked: the schema {error}"))
}

pub(super) fn not_an_object(raw: &str) -> ArgumentsError {
    let found = match raw.bytes().next() {
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    };
    one_line(format!("(root): type: expected object, got {found}"))
}

fn one_line(line: String) -> ArgumentsError {
    ArgumentsError { lines: vec![line], others: Others::None }
}

/// Collects the validator's errors, as far as the cost allows.
///
/// The validator builds every error before it returns one, and for `anyOf` even errors that it does
/// not return: it could be made to build billions.
pub(super) fn collect_violations(
    validator: &Validator,
    value: &Value,
    cost: usize,
) -> ArgumentsError {
    if cost > MAX_COST_OF_FIRST {
        return one_line(UNNAMED_VIOLATION.to_owned());
    }
    if cost > MAX_COST_OF_ALL {
        let first = validator.validate(value).err();
        return ArgumentsError {
            lines: first.iter().map(violation_message).collect(),
            others: Others::None,
        };
    }
    let mut errors = validator.iter_errors(value);
    let lines = errors.by_ref().take(MAX_LINES).map(|error| violation_message(&error)).collect();
    // The rest is not counted: there may be a violation for every few bytes of the arguments.
    let others = if errors.next().is_some() { Others::Some } else { Others::None };
    ArgumentsError { lines, others }
}

fn violation_message(error: &ValidationError<'_>) -> String {
    let path = match error.instance_path().as_str() {
        "" => "(root)".to_owned(),
        path => shorten_text(path),
    };
    let kind = error.kind();
    let rule = match kind {
        Kind::FalseSchema => "false",
        kind => kind.keyword(),
    };
    format!("{path}: {rule}: {}", rule_message(kind, error.instance()))
}

/// The message with the expected value of a rule, and the type found.
fn rule_message(kind: &Kind, found: &Value) -> String {
    let got = value_kind(found);
    match kind {
        Kind::Type { kind } => format!("expected {}, got {got}", kind_names(kind).join(" or ")),
        Kind::Required { property } => format!("property {} is missing", shorten_value(property)),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            format!("expected no such property as {}", quoted_names(unexpected))
        }
        Kind::Enum { options } => {
            format!("expected {}, got another {got}", choices_message(options))
        }
        Kind::Constant { expected_value } => {
            format!("expected {}, got another {got}", shorten_value(expected_value))
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            match expected_kinds(context.iter(), found) {
                Some(kinds) => {
                    let kinds = kinds.into_iter().collect::<Vec<_>>().join(" or ");
                    format!("expected {kinds}, got {got}")
                }
                None => format!("expected one of {} alternatives, got {got}", context.len()),
            }
        }
        Kind::OneOfMultipleValid { .. } => {
            format!("expected exactly one alternative to match, got {got} that matches several")
        }
        Kind::Pattern { pattern } => {
            format!("expected text that matches {}, got another {got}", shorten_text(pattern))
        }
        Kind::PropertyNames { error } => {
            format!("a property name breaks {}", error.kind().keyword())
        }
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            format!("this {got} cannot be matched within bounds")
        }
        Kind::FalseSchema => format!("expected no value here, got {got}"),
        Kind::Not { .. } => format!("expected anything but this kind of {got}"),
        kind => limit_message(kind, got),
    }
}

/// Messages of the rules about sizes and ranges.
fn limit_message(kind: &Kind, got: &str) -> String {
    match kind {
        Kind::Minimum { limit } => format!("expected at least {limit}, got a smaller {got}"),
        Kind::Maximum { limit } => format!("expected at most {limit}, got a larger {got}"),
        Kind::ExclusiveMinimum { limit } => format!("expected more than {limit}, got {got}"),
        Kind::ExclusiveMaximum { limit } => format!("expected less than {limit}, got {got}"),
        Kind::MultipleOf { multiple_of } => {
            format!("expected a multiple of {multiple_of}, got another {got}")
        }
        Kind::MinLength { limit } => format!("expected at least {limit} characters in this {got}"),
        Kind::MaxLength { limit } => format!("expected at most {limit} characters in this {got}"),
        Kind::MinItems { limit } => format!("expected at least {limit} items in this {got}"),
        Kind::MaxItems { limit } => format!("expected at most {limit} items in this {got}"),
        Kind::AdditionalItems { limit } => format!("expected at most {limit} items in this {got}"),
        Kind::MinProperties { limit } => format!("expected at least {limit} properties"),
        Kind::MaxProperties { limit } => format!("expected at most {limit} properties"),
        Kind::UnevaluatedItems { .. } => format!("expected fewer items in this {got}"),
        Kind::UniqueItems => "expected items that differ from each other".to_owned(),
        Kind::Contains => "expected items that match the `contains` of the array".to_owned(),
        kind => format!("this {got} breaks the rule {}", kind.keyword()),
    }
}

/// The expected kinds, if every alternative failed on the kind of this very
/// value: the form that generators give optional fields.
pub(super) fn expected_kinds<'c, 'e: 'c>(
    context: impl Iterator<Item = &'c Vec<ValidationError<'e>>>,
    found: &Value,
) -> Option<BTreeSet<&'static str>> {
    let mut all = BTreeSet::new();
    for alternative in context {
        match alternative.as_slice() {
            [error] if error.instance().as_ref() == found => match error.kind() {
                Kind::Type { kind } => all.extend(kind_names(kind)),
                _ => return None,
            },
            _ => return None,
        }
    }
    Some(all)
}

pub(super) fn kind_names(kind: &TypeKind) -> Vec<&'static str> {
    match kind {
        TypeKind::Single(one) => vec![one.as_str()],
        TypeKind::Multiple(several) => several.iter().map(jsonschema::JsonType::as_str).collect(),
    }
}

fn value_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The schema's alternatives, which every client has seen in the listing.
fn choices_message(options: &Value) -> String {
    let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let all: Vec<_> = options.iter().map(shorten_value).collect();
    let text = all.join(", ");
    if text.chars().count() > MAX_CHARS {
        return format!("one of the {} listed values", options.len());
    }
    format!("one of {text}")
}

/// Property names are not values: the model needs them to correct the call.
fn quoted_names(unexpected: &[String]) -> String {
    let shown: Vec<_> =
        unexpected.iter().take(3).map(|name| format!("{:?}", shorten_text(name))).collect();
    match unexpected.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn shorten_value(value: &Value) -> String {
    shorten_text(&value.to_string())
}

/// Truncates to [`MAX_CHARS`] characters, on one line.
fn shorten_text(text: &str) -> String {
    let mut short: String =
        text.chars().take(MAX_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        short.push('…');
    }
    short
}

const MAX_CHARS: usize = 80;
/// Up to this cost, all violations are collected: 8 KiB of arguments for a
/// schema that visits each value 64 times.
pub(super) const MAX_COST_OF_ALL: usize = 512 * 1024;
/// Up to this cost, the first violation is collected.
const MAX_COST_OF_FIRST: usize = 2 * 1024 * 1024;
const UNNAMED_VIOLATION: &str = "(root): schema: expected arguments that fit the schema; these are too \
                       large or too deeply nested to locate the violation";
