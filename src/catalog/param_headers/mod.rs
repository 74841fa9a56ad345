//! Parameters that a tool mirrors into `Mcp-Param-*` headers (MCP 2026-07-28,
//! Streamable HTTP, "Custom Headers from Tool Parameters").
//!
//! Towards a server the gateway is the client that must send them
//! ([`headers_for`]); towards a client it is the server that must refuse a
//! header which says something else than the body ([`verify()`]).

mod verify;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::clip_foreign_text;
use super::schema::MAX_ARGUMENT_DEPTH;
use super::strict_json;
use crate::mcp::encode_value;
pub use verify::{HeaderMismatch, verify_headers};

/// The kind of a mirrored parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    /// Sent as it is.
    String,
    /// Sent in decimal, compared as a number.
    Integer,
    /// Sent as `true` or `false`.
    Boolean,
}

/// One mirrored parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamHeader {
    /// `mcp-param-…`.
    pub header: HeaderName,
    /// The chain of property names that leads to the parameter.
    pub path: Vec<String>,
    /// The parameter's kind.
    pub kind: ParamKind,
}

/// Which rule an `x-mcp-header` annotation breaks; the tool is then no tool for
/// clients over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// The annotation is no string, or an empty one, or no HTTP token.
    #[error("x-mcp-header at {path:?} must be an HTTP token")]
    Token {
        /// Where, as a path into the schema, cut.
        path: String,
    },
    /// Two annotations give the same name, letter case aside.
    #[error("x-mcp-header {name:?} stands on two parameters")]
    Repeated {
        /// The name, in lower case.
        name: String,
    },
    /// The parameter is no string, integer or boolean.
    #[error("x-mcp-header at {path:?} needs \"type\": \"string\", \"integer\" or \"boolean\"")]
    Type {
        /// Where, as a path into the schema, cut.
        path: String,
    },
    /// The annotation cannot be reached through `properties` alone.
    #[error("x-mcp-header at {path:?} is not reached through properties alone")]
    Unreachable {
        /// Where, as a path into the schema, cut.
        path: String,
    },
}

/// Finds the annotations of an input schema, in the schema's order.
///
/// # Errors
/// [`AnnotationError`] for the first annotation that breaks a rule.
pub fn find_param_headers(
    schema: &Map<String, Value>,
) -> Result<Vec<ParamHeader>, AnnotationError> {
    let mut search = AnnotationSearch::default();
    search.visit_schema(schema, &mut Vec::new(), &mut Vec::new())?;
    Ok(search.found)
}

/// The headers that mirror the arguments of one call. A parameter that is
/// absent, `null` or of another kind than a header can carry has none: the
/// arguments are not what this function judges.
pub fn headers_for(
    params: &[ParamHeader],
    arguments: Option<&[u8]>,
) -> Vec<(HeaderName, HeaderValue)> {
    let Some(arguments) = read_arguments(params, arguments) else { return Vec::new() };
    let text = |param: &ParamHeader| {
        Some(encode_value(&header_text(value_at_path(&arguments, &param.path)?)?))
    };
    params.iter().filter_map(|param| Some((param.header.clone(), text(param)?))).collect()
}

/// The arguments as a value, where there is anything to mirror.
fn read_arguments(params: &[ParamHeader], arguments: Option<&[u8]>) -> Option<Value> {
    let arguments = arguments.filter(|_| !params.is_empty())?;
    strict_json::parse_strict(arguments, MAX_ARGUMENT_DEPTH).ok()
}

/// What stands at a path; `null` counts as nothing.
fn value_at_path<'a>(arguments: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(arguments, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// A primitive as text; an integer is written without fraction or exponent
/// even where the body has them.
fn header_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Some(integer.to_string()),
            (None, Some(float)) if float.fract() == 0.0 && float.abs() <= MAX_SAFE_INTEGER => {
                Some(format!("{float:.0}"))
            }
            _ => None,
        },
        _ => None,
    }
}

#[derive(Default)]
struct AnnotationSearch {
    found: Vec<ParamHeader>,
    names: HashSet<String>,
}

impl AnnotationSearch {
    /// Looks at a subschema that is reached through `properties` alone, by the
    /// property names in `path`; `pointer` is the way into the schema.
    fn visit_schema<'a>(
        &mut self,
        schema: &'a Map<String, Value>,
        path: &mut Vec<&'a str>,
        pointer: &mut Vec<&'a str>,
    ) -> Result<(), AnnotationError> {
        if let Some(name) = schema.get(ANNOTATION) {
            let header = self.read_annotation(name, schema, path, pointer)?;
            self.found.push(header);
        }
        for (key, value) in schema {
            pointer.push(key);
            match (key.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        let Value::Object(property) = property else { continue };
                        path.push(name);
                        pointer.push(name);
                        self.visit_schema(property, path, pointer)?;
                        pointer.pop();
                        path.pop();
                    }
                }
                (keyword, value) => refuse_below(keyword, value, pointer)?,
            }
            pointer.pop();
        }
        Ok(())
    }

    fn read_annotation(
        &mut self,
        name: &Value,
        schema: &Map<String, Value>,
        path: &[&str],
        pointer: &[&str],
    ) -> Result<ParamHeader, AnnotationError> {
        let at = || place_in_schema(pointer);
        if path.is_empty() {
            return Err(AnnotationError::Unreachable { path: at() });
        }
        let kind = match schema.get("type").and_then(Value::as_str) {
            Some("string") => ParamKind::String,
            Some("integer") => ParamKind::Integer,
            Some("boolean") => ParamKind::Boolean,
            _ => return Err(AnnotationError::Type { path: at() }),
        };
        let name = name.as_str().filter(|name| !name.is_empty()).unwrap_or(" ");
        // A header name is a token by construction, and lower case.
        let header = HeaderName::try_from(format!("mcp-param-{name}"))
            .map_err(|_| AnnotationError::Token { path: at() })?;
        let name = name.to_ascii_lowercase();
        if !self.names.insert(name.clone()) {
            return Err(AnnotationError::Repeated { name: clip_foreign_text(&name) });
        }
        let path = path.iter().map(|&name| name.to_owned()).collect();
        Ok(ParamHeader { header, path, kind })
    }
}

/// Refuses an annotation below any keyword that holds subschemas but is not
/// `properties`.
fn refuse_below<'a>(
    keyword: &str,
    value: &'a Value,
    pointer: &mut Vec<&'a str>,
) -> Result<(), AnnotationError> {
    let values: Vec<(&str, &Value)> = match value {
        _ if DATA.contains(&keyword) => return Ok(()),
        Value::Object(members) if MAPS.contains(&keyword) => {
            members.iter().map(|(name, value)| (name.as_str(), value)).collect()
        }
        Value::Array(items) => items.iter().map(|item| ("-", item)).collect(),
        value => vec![("", value)],
    };
    for (step, value) in values {
        let Value::Object(schema) = value else { continue };
        pointer.push(step);
        if schema.contains_key(ANNOTATION) {
            return Err(AnnotationError::Unreachable { path: place_in_schema(pointer) });
        }
        for (key, value) in schema {
            pointer.push(key);
            refuse_below(key, value, pointer)?;
            pointer.pop();
        }
        pointer.pop();
    }
    Ok(())
}

fn place_in_schema(pointer: &[&str]) -> String {
    clip_foreign_text(&format!("/{}", pointer.join("/")))
}

const ANNOTATION: &str = "x-mcp-header";
/// Keywords whose value maps names to subschemas.
const MAPS: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
/// Keywords whose value is data, whatever it looks like.
const DATA: [&str; 5] = ["const", "enum", "default", "examples", "example"];
/// 2⁵³ − 1: what JavaScript counts to without gaps.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;
