//! Operations that are offered as resources: a `GET` request that its URL describes completely.
//!
//! The URI of such a resource is the URL of the request. With parameters it is a template, and a
//! URI is matched back to the arguments of the operation, so that a read is built like a tool call.
//! The API checks its values. A client's URI is never sent unchanged.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use url::Url;

use trunkline_config::ServerSecrets;
use trunkline_jsonrpc::string;

use super::answer::{AnswerContent, ApiAnswer};
use crate::operations::operation::{ApiOperation, OperationFault, PathPiece};
use crate::values::body::OCTET_STREAM_MEDIA_TYPE;
use crate::values::parameters::{ApiParameter, ParameterPlace, ParameterStyle};

/// An operation that is offered as a resource or a template.
pub struct ApiResource {
    /// The operation.
    pub operation: Arc<ApiOperation>,
    /// True if it has parameters.
    pub(crate) is_template: bool,
    /// Its element in the list.
    pub(crate) element: Bytes,
    /// Scheme, host and port.
    origin: String,
}

impl ApiResource {
    /// Converts the operation to a resource.
    ///
    /// # Errors
    /// [`OperationFault::NoResource`] if a URI alone does not determine the request.
    pub(crate) fn new(
        operation: ApiOperation,
        base: &Url,
        name: &str,
        description: &str,
    ) -> Result<Self, OperationFault> {
        let refuse = |reason| Err(OperationFault::NoResource { reason });
        if operation.method != Method::GET {
            return refuse("it is not a GET");
        }
        let is_simple = |one: &ApiParameter| match one.place {
            ParameterPlace::Path => one.style == ParameterStyle::Simple,
            ParameterPlace::Query => one.style == ParameterStyle::Form,
            ParameterPlace::Header(_) | ParameterPlace::Cookie => !one.required,
        };
        if !operation.parameters.iter().all(is_simple) {
            return refuse("a parameter cannot be part of a URI");
        }
        let origin = base.origin().ascii_serialization();
        let queries: Vec<_> = operation.queries().map(|one| one.argument.as_str()).collect();
        let mut uri = origin.clone();
        for piece in &operation.path {
            match piece {
                PathPiece::Fixed(text) => uri.push_str(text),
                PathPiece::Variable(name) => {
                    let argument = operation.argument_of(name).unwrap_or(name);
                    uri.extend(["{", argument, "}"]);
                }
            }
        }
        if !queries.is_empty() {
            uri.extend(["{?", &queries.join(","), "}"]);
        }
        let is_template = uri.contains('{');
        let key = if is_template { "uriTemplate" } else { "uri" };
        let element = json!({ key: uri, "name": name, "description": description });
        let element = element.to_string().into();
        Ok(Self { operation: Arc::new(operation), is_template, element, origin })
    }

    /// Returns the arguments in a URI, or `None` if the URI belongs to another resource.
    pub fn arguments_in(&self, uri: &str) -> Option<Map<String, Value>> {
        let rest = uri.strip_prefix(&self.origin)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut arguments = Map::new();
        self.match_path(path, &mut arguments)?;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            // The template uses the names of the arguments.
            let parameter = self.operation.queries().find(|one| one.argument == name)?;
            arguments.insert(parameter.argument.clone(), value.into());
        }
        Some(arguments)
    }

    fn match_path(&self, path: &str, arguments: &mut Map<String, Value>) -> Option<()> {
        let mut rest = path;
        let mut pieces = self.operation.path.iter().peekable();
        while let Some(piece) = pieces.next() {
            match piece {
                PathPiece::Fixed(text) => rest = rest.strip_prefix(text.as_str())?,
                PathPiece::Variable(name) => {
                    let next = match pieces.peek() {
                        Some(PathPiece::Fixed(text)) => text.chars().next(),
                        _ => None,
                    };
                    let ends = |c: char| c == '/' || Some(c) == next;
                    let (value, after) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
                    let argument = self.operation.argument_of(name)?;
                    arguments.insert(argument.to_owned(), decode(value)?.into());
                    rest = after;
                }
            }
        }
        rest.is_empty().then_some(())
    }
}

impl ApiOperation {
    fn queries(&self) -> impl Iterator<Item = &ApiParameter> {
        self.parameters.iter().filter(|one| one.place == ParameterPlace::Query)
    }

    fn argument_of(&self, variable: &str) -> Option<&str> {
        let is_meant =
            |one: &&ApiParameter| one.place == ParameterPlace::Path && one.name == variable;
        self.parameters.iter().find(is_meant).map(|one| one.argument.as_str())
    }
}

fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Into::into)
}

impl ApiAnswer {
    /// Returns the result of a read.
    ///
    /// # Errors
    /// The status and the text of an unsuccessful response.
    pub fn read_result(
        &self,
        uri: &str,
        secrets: &ServerSecrets,
    ) -> Result<String, (StatusCode, String)> {
        if !self.status.is_success() {
            return Err((self.status, self.error_text(secrets)));
        }
        let media_type = self.media_type();
        let media_type = if media_type.is_empty() { OCTET_STREAM_MEDIA_TYPE } else { &media_type };
        let content = match self.content() {
            AnswerContent::Json(json) => format!("\"text\":{}", string(json.get())),
            AnswerContent::Text(text) => format!("\"text\":{}", string(&text)),
            AnswerContent::Bytes => format!("\"blob\":{}", string(&self.base64())),
        };
        Ok(format!(
            "{{\"contents\":[{{\"uri\":{},\"mimeType\":{},{content}}}],\"ttlMs\":0,\"cacheScope\":\"private\"{}}}",
            string(uri),
            string(media_type),
            self.meta(secrets)
        ))
    }
}
