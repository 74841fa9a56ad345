//! The reason why a tool has no route in a client's view: hidden by a rule or the profile, held,
//! hidden by the configuration of its server, or unknown.

use std::sync::Arc;

use crate::call::{Call, Failure, NativeName, ServerName};
use crate::catalog::{Kind, Naming};
use crate::config::{ToolsConfig, nearest_choice, quote_segment};
use crate::pipeline::client_view::ClientView;
use crate::policy::{AccessTarget, CallGate, RequestedElement};

use super::explainer::Explainer;

/// Explains a call of a tool without a route.
pub(super) fn explain_missing_route(
    client: &ClientView,
    call: &Call,
    failure: &Failure,
    explainer: &mut Explainer<'_>,
) {
    let name = call.params.name().unwrap_or_default();
    let is_explained = explain_rule(client, call, name, explainer)
        || explain_profile(client, name, explainer)
        || explain_server(client, name, explainer);
    if is_explained {
        return;
    }
    explainer.refuse(CallGate::Name, failure.to_string());
    let catalog = &client.view.catalog;
    let known = catalog.entries().map(|entry| entry.public.as_str());
    let known: Vec<_> = catalog.own_tool_names().chain(known).collect();
    if let Some(meant) = nearest_choice(name, &known) {
        explainer.set_cure(CallGate::Name, "servers", &format!("did you mean {meant}?"));
    }
}

/// Explains that the rules hide the tool; false if they do not.
fn explain_rule(
    client: &ClientView,
    call: &Call,
    name: &str,
    explainer: &mut Explainer<'_>,
) -> bool {
    let ClientView { snapshot, key, .. } = client;
    let Some(authorization) = snapshot.policy.authorization() else { return false };
    let whole = snapshot.view_without_rules(key, &call.context);
    if whole.catalog.find_own_tool(name).is_some() {
        explainer.rules = Some(authorization.explain_own_tool(call, name));
    } else {
        let Some(entry) = whole.catalog.find_tool(name) else { return false };
        let requested = Arc::new(RequestedElement::tool(entry));
        let target = AccessTarget { server: &entry.server, requested: Some(&requested) };
        explainer.set_target(&entry.server, Some(entry.native()));
        explainer.rules = authorization.explain_call(call, target);
    }
    explainer.pass(CallGate::Name, "the profile has the tool");
    explainer.explain_rules(Some(&Failure::CallDenied));
    true
}

/// Explains that the profile does not show the tool; false if no profile would.
fn explain_profile(client: &ClientView, name: &str, explainer: &mut Explainer<'_>) -> bool {
    let snapshot = &client.snapshot;
    let Some(entry) = snapshot.plain.catalog.find_tool(name) else { return false };
    let profile = explainer.profile.clone();
    explainer.set_target(&entry.server, Some(entry.native()));
    explainer.refuse(CallGate::Name, format!("the profile {profile} does not show the tool"));
    let has_server = client.view.scope().admits_server(&entry.server);
    let (setting, missing) =
        if has_server { ("tools", name) } else { ("servers", entry.server.as_str()) };
    let setting = format!("profiles.{}.{setting}", quote_segment(&profile));
    explainer.set_cure(CallGate::Name, &setting, &format!("add {missing:?} to {setting}"));
    true
}

/// Explains that the tool of a server is hidden, held or unknown; false if the name belongs to no
/// server.
fn explain_server(client: &ClientView, name: &str, explainer: &mut Explainer<'_>) -> bool {
    let naming = Naming::new(&client.snapshot.config.gateway);
    let mut candidates = client.snapshot.servers().filter_map(|member| {
        let native = member.native_name(&naming, name)?;
        Some((member, native))
    });
    let Some((member, native)) = candidates.next() else {
        return explain_disabled(client, name, explainer);
    };
    let server = &member.config.name;
    explainer.set_target(server, Some(&native));
    if let Some((setting, cure)) = hiding_setting(&member.config.tools, &native) {
        explainer.refuse(CallGate::Name, format!("the configuration of {server} hides the tool"));
        let setting = explainer.server_key(setting);
        explainer.set_cure(CallGate::Name, &setting, cure);
        return true;
    }
    let Some(list) = member.server.list() else {
        explainer.refuse(CallGate::Name, format!("the server {server} has not listed its tools"));
        explainer.describe_server(&member.server.view());
        return true;
    };
    if client.snapshot.screen.held_in(&list).holds(Kind::Tools, native.as_str()) {
        explain_held(client, server, &native, explainer);
        return true;
    }
    let is_listed = list.tools.iter().any(|tool| tool.native == native);
    let reason = if is_listed {
        format!("the tool {native} of {server} has another name")
    } else {
        format!("the server {server} has no tool {native}")
    };
    explainer.refuse(CallGate::Name, reason);
    let setting = explainer.server_key("tools");
    explainer.set_cure(CallGate::Name, &setting, "list the tools of the client");
    true
}

/// Returns the setting of a server that hides a tool, and the change that shows it; `None` if the
/// settings admit the tool.
pub(crate) fn hiding_setting(
    tools: &ToolsConfig,
    native: &NativeName,
) -> Option<(&'static str, &'static str)> {
    if tools.admits_tool(native.as_str()) {
        return None;
    }
    let is_denied = tools.deny.iter().any(|pattern| pattern.matches(native.as_str()));
    Some(if is_denied {
        ("tools.deny", "remove the pattern that matches it")
    } else {
        ("tools.allow", "add it")
    })
}

/// Explains that the server of a tool is disabled; false if the name belongs to no such server.
fn explain_disabled(client: &ClientView, name: &str, explainer: &mut Explainer<'_>) -> bool {
    let snapshot = &client.snapshot;
    let naming = Naming::new(&snapshot.config.gateway);
    let has_name = |server: &ServerName| {
        naming.prefix_of(server).is_some_and(|prefix| name.starts_with(&*prefix))
    };
    let mut servers = snapshot.config.servers.iter().map(|server| &server.name);
    let found = servers.find(|it| snapshot.disabled.find(it).is_some() && has_name(it));
    let Some(server) = found else { return false };
    explainer.set_target(server, None);
    explainer.refuse(CallGate::Name, format!("an operator has disabled the server {server}"));
    let key = explainer.server_key("");
    let cure = format!("trunkline enable {server}");
    explainer.set_cure(CallGate::Name, key.trim_end_matches('.'), &cure);
    true
}

/// Explains that the definition of a tool is held.
fn explain_held(
    client: &ClientView,
    server: &ServerName,
    native: &NativeName,
    explainer: &mut Explainer<'_>,
) {
    let list = client.snapshot.server(server).and_then(|member| member.server.list());
    let found = list.map(|list| client.snapshot.screen.findings_in(&list)).unwrap_or_default();
    let reasons = found.iter().filter(|one| one.native == *native && one.held);
    let reasons = reasons.flat_map(|one| &one.reasons).map(ToString::to_string);
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    explainer.pass(CallGate::Name, "the server lists the tool");
    explainer.refuse(CallGate::Definitions, format!("its definition is held: {reasons}"));
    let cure = format!("trunkline pin approve {server}");
    let setting = explainer.server_key("pins");
    explainer.set_cure(CallGate::Definitions, &setting, &cure);
}
