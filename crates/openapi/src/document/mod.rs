//! Builds an API from a document and its files: its server, its operations, the lists for clients,
//! and the operations that are left out.

pub(crate) mod base;
pub(crate) mod fault;
pub(crate) mod selection;
pub(crate) mod tree;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use url::Url;

use trunkline_catalog::MAX_SCHEMA_BYTES;
use trunkline_config::{OpenApiConfig, OperationForm};
use trunkline_core::text::clip;
use trunkline_jsonrpc::string;

use crate::exchange::resources::ApiResource;
use crate::operations::operation::{ApiOperation, OperationFault, OperationPlace, ReadOperation};
use crate::operations::reader::DocumentReader;
use crate::operations::text_limits::{MAX_DESCRIPTION_BYTES, MAX_TITLE_BYTES};
use crate::operations::tool_texts::{describe_tool, label, name_tool, write_annotations};
use crate::schemas::conversion::SchemaDialect;
use crate::schemas::names::TakenNames;
use crate::schemas::references::{DocumentSet, Node};
use base::{check_servers, find_base};
use fault::DocumentFault;
use selection::OperationFacts;
use tree::pointer_segment;

/// An API as its document describes it.
pub struct ApiDescription {
    /// Base URL of the operations' paths.
    pub base: Url,
    /// Operations by the names of their tools.
    pub operations: HashMap<String, Arc<ApiOperation>>,
    /// Tools as raw elements of a list, with the labels of their operations.
    pub tools: Vec<(String, String, Bytes)>,
    /// Operations that are offered as resources.
    pub resources: Vec<ApiResource>,
    /// Operations that are not offered, and the reasons.
    pub left_out: Vec<(String, OperationFault)>,
    /// Security schemes that operations need and that have no value.
    pub missing_schemes: BTreeSet<String>,
    /// Names in `auth` that are not security schemes of the document, or with a value of another
    /// kind than the scheme needs.
    pub unknown_schemes: Vec<String>,
    /// Names in `auth` of schemes that no operation requires.
    pub unused_schemes: Vec<String>,
    /// Title of the API.
    pub title: String,
    /// Version of the API.
    pub version: String,
    /// Description of the API.
    pub instructions: Option<String>,
}

/// Reads a document.
///
/// # Errors
/// [`DocumentFault`] if nothing in it can be used. Single unusable operations are left out.
pub fn describe_api(
    set: &DocumentSet,
    config: &OpenApiConfig,
) -> Result<ApiDescription, DocumentFault> {
    let root = set.root();
    let dialect = find_dialect(root)?;
    let base = find_base(set, config)?;
    let listed = list_operations(root)?;
    let reader = DocumentReader::new(config, &base, root, dialect);
    let api = ApiDescription::introduce(root, base.clone());
    let mut description = DescriptionBuilder { reader, api, names: TakenNames::default(), size: 0 };
    description.api.left_out = listed.unreadable;
    for place in listed.all {
        if let Err(fault) = description.add(place) {
            description.api.left_out.push((label(place), fault));
        }
    }
    let mut api = description.api;
    let schemes = &description.reader.schemes;
    (api.unknown_schemes, api.unused_schemes) = (schemes.unknown_names(), schemes.unused_names());
    Ok(api)
}

/// A description while its operations are added.
struct DescriptionBuilder<'a> {
    reader: DocumentReader<'a>,
    api: ApiDescription,
    names: TakenNames,
    /// The bytes of all tools and resources so far.
    size: usize,
}

impl<'a> DescriptionBuilder<'a> {
    /// Adds an operation if it is selected.
    fn add(&mut self, place: OperationPlace<'a>) -> Result<(), OperationFault> {
        let OperationPlace { method, path, operation, .. } = place;
        let facts = OperationFacts { method, path, operation };
        let Some(form) = facts.choose_form(self.reader.config) else { return Ok(()) };
        // Operations beyond a limit are not read, because that would only take time.
        if self.size > MAX_TOOLS_BYTES {
            return Err(OperationFault::TooMuch { max: MAX_TOOLS_BYTES });
        }
        check_method(place)?;
        check_servers(place, self.reader.base, self.reader.config)?;
        let read = self.reader.read(place);
        if !operation.count_looks(1) {
            return Err(OperationFault::Exhausted);
        }
        match form {
            OperationForm::Tool => self.add_tool(place, read?),
            OperationForm::Resource => self.add_resource(place, read?.operation),
        }
    }

    fn add_tool(
        &mut self,
        place: OperationPlace<'_>,
        read: ReadOperation,
    ) -> Result<(), OperationFault> {
        let ReadOperation { mut operation, input, output } = read;
        let input = self.reader.requests.write(&input, MAX_SCHEMA_BYTES)?;
        // An output schema is optional, so one that is too large is dropped.
        let output = output.as_ref();
        let output =
            output.and_then(|output| self.reader.responses.write(output, MAX_OUTPUT_BYTES).ok());
        operation.has_output = output.is_some();
        let name = self.names.take(&name_tool(place));
        let output =
            output.map_or_else(String::new, |output| format!(",\"outputSchema\":{output}"));
        let tool = format!(
            "{{\"name\":{},\"description\":{},\"inputSchema\":{input}{output},\"annotations\":{}}}",
            string(&name),
            string(&describe_tool(place)),
            write_annotations(place)
        );
        self.charge(tool.len())?;
        self.api.note_missing(&operation);
        self.api.tools.push((name.clone(), operation.label.clone(), tool.into()));
        self.api.operations.insert(name, Arc::new(operation));
        Ok(())
    }

    fn add_resource(
        &mut self,
        place: OperationPlace<'_>,
        operation: ApiOperation,
    ) -> Result<(), OperationFault> {
        let name = self.names.take(&name_tool(place));
        self.api.note_missing(&operation);
        let description = describe_tool(place);
        let resource = ApiResource::new(operation, &self.api.base, name.as_str(), &description)?;
        self.charge(resource.element.len())?;
        self.api.resources.push(resource);
        Ok(())
    }

    fn charge(&mut self, bytes: usize) -> Result<(), OperationFault> {
        self.size += bytes;
        if self.size > MAX_TOOLS_BYTES {
            return Err(OperationFault::TooMuch { max: MAX_TOOLS_BYTES });
        }
        Ok(())
    }
}

impl ApiDescription {
    /// An API without operations.
    fn introduce(root: Node<'_>, base: Url) -> Self {
        let info = |key| root.find("info").and_then(|info| info.text(key)).unwrap_or_default();
        let instructions = clip(info("description"), MAX_DESCRIPTION_BYTES).to_owned();
        Self {
            base,
            operations: HashMap::new(),
            tools: Vec::new(),
            resources: Vec::new(),
            left_out: Vec::new(),
            missing_schemes: BTreeSet::new(),
            unknown_schemes: Vec::new(),
            unused_schemes: Vec::new(),
            title: clip(info("title"), MAX_TITLE_BYTES).to_owned(),
            version: clip(info("version"), MAX_TITLE_BYTES).to_owned(),
            instructions: Some(instructions).filter(|text| !text.is_empty()),
        }
    }

    fn note_missing(&mut self, operation: &ApiOperation) {
        self.missing_schemes.extend(operation.security.missing.iter().cloned());
    }

    /// Returns remarks for the operator besides the operations that are left out.
    pub fn remarks(&self, config: &OpenApiConfig) -> Vec<String> {
        let missing = self
            .missing_schemes
            .iter()
            .map(|scheme| format!("the security scheme {scheme:?} has no value: set it in `auth`"));
        let unknown = self.unknown_schemes.iter().map(|name| {
            format!(
                "`auth` has a value for {name:?}, which is not a security scheme that takes such \
                 a value"
            )
        });
        let unused = self.unused_schemes.iter().map(|name| {
            format!(
                "no offered operation uses the security scheme {name:?}, so its value in `auth` \
                 is never sent: use `headers` to send it with every request"
            )
        });
        let is_chosen = !config.include.is_empty() || !config.exclude.is_empty();
        let tools = self.tools.len();
        let many = (tools > MANY_TOOLS && !is_chosen).then(|| {
            format!(
                "{tools} operations become tools: choose with `include` and `exclude` (see \
                 `trunkline openapi`)"
            )
        });
        many.into_iter().chain(missing).chain(unknown).chain(unused).collect()
    }

    /// Returns the result of `resources/list`.
    pub fn resources_result(&self, ttl_ms: u64) -> Bytes {
        let listed = self.resources.iter().filter(|one| !one.is_template);
        list_result("resources", listed.map(|one| &one.element), ttl_ms)
    }

    /// Returns the result of `resources/templates/list`.
    pub fn templates_result(&self, ttl_ms: u64) -> Bytes {
        let listed = self.resources.iter().filter(|one| one.is_template);
        list_result("resourceTemplates", listed.map(|one| &one.element), ttl_ms)
    }

    /// Returns the result of `tools/list`.
    pub fn tools_result(&self, ttl_ms: u64) -> Bytes {
        list_result("tools", self.tools.iter().map(|(_, _, tool)| tool), ttl_ms)
    }
}

/// Returns the result of a list request, all on one page.
fn list_result<'a>(member: &str, items: impl Iterator<Item = &'a Bytes>, ttl_ms: u64) -> Bytes {
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
        // YAML reads an unquoted version as a number.
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

/// Refuses TRACE: the server responds with the request, including its credentials (RFC 9110,
/// 9.3.8).
fn check_method(place: OperationPlace<'_>) -> Result<(), OperationFault> {
    if *place.method == Method::TRACE { Err(OperationFault::Trace) } else { Ok(()) }
}

/// The operations of a document.
struct ListedOperations<'a> {
    all: Vec<OperationPlace<'a>>,
    /// Paths with unreadable operations, and the reasons.
    unreadable: Vec<(String, OperationFault)>,
}

/// Returns all operations in the order of the document.
fn list_operations(root: Node<'_>) -> Result<ListedOperations<'_>, DocumentFault> {
    let paths = root.find("paths").filter(|paths| paths.value.is_object());
    // A 3.1 document may have only components or webhooks, but then there is nothing to call.
    let paths = paths.ok_or(DocumentFault::NoPaths)?;
    let mut all = Vec::new();
    let mut unreadable = Vec::new();
    for (path, item) in paths.members().filter(|(path, _)| path.starts_with('/')) {
        let item = match item.resolve() {
            Ok(item) => item,
            Err(fault) if unreadable.len() < MAX_OPERATIONS => {
                unreadable.push((clip(path, MAX_TITLE_BYTES).to_owned(), fault.into()));
                continue;
            }
            Err(_) => continue,
        };
        for (method, operation) in item.members() {
            let Some(method) = PATH_METHODS.iter().find(|(name, _)| *name == method) else {
                continue;
            };
            if !operation.value.is_object() {
                continue;
            }
            if all.len() == MAX_OPERATIONS {
                let place = format!("/paths{}", pointer_segment(clip(path, MAX_TITLE_BYTES)));
                return Err(DocumentFault::TooManyOperations { place, max: MAX_OPERATIONS });
            }
            all.push(OperationPlace { method: &method.1, path, item, operation });
        }
    }
    Ok(ListedOperations { all, unreadable })
}

/// Members of a path that are operations.
const PATH_METHODS: [(&str, Method); 8] = [
    ("get", Method::GET),
    ("put", Method::PUT),
    ("post", Method::POST),
    ("delete", Method::DELETE),
    ("options", Method::OPTIONS),
    ("head", Method::HEAD),
    ("patch", Method::PATCH),
    ("trace", Method::TRACE),
];
/// Maximum number of operations in a document.
const MAX_OPERATIONS: usize = 20_000;
/// Maximum size in bytes of an output schema.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;
/// Number of tools of one API beyond which a warning is logged.
pub const MANY_TOOLS: usize = 40;
/// Maximum size in bytes of all tools and resources of a document.
const MAX_TOOLS_BYTES: usize = 48 * 1024 * 1024;
#[cfg(test)]
mod tests;
