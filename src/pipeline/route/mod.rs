//! Routing: looks up the name or URI of a call in the catalog, and edits the params so that they
//! contain the server's own names.

mod completion;
mod requested;
pub(super) mod task_mode;

pub(super) use requested::{note_rule_hiding_resource, requested_resource, requested_task};

use std::sync::Arc;
use std::time::Instant;

use crate::call::{Call, Edits, Failure, NativeName, Params, ParamsFault, ServerName};
use crate::catalog::{
    CatalogItem, ElementOrigin, Kind, PublicReference, ResultTransform, Tool, UriTemplate,
    verify_headers,
};
use crate::era::tasks::ids::TaskOrigin;
use crate::jsonrpc::string;
use crate::mcp::{Era, Method};
use crate::pipeline::client_view::ClientView;
use crate::pipeline::input::Requester;
use crate::pipeline::input::unknown::{unknown_resource, unknown_task};
use crate::policy::{CallTarget, Confirmation, RequestedElement};
use crate::snapshot::{Snapshot, SnapshotServer, View};
use crate::telemetry::metrics::{ToolMetrics, UsedElement};
use crate::text::clip;

use task_mode::TaskMode;

/// The destination of a call.
pub(crate) struct Route<'a> {
    /// The server of the call.
    pub(super) member: &'a SnapshotServer,
    /// The server's own name or URI of the subject; `None` if the method has no subject.
    pub(super) native: Option<NativeName>,
    /// The tool to call.
    pub(super) tool: Option<&'a Arc<Tool>>,
    /// Change of the tool's results.
    pub(super) results: Option<&'a Arc<ResultTransform>>,
    /// True if Legacy clients get the structured content of its results within an object.
    pub(super) wraps_results: bool,
    /// The listed resource of a read, or the template that covers its URI; `None` if there is none.
    listed: Option<NativeName>,
    /// The metrics of the tool.
    pub(super) tool_metrics: Option<&'a Arc<ToolMetrics>>,
    /// Effect of tasks on the call.
    pub(super) task_mode: TaskMode,
    /// The requested element, in the form that rules use; `None` without rules, and for a method
    /// without a listed subject.
    pub(super) requested: Option<Arc<RequestedElement>>,
    naming: SubjectMember,
}

/// The member of the params that names their subject.
enum SubjectMember {
    Nowhere,
    Name,
    Uri,
    TaskId,
    /// In `ref`, with the template variables that the configuration binds.
    Reference(Arc<[(String, String)]>),
}

/// Finds a call's route.
///
/// # Errors
/// [`Failure`] if there is no route in this view: the same for unknown subjects and for hidden
/// ones.
pub(super) fn find<'a>(
    client: &'a ClientView,
    call: &Call,
    asker: &Requester,
) -> Result<Route<'a>, Failure> {
    #[cfg(test)]
    FINDS.set(FINDS.get() + 1);
    let ClientView { snapshot, view, .. } = client;
    let mut route = match &call.method {
        Method::ToolsCall => find_tool(snapshot, view, call)?,
        Method::PromptsGet => {
            let name = required(call.params.name(), "name")?;
            let origin = find_prompt(view, name)?;
            Route::to(snapshot, origin, SubjectMember::Name).ok_or_else(|| unknown_prompt(name))?
        }
        Method::ResourcesRead => {
            let uri = required(call.params.uri(), "uri")?;
            let origin = find_resource(view, asker, uri).ok_or_else(|| unknown_resource(uri))?;
            let route = Route::to(snapshot, &origin, SubjectMember::Uri);
            let listed = find_listed(view, uri, &origin);
            Route { listed, ..route.ok_or_else(|| unknown_resource(uri))? }
        }
        Method::SkillsGet | Method::DirectoryRead => {
            find_skill_resource(snapshot, view, call, asker)?
        }
        Method::Complete => {
            let PublicReference { origin, bound } = completion::find(view, &call.params, asker)?;
            let route = Route::to(snapshot, &origin, SubjectMember::Reference(bound));
            route.ok_or_else(|| unknown_resource(origin.native.as_str()))?
        }
        method if method.is_task_request() => find_task(snapshot, view, call, asker)?,
        other => Route::to_member(find_owner(snapshot, view, other)?),
    };
    route.task_mode = TaskMode::choose(call, &route, view)?;
    if route.requested.is_none() && snapshot.policy.authorization().is_some() {
        route.requested = requested::requested_element(view, call, &route, asker).map(Arc::new);
    }
    Ok(route)
}

fn find_tool<'a>(
    snapshot: &'a Snapshot,
    view: &'a View,
    call: &Call,
) -> Result<Route<'a>, Failure> {
    let name = required(call.params.name(), "name")?;
    let found = snapshot.find_tool(view, name);
    let found = found.ok_or_else(|| Failure::UnknownTool { name: clip_name(name) })?;
    let tool = &found.entry.tool;
    Ok(Route {
        native: Some(tool.native.clone()),
        tool: Some(tool),
        results: found.entry.results.as_ref(),
        wraps_results: tool.wraps_results(),
        tool_metrics: Some(found.metrics),
        requested: found.requested(view),
        naming: SubjectMember::Name,
        ..Route::to_member(found.member)
    })
}

/// Returns the failure of a call without a route. For a tool that the client could see until a
/// moment ago, it states that the tool was removed.
pub(super) fn explain(failure: Failure, client: &ClientView, call: &Call) -> Failure {
    let ClientView { snapshot, key, .. } = client;
    requested::note_hiding_rule(snapshot, key, call);
    match (failure, call.params.name()) {
        (Failure::UnknownTool { name }, Some(asked))
            if snapshot.showed_tool(key, &call.context, asked) =>
        {
            Failure::DepartedTool { name }
        }
        (failure, _) => failure,
    }
}

fn find_prompt<'a>(view: &'a View, name: &str) -> Result<&'a ElementOrigin, Failure> {
    let found = view.catalog.prompt(name).map(|(_, origin)| origin);
    found.ok_or_else(|| unknown_prompt(name))
}

/// Finds the server of a resource, and its own URI for it.
fn find_resource(view: &View, asker: &Requester, uri: &str) -> Option<ElementOrigin> {
    let is_released = |server: &ServerName, native: &str| asker.has_seen(server, native);
    view.catalog.uris().find_origin_or_released(uri, &is_released)
}

/// Finds the listed resource with a URI, or the template that covers it.
fn find_listed(view: &View, uri: &str, origin: &ElementOrigin) -> Option<NativeName> {
    if view.catalog.uris().is_listed(uri) {
        return Some(origin.native.clone());
    }
    let list = view.list(&origin.server)?;
    let covers = |one: &&Arc<CatalogItem>| {
        UriTemplate::parse(one.native.as_str()).matches(origin.native.as_str())
    };
    list.items(Kind::Templates).iter().find(covers).map(|one| one.native.clone())
}

/// Finds the skill, or the directory, of a request. If its server does not declare the extension,
/// the failure is that of an unknown one.
fn find_skill_resource<'a>(
    snapshot: &'a Snapshot,
    view: &View,
    call: &Call,
    asker: &Requester,
) -> Result<Route<'a>, Failure> {
    let uri = required(call.params.uri(), "uri")?;
    let serves = |origin: &ElementOrigin| match view.list(&origin.server) {
        Some(list) if call.method == Method::DirectoryRead => list.offers.reads_directories(),
        Some(list) => list.offers.offers_list(Kind::Skills),
        // The server has not answered yet: let it decide.
        None => true,
    };
    let origin = find_resource(view, asker, uri).filter(serves);
    let route = origin.and_then(|origin| Route::to(snapshot, &origin, SubjectMember::Uri));
    route.ok_or_else(|| unknown_resource(uri))
}

/// Finds the server of a task, if the client's view shows that server.
fn find_task<'a>(
    snapshot: &'a Snapshot,
    view: &'a View,
    call: &Call,
    asker: &Requester,
) -> Result<Route<'a>, Failure> {
    task_mode::check_method(call)?;
    let id = required(call.params.task(), "taskId")?;
    let TaskOrigin { server, tool, native } = asker.tasks()?.find_origin(id)?;
    if !view.scope().admits_server(&server) {
        return Err(unknown_task(id));
    }
    let entry = match tool {
        Some(tool) => Some(task_mode::find_tool_of_task(view, &server, &tool, id)?),
        // Under rules, access to a task follows from its tool.
        None if snapshot.policy.authorization().is_some() => return Err(unknown_task(id)),
        None => None,
    };
    let origin = ElementOrigin { server, native: NativeName::new(native) };
    let route = Route::to(snapshot, &origin, SubjectMember::TaskId);
    let route = route.ok_or_else(|| unknown_task(id))?;
    let results = entry.and_then(|entry| entry.results.as_ref());
    let results = results.filter(|results| results.settings.changes_results());
    let wraps_results = entry.is_some_and(|entry| entry.tool.wraps_results());
    Ok(Route { results, wraps_results, ..route })
}

/// Routes an unknown method to the only server that declares the matching capability, or to the
/// only server there is. It has no route in a profile that shows only certain tools, prompts or
/// resources.
///
/// # Errors
/// [`Failure::MethodNotFound`].
pub(super) fn find_owner<'a>(
    snapshot: &'a Snapshot,
    view: &View,
    method: &Method,
) -> Result<&'a SnapshotServer, Failure> {
    let servers = || snapshot.servers().filter(|it| view.scope().admits_unlisted(&it.config.name));
    let may_know = |member: &&SnapshotServer| {
        let list = view.list(&member.config.name);
        list.is_some_and(|list| list.offers.may_know(method.as_str()))
    };
    let mut knowing = servers().filter(may_know);
    let mut all = servers();
    let member = match (knowing.next(), knowing.next()) {
        (Some(member), None) => Some(member),
        (None, _) => all.next().filter(|_| all.next().is_none()),
        (Some(_), Some(_)) => None,
    };
    member.ok_or_else(|| Failure::MethodNotFound { method: clip_name(method.as_str()) })
}

fn required<'a>(member: Option<&'a str>, name: &'static str) -> Result<&'a str, Failure> {
    Ok(member.ok_or(ParamsFault::Missing { member: name })?)
}

fn unknown_prompt(name: &str) -> Failure {
    Failure::UnknownPrompt { name: clip_name(name) }
}

fn clip_name(name: &str) -> String {
    clip(name, 128).to_owned()
}

impl<'a> Route<'a> {
    /// Creates a route to a server, for a method without a subject.
    fn to_member(member: &'a SnapshotServer) -> Self {
        Self {
            member,
            native: None,
            tool: None,
            results: None,
            wraps_results: false,
            listed: None,
            tool_metrics: None,
            task_mode: TaskMode::Unchanged,
            requested: None,
            naming: SubjectMember::Nowhere,
        }
    }

    fn to(snapshot: &'a Snapshot, origin: &ElementOrigin, naming: SubjectMember) -> Option<Self> {
        let member = snapshot.server(&origin.server)?;
        Some(Self { native: Some(origin.native.clone()), naming, ..Self::to_member(member) })
    }

    /// Notes the time at which a call of the element has begun.
    pub(super) fn note_use(&self, method: &Method, at: Instant) {
        if let Some(tool) = self.tool_metrics {
            return tool.note_use(at);
        }
        let (element, name) = match method {
            Method::PromptsGet => (UsedElement::Prompt, self.native.as_ref()),
            Method::ResourcesRead => (UsedElement::Resource, self.listed.as_ref()),
            _ => return,
        };
        if let Some(name) = name {
            self.member.metrics.note_use(element, name.as_str(), at);
        }
    }

    /// Returns the name of the server.
    pub(super) fn server(&self) -> &'a ServerName {
        &self.member.config.name
    }

    /// Verifies the headers into which a Modern client mirrors parameters, because proxies on the
    /// way may have relied on them (2026-07-28, Streamable HTTP, "Server Validation"). Standard
    /// streams have no headers and no proxies.
    ///
    /// # Errors
    /// [`Failure::HeaderMismatch`].
    pub(super) fn check_headers(&self, call: &Call) -> Result<(), Failure> {
        let mirrored = self.tool.map_or(&[][..], |tool| &tool.param_headers);
        let mirrors =
            call.context.peer.is_some() && call.context.client.version.era() == Era::Modern;
        if mirrored.is_empty() || !mirrors {
            return Ok(());
        }
        Ok(verify_headers(mirrored, &call.context.headers, call.params.arguments())?)
    }

    /// Returns the target for policy to permit: the server, and the edits that put its own names
    /// into these params.
    pub(super) fn into_target(self, params: &Params) -> CallTarget {
        let edits = self.edits(params);
        let server = self.server().clone();
        let (tool, requested) = (self.tool.cloned(), self.requested);
        let confirmation = Confirmation::default();
        CallTarget { server, native: self.native, tool, requested, confirmation, edits }
    }

    fn edits(&self, params: &Params) -> Box<Edits> {
        let (public, span) = match &self.naming {
            SubjectMember::Nowhere => return Box::default(),
            SubjectMember::Name => (params.name(), params.name_span()),
            SubjectMember::Uri => (params.uri(), params.uri_span()),
            SubjectMember::TaskId => (params.task(), params.task_span()),
            SubjectMember::Reference(bound) => {
                let native = self.native.as_ref().map_or("", NativeName::as_str);
                return completion::edits(params, native, bound);
            }
        };
        let native = self.native.as_ref().map(NativeName::as_str);
        let native = native.filter(|native| public != Some(*native));
        let in_json = |native| self.tool.map_or_else(|| string(native).into(), |it| it.name_json());
        span.zip(native).map(|(span, native)| (span, in_json(native))).into_iter().collect()
    }
}

#[cfg(test)]
thread_local! {
    /// Number of times that this thread has searched for a route.
    pub(super) static FINDS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
