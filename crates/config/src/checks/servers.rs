//! Rules between the settings of one server.

use crate::faults::problem::SettingFault;
use crate::reader::setting::Setting;
use crate::reader::values::header_name::HeaderSetting;
use crate::reader::values::numbers::CountSetting;
use crate::reader::values::units::DurationSetting;
use crate::reader::{ConfigReader, ConfigTable, setting_value};
use crate::sections::server::{InstancesChoice, Isolation, ServerConfig, is_openapi};

/// `max_timeout` must not be below `timeout`.
pub(super) fn check_timeouts(server: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let read = |key| setting_value::<ServerConfig, DurationSetting>(server, key, reader);
    if let (Some(timeout), Some(max)) = (read("timeout"), read("max_timeout"))
        && max < timeout
        && let Some(node) = server.find_node("max_timeout").or_else(|| server.find_node("timeout"))
    {
        node.report_fault(reader, SettingFault::TimeoutOrder);
    }
}

/// An instance for each client requires a positive `max_instances`.
pub(super) fn check_instances(server: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let isolation =
        setting_value::<ServerConfig, Option<Isolation>>(server, "isolation", reader).flatten();
    let most = setting_value::<ServerConfig, Option<CountSetting<0, 1_000_000>>>(
        server,
        "max_instances",
        reader,
    );
    if isolation == Some(Isolation::Client)
        && most.flatten() == Some(0)
        && let Some(node) = server.find_node("max_instances")
    {
        node.report_fault(reader, SettingFault::NoInstances);
    }
    let instances = setting_value::<ServerConfig, InstancesChoice>(server, "instances", reader);
    if isolation == Some(Isolation::Client)
        && instances == Some(InstancesChoice::One)
        && let Some(node) = server.find_node("instances")
    {
        node.report_fault(reader, SettingFault::SharedInstance);
    }
}

/// A setting that has no effect on this kind of server is a mistake.
pub(super) fn check_setting_owners(server: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    const OF_CHILDREN: [&str; 5] =
        ["idle_stop", "instances", "max_restarts", "restart_window", "stop_timeout"];
    const OF_HTTP: [&str; 3] = ["call_headers", "connect_timeout", "forward_headers"];
    const OF_MCP: [&str; 5] =
        ["era", "isolation", "max_instances", "instance_idle", "client_capabilities"];
    let has = |key| server.find_node(key).is_some();
    let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
    let is_openapi = is_openapi(server, quiet) == Some(true);
    let is_http = has("url") || is_openapi;
    // A server of no kind is reported elsewhere.
    let is_any = has("command") || is_http;
    let mut refuse = |keys: &[&str], problem: fn() -> SettingFault| {
        for node in keys.iter().filter_map(|key| server.find_node(key)) {
            node.report_fault_at_key(reader, problem());
        }
    };
    if is_any && !has("command") {
        refuse(&OF_CHILDREN, || SettingFault::OtherTarget { owner: "command" });
    }
    if is_any && !is_http {
        refuse(&OF_HTTP, || SettingFault::OtherTarget { owner: "url" });
    }
    if is_openapi {
        refuse(&OF_MCP, || SettingFault::McpOnly);
    }
}

/// A header has one source: `headers`, `call_headers`, or the client's request.
pub(super) fn check_header_sources(server: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let (fixed, of_calls) = (server.find_nodes("headers"), server.find_nodes("call_headers"));
    let forwarded =
        setting_value::<ServerConfig, Vec<HeaderSetting>>(server, "forward_headers", reader);
    let forwarded = forwarded.unwrap_or_default();
    for node in fixed.iter().chain(&of_calls) {
        if forwarded.iter().any(|name| name.as_str().eq_ignore_ascii_case(node.key_name())) {
            let problem = SettingFault::TwoHeaderSources { other: "forward_headers" };
            node.report_fault_at_key(reader, problem);
        }
    }
    for node in &of_calls {
        if fixed.iter().any(|other| other.key_name().eq_ignore_ascii_case(node.key_name())) {
            node.report_fault_at_key(reader, SettingFault::TwoHeaderSources { other: "headers" });
        }
    }
}

/// `X-API-Key` always carries the client's key; `Authorization` may be for the server if the client
/// sends its key in the other header (`identity`).
pub(super) fn check_forwarded_keys(server: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
    let names = server
        .find_node("forward_headers")
        .and_then(|node| node.expect_items::<Vec<HeaderSetting>>(quiet));
    for node in names.into_iter().flatten() {
        if <HeaderSetting as Setting>::read_value(&node, quiet)
            .is_some_and(|name| name == "x-api-key")
        {
            node.report_fault(reader, SettingFault::KeyForwarded);
        }
    }
}
