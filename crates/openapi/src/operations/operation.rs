//! Conversion of a document's operation to a tool: its arguments, its schemas, and the plan for its
//! requests.

use std::collections::HashSet;

use http::{HeaderName, Method};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use trunkline_config::OutputSchemas;
use trunkline_core::text::clip;

use super::inputs::{NewArgument, ToolInputs};
use super::outputs::ResultWrapping;
use super::reader::DocumentReader;
use crate::schemas::conversion::{ConvertedSchema, SchemaFault};
use crate::schemas::references::{Node, ReferenceFault};
use crate::values::body::{ApiBody, BodyFormat, BodyShape};
use crate::values::parameters::{ApiParameter, ParameterPlace, ParameterStyle, encode};
use crate::values::security::{OperationSecurity, is_connection_header};

/// An operation, ready to be called.
pub struct ApiOperation {
    /// Method and path, for messages.
    pub(crate) label: String,
    /// Method of its requests.
    pub method: Method,
    pub(crate) path: Vec<PathPiece>,
    pub(crate) parameters: Vec<ApiParameter>,
    pub(crate) body: Option<ApiBody>,
    pub(crate) security: OperationSecurity,
    pub(crate) wrapping: ResultWrapping,
    /// True if the tool has an output schema, which its results must match.
    pub(crate) has_output: bool,
}

/// A part of an operation's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathPiece {
    /// Encoded text.
    Fixed(String),
    /// A parameter, by its name.
    Variable(String),
}

/// Reason to leave out an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationFault {
    /// A schema cannot be used.
    #[error(transparent)]
    Schema(#[from] SchemaFault),
    /// A parameter, a body or a response refers to something that cannot be used.
    #[error(transparent)]
    Reference(#[from] ReferenceFault),
    /// It has a server of its own.
    #[error("it has a server of its own, {url}: set `base_url` to send all requests to one")]
    OtherServer {
        /// The server, clipped.
        url: String,
    },
    /// The operation returns the request, including credentials.
    #[error("TRACE returns the request with its credentials")]
    Trace,
    /// The path leaves the server's base path, or is too long.
    #[error("its path is longer than {MAX_PATH_BYTES} bytes, or has a segment \".\" or \"..\"")]
    Path,
    /// References make the document too large to read it completely.
    #[error("too many references to the same values in the document")]
    Exhausted,
    /// A variable of the path has no parameter.
    #[error("no parameter is declared for {name:?} in its path")]
    Variable {
        /// The variable.
        name: String,
    },
    /// A required parameter is in a position that requests do not have.
    #[error("the parameter {name:?} is required, and cannot be sent in {place:?}")]
    Place {
        /// The parameter, clipped.
        name: String,
        /// Its `in`, clipped.
        place: String,
    },
    /// The body has only formats that cannot be written.
    #[error("its body is a form with a schema without properties")]
    Form,
    /// All tools together are too large.
    #[error(
        "the tools and resources before it already have {max} bytes: choose with `include` and \
         `exclude`"
    )]
    TooMuch {
        /// The bound.
        max: usize,
    },
    /// A resource cannot be read by a URI alone.
    #[error("it cannot be a resource: {reason}")]
    NoResource {
        /// The reason.
        reason: &'static str,
    },
}

/// One operation in the document.
#[derive(Clone, Copy)]
pub(crate) struct OperationPlace<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    /// The path item, which the path's operations share.
    pub(crate) item: Node<'a>,
    pub(crate) operation: Node<'a>,
}

/// An operation with its schemas.
pub(crate) struct ReadOperation {
    pub(crate) operation: ApiOperation,
    pub(crate) input: ConvertedSchema,
    pub(crate) output: Option<ConvertedSchema>,
}

impl<'a> DocumentReader<'a> {
    /// Reads one operation.
    ///
    /// # Errors
    /// [`OperationFault`], the reason that it is not offered.
    pub(crate) fn read(
        &mut self,
        place: OperationPlace<'a>,
    ) -> Result<ReadOperation, OperationFault> {
        let OperationPlace { method, path, operation, .. } = place;
        let mut inputs = ToolInputs::new(self.config.empty_strings);
        let security = self.schemes.apply(operation);
        let parameters = self.read_parameters(place, &security, &mut inputs)?;
        let body = self.read_body(operation, &mut inputs)?;
        let (output, wrapping) = match self.config.output_schemas {
            OutputSchemas::Keep => self.read_output(method, operation),
            OutputSchemas::Drop => (None, ResultWrapping::Arrays),
        };
        let operation = ApiOperation {
            label: format!("{method} {}", clip(path, MAX_SHOWN_LABEL_BYTES)),
            method: method.clone(),
            path: split_path(self.base.path(), path),
            parameters,
            body,
            security,
            wrapping,
            has_output: false,
        };
        operation.check_path()?;
        Ok(ReadOperation { operation, input: inputs.into_schema(), output })
    }

    /// Reads the parameters of the operation, and those of its path that it does not replace.
    fn read_parameters(
        &mut self,
        place: OperationPlace<'a>,
        security: &OperationSecurity,
        inputs: &mut ToolInputs,
    ) -> Result<Vec<ApiParameter>, OperationFault> {
        let listed = |node: Node<'a>| node.find("parameters").into_iter().flat_map(Node::items);
        let (mut all, mut known) = (Vec::new(), HashSet::new());
        for node in listed(place.operation).chain(listed(place.item)) {
            let node = node.resolve()?;
            if known.insert((node.text("name"), node.text("in"))) {
                all.push(node);
            }
        }
        // If arguments collide, the one of the path keeps its name.
        let order = |node: &Node<'_>| {
            ["path", "query", "header", "cookie"].iter().position(|it| node.text("in") == Some(it))
        };
        all.sort_by_key(order);
        let mut parameters = Vec::new();
        for node in all {
            // Callers must not choose a credential.
            if security.supplies(node) {
                continue;
            }
            if let Some(parameter) = self.read_parameter(node, inputs)? {
                parameters.push(parameter);
            }
        }
        Ok(parameters)
    }

    /// Reads a parameter. Returns `None` if callers must not choose it.
    fn read_parameter(
        &mut self,
        node: Node<'a>,
        inputs: &mut ToolInputs,
    ) -> Result<Option<ApiParameter>, OperationFault> {
        let name = node.text("name").unwrap_or_default();
        let Some(place) = self.find_place(node, name)? else { return Ok(None) };
        let required = node.flag("required") || place == ParameterPlace::Path;
        let content = node.find("content").and_then(|content| content.members().next());
        let schema = content.map_or(node, |(_, media)| media).find("schema");
        let schema = match schema {
            Some(schema) => self.requests.convert(schema)?,
            None => ConvertedSchema::plain(json!({})),
        };
        let is_json =
            content.is_some_and(|(kind, _)| BodyFormat::of_media_type(kind) == BodyFormat::Json);
        let named = node.text("style").filter(|_| content.is_none());
        let named = named.and_then(|style| ParameterStyle::named(style, &place));
        let usual = || ParameterStyle::usual(&place);
        let style = if is_json { ParameterStyle::Json } else { named.unwrap_or_else(usual) };
        // 3.0 and 3.1 allow it for queries only. In a cookie, reserved characters could end the
        // value.
        let allow_reserved = place == ParameterPlace::Query && node.flag("allowReserved");
        let explode = node.find("explode").and_then(|explode| explode.value.as_bool());
        let argument = inputs.add(NewArgument {
            name,
            suffix: node.text("in").unwrap_or_default(),
            description: node.text("description"),
            schema: with_example(schema, node),
            required,
        });
        Ok(Some(ApiParameter {
            argument,
            name: name.to_owned(),
            place,
            style,
            explode: explode.unwrap_or(style == ParameterStyle::Form),
            allow_reserved,
            required,
        }))
    }

    /// Returns the position of a parameter, or `None` if callers must not choose it.
    fn find_place(
        &self,
        node: Node<'_>,
        name: &str,
    ) -> Result<Option<ParameterPlace>, OperationFault> {
        let place = node.text("in").unwrap_or_default();
        let found = match place {
            "path" => Some(ParameterPlace::Path),
            "query" => Some(ParameterPlace::Query),
            "cookie" => Some(ParameterPlace::Cookie),
            "header" if self.is_own_header(name) => return Ok(None),
            "header" => HeaderName::from_bytes(name.as_bytes()).ok().map(ParameterPlace::Header),
            _ => None,
        };
        let found = found.filter(|_| !name.is_empty());
        if found.is_none() && (place == "path" || node.flag("required")) {
            let clipped = |text| clip(text, MAX_SHOWN_LABEL_BYTES).to_owned();
            return Err(OperationFault::Place { name: clipped(name), place: clipped(place) });
        }
        Ok(found)
    }

    /// Returns true if callers must not choose a header: the document may not declare it, it
    /// belongs to the connection, or the configuration sets it.
    fn is_own_header(&self, name: &str) -> bool {
        is_connection_header(name)
            || ["authorization", "cookie"].iter().any(|own| name.eq_ignore_ascii_case(own))
            || self.config.headers.iter().any(|(own, _)| name.eq_ignore_ascii_case(own.as_str()))
    }
}

impl ApiOperation {
    /// Returns the required arguments.
    pub fn required_arguments(&self) -> HashSet<&str> {
        let parameters = self.parameters.iter().filter(|one| one.required);
        let mut required: HashSet<_> = parameters.map(|one| one.argument.as_str()).collect();
        match self.body.as_ref().map(|body| (&body.shape, body.required)) {
            Some((BodyShape::Whole { argument }, true)) => {
                required.insert(argument);
            }
            Some((BodyShape::Fields(fields), _)) => {
                let fields = fields.iter().filter(|field| field.required);
                required.extend(fields.map(|field| field.argument.as_str()));
            }
            Some((BodyShape::Whole { .. }, false)) | None => {}
        }
        required
    }

    /// Checks that each variable of the path has a parameter, and that the path stays below the
    /// server's base path.
    fn check_path(&self) -> Result<(), OperationFault> {
        let declared = self.parameters.iter().filter(|one| one.place == ParameterPlace::Path);
        let declared: HashSet<_> = declared.map(|one| one.name.as_str()).collect();
        let mut fixed = String::new();
        for piece in &self.path {
            match piece {
                PathPiece::Fixed(text) => fixed.push_str(text),
                PathPiece::Variable(name) if declared.contains(name.as_str()) => fixed.push('x'),
                PathPiece::Variable(name) => {
                    return Err(OperationFault::Variable { name: name.clone() });
                }
            }
        }
        let path = fixed.split('?').next().unwrap_or_default();
        if fixed.len() > MAX_PATH_BYTES || climbs(path) {
            return Err(OperationFault::Path);
        }
        Ok(())
    }
}

/// Splits a path, below the path of the server, into its parts.
fn split_path(base: &str, path: &str) -> Vec<PathPiece> {
    let mut pieces = vec![PathPiece::Fixed(base.trim_end_matches('/').to_owned())];
    let mut rest = path;
    while let Some((before, from)) = rest.split_once('{') {
        let Some((name, after)) = from.split_once('}') else { break };
        pieces.push(PathPiece::Fixed(encode_path(before)));
        pieces.push(PathPiece::Variable(name.to_owned()));
        rest = after;
    }
    pieces.push(PathPiece::Fixed(encode_path(rest)));
    pieces
}

/// Percent-encodes the characters of a document's path that are not allowed in a URL.
fn encode_path(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_graphic() && !"\"<>\\^`{|}#".contains(c);
    let mut encoded = String::with_capacity(text.len());
    for c in text.chars() {
        if allowed(c) {
            encoded.push(c);
        } else {
            encoded.push_str(&encode(c.encode_utf8(&mut [0; 4])));
        }
    }
    encoded
}

/// Adds the parameter's own example to a schema without one.
fn with_example(schema: ConvertedSchema, parameter: Node<'_>) -> ConvertedSchema {
    let example = parameter.find("example").and_then(|example| example.copy_within(EXAMPLE_DEPTH));
    schema.wrap(|mut schema| {
        if let (Value::Object(members), Some(example)) = (&mut schema, example) {
            members.entry("examples").or_insert_with(|| json!([example]));
        }
        schema
    })
}

/// Returns true if a path leaves its base, as servers may read it.
pub(crate) fn climbs(path: &str) -> bool {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    decoded.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."))
}

/// Maximum length in bytes of a path or a name in a message.
const MAX_SHOWN_LABEL_BYTES: usize = 200;
/// Maximum length in bytes of a path.
const MAX_PATH_BYTES: usize = 2048;
/// Maximum nesting of a parameter's example.
const EXAMPLE_DEPTH: usize = 8;
