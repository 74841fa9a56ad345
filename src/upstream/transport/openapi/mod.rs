//! Plain HTTP APIs: servers that do not speak MCP, described by an OpenAPI document.
//!
//! To the modules above, such an API is a Modern server like any other: an [`OpenApiServer`] lists
//! tools and answers calls. [`source`] reads the document, [`crate::openapi`] makes tools
//! of it and requests of their calls, and the HTTP client of [`super::http`] sends them.
//!
//! The document decides the form of requests, but never their destination. All requests go to the
//! origin that the configuration names, and no argument leaves its position in them.

mod source;
mod survey;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::MutexGuard;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::call::{Answer, Call, Params, ParamsFault, Reply, ResultBody};
use crate::catalog::ServerOffers;
use crate::clock;
use crate::codec::file::FileReader;
use crate::config::{OpenApiConfig, OperationForm, ServerConfig, ServerSecrets};
use crate::http_client::{OutgoingRequest, decode_body};
use crate::jsonrpc::{Response, Splice, error_object};
use crate::mcp::{Method, ProtocolVersion, code};
use crate::openapi::{self, ApiAnswer, ApiDescription, ApiOperation, ApiRequest, DocumentFault};
use crate::policy::CallTarget;
use crate::shares::Holder;
use crate::upstream::UpstreamError;
use crate::upstream::interaction::deadline::Deadline;
use crate::upstream::notifications::Inbox;
use crate::upstream::peer::{ChangeCapabilities, Peer};
use crate::upstream::response_memory::ResponseMemory;
use crate::upstream::transport::caller_headers::CallerHeaders;
use crate::upstream::transport::http::{
    ApiHeaders, ReadBody, RequestCredentials, ServerClient, read_small_body,
};
use crate::upstream::transport::large_message::work_on_message;

use source::{DocumentLoader, DocumentVersion, LoadedDocument};
pub use survey::{ApiSurvey, SurveyedTool, survey_api};

/// Parameters for opening the connection to an API.
pub(crate) struct ApiOpening {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) api: OpenApiConfig,
    pub(crate) files: FileReader,
    /// Counts the memory of large responses.
    pub(crate) memory: Arc<ResponseMemory>,
    pub(crate) inbox: Arc<Inbox>,
    /// Tokens for its requests. `None` without OAuth.
    pub(crate) credentials: Option<RequestCredentials>,
}

/// An API with its document read.
pub(crate) struct OpenApiServer {
    shared: Arc<ApiShared>,
    /// Reads the document again at intervals while the server lives.
    _refreshing: JoinSet<()>,
}

struct ApiShared {
    loader: DocumentLoader,
    memory: Arc<ResponseMemory>,
    caller_headers: CallerHeaders,
    peer: Peer,
    current: ArcSwap<CurrentApi>,
    inbox: Arc<Inbox>,
    /// Time of the last request for the document. Held during a request, so there is only one at a
    /// time.
    asked_at: tokio::sync::Mutex<Instant>,
    /// Error of the last attempt to read the document again. `None` if it succeeded.
    stale: ArcSwapOption<String>,
}

/// The last good document, and the client of the server that it names.
struct CurrentApi {
    description: ApiDescription,
    version: DocumentVersion,
    client: Arc<ServerClient>,
    /// Remarks for the operator.
    remarks: Vec<String>,
}

impl OpenApiServer {
    /// Reads the document. The caller sets a time limit.
    pub(crate) async fn open(opening: ApiOpening) -> Result<Self, UpstreamError> {
        let ApiOpening { server, api, files, memory, inbox, credentials } = opening;
        let loader = DocumentLoader::new(server, api, files).await?;
        let document = loader.load(None).await?.ok_or(UpstreamError::NoAnswer)?;
        let client = loader.client_for(&document.api.base).await?;
        let client = Arc::new(ServerClient::new(client, credentials));
        let peer = introduce(&document.api, &loader.api);
        let current = CurrentApi::new(document, client, &loader.api);
        current.log_findings(&loader.server);
        let shared = Arc::new(ApiShared {
            caller_headers: CallerHeaders::of(&loader.server),
            loader,
            memory,
            peer,
            current: ArcSwap::from_pointee(current),
            inbox,
            asked_at: tokio::sync::Mutex::new(clock::now()),
            stale: ArcSwapOption::empty(),
        });
        let mut refreshing = JoinSet::new();
        if let Some(pause) = shared.loader.api.refresh {
            refreshing.spawn(Arc::clone(&shared).refresh_every(pause));
        }
        Ok(Self { shared, _refreshing: refreshing })
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.shared.peer
    }

    /// Returns remarks for the operator: operations that are left out, schemes without a value, and
    /// a document that cannot be read again.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let stale =
            self.shared.stale.load_full().map(|reason| {
                format!("cannot reload the document, the last one is kept: {reason}")
            });
        stale.into_iter().chain(self.shared.current.load().remarks.iter().cloned()).collect()
    }

    /// Returns true if the last attempt to read the document failed.
    pub(crate) fn is_stale(&self) -> bool {
        self.shared.stale.load().is_some()
    }

    /// Answers one of the gateway's own requests. All lists come from the same document, so lists
    /// that are requested together share one refresh of it.
    pub(crate) async fn request(&self, method: &Method) -> Result<Answer, UpstreamError> {
        let list = match method {
            Method::ToolsList => ApiDescription::tools_result,
            Method::ResourcesList => ApiDescription::resources_result,
            Method::TemplatesList => ApiDescription::templates_result,
            _ => return unknown_method(method),
        };
        self.shared.refresh_on_demand().await;
        let result = list(&self.shared.current.load().description, self.shared.ttl_ms());
        Ok(Answer::Result(ResultBody::parse(result)?))
    }

    /// Sends a client's call.
    pub(crate) async fn call(
        &self,
        call: &Call,
        target: &CallTarget,
        mut deadline: Deadline,
    ) -> Result<Reply, UpstreamError> {
        let current = self.shared.current.load_full();
        let answer = tokio::select! {
            biased;
            answer = self.shared.answer(&current, call, target) => answer?,
            after = deadline.passed() => return Err(UpstreamError::Timeout { after }),
        };
        Ok(Reply::ready(Ok(answer.sent_by(&self.shared.peer.info))))
    }
}

impl ApiShared {
    async fn answer(
        &self,
        current: &CurrentApi,
        call: &Call,
        target: &CallTarget,
    ) -> Result<Answer, UpstreamError> {
        let native = target.native.as_ref().map_or("", |native| native.as_str());
        match call.method {
            Method::ToolsCall => match current.description.operations.get(native) {
                Some(operation) => {
                    let result = self.call_operation(current, operation, call, target).await?;
                    Ok(Answer::Result(result))
                }
                // The document has changed since the list was made.
                None => unknown_tool(native),
            },
            Method::ResourcesRead => self.read(current, native, call).await,
            ref method => unknown_method(method),
        }
    }

    /// Reads a resource: sends the request of its operation.
    async fn read(
        &self,
        current: &CurrentApi,
        uri: &str,
        call: &Call,
    ) -> Result<Answer, UpstreamError> {
        let mut resources = current.description.resources.iter();
        let found = resources.find_map(|one| Some((&*one.operation, one.arguments_in(uri)?)));
        let Some((operation, arguments)) = found else {
            return refuse(code::INVALID_PARAMS, "unknown resource");
        };
        let required = operation.required_arguments();
        if let Some(missing) = required.iter().find(|name| !arguments.contains_key(**name)) {
            return refuse(code::INVALID_PARAMS, &format!("the URI lacks a value for {missing:?}"));
        }
        let arguments = Value::from(arguments).to_string();
        let empty_strings = self.loader.api.empty_strings;
        let request = match operation.request(arguments.as_bytes(), empty_strings) {
            Ok(request) => request,
            Err(fault) => return refuse(code::INVALID_PARAMS, &fault.to_string()),
        };
        let answer = self.send(current, operation, request, call).await?;
        let uri = uri.to_owned();
        let read = move |answer: &ApiAnswer, secrets: &ServerSecrets| {
            let result = answer.read_result(&uri, secrets);
            result.map(|result| ResultBody::parse(result.into()))
        };
        // Boxed, because it would enlarge the future of every call.
        match Box::pin(self.read_answer(answer, read)).await? {
            Ok(result) => Ok(Answer::Result(result?)),
            Err((StatusCode::NOT_FOUND, text)) => refuse(code::INVALID_PARAMS, &text),
            Err((_, text)) => refuse(code::INTERNAL_ERROR, &text),
        }
    }

    /// Sends the request of a tool call, and reads its result.
    async fn call_operation(
        &self,
        current: &CurrentApi,
        operation: &Arc<ApiOperation>,
        call: &Call,
        target: &CallTarget,
    ) -> Result<ResultBody, UpstreamError> {
        let refuse =
            |fault: &dyn std::error::Error| Ok(ResultBody::parse(openapi::refusal(fault).into())?);
        let params = match edited_params(call, target) {
            Ok(params) => params,
            Err(fault) => return refuse(&fault),
        };
        let arguments = params.arguments();
        let empty_strings = self.loader.api.empty_strings;
        let request = match operation.request(arguments.unwrap_or(b"{}"), empty_strings) {
            Ok(request) => request,
            Err(fault) => return refuse(&fault),
        };
        let uri = current.uri_of(&request);
        let answer = self.send(current, operation, request, call).await?;
        let (operation, is_transient) = (Arc::clone(operation), is_transient(answer.status));
        let read = move |answer: &ApiAnswer, secrets: &ServerSecrets| {
            ResultBody::parse(answer.tool_result(&operation, &uri, secrets).into())
        };
        let result = Box::pin(self.read_answer(answer, read)).await??;
        Ok(if is_transient { result.marked_transient() } else { result })
    }

    async fn send(
        &self,
        current: &CurrentApi,
        operation: &ApiOperation,
        request: ApiRequest,
        call: &Call,
    ) -> Result<ApiAnswer, UpstreamError> {
        let mut headers = ApiHeaders { headers: HeaderMap::new(), call };
        self.caller_headers.add_to(&mut headers.headers, call);
        headers.headers.extend(request.headers);
        let outgoing = OutgoingRequest {
            target: &current.client.target_at(&request.target)?,
            method: &operation.method,
            headers: &headers,
            body: request.body,
        };
        let mut response = current.client.send_to(outgoing).await?;
        decode_body(&mut response)?;
        let (head, body) = response.into_parts();
        let limit = self.loader.server.max_response;
        let body = match read_small_body(body, limit).await? {
            ReadBody::Whole(body) => body,
            ReadBody::Begun(begun) => {
                let holder = Holder::of_context(&call.context);
                begun.rest(Some(&mut self.memory.charge(&holder, limit))).await?
            }
        };
        Ok(ApiAnswer { status: head.status, headers: head.headers, body })
    }

    /// Reads a response with the gateway's credentials masked, on another thread if it is large.
    async fn read_answer<T: Send + 'static>(
        &self,
        answer: ApiAnswer,
        read: impl FnOnce(&ApiAnswer, &ServerSecrets) -> T + Send + 'static,
    ) -> Result<T, UpstreamError> {
        let server = Arc::clone(&self.loader.server);
        let work = move |answer: ApiAnswer| {
            let masked = answer.without_credentials(&server.secrets);
            read(&masked, &server.secrets)
        };
        work_on_message(answer.body.len(), move || work(answer)).await
    }

    /// Returns the time for which lists are fresh: until the document is read again.
    fn ttl_ms(&self) -> u64 {
        let refresh = self.loader.api.refresh.unwrap_or(STATIC_LIST_TTL);
        u64::try_from(refresh.as_millis()).unwrap_or(u64::MAX)
    }

    async fn refresh_every(self: Arc<Self>, pause: Duration) {
        loop {
            sleep(pause).await;
            let asked_at = self.asked_at.lock().await;
            self.refresh(asked_at).await;
        }
    }

    /// Reads the document again for a listing, unless that was just done. Simultaneous listings
    /// wait for each other.
    async fn refresh_on_demand(&self) {
        let asked_at = self.asked_at.lock().await;
        if asked_at.elapsed() > JUST_READ {
            self.refresh(asked_at).await;
        }
    }

    /// Reads the document again, and requests the lists if it has changed. If that fails, the last
    /// good one stays in use.
    async fn refresh(&self, mut asked_at: MutexGuard<'_, Instant>) {
        // Boxed, because it would enlarge the future of every listing.
        let read = timeout(self.loader.server.start_timeout, Box::pin(self.read_again())).await;
        *asked_at = clock::now();
        let after = self.loader.server.start_timeout;
        let was_stale = self.stale.load().is_some();
        let (has_changed, reason) = match read.unwrap_or(Err(UpstreamError::Timeout { after })) {
            Ok(has_changed) => (has_changed, None),
            Err(fault) => {
                let fault = self.inbox.describe(&fault);
                tracing::warn!(server = %self.loader.server.name, fault, "cannot reload the document: the last one is kept");
                (false, Some(Arc::new(fault)))
            }
        };
        let is_stale = reason.is_some();
        self.stale.store(reason);
        // A listing also records the remarks for the operator.
        if has_changed || is_stale != was_stale {
            self.inbox.relist();
        }
    }

    async fn read_again(&self) -> Result<bool, UpstreamError> {
        let current = self.current.load_full();
        let Some(loaded) = self.loader.load(Some(&current.version)).await? else {
            return Ok(false);
        };
        let origin = loaded.api.base.origin();
        if origin != current.description.base.origin() {
            let url = origin.ascii_serialization();
            return Err(DocumentFault::OriginChanged { url }.into());
        }
        let next = CurrentApi::new(loaded, Arc::clone(&current.client), &self.loader.api);
        next.log_findings(&self.loader.server);
        self.current.store(Arc::new(next));
        Ok(true)
    }
}

impl CurrentApi {
    fn new(document: LoadedDocument, client: Arc<ServerClient>, config: &OpenApiConfig) -> Self {
        let LoadedDocument { api, version } = document;
        let mut remarks = api.remarks(config);
        let left_out = api.left_out.iter().map(|(label, fault)| format!("{label}: {fault}"));
        remarks.extend(left_out.take(MAX_REMARKS));
        let more = remarks.len().saturating_sub(MAX_REMARKS)
            + api.left_out.len().saturating_sub(MAX_REMARKS);
        remarks.truncate(MAX_REMARKS);
        if more > 0 {
            remarks.push(format!("and {more} more: `trunkline openapi` shows all"));
        }
        Self { description: api, version, client, remarks }
    }

    fn log_findings(&self, server: &ServerConfig) {
        for remark in &self.remarks {
            tracing::warn!(server = %server.name, "{}", server.secrets.hide_in(remark));
        }
    }

    /// Returns the URI of a request without its query, which may contain credentials.
    fn uri_of(&self, request: &ApiRequest) -> String {
        let origin = self.description.base.origin().ascii_serialization();
        format!("{origin}{}", request.target.path())
    }
}

/// Describes the API as a Modern server.
fn introduce(api: &ApiDescription, config: &OpenApiConfig) -> Peer {
    let info = json!({ "name": api.title, "version": api.version });
    let resources = config.include.iter().any(|rule| rule.form == OperationForm::Resource);
    let tells = ChangeCapabilities { tools: true, resources, ..ChangeCapabilities::default() };
    let mut capabilities = Map::new();
    for (kind, is_offered) in [("tools", tells.tools), ("resources", tells.resources)] {
        if is_offered {
            capabilities.insert(kind.to_owned(), json!({ "listChanged": true }));
        }
    }
    let capabilities = Value::from(capabilities);
    let info = Bytes::from(info.to_string());
    let offers = ServerOffers::new(&capabilities, api.instructions.as_deref()).with_info(&info);
    let version = ProtocolVersion::LATEST_MODERN;
    Peer { version, info, tells, offers: Arc::new(offers), assumed: Arc::default() }
}

/// Returns the params with the edits of policy and catalog.
fn edited_params(call: &Call, target: &CallTarget) -> Result<Params, ParamsFault> {
    let mut splice = Splice::new(call.params.raw());
    for (span, with) in &target.edits {
        splice.replace(span.clone(), with.clone());
    }
    Params::parse(Some(splice.finish()))
}

/// Returns true if a response with this status may be temporary.
fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

fn unknown_method(method: &Method) -> Result<Answer, UpstreamError> {
    let text = format!("a plain HTTP API has no {}", method.as_str());
    refuse(code::METHOD_NOT_FOUND, &text)
}

fn unknown_tool(name: &str) -> Result<Answer, UpstreamError> {
    refuse(code::INVALID_PARAMS, &format!("unknown tool: {name}"))
}

fn refuse(code: i64, text: &str) -> Result<Answer, UpstreamError> {
    let error: Bytes = error_object(code, text);
    Ok(Answer::parse(Response::Error(error.into()))?)
}

/// Time for which lists are fresh if the document is never read again.
const STATIC_LIST_TTL: Duration = Duration::from_hours(24);
/// A listing within this time after a read of the document does not read it again.
const JUST_READ: Duration = Duration::from_secs(1);
/// Maximum number of remarks about one document, in the log and in `/status`.
const MAX_REMARKS: usize = 20;
