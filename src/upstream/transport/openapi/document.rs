//! A document with its files becomes an API: its server, its operations, the lists that clients
//! get, and what was left out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use url::Url;

use crate::config::{DocumentSource, OpenApiConfig, OperationForm};
use crate::jsonrpc::string;
use crate::text::clip;

use super::operation::{
    ApiOperation, DocumentReader, OperationFault, OperationPlace, ReadOperation,
};
use super::references::{DocumentSet, Node};
use super::resources::ApiResource;
use super::schema::{SchemaDialect, unused_name};
use super::selection::OperationFacts;
use super::tree::{TreeFault, pointer_segment};

/// Why a document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentFault {
    /// It cannot be parsed.
    #[error("{0}")]
    Tree(#[from] TreeProblem),
    /// It is no OpenAPI document of a version that the gateway reads.
    #[error("at /openapi: expected version 3.0 or 3.1, found {found}")]
    Version {
        /// The version, clipped.
        found: String,
    },
    /// It has no paths.
    #[error("at /paths: expected an object, found none")]
    NoPaths,
    /// Too many operations.
    #[error("at {place}: the document has more than {max} operations")]
    TooManyOperations {
        /// The JSON pointer of the path where there are too many.
        place: String,
        /// The bound.
        max: usize,
    },
    /// No address to send requests to.
    #[error("at /servers/0/url: {url:?} is not usable: set `base_url`")]
    Server {
        /// The URL with its variables filled in, clipped.
        url: String,
    },
    /// The address is of another origin than the document.
    #[error(
        "at /servers/0/url: the server {url} is of another origin than the document: if requests \
         are to go there, set `base_url` to it"
    )]
    OtherOrigin {
        /// The URL, clipped.
        url: String,
    },
    /// The file cannot be read, or none of the usual places has a document.
    #[error("{place}: {reason}")]
    Unreadable {
        /// The place, without secrets.
        place: String,
        /// The reason, clipped.
        reason: String,
    },
}

/// A fault of the bytes, opaque to other modules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct TreeProblem(TreeFault);

impl From<TreeFault> for DocumentFault {
    fn from(fault: TreeFault) -> Self {
        Self::Tree(TreeProblem(fault))
    }
}

/// An API as its document describes it.
pub(super) struct ApiDescription {
    /// What the paths of operations are below.
    pub(super) base: Url,
    /// By the name of the tool.
    pub(super) operations: HashMap<String, Arc<ApiOperation>>,
    /// The tools, as raw elements of a list, with the labels of their operations.
    pub(super) tools: Vec<(String, String, Bytes)>,
    /// The operations that are offered as resources.
    pub(super) resources: Vec<ApiResource>,
    /// Operations that are not offered, and why.
    pub(super) left_out: Vec<(String, OperationFault)>,
    /// Security schemes that operations need and that have no value.
    pub(super) missing_schemes: Vec<String>,
    /// Title and version of the API.
    pub(super) title: String,
    pub(super) version: String,
    pub(super) instructions: Option<String>,
}

/// Reads a document.
///
/// # Errors
/// [`DocumentFault`] if nothing of it can be used; single operations that cannot are left out.
pub(super) fn describe_api(
    set: &DocumentSet,
    config: &OpenApiConfig,
) -> Result<ApiDescription, DocumentFault> {
    let root = set.root();
    let dialect = find_dialect(root)?;
    let base = find_base(set, config)?;
    let info = |key| root.find("info").and_then(|info| info.text(key)).unwrap_or_default();
    let mut api = ApiDescription {
        base: base.clone(),
        operations: HashMap::new(),
        tools: Vec::new(),
        resources: Vec::new(),
        left_out: Vec::new(),
        missing_schemes: Vec::new(),
        title: clip(info("title"), LONGEST_TITLE).to_owned(),
        version: clip(info("version"), LONGEST_TITLE).to_owned(),
        instructions: Some(clip(info("description"), LONGEST_TEXT).to_owned())
            .filter(|text| !text.is_empty()),
    };
    let mut reader = DocumentReader::new(config, &base, root, dialect);
    let (mut names, mut size) = (HashSet::new(), 0);
    for place in list_operations(root)? {
        let facts =
            OperationFacts { method: place.method, path: place.path, operation: place.operation };
        let Some(form) = facts.choose_form(config) else { continue };
        let added = check_method(place).and_then(|()| check_servers(place, &base, config));
        let added = added.and_then(|()| {
            let read = reader.read(place)?;
            let name = unused_name(&tool_name(place), &mut names);
            if form == OperationForm::Resource {
                return api.add_resource(read.operation, (&name, &tool_description(place)));
            }
            let tool = write_tool(&reader, place, &name, &read)?;
            size += tool.len();
            if size > MAX_TOOLS_BYTES {
                return Err(OperationFault::TooMuch { max: MAX_TOOLS_BYTES });
            }
            api.add_tool(name, tool, read.operation);
            Ok(())
        });
        if let Err(fault) = added {
            api.left_out.push((label(place), fault));
        }
    }
    Ok(api)
}

impl ApiDescription {
    fn add_tool(&mut self, name: String, tool: Bytes, operation: ApiOperation) {
        self.note_missing(&operation);
        self.tools.push((name.clone(), operation.label.clone(), tool));
        self.operations.insert(name, Arc::new(operation));
    }

    fn add_resource(
        &mut self,
        operation: ApiOperation,
        texts: (&str, &str),
    ) -> Result<(), OperationFault> {
        self.note_missing(&operation);
        self.resources.push(ApiResource::new(operation, &self.base, texts)?);
        Ok(())
    }

    fn note_missing(&mut self, operation: &ApiOperation) {
        for scheme in &operation.security.missing {
            if !self.missing_schemes.contains(scheme) {
                self.missing_schemes.push(scheme.clone());
            }
        }
    }

    /// The result of `resources/list`.
    pub(super) fn resources_result(&self, ttl_ms: u64) -> Bytes {
        let listed = self.resources.iter().filter(|one| !one.is_template);
        list_result("resources", listed.map(|one| &one.element), ttl_ms)
    }

    /// The result of `resources/templates/list`.
    pub(super) fn templates_result(&self, ttl_ms: u64) -> Bytes {
        let listed = self.resources.iter().filter(|one| one.is_template);
        list_result("resourceTemplates", listed.map(|one| &one.element), ttl_ms)
    }

    /// The result of `tools/list`.
    pub(super) fn tools_result(&self, ttl_ms: u64) -> Bytes {
        list_result("tools", self.tools.iter().map(|(_, _, tool)| tool), ttl_ms)
    }
}

/// The result of a list, all on one page.
pub(super) fn list_result<'a>(
    member: &str,
    items: impl Iterator<Item = &'a Bytes>,
    ttl_ms: u64,
) -> Bytes {
    let mut result = format!(
        "{{\"resultType\":\"complete\",\"ttlMs\":{ttl_ms},\"cacheScope\":\"public\",\"{member}\":["
    )
    .into_bytes();
    for (at, item) in items.enumerate() {
        if at > 0 {
            result.push(b',');
        }
        result.extend_from_slice(item);
    }
    result.extend_from_slice(b"]}");
    result.into()
}

fn find_dialect(root: Node<'_>) -> Result<SchemaDialect, DocumentFault> {
    let version = root.find("openapi").or_else(|| root.find("swagger"));
    let text = match version.map(|version| version.value) {
        Some(Value::String(text)) => text.clone(),
        // YAML reads a version without quotes as a number.
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let is_of = |minor: &str| text == minor || text.starts_with(&format!("{minor}."));
    match text.as_str() {
        _ if is_of("3.0") || text == "3" => Ok(SchemaDialect::V3_0),
        _ if is_of("3.1") => Ok(SchemaDialect::V3_1),
        "" => Err(DocumentFault::Version { found: "none".into() }),
        _ => Err(DocumentFault::Version { found: format!("{:?}", clip(&text, 40)) }),
    }
}

/// The server that requests go to: the configured one, or the document's first.
fn find_base(set: &DocumentSet, config: &OpenApiConfig) -> Result<Url, DocumentFault> {
    if let Some(base) = &config.base_url {
        return Ok(base.clone());
    }
    let server = set.root().find("servers").and_then(|servers| servers.items().next());
    let template = server.and_then(|server| server.text("url")).unwrap_or("/");
    let fault = || DocumentFault::Server { url: clip(template, LONGEST_TITLE).to_owned() };
    let url = server.map_or_else(|| Some("/".to_owned()), |server| fill_variables(server, config));
    let url = url.ok_or_else(fault)?;
    let address = set.address().ok_or_else(fault)?;
    let base = address.join(&url).map_err(|_| fault())?;
    if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
        return Err(fault());
    }
    let is_local = matches!(config.document, DocumentSource::File(_));
    if !is_local && base.origin() != address.origin() {
        return Err(DocumentFault::OtherOrigin { url: clip(&url, LONGEST_TITLE).to_owned() });
    }
    Ok(base)
}

/// A server's URL with the configured values of its variables, or their defaults; `None` if one has
/// neither, or the URL becomes too long.
fn fill_variables(server: Node<'_>, config: &OpenApiConfig) -> Option<String> {
    let variables = server.find("variables");
    let value_of = |name: &str| {
        let configured = config.server_variables.iter().find(|(known, _)| known == name);
        let value = configured.map(|(_, value)| value.as_str());
        value.or_else(|| variables?.find(name)?.text("default"))
    };
    let mut url = String::new();
    let mut rest = server.text("url").unwrap_or("/");
    // In one pass: a value is not a template, however it looks.
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}')?;
        url.push_str(before);
        url.push_str(value_of(name)?);
        rest = after;
        if url.len() > LONGEST_URL {
            return None;
        }
    }
    url.push_str(rest);
    (url.len() <= LONGEST_URL).then_some(url)
}

/// A server answers TRACE with the request, and with the credentials in it (RFC 9110, 9.3.8).
fn check_method(place: OperationPlace<'_>) -> Result<(), OperationFault> {
    if *place.method == Method::TRACE { Err(OperationFault::Trace) } else { Ok(()) }
}

/// Servers of an operation, or of its path, must be the one of all others.
fn check_servers(
    place: OperationPlace<'_>,
    base: &Url,
    config: &OpenApiConfig,
) -> Result<(), OperationFault> {
    let own = place.operation.find("servers").or_else(|| place.item.find("servers"));
    let Some(server) = own.and_then(|servers| servers.items().next()) else { return Ok(()) };
    if config.base_url.is_some() {
        return Ok(());
    }
    let url = fill_variables(server, config);
    let own = url.as_ref().and_then(|url| base.join(url).ok());
    let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
    if own.is_some_and(|own| own.origin() == base.origin() && path(&own) == path(base)) {
        return Ok(());
    }
    let url = url.as_deref().or_else(|| server.text("url")).unwrap_or_default();
    Err(OperationFault::OtherServer { url: clip(url, LONGEST_TITLE).to_owned() })
}

/// All operations in the order of the document.
fn list_operations(root: Node<'_>) -> Result<Vec<OperationPlace<'_>>, DocumentFault> {
    let paths = root.find("paths").filter(|paths| paths.value.is_object());
    // A document of 3.1 may have only components or webhooks, but nothing to call then.
    let paths = paths.ok_or(DocumentFault::NoPaths)?;
    let mut all = Vec::new();
    for (path, item) in paths.members().filter(|(path, _)| path.starts_with('/')) {
        let Ok(item) = item.resolve() else { continue };
        for (method, operation) in item.members() {
            let Some(method) = METHODS.iter().find(|(name, _)| *name == method) else { continue };
            if !operation.value.is_object() {
                continue;
            }
            if all.len() == MAX_OPERATIONS {
                let place = format!("/paths{}", pointer_segment(clip(path, LONGEST_TITLE)));
                return Err(DocumentFault::TooManyOperations { place, max: MAX_OPERATIONS });
            }
            all.push(OperationPlace { method: &method.1, path, item, operation });
        }
    }
    Ok(all)
}

/// Method and path of an operation.
fn label(place: OperationPlace<'_>) -> String {
    format!("{} {}", place.method, clip(place.path, LONGEST_TITLE))
}

/// The name of the tool: the operation's id, or else its method and path.
fn tool_name(place: OperationPlace<'_>) -> String {
    let id = place.operation.text("operationId").filter(|id| !id.trim().is_empty());
    let by_path = || format!("{}_{}", place.method.as_str().to_lowercase(), place.path);
    let name = id.map_or_else(by_path, |id| id.trim().to_owned());
    let mut plain = String::with_capacity(name.len());
    for c in clip(&name, LONGEST_TITLE).chars() {
        if c.is_ascii_alphanumeric() || c == '-' {
            plain.push(c);
        } else if !plain.ends_with('_') {
            plain.push('_');
        }
    }
    let plain = plain.trim_matches('_');
    if plain.is_empty() { "operation".to_owned() } else { plain.to_owned() }
}

/// The tool as an element of a list.
fn write_tool(
    reader: &DocumentReader<'_>,
    place: OperationPlace<'_>,
    name: &str,
    read: &ReadOperation,
) -> Result<Bytes, OperationFault> {
    let input = reader.requests.write(&read.input, MAX_INPUT_BYTES)?;
    // An output schema helps; one that is too large costs more than it helps.
    let output = read
        .output
        .as_ref()
        .and_then(|output| reader.responses.write(output, MAX_OUTPUT_BYTES).ok());
    let output = output.map_or_else(String::new, |output| format!(",\"outputSchema\":{output}"));
    let tool = format!(
        "{{\"name\":{},\"description\":{},\"inputSchema\":{input}{output},\"annotations\":{}}}",
        string(name),
        string(&tool_description(place)),
        annotations(place)
    );
    Ok(tool.into())
}

fn tool_description(place: OperationPlace<'_>) -> String {
    let text = |key| place.operation.text(key).map(str::trim).filter(|text| !text.is_empty());
    let (summary, description) = (text("summary"), text("description"));
    let mut parts: Vec<_> = summary.into_iter().collect();
    parts.extend(description.filter(|text| Some(*text) != summary));
    let mut whole = parts.join("\n\n");
    if whole.is_empty() {
        whole = label(place);
    }
    if place.operation.flag("deprecated") {
        whole.insert_str(0, "Deprecated. ");
    }
    clip(&whole, LONGEST_TEXT).to_owned()
}

fn annotations(place: OperationPlace<'_>) -> Value {
    let mut hints = json!({});
    let method = place.method;
    let mut hint = |key: &str, value: Value| {
        if let Value::Object(hints) = &mut hints {
            hints.insert(key.to_owned(), value);
        }
    };
    if let Some(title) = place.operation.text("summary").filter(|text| !text.is_empty()) {
        hint("title", clip(title, LONGEST_TITLE).into());
    }
    if matches!(*method, Method::GET | Method::HEAD) {
        hint("readOnlyHint", true.into());
    }
    if *method == Method::DELETE {
        hint("destructiveHint", true.into());
    }
    if matches!(*method, Method::PUT | Method::DELETE) {
        hint("idempotentHint", true.into());
    }
    hints
}

/// The members of a path that are operations.
const METHODS: [(&str, Method); 8] = [
    ("get", Method::GET),
    ("put", Method::PUT),
    ("post", Method::POST),
    ("delete", Method::DELETE),
    ("options", Method::OPTIONS),
    ("head", Method::HEAD),
    ("patch", Method::PATCH),
    ("trace", Method::TRACE),
];
/// The most operations of a document.
const MAX_OPERATIONS: usize = 20_000;
/// The most bytes of a tool's input schema; the catalog takes no larger one.
const MAX_INPUT_BYTES: usize = 256 * 1024;
/// The most bytes of an output schema.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;
/// The most bytes of all tools of a document.
const MAX_TOOLS_BYTES: usize = 48 * 1024 * 1024;
/// The most bytes of a tool's description, and of the API's.
const LONGEST_TEXT: usize = 4096;
/// The most bytes of a title, a name or a path.
const LONGEST_TITLE: usize = 200;
/// The most bytes of a server's URL.
const LONGEST_URL: usize = 2048;
