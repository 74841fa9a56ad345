//! From an operation of the document to a tool: its arguments, its schemas, and the plan for its
//! requests.

use http::{HeaderName, Method};
use serde_json::{Value, json};
use url::Url;

use crate::config::OpenApiConfig;
use crate::text::clip;

use super::body::{ApiBody, BodyField, BodyFormat, BodyShape, OCTETS};
use super::inputs::{NewArgument, ToolInputs};
use super::outputs::{ResultWrapping, is_object};
use super::parameters::{ApiParameter, ParameterPlace, ParameterStyle, encode};
use super::references::{Node, ReferenceFault};
use super::schema::{ConvertedSchema, Direction, SchemaBook, SchemaDialect, SchemaFault};
use super::security::{OperationSecurity, SecuritySchemes, is_connection_header};

/// An operation, ready to be called.
pub(super) struct ApiOperation {
    /// Method and path, for messages.
    pub(super) label: String,
    pub(super) method: Method,
    pub(super) path: Vec<PathPiece>,
    pub(super) parameters: Vec<ApiParameter>,
    pub(super) body: Option<ApiBody>,
    pub(super) security: OperationSecurity,
    pub(super) wrapping: ResultWrapping,
}

/// A piece of an operation's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathPiece {
    /// Encoded text.
    Fixed(String),
    /// A parameter, by its name.
    Variable(String),
}

/// Why an operation is not offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum OperationFault {
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
    /// The operation returns the request.
    #[error("TRACE returns the request with its credentials")]
    Trace,
    /// A variable of the path has no parameter.
    #[error("no parameter is declared for {name:?} in its path")]
    Variable {
        /// The variable.
        name: String,
    },
    /// A required parameter in a place that requests do not have.
    #[error("the parameter {name:?} is required, and cannot be sent in {place:?}")]
    Place {
        /// The parameter, clipped.
        name: String,
        /// Its `in`, clipped.
        place: String,
    },
    /// Bodies that cannot be written.
    #[error("its body is a form whose schema is no object")]
    Form,
    /// All tools together are too large.
    #[error("the tools before it have {max} bytes together: choose with `include` and `exclude`")]
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

/// What all operations of a document share while they are read.
pub(super) struct DocumentReader<'a> {
    pub(super) config: &'a OpenApiConfig,
    pub(super) base: &'a Url,
    pub(super) schemes: SecuritySchemes<'a>,
    pub(super) requests: SchemaBook<'a>,
    pub(super) responses: SchemaBook<'a>,
}

/// One operation in the document.
#[derive(Clone, Copy)]
pub(super) struct OperationPlace<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    /// What the path's operations share.
    pub(super) item: Node<'a>,
    pub(super) operation: Node<'a>,
}

/// An operation with its schemas.
pub(super) struct ReadOperation {
    pub(super) operation: ApiOperation,
    pub(super) input: ConvertedSchema,
    pub(super) output: Option<ConvertedSchema>,
}

impl<'a> DocumentReader<'a> {
    pub(super) fn new(
        config: &'a OpenApiConfig,
        base: &'a Url,
        root: Node<'a>,
        dialect: SchemaDialect,
    ) -> Self {
        Self {
            config,
            base,
            schemes: SecuritySchemes::new(root, config),
            requests: SchemaBook::new(dialect, Direction::Request),
            responses: SchemaBook::new(dialect, Direction::Response),
        }
    }

    /// Reads one operation.
    ///
    /// # Errors
    /// [`OperationFault`], which is the reason why it is not offered.
    pub(super) fn read(
        &mut self,
        place: OperationPlace<'a>,
    ) -> Result<ReadOperation, OperationFault> {
        let OperationPlace { method, path, operation, .. } = place;
        let mut inputs = ToolInputs::new(self.config.empty_strings);
        let security = self.schemes.apply(operation);
        let parameters = self.read_parameters(place, &mut inputs)?;
        let body = self.read_body(operation, &mut inputs)?;
        let (output, wrapping) = self.read_output(operation);
        let operation = ApiOperation {
            label: format!("{method} {}", clip(path, LONGEST_LABEL)),
            method: method.clone(),
            path: split_path(self.base.path(), path),
            parameters,
            body,
            security,
            wrapping,
        };
        operation.check_variables()?;
        Ok(ReadOperation { operation, input: inputs.into_schema(), output })
    }

    /// The parameters of the operation, and of its path where it has none of the same name.
    fn read_parameters(
        &mut self,
        place: OperationPlace<'a>,
        inputs: &mut ToolInputs,
    ) -> Result<Vec<ApiParameter>, OperationFault> {
        let listed = |node: Node<'a>| node.find("parameters").into_iter().flat_map(Node::items);
        let mut all: Vec<Node<'a>> = Vec::new();
        for node in listed(place.operation).chain(listed(place.item)) {
            let node = node.resolve()?;
            let key = (node.text("name"), node.text("in"));
            if all.iter().all(|other| (other.text("name"), other.text("in")) != key) {
                all.push(node);
            }
        }
        // Of arguments that collide, the one of the path keeps its name.
        let order = |node: &Node<'_>| {
            ["path", "query", "header", "cookie"].iter().position(|it| node.text("in") == Some(it))
        };
        all.sort_by_key(order);
        let mut parameters = Vec::new();
        for node in all {
            if let Some(parameter) = self.read_parameter(node, inputs)? {
                parameters.push(parameter);
            }
        }
        Ok(parameters)
    }

    /// Reads a parameter; `None` if callers must not choose it.
    fn read_parameter(
        &mut self,
        node: Node<'a>,
        inputs: &mut ToolInputs,
    ) -> Result<Option<ApiParameter>, OperationFault> {
        let name = node.text("name").unwrap_or_default();
        let suffix = node.text("in").unwrap_or_default();
        let place = match suffix {
            "path" => Some(ParameterPlace::Path),
            "query" => Some(ParameterPlace::Query),
            "cookie" => Some(ParameterPlace::Cookie),
            "header" if self.is_own_header(name) => return Ok(None),
            "header" => HeaderName::from_bytes(name.as_bytes()).ok().map(ParameterPlace::Header),
            _ => None,
        };
        let required = node.flag("required") || place == Some(ParameterPlace::Path);
        let Some(place) = place.filter(|_| !name.is_empty()) else {
            let clipped = |text| clip(text, LONGEST_LABEL).to_owned();
            let fault = OperationFault::Place { name: clipped(name), place: clipped(suffix) };
            return if required { Err(fault) } else { Ok(None) };
        };
        let content = node.find("content").and_then(|content| content.members().next());
        let schema = content.map_or(node, |(_, media)| media).find("schema");
        let schema = match schema {
            Some(schema) => self.requests.convert(schema)?,
            None => ConvertedSchema::plain(json!({})),
        };
        let style = match (content, node.text("style")) {
            (Some(_), _) => ParameterStyle::Json,
            (None, Some(style)) => ParameterStyle::named(style, &place)
                .unwrap_or_else(|| ParameterStyle::usual(&place)),
            (None, None) => ParameterStyle::usual(&place),
        };
        // 3.0 and 3.1 have it for queries only; a cookie would not end where it should.
        let allow_reserved = place == ParameterPlace::Query && node.flag("allowReserved");
        let explode = node.find("explode").and_then(|explode| explode.value.as_bool());
        let argument = inputs.add(NewArgument {
            name,
            suffix,
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

    /// Whether a header is not the caller's to choose: the document may not declare it, it belongs
    /// to the connection, or the configuration sets it.
    fn is_own_header(&self, name: &str) -> bool {
        is_connection_header(name)
            || ["authorization", "cookie"].iter().any(|own| name.eq_ignore_ascii_case(own))
            || self.config.headers.iter().any(|(own, _)| name.eq_ignore_ascii_case(own.as_str()))
    }

    fn read_body(
        &mut self,
        operation: Node<'a>,
        inputs: &mut ToolInputs,
    ) -> Result<Option<ApiBody>, OperationFault> {
        let Some(body) = operation.follow("requestBody")? else { return Ok(None) };
        let contents = body.find("content").into_iter().flat_map(Node::members);
        let contents = contents.map(|(kind, media)| (BodyFormat::of_media_type(kind), kind, media));
        let Some((format, media_type, media)) = contents.min_by_key(|(format, ..)| format.rank())
        else {
            return Ok(None);
        };
        let required = body.flag("required");
        let schema = media.find("schema");
        let fields = schema.map(Node::resolve).transpose()?;
        let fields = fields.filter(|schema| is_plain_object(*schema, format));
        let shape = match (fields, format) {
            (Some(schema), _) => self.read_fields(schema, media, inputs)?,
            (None, BodyFormat::Form | BodyFormat::Multipart) => return Err(OperationFault::Form),
            (None, _) => {
                let schema = match (schema, format) {
                    (Some(schema), BodyFormat::Json) => self.requests.convert(schema)?,
                    (_, BodyFormat::Json) => ConvertedSchema::plain(json!({})),
                    (_, BodyFormat::Bytes) => ConvertedSchema::plain(file_schema()),
                    _ => ConvertedSchema::plain(json!({ "type": "string" })),
                };
                let description = body.text("description");
                let suffix = "content";
                let argument = NewArgument { name: "body", suffix, description, schema, required };
                BodyShape::Whole { argument: inputs.add(argument) }
            }
        };
        Ok(Some(ApiBody { format, media_type: media_type.to_owned(), shape, required }))
    }

    /// Each property of the body as an argument.
    fn read_fields(
        &mut self,
        schema: Node<'a>,
        media: Node<'a>,
        inputs: &mut ToolInputs,
    ) -> Result<BodyShape, OperationFault> {
        let required: Vec<_> = schema.find("required").into_iter().flat_map(Node::items).collect();
        let mut fields = Vec::new();
        for (name, property) in schema.find("properties").into_iter().flat_map(Node::members) {
            let resolved = property.resolve()?;
            if property.flag("readOnly") || resolved.flag("readOnly") {
                continue;
            }
            let is_required = required.iter().any(|one| one.value == name);
            let encoding = media.find("encoding").and_then(|encoding| encoding.find(name));
            let argument = inputs.add(NewArgument {
                name,
                suffix: "body",
                description: None,
                schema: self.requests.convert(property)?,
                required: is_required,
            });
            fields.push(BodyField {
                argument,
                name: name.to_owned(),
                required: is_required,
                style: encoding.and_then(form_style),
                file: file_type(resolved, encoding),
            });
        }
        Ok(BodyShape::Fields(fields))
    }
}

impl ApiOperation {
    /// Whether an argument must be given.
    pub(super) fn is_required(&self, argument: &str) -> bool {
        let is_parameter = |one: &ApiParameter| one.required && one.argument == argument;
        self.parameters.iter().any(is_parameter)
            || self.body.as_ref().is_some_and(|body| match &body.shape {
                BodyShape::Whole { argument: whole } => body.required && whole == argument,
                BodyShape::Fields(fields) => {
                    fields.iter().any(|field| field.required && field.argument == argument)
                }
            })
    }

    fn check_variables(&self) -> Result<(), OperationFault> {
        let is_declared = |name: &str| {
            self.parameters.iter().any(|one| one.place == ParameterPlace::Path && one.name == name)
        };
        for piece in &self.path {
            if let PathPiece::Variable(name) = piece
                && !is_declared(name)
            {
                return Err(OperationFault::Variable { name: name.clone() });
            }
        }
        Ok(())
    }
}

/// The pieces of a path below the path of the server.
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

/// The document's own text of a path, with what a URL cannot have percent-encoded.
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

/// The schema with the parameter's own example, if it has none.
fn with_example(schema: ConvertedSchema, parameter: Node<'_>) -> ConvertedSchema {
    let example = parameter.find("example").map(|example| example.value.clone());
    schema.wrap(|mut schema| {
        if let (Value::Object(members), Some(example)) = (&mut schema, example) {
            members.entry("examples").or_insert_with(|| json!([example]));
        }
        schema
    })
}

/// Whether the properties of a body can be arguments by themselves: it is an object, and has no
/// other properties. The fields of a form always can.
fn is_plain_object(schema: Node<'_>, format: BodyFormat) -> bool {
    if !matches!(format, BodyFormat::Json | BodyFormat::Form | BodyFormat::Multipart) {
        return false;
    }
    let has = |key| schema.find(key).is_some();
    let is_form = format != BodyFormat::Json;
    let is_open =
        schema.find("additionalProperties").is_some_and(|more| *more.value != json!(false));
    let is_composed = ["allOf", "anyOf", "oneOf", "not", "if"].into_iter().any(has);
    is_object(schema)
        && has("properties")
        && !schema.flag("nullable")
        && (is_form || (!is_open && !is_composed))
}

/// The style of a form's field, if the document names one.
fn form_style(encoding: Node<'_>) -> Option<(ParameterStyle, bool)> {
    let style = encoding.text("style");
    let explode = encoding.find("explode").and_then(|explode| explode.value.as_bool());
    if style.is_none() && explode.is_none() {
        return None;
    }
    let named = ParameterStyle::named(style.unwrap_or("form"), &ParameterPlace::Query)?;
    Some((named, explode.unwrap_or(named == ParameterStyle::Form)))
}

/// The media type of a field that is a file, or a list of files.
fn file_type(schema: Node<'_>, encoding: Option<Node<'_>>) -> Option<String> {
    let items = schema.find("items").and_then(|items| items.resolve().ok());
    let schema = items.unwrap_or(schema);
    let named = encoding.and_then(|encoding| encoding.text("contentType"));
    let named = named.and_then(|all| all.split(',').next()).map(str::trim);
    let is_file = schema.text("format") == Some("binary")
        || schema.text("type") == Some("file")
        || schema.find("contentMediaType").is_some() && schema.find("contentEncoding").is_none();
    let media_type = named.or_else(|| schema.text("contentMediaType"));
    let clean = media_type.filter(|kind| !kind.contains(['*', '\r', '\n']));
    is_file.then(|| clean.unwrap_or(OCTETS).to_owned())
}

fn file_schema() -> Value {
    json!({ "type": "string", "contentEncoding": "base64" })
}

/// The most bytes of a path or a name in a message.
const LONGEST_LABEL: usize = 200;
