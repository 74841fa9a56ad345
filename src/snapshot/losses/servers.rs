//! Servers: pins, scans, questions, interceptors, sandboxes, and the selection of their elements.

use std::collections::BTreeSet;

use crate::call::NativeName;
use crate::config::{
    Config, ConfirmChoice, InterceptorConfig, InterceptorFailure, InterceptorMode, InterceptorName,
    Isolation, OpenApiConfig, Pattern, PinsChoice, ScanChoice, ServerConfig, ServerKind,
    ToolOverride, ToolsConfig,
};

use super::LossList;
use super::loss::LossFault;
use super::patterns::covers_patterns;
use super::rules::report_removed;
use super::sandboxes::is_as_strict;

pub(super) fn compare_interceptors(before: &Config, after: &Config, losses: &mut LossList) {
    for interceptor in &before.interceptors {
        // A removed interceptor is reported where a server or a profile named it.
        let new = after.interceptors.iter().find(|new| new.name == interceptor.name);
        if let Some(new) = new {
            compare_interceptor(interceptor, new, losses);
        }
    }
}

fn compare_interceptor(
    interceptor: &InterceptorConfig,
    new: &InterceptorConfig,
    losses: &mut LossList,
) {
    let key = |setting: &str| format!("interceptors.{}.{setting}", interceptor.name);
    let (was, is) = (interceptor.mode, new.mode);
    if was == InterceptorMode::Enforce && is == InterceptorMode::Audit {
        losses.add(key("mode"), LossFault::Lowered { before: was.as_str(), after: is.as_str() });
    }
    let (was, is) = (interceptor.fail, new.fail);
    if was == InterceptorFailure::Closed && is == InterceptorFailure::Open {
        losses.add(key("fail"), LossFault::Lowered { before: was.as_str(), after: is.as_str() });
    }
    report_removed(&interceptor.on, &new.on, |phase| phase.as_str())
        .for_each(|kind| losses.add(key("on"), kind));
    for method in &interceptor.methods {
        if !covers_patterns(Some(&new.methods), Some(std::slice::from_ref(method))) {
            losses.add(key("methods"), LossFault::EntryRemoved { entry: method.to_string() });
        }
    }
}

pub(super) fn compare_servers(before: &Config, after: &Config, losses: &mut LossList) {
    let (gateway, new_gateway) = (&before.gateway, &after.gateway);
    losses.add_if(lowered_pins(gateway.pins, new_gateway.pins), || "gateway.pins".into());
    losses.add_if(lowered_scan(gateway.scan, new_gateway.scan), || "gateway.scan".into());
    for server in &before.servers {
        let Some(new) = after.servers.iter().find(|new| new.name == server.name) else { continue };
        compare_definitions((before, after), (server, new), losses);
        compare_server(server, new, losses);
        compare_tools(server, new, losses);
    }
}

/// Compares `pins`, `scan` and `trusted`. A change of the gateway's own setting is reported there.
fn compare_definitions(
    configs: (&Config, &Config),
    servers: (&ServerConfig, &ServerConfig),
    losses: &mut LossList,
) {
    let (before, after) = configs;
    let (was, is) = (&servers.0.definitions, &servers.1.definitions);
    let key = |setting: &str| format!("servers.{}.{setting}", servers.0.name);
    if was.pins.is_some() || is.pins.is_some() {
        let pins = was.pins.unwrap_or(before.gateway.pins);
        let new_pins = is.pins.unwrap_or(after.gateway.pins);
        losses.add_if(lowered_pins(pins, new_pins), || key("pins"));
    }
    if was.scan.is_some() || is.scan.is_some() {
        let scan = was.scan.unwrap_or(before.gateway.scan);
        let new_scan = is.scan.unwrap_or(after.gateway.scan);
        losses.add_if(lowered_scan(scan, new_scan), || key("scan"));
    }
    if !was.trusted && is.trusted {
        losses.add(key("trusted"), LossFault::Lowered { before: "false", after: "true" });
    }
}

fn compare_server(server: &ServerConfig, new: &ServerConfig, losses: &mut LossList) {
    let key = |setting: &str| format!("servers.{}.{setting}", server.name);
    losses.add_if(lowered_confirm(server.confirm, new.confirm), || key("confirm"));
    report_removed(&server.interceptors, &new.interceptors, InterceptorName::as_str)
        .for_each(|kind| losses.add(key("interceptors"), kind));
    report_removed(&server.scopes, &new.scopes, |scope| scope.as_str())
        .for_each(|kind| losses.add(key("scopes"), kind));
    for (variable, _) in &server.resource_vars {
        if new.resource_vars.iter().all(|(other, _)| other != variable) {
            losses.add(key("resource_vars"), LossFault::EntryRemoved { entry: variable.clone() });
        }
    }
    if server.isolation() == Isolation::Client && new.isolation() == Isolation::Shared {
        let lowered = LossFault::Lowered {
            before: Isolation::Client.as_str(),
            after: Isolation::Shared.as_str(),
        };
        losses.add(key("isolation"), lowered);
    }
    match (&server.target, &new.target) {
        (ServerKind::Command(was), ServerKind::Command(is)) => {
            let lost = match (&was.sandbox, &is.sandbox) {
                (Some(_), None) => Some(LossFault::Removed { element: "sandbox" }),
                (Some(was), Some(is)) if !is_as_strict(was, is) => Some(LossFault::SandboxWidened),
                _ => None,
            };
            losses.add_if(lost, || key("sandbox"));
        }
        (ServerKind::OpenApi(was), ServerKind::OpenApi(is)) => {
            losses.add_if(lost_operations(was, is), || key("exclude"));
        }
        _ => {}
    }
}

/// Returns the loss if an operation that was excluded is offered again, or `include` has another
/// entry.
fn lost_operations(was: &OpenApiConfig, is: &OpenApiConfig) -> Option<LossFault> {
    let is_excluded = was.exclude.iter().all(|rule| is.exclude.contains(rule));
    let is_included = was.include.is_empty()
        || (!is.include.is_empty() && is.include.iter().all(|rule| was.include.contains(rule)));
    (!is_excluded || !is_included).then_some(LossFault::Widened)
}

fn compare_tools(server: &ServerConfig, new: &ServerConfig, losses: &mut LossList) {
    let key = |setting: &str| format!("servers.{}.tools.{setting}", server.name);
    let (was, is) = (&server.tools, &new.tools);
    if !covers_patterns(shown(was), shown(is)) {
        losses.add(key("allow"), LossFault::Widened);
    }
    for pattern in &was.deny {
        if !covers_patterns(Some(&is.deny), Some(std::slice::from_ref(pattern))) {
            losses.add(key("deny"), LossFault::EntryRemoved { entry: pattern.to_string() });
        }
    }
    let names = was.overrides.iter().chain(&is.overrides).map(|(name, _)| name.as_str());
    for name in names.collect::<BTreeSet<_>>() {
        let (tool, new_tool) = (find_tool(was, name), find_tool(is, name));
        let own = [tool, new_tool].map(|tool| tool.and_then(|tool| tool.confirm));
        if let [Some(_), _] | [_, Some(_)] = own {
            let [confirm, new_confirm] = own;
            let confirm = confirm.unwrap_or(server.confirm);
            let lost = lowered_confirm(confirm, new_confirm.unwrap_or(new.confirm));
            losses.add_if(lost, || key(&format!("{name}.confirm")));
        }
        if let Some(tool) = tool {
            compare_tool(tool, new_tool, &|setting| key(&format!("{name}.{setting}")), losses);
        }
    }
}

/// Compares the scopes of a tool, and the arguments that clients cannot set.
fn compare_tool(
    tool: &ToolOverride,
    new: Option<&ToolOverride>,
    key: &dyn Fn(&str) -> String,
    losses: &mut LossList,
) {
    let scopes = new.map(|new| new.scopes.as_slice()).unwrap_or_default();
    report_removed(&tool.scopes, scopes, |scope| scope.as_str())
        .for_each(|kind| losses.add(key("scopes"), kind));
    let hidden = tool.transforms.arguments.edits.iter().filter(|(_, edit)| edit.is_hidden());
    for (argument, _) in hidden {
        let mut edits = new.iter().flat_map(|new| new.transforms.arguments.edits.iter());
        if !edits.any(|(other, edit)| other == argument && edit.is_hidden()) {
            let removed = LossFault::EntryRemoved { entry: argument.clone() };
            losses.add(key("arguments"), removed);
        }
    }
}

/// Returns the patterns of `allow`; `None` for an empty list, which means all.
fn shown(tools: &ToolsConfig) -> Option<&[Pattern]> {
    Some(tools.allow.as_slice()).filter(|patterns| !patterns.is_empty())
}

fn find_tool<'a>(tools: &'a ToolsConfig, name: &str) -> Option<&'a ToolOverride> {
    let is_named = |(other, _): &&(NativeName, ToolOverride)| other.as_str() == name;
    tools.overrides.iter().find(is_named).map(|(_, tool)| tool)
}

fn lowered_pins(before: PinsChoice, after: PinsChoice) -> Option<LossFault> {
    let rank = |pins| match pins {
        PinsChoice::Off => 0,
        PinsChoice::Warn => 1,
        PinsChoice::Hold => 2,
    };
    let lowered = LossFault::Lowered { before: before.as_str(), after: after.as_str() };
    (rank(after) < rank(before)).then_some(lowered)
}

fn lowered_scan(before: ScanChoice, after: ScanChoice) -> Option<LossFault> {
    let rank = |scan| match scan {
        ScanChoice::Off => 0,
        ScanChoice::Warn => 1,
        ScanChoice::Hold => 2,
    };
    let lowered = LossFault::Lowered { before: before.as_str(), after: after.as_str() };
    (rank(after) < rank(before)).then_some(lowered)
}

fn lowered_confirm(before: ConfirmChoice, after: ConfirmChoice) -> Option<LossFault> {
    let rank = |confirm| match confirm {
        ConfirmChoice::Never => (0, "false"),
        ConfirmChoice::Destructive => (1, "destructive"),
        ConfirmChoice::Always => (2, "true"),
    };
    let (was, is) = (rank(before), rank(after));
    (is.0 < was.0).then_some(LossFault::Lowered { before: was.1, after: is.1 })
}
