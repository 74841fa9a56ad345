//! Values of the variables in conditions.

pub(crate) mod facts;
pub(crate) mod json_values;
pub(crate) mod spellings;

use std::collections::HashMap;

use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
};
use serde_json::{Map, Value};

use crate::catalog::{CatalogElement, Kind};
use crate::config::{ConditionReads, ConditionValue, EvaluationFault, MemberReads, ValueSize};
use crate::jsonrpc::{MAX_SERVER_DEPTH, Members, parse_strict};

use facts::{CallerFacts, ReadArguments, RequestFacts};
use json_values::parse_members;

/// Context for the evaluation of a condition.
#[derive(Clone, Copy)]
pub(super) struct EvaluationScope<'a> {
    pub(super) caller: &'a CallerFacts,
    /// `None` for decisions about the caller alone, and for a request that names no element.
    pub(super) element: Option<&'a CatalogElement<'a>>,
    /// Trust in the annotations of the element's server.
    pub(super) annotations: AnnotationTrust,
    /// `None` before there is a call.
    pub(super) call: Option<&'a RequestFacts<'a>>,
    /// Limit of the steps to evaluate a condition; `None` if they are known to be few.
    pub(super) most_steps: Option<u64>,
}

/// Trust in annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnnotationTrust {
    /// The server is `trusted`.
    Believed,
    /// They are replaced by the defaults of the specification, which promise nothing.
    Ignored,
}

/// Returns the values of the variables that a condition reads.
///
/// # Errors
/// One of them cannot be read, or is ambiguous.
pub(super) fn values_of<'v>(
    reads: &ConditionReads,
    scope: &EvaluationScope<'v>,
) -> Result<Vec<(&'static str, ConditionValue<'v>)>, EvaluationFault> {
    let mut values = Vec::new();
    for (name, members) in reads.variables() {
        let value = match name {
            "principal" => Some(principal_value(scope.caller, members)),
            "claims" => Some(claims_value(scope.caller, members)),
            "tool" | "item" => scope.element.map(|element| element_value(element, members)),
            "annotations" => scope.element.map(|element| annotations_value(element, scope)),
            "arguments" => match scope.call {
                Some(call) => Some(arguments_value(call.arguments.as_ref(), members)?),
                None => None,
            },
            "client" => Some(client_value(scope.caller, members)),
            "request" => Some(request_value(scope, members)),
            _ => None,
        };
        values.extend(value.map(|value| (name, value)));
    }
    Ok(values)
}

/// Returns the size of a variable.
pub(super) fn size_of(
    variable: &str,
    reads: &ConditionReads,
    scope: &EvaluationScope<'_>,
) -> ValueSize {
    let caller = scope.caller;
    let fixed = |bytes| [bytes, MAX_VARIABLE_MEMBERS];
    let [bytes, elements] = match variable {
        "principal" => {
            let names = caller.groups().chain(caller.scopes()).chain(caller.actors());
            let own = [caller.principal.as_str().len() + 64, MAX_VARIABLE_MEMBERS];
            names.fold(own, |[bytes, count], name| [bytes + name.len() + 1, count + 1])
        }
        "claims" => caller.grants.as_ref().map_or([1, 0], |grants| map_size(&grants.claims)),
        "tool" | "item" => {
            fixed(scope.element.map_or(0, |it| it.public.len() + it.native.len() + 64))
        }
        "annotations" => {
            let raw = scope.element.and_then(|element| element.tool?.annotations());
            let [bytes, count] = raw_size(raw.unwrap_or_default().as_bytes());
            [bytes + 64, count + MAX_VARIABLE_MEMBERS]
        }
        "arguments" => {
            let arguments = scope.call.and_then(|call| call.arguments.as_ref());
            arguments.map_or([1, 0], |it| arguments_size(it.raw, reads.of("arguments")))
        }
        "client" => fixed(caller.client.info.as_ref().map_or(0, bytes::Bytes::len) + 64),
        _ => fixed(256),
    };
    let size = |size| u64::try_from(size).unwrap_or(u64::MAX);
    ValueSize { bytes: size(bytes), elements: size(elements) }
}

/// Upper bound of the members of any variable with fixed ones.
const MAX_VARIABLE_MEMBERS: usize = 8;

fn principal_value<'v>(caller: &'v CallerFacts, members: &MemberReads) -> ConditionValue<'v> {
    record(members, ["name", "kind", "groups", "scopes", "actors"], |member| match member {
        "name" => text(caller.principal.as_str()),
        "kind" => text(caller.principal_kind()),
        "groups" => texts(caller.groups()),
        "scopes" => texts(caller.scopes()),
        _ => texts(caller.actors()),
    })
}

fn claims_value(caller: &CallerFacts, members: &MemberReads) -> ConditionValue<'static> {
    let claims = caller.grants.iter().flat_map(|grants| &grants.claims);
    let read = claims.filter(|(name, _)| members.has(name) || members.has_keys());
    map_of(read.map(|(name, value)| (name.clone(), json(value.clone()))))
}

fn element_value<'v>(element: &CatalogElement<'v>, members: &MemberReads) -> ConditionValue<'v> {
    let kind = match element.kind {
        Kind::Tools => "tool",
        Kind::Prompts => "prompt",
        Kind::Resources => "resource",
        Kind::Templates => "template",
        Kind::Skills => "skill",
    };
    record(members, ["kind", "name", "native", "server"], |member| {
        text(match member {
            "kind" => kind,
            "name" => element.public,
            "native" => element.native,
            _ => element.server.map_or("", |server| server.as_str()),
        })
    })
}

/// Returns the annotations of a tool. Missing or untrusted ones are replaced by the defaults of the
/// specification: the tool may be destructive, and reaches the open world.
fn annotations_value(
    element: &CatalogElement<'_>,
    scope: &EvaluationScope<'_>,
) -> ConditionValue<'static> {
    let raw = element.tool.and_then(|tool| tool.annotations());
    let said = raw.filter(|_| scope.annotations == AnnotationTrust::Believed);
    let said = said.and_then(|raw| parse_strict(raw.as_bytes(), MAX_SERVER_DEPTH).ok());
    let mut annotations: Map<String, Value> = Map::new();
    for (hint, value) in ASSUMED_HINTS {
        annotations.insert(hint.into(), Value::Bool(value));
    }
    if let Some(Value::Object(said)) = said {
        annotations.extend(said);
    }
    json(Value::Object(annotations))
}

/// Defaults for a tool without annotations (2026-07-28, Tools, "Tool Annotations").
const ASSUMED_HINTS: [(&str, bool); 4] = [
    ("readOnlyHint", false),
    ("destructiveHint", true),
    ("idempotentHint", false),
    ("openWorldHint", true),
];

/// Returns the arguments that a condition reads.
fn arguments_value<'v>(
    arguments: Option<&ReadArguments<'v>>,
    members: &MemberReads,
) -> Result<ConditionValue<'v>, EvaluationFault> {
    match arguments {
        Some(arguments) => parse_members(arguments, members),
        None => Ok(map_of([])),
    }
}

fn arguments_size(raw: &[u8], members: &MemberReads) -> [usize; 2] {
    let Ok(all) = Members::parse(raw) else { return raw_size(raw) };
    let read = all.0.iter().filter(|(name, _)| members.has(name) || members.has_keys());
    read.fold([1, 0], |[bytes, count], (name, value)| {
        let has_value = members.has(name);
        let [of_value, elements] =
            if has_value { raw_size(value.get().as_bytes()) } else { [1, 0] };
        [bytes + name.len() + of_value + 1, count + elements + 1]
    })
}

/// Returns the size of raw JSON: between two elements there is a comma, and before each first one a
/// bracket.
fn raw_size(raw: &[u8]) -> [usize; 2] {
    [raw.len(), raw.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count()]
}

fn client_value(caller: &CallerFacts, members: &MemberReads) -> ConditionValue<'static> {
    let is_named = members.has("name") || members.has("version");
    let (name, version) =
        if is_named { caller.client.name_and_version() } else { Default::default() };
    map_of([
        ("name".to_owned(), owned_text(name)),
        ("version".to_owned(), owned_text(version)),
        ("era".to_owned(), text(caller.era())),
    ])
}

/// Returns the request. Its method is unknown before there is a call.
fn request_value<'v>(scope: &EvaluationScope<'v>, members: &MemberReads) -> ConditionValue<'v> {
    let caller = scope.caller;
    let method = scope.call.map(|call| call.method.as_str());
    let known = ["profile", "address", "transport"].into_iter();
    record(members, known.chain(method.map(|_| "method")), |member| match member {
        "profile" => text(caller.profile()),
        "address" => owned_text(caller.address.to_canonical().to_string()),
        "transport" => text(caller.transport),
        _ => text(method.unwrap_or_default()),
    })
}

fn text(text: &str) -> ConditionValue<'_> {
    Box::new(CelString::from(text))
}

fn owned_text(text: String) -> ConditionValue<'static> {
    Box::new(CelString::from(text))
}

fn texts<'v>(all: impl Iterator<Item = &'v str>) -> ConditionValue<'v> {
    Box::new(CelList::from(all.map(text).collect::<Vec<_>>()))
}

/// Builds a value with those members that a condition reads.
fn record<'v>(
    reads: &MemberReads,
    members: impl IntoIterator<Item = &'static str>,
    value_of: impl Fn(&'static str) -> ConditionValue<'v>,
) -> ConditionValue<'v> {
    let read = members.into_iter().filter(|member| reads.has(member));
    map_of(read.map(|member| (member.to_owned(), value_of(member))))
}

fn map_of<'v>(
    members: impl IntoIterator<Item = (String, ConditionValue<'v>)>,
) -> ConditionValue<'v> {
    let members = members.into_iter().map(|(name, value)| (CelMapKey::from(name), value));
    Box::new(CelMap::from(members.collect::<HashMap<_, _>>()))
}

fn json(value: Value) -> ConditionValue<'static> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(value)),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Box::new(CelInt::from(value)),
            (None, Some(value)) => Box::new(CelUInt::from(value)),
            (None, None) => Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))),
        },
        Value::String(value) => owned_text(value),
        Value::Array(items) => {
            Box::new(CelList::from(items.into_iter().map(json).collect::<Vec<_>>()))
        }
        Value::Object(members) => map_of(members.into_iter().map(|(name, it)| (name, json(it)))),
    }
}

/// Returns the size of a JSON value: the bytes of its texts, and its elements.
fn json_size(value: &Value) -> [usize; 2] {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => [8, 0],
        Value::String(text) => [text.len() + 1, 0],
        Value::Array(items) => items.iter().fold([1, 0], |sum, item| add_element(sum, 0, item)),
        Value::Object(members) => map_size(members),
    }
}

fn map_size(members: &Map<String, Value>) -> [usize; 2] {
    members.iter().fold([1, 0], |sum, (name, value)| add_element(sum, name.len() + 1, value))
}

fn add_element([bytes, count]: [usize; 2], name: usize, value: &Value) -> [usize; 2] {
    let [of_value, elements] = json_size(value);
    [bytes + name + of_value, count + elements + 1]
}
