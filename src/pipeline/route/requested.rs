//! The requested element of a call, in the form that rules use.

use std::sync::Arc;

use crate::call::{Call, Context, NativeName, ServerName};
use crate::catalog::{CatalogElement, Kind};
use crate::mcp::Method;
use crate::policy::{AccessDecision, CallTarget, Confirmation, RequestBasis, RequestedElement};
use crate::snapshot::{Snapshot, View, ViewKey};

use super::{Requester, Route, SubjectMember, completion};

/// Returns the element that a call requests; `None` if its method requests none.
pub(super) fn requested_element(
    view: &View,
    call: &Call,
    route: &Route<'_>,
    asker: &Requester,
) -> Option<RequestedElement> {
    let native = route.native.as_ref()?;
    let server = route.server();
    match &call.method {
        Method::PromptsGet => Some(requested_prompt(call.params.name()?, native)),
        Method::Complete => match completion::asked_prompt(&call.params) {
            Some(name) => Some(requested_prompt(&name, native)),
            None => Some(requested_template(view, call, server, native)),
        },
        method if method.is_task_request() => {
            let origin = asker.tasks().ok()?;
            let tool = origin.find_origin(call.params.task()?).ok()?.tool?;
            requested_task(view, server, &tool)
        }
        _ if matches!(route.naming, SubjectMember::Uri) => {
            Some(requested_resource(view, server, native.as_str()))
        }
        _ => None,
    }
}

/// Notes the rule that hides the requested element in the audit log. Does nothing without an audit
/// log.
pub(super) fn note_hiding_rule(snapshot: &Snapshot, key: &ViewKey, call: &Call) {
    note_rule_hiding(snapshot, key, &call.context, |whole| find_hidden(whole, call));
}

/// Notes the hiding rule for a resource, by its public URI, that a client wants to subscribe to.
pub(crate) fn note_rule_hiding_resource(
    snapshot: &Snapshot,
    key: &ViewKey,
    context: &Context,
    uri: &str,
) {
    note_rule_hiding(snapshot, key, context, |whole| find_hidden_resource(whole, uri));
}

fn note_rule_hiding(
    snapshot: &Snapshot,
    key: &ViewKey,
    context: &Context,
    find: impl FnOnce(&View) -> Option<HiddenElement>,
) {
    let Some(authorization) = snapshot.policy.authorization() else { return };
    if context.audit.is_none() {
        return;
    }
    let whole = snapshot.view_without_rules(key, context);
    let Some(hidden) = find(&whole) else { return };
    let rights = authorization.rights_of(context);
    let decision = match &hidden {
        HiddenElement::Own(name) => rights.decide_listing(&CatalogElement::own_tool(name)),
        HiddenElement::OfServer(target) => rights.decide_target(target.access()),
    };
    // Visible elements failed for another reason.
    if matches!(decision, AccessDecision::Denied { .. }) {
        authorization.note_decision(decision, context);
    }
}

/// An element that a view without rules shows.
enum HiddenElement {
    Own(String),
    OfServer(CallTarget),
}

fn find_hidden(whole: &View, call: &Call) -> Option<HiddenElement> {
    match &call.method {
        Method::ToolsCall => {
            let name = call.params.name()?;
            if whole.catalog.find_own_tool(name).is_some() {
                return Some(HiddenElement::Own(name.to_owned()));
            }
            let entry = whole.catalog.find_tool(name)?;
            Some(hidden_target(&entry.server, entry.native(), RequestedElement::tool(entry)))
        }
        Method::PromptsGet => {
            let name = call.params.name()?;
            let (_, origin) = whole.catalog.prompt(name)?;
            let requested = requested_prompt(name, &origin.native);
            Some(hidden_target(&origin.server, &origin.native, requested))
        }
        _ => find_hidden_resource(whole, call.params.uri()?),
    }
}

fn find_hidden_resource(whole: &View, uri: &str) -> Option<HiddenElement> {
    let origin = whole.catalog.uris().find_origin(uri)?;
    let requested = requested_resource(whole, &origin.server, origin.native.as_str());
    Some(hidden_target(&origin.server, &origin.native, requested))
}

fn hidden_target(
    server: &ServerName,
    native: &NativeName,
    requested: RequestedElement,
) -> HiddenElement {
    let (server, native) = (server.clone(), Some(native.clone()));
    let requested = Some(Arc::new(requested));
    let (confirmation, edits) = (Confirmation::default(), Box::default());
    let target = CallTarget { server, native, tool: None, requested, confirmation, edits };
    HiddenElement::OfServer(target)
}

/// Returns the tool of a task that a request is about.
pub(crate) fn requested_task(
    view: &View,
    server: &ServerName,
    tool: &NativeName,
) -> Option<RequestedElement> {
    let entry = view.catalog.find_listed_tool(server, tool)?;
    Some(RequestedElement { basis: RequestBasis::Task, ..RequestedElement::tool(entry) })
}

/// Returns the template that a completion is for, with the variables that the configuration binds.
fn requested_template(
    view: &View,
    call: &Call,
    server: &ServerName,
    native: &NativeName,
) -> RequestedElement {
    let asked = completion::asked_resource(&call.params);
    match asked.filter(|uri| view.catalog.uris().is_listed(uri)) {
        Some(uri) => {
            let (public, native) = (uri.into(), native.as_str().into());
            let (kind, basis) = (Kind::Templates, RequestBasis::Itself);
            RequestedElement { kind, public, native, tool: None, basis, standing: None }
        }
        None => requested_resource(view, server, native.as_str()),
    }
}

fn requested_prompt(public: &str, native: &NativeName) -> RequestedElement {
    let (public, native) = (public.into(), native.as_str().into());
    RequestedElement {
        kind: Kind::Prompts,
        public,
        native,
        tool: None,
        basis: RequestBasis::Itself,
        standing: None,
    }
}

/// Returns a resource, or a template, by its server's own URI.
pub(crate) fn requested_resource(
    view: &View,
    server: &ServerName,
    native: &str,
) -> RequestedElement {
    let uris = view.catalog.uris();
    let is_interface = uris.is_shown_interface(server, native);
    let basis = if is_interface { RequestBasis::Interface } else { RequestBasis::Itself };
    let public = uris.public_uri(server, native).into();
    RequestedElement {
        kind: Kind::Resources,
        public,
        native: native.into(),
        tool: None,
        basis,
        standing: None,
    }
}
