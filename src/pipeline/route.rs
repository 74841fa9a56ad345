//! Where a call leads: the catalog's answer to the name or URI in its params,
//! and what its server is told in their place.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::call::{Call, Edits, Failure, NativeName, Params};
use crate::catalog::{ElementOrigin, PublicReference, verify_headers};
use crate::jsonrpc::{object, span_of, string, text};
use crate::mcp::{Era, Method};
use crate::policy::Target;
use crate::snapshot::{Member, Snapshot, View};
use crate::telemetry::metrics::ToolMetrics;
use crate::text::clip;

use super::input::Asker;
use super::tasks;

/// A call's way.
pub(super) struct Route<'a> {
    /// The server it goes to.
    pub(super) member: &'a Member,
    /// What it is about there.
    pub(super) target: Target,
    /// The tool's own counts, where a tool is called.
    pub(super) tool: Option<&'a Arc<ToolMetrics>>,
}

/// Finds a call's way.
///
/// # Errors
/// [`Failure`] where it leads nowhere in this view: the same for what never was
/// and for what is hidden.
pub(super) fn find<'a>(
    snapshot: &'a Snapshot,
    view: &'a View,
    call: &Call,
    asker: &Asker,
) -> Result<Route<'a>, Failure> {
    match &call.method {
        Method::ToolsCall => tool(snapshot, view, call),
        Method::PromptsGet => {
            let name = needed(call.params.name(), "name")?;
            let span = call.params.name_span();
            let origin = prompt(view, name)?;
            let native = origin.native.as_str();
            let edit = span.filter(|_| native != name).map(|at| (at, string(native).into()));
            to(snapshot, origin, edit.into_iter().collect()).ok_or_else(|| unknown_prompt(name))
        }
        Method::ResourcesRead => {
            let uri = needed(call.params.uri(), "uri")?;
            let span = call.params.uri_span();
            let origin =
                view.catalog.uris().find_origin(uri).ok_or_else(|| unknown_resource(uri))?;
            let native = origin.native.as_str();
            let edit = span.filter(|_| native != uri).map(|at| (at, string(native).into()));
            to(snapshot, &origin, edit.into_iter().collect()).ok_or_else(|| unknown_resource(uri))
        }
        Method::Complete => completion(snapshot, view, &call.params),
        method if method.is_task_request() => task(snapshot, view, &call.params, asker),
        other => owner(snapshot, view, other),
    }
}

/// Whether a call leads anywhere in this view.
pub(super) fn exists(snapshot: &Snapshot, view: &View, call: &Call, asker: &Asker) -> bool {
    match (&call.method, call.params.name()) {
        // No list has them.
        (method, _) if method.is_task_request() => true,
        (Method::ToolsCall, Some(name)) => snapshot.route(view, name).is_some(),
        _ => find(snapshot, view, call, asker).is_ok(),
    }
}

fn tool<'a>(snapshot: &'a Snapshot, view: &'a View, call: &Call) -> Result<Route<'a>, Failure> {
    let name = needed(call.params.name(), "name")?;
    let found = snapshot.route(view, name);
    let found = found.ok_or_else(|| Failure::UnknownTool { name: clip_name(name) })?;
    let entry = found.entry;
    let native = entry.native();
    let renamed = call.params.name_span().filter(|_| native.as_str() != entry.public.as_str());
    let edit = renamed.map(|span| (span, string(native.as_str()).into()));
    let target = Target::tool(&entry.server, &entry.tool, edit.into_iter().collect());
    Ok(Route { member: found.member, target, tool: Some(found.metrics) })
}

/// The client mirrored parameters into headers; somebody on the way may have
/// believed them (2026-07-28, Streamable HTTP, "Server Validation"). Over
/// standard streams there are none, and nobody on the way.
///
/// # Errors
/// [`Failure::HeaderMismatch`].
pub(super) fn check_headers(route: &Route<'_>, call: &Call) -> Result<(), Failure> {
    let mirrored = route.target.tool.as_ref().map_or(&[][..], |tool| &tool.param_headers);
    let mirrors = call.context.peer.is_some() && call.context.client.version.era() == Era::Modern;
    if mirrored.is_empty() || !mirrors {
        return Ok(());
    }
    verify_headers(mirrored, &call.context.headers, call.params.arguments())
        .map_err(|mismatch| Failure::HeaderMismatch { detail: mismatch.to_string() })
}

fn prompt<'a>(view: &'a View, name: &str) -> Result<&'a ElementOrigin, Failure> {
    let found = view.catalog.prompt(name).map(|(_, origin)| origin);
    found.ok_or_else(|| unknown_prompt(name))
}

fn to<'a>(snapshot: &'a Snapshot, origin: &ElementOrigin, edits: Box<Edits>) -> Option<Route<'a>> {
    let member = snapshot.server(&origin.server)?;
    let (server, native) = (origin.server.clone(), Some(origin.native.clone()));
    let target = Target { server, native, tool: None, edits };
    Some(Route { member, target, tool: None })
}

/// A task's server, where this client is shown it.
fn task<'a>(
    snapshot: &'a Snapshot,
    view: &View,
    params: &Params,
    asker: &Asker,
) -> Result<Route<'a>, Failure> {
    let id = needed(params.task(), "taskId")?;
    let (server, native) = asker.tasks()?.native(id)?;
    let native = NativeName::new(native);
    let edit = params.task_span().map(|at| (at, string(native.as_str()).into()));
    if !view.scope().admits_server(&server) {
        return Err(tasks::unknown(id));
    }
    let origin = ElementOrigin { server, native };
    to(snapshot, &origin, edit.into_iter().collect()).ok_or_else(|| tasks::unknown(id))
}

/// `completion/complete`: the prompt or the template that `ref` names.
fn completion<'a>(
    snapshot: &'a Snapshot,
    view: &View,
    params: &Params,
) -> Result<Route<'a>, Failure> {
    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow, rename = "type")]
        kind: &'a RawValue,
        #[serde(borrow, default)]
        name: Option<&'a RawValue>,
        #[serde(borrow, default)]
        uri: Option<&'a RawValue>,
    }
    let invalid =
        |detail: &str| Failure::InvalidParams { detail: format!("invalid params: {detail}") };
    let raw = params.reference_span().and_then(|span| params.raw().get(span));
    let raw = raw.ok_or_else(|| invalid("`ref` is missing"))?;
    let wire: Wire<'_> =
        object(raw).map_err(|error| invalid(&format!("`ref` cannot be read: {error}")))?;
    let said = |raw: Option<&RawValue>, member| {
        let said = raw.and_then(|raw| Some((text(raw)?.into_owned(), raw.get().to_owned())));
        let place = raw.and_then(|raw| span_of(params.raw(), raw.get().as_bytes()));
        said.zip(place)
            .map(|((said, _), place)| (said, place))
            .ok_or_else(|| invalid(&format!("`ref.{member}` is missing or no string")))
    };
    let (said, place, reference) = match text(wire.kind).as_deref() {
        Some("ref/prompt") => {
            let (name, place) = said(wire.name, "name")?;
            let origin = prompt(view, &name)?.clone();
            (name, place, PublicReference { origin, bound: Arc::default() })
        }
        Some("ref/resource") => {
            let (uri, place) = said(wire.uri, "uri")?;
            let found = view.catalog.uris().reference(&uri);
            let found = found.ok_or_else(|| unknown_resource(&uri))?;
            (uri, place, found)
        }
        _ => return Err(invalid("`ref.type` must be \"ref/prompt\" or \"ref/resource\"")),
    };
    let native = reference.origin.native.as_str();
    let mut edits = Vec::new();
    if native != said {
        edits.push((place, string(native).into()));
    }
    edits.extend(context(params, &reference.bound));
    let route = to(snapshot, &reference.origin, edits.into());
    route.ok_or_else(|| unknown_resource(&said))
}

/// The variables that the configuration has bound, put among the arguments that
/// the client has already chosen.
fn context(
    params: &Params,
    bound: &[(String, String)],
) -> Option<(std::ops::Range<usize>, bytes::Bytes)> {
    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow, default)]
        context: Option<&'a RawValue>,
    }
    if bound.is_empty() {
        return None;
    }
    let wire: Wire<'_> = object(params.raw()).ok()?;
    let context = wire.context.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let mut context: Map<String, Value> = context.unwrap_or_default();
    let arguments = context.remove("arguments");
    let mut arguments = arguments.and_then(|it| it.as_object().cloned()).unwrap_or_default();
    arguments.extend(bound.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))));
    context.insert("arguments".into(), Value::Object(arguments));
    let context = Value::Object(context);
    if let Some(raw) = wire.context {
        return Some((span_of(params.raw(), raw.get().as_bytes())?, context.to_string().into()));
    }
    // Behind `ref`, which is there.
    let end = params.reference_span()?.end;
    Some((end..end, format!(",\"context\":{context}").into()))
}

/// A method that the gateway does not know goes to the one server whose it can
/// be: the only one that has a capability of its name, or the only one there is.
/// Where a profile shows but certain tools, prompts or resources, there is none.
pub(super) fn owner<'a>(
    snapshot: &'a Snapshot,
    view: &View,
    method: &Method,
) -> Result<Route<'a>, Failure> {
    let servers = || snapshot.servers().filter(|it| view.scope().admits_unlisted(&it.config.name));
    let may_know = |member: &&Member| {
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
    let member =
        member.ok_or_else(|| Failure::MethodNotFound { method: clip_name(method.as_str()) })?;
    let server = member.config.name.clone();
    let target = Target { server, native: None, tool: None, edits: Box::default() };
    Ok(Route { member, target, tool: None })
}

fn needed<'a>(member: Option<&'a str>, name: &str) -> Result<&'a str, Failure> {
    member.ok_or_else(|| Failure::InvalidParams {
        detail: format!("invalid params: `{name}` is missing"),
    })
}

fn unknown_prompt(name: &str) -> Failure {
    Failure::UnknownPrompt { name: clip_name(name) }
}

fn unknown_resource(uri: &str) -> Failure {
    Failure::UnknownResource { uri: clip(uri, MAX_URI).to_owned() }
}

fn clip_name(name: &str) -> String {
    clip(name, 128).to_owned()
}

impl Route<'_> {
    /// What the server knows it by.
    pub(super) fn native(&self) -> Option<&NativeName> {
        self.target.native.as_ref()
    }
}

/// The longest URI that an error repeats.
const MAX_URI: usize = 8192;
