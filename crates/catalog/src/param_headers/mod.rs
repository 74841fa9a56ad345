//! Parameters that a tool mirrors into `Mcp-Param-*` headers (MCP 2026-07-28, Streamable HTTP,
//! "Custom Headers from Tool Parameters").
//!
//! To a server the gateway is the client that must send these headers ([`headers_for`]); to a
//! client it is the server that must reject headers that do not match the body ([`verify()`]).

mod verify;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use trunkline_jsonrpc::parse_strict;
use trunkline_protocol::mcp::encode_value;

use super::clip_foreign_text;
use super::schema::MAX_ARGUMENT_DEPTH;
pub use verify::verify_headers;

/// The kind of a mirrored parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    /// Sent unchanged.
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
    /// The path of property names that leads to the parameter.
    pub path: Vec<String>,
    /// The parameter's kind.
    pub kind: ParamKind,
}

/// The rule that an `x-mcp-header` annotation violates; clients over HTTP must
/// then ignore the tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// The annotation is not a string, is empty, or is not an HTTP token.
    #[error("x-mcp-header at {path:?} must be an HTTP token")]
    Token {
        /// The path into the schema, truncated.
        path: String,
    },
    /// Two annotations have the same name, ignoring case.
    #[error("two parameters have the same x-mcp-header {name:?}")]
    Repeated {
        /// The name, in lower case.
        name: String,
    },
    /// The parameter is not a string, integer or boolean.
    #[error("x-mcp-header at {path:?} needs \"type\": \"string\", \"integer\" or \"boolean\"")]
    Type {
        /// The path into the schema, truncated.
        path: String,
    },
    /// The annotation is below a keyword other than `properties`.
    #[error("x-mcp-header at {path:?} is not reached through properties alone")]
    Unreachable {
        /// The path into the schema, truncated.
        path: String,
    },
}

/// Finds the annotations of an input schema, in the schema's order.
///
/// # Errors
/// [`AnnotationError`] for the first violation.
pub fn find_param_headers(
    schema: &Map<String, Value>,
) -> Result<Vec<ParamHeader>, AnnotationError> {
    let mut search = AnnotationSearch::default();
    search.visit_schema(schema, &mut Vec::new(), &mut Vec::new())?;
    Ok(search.found)
}

/// The headers that mirror the arguments of one call. A parameter that is
/// absent, `null` or of a kind that no header can carry has no header: this
/// function does not validate arguments.
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

/// The arguments as a value; `None` if they are invalid or no parameter is
/// mirrored.
fn read_arguments(params: &[ParamHeader], arguments: Option<&[u8]>) -> Option<Value> {
    let arguments = arguments.filter(|_| !params.is_empty())?;
    parse_strict(arguments, MAX_ARGUMENT_DEPTH).ok()
}

/// The value at a path; `null` counts as absent.
fn value_at_path<'a>(arguments: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(arguments, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// A primitive as text. Integers are written without fraction or exponent, even
/// if the body has them.
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
    /// Visits a subschema that is reached through `properties` only: `path` has
    /// the property names, `pointer` the path into the schema.
    fn visit_schema<'a>(
        &mut self,
        schema: &'a Map<String, Value>,
        path: &mut Vec<&'a str>,
        pointer: &mut Vec<&'a str>,
    ) -> Result<(), AnnotationError> {
        if let Some(name) = schema.get(HEADER_ANNOTATION) {
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
        // The name is a token, and lower case, by construction.
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

/// Rejects annotations below any keyword that holds subschemas, except
/// `properties`.
fn refuse_below<'a>(
    keyword: &str,
    value: &'a Value,
    pointer: &mut Vec<&'a str>,
) -> Result<(), AnnotationError> {
    let values: Vec<(&str, &Value)> = match value {
        _ if DATA_KEYWORDS.contains(&keyword) => return Ok(()),
        Value::Object(members) if MAP_KEYWORDS.contains(&keyword) => {
            members.iter().map(|(name, value)| (name.as_str(), value)).collect()
        }
        Value::Array(items) => items.iter().map(|item| ("-", item)).collect(),
        value => vec![("", value)],
    };
    for (step, value) in values {
        let Value::Object(schema) = value else { continue };
        pointer.push(step);
        if schema.contains_key(HEADER_ANNOTATION) {
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

const HEADER_ANNOTATION: &str = "x-mcp-header";
/// Keywords with a value that maps names to subschemas.
const MAP_KEYWORDS: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
/// Keywords with a value that is data, of any shape.
const DATA_KEYWORDS: [&str; 5] = ["const", "enum", "default", "examples", "example"];
/// 2⁵³ − 1, the largest integer that JavaScript represents exactly.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;
