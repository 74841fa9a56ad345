//! The settings of limits, by the names that limits have in errors and metrics.

use crate::config::{Config, quote_segment};

/// Returns the key of the setting of a limit.
pub(super) fn setting_of_limit(limit: &str, config: &Config) -> String {
    let (kind, rest) = limit.split_once(':').unwrap_or((limit, ""));
    match (kind, rest) {
        ("gateway", _) => "gateway.rate".to_owned(),
        ("client", "") => "gateway.client_rate".to_owned(),
        ("client", name) => {
            let own = config.clients.iter().any(|it| *it.name == *name && it.rate.is_some());
            if own { setting("clients", name, "rate") } else { "gateway.client_rate".to_owned() }
        }
        ("profile", name) => setting("profiles", name, "rate"),
        ("in_flight", name) => setting("servers", name, "in_flight"),
        ("server" | "tool", _) => setting_of_element(limit, "rate"),
        ("each", element) => setting_of_element(element, "rate_each"),
        ("quota", element) => match element.split_once(':') {
            Some(("client", name)) => setting("clients", name, "quota"),
            Some(("profile", name)) => setting("profiles", name, "quota"),
            Some(("issuer", name)) => setting("issuers", name, "quota_each"),
            _ => setting_of_element(element, "quota_each"),
        },
        _ => "gateway.limits".to_owned(),
    }
}

/// Returns the key of a setting of `server:NAME` or `tool:SERVER/NAME`.
fn setting_of_element(element: &str, name: &str) -> String {
    let (_, element) = element.split_once(':').unwrap_or(("", element));
    match element.split_once('/') {
        Some((server, tool)) => {
            let tool = format!("tools.{}.{name}", quote_segment(tool));
            setting("servers", server, &tool)
        }
        None => setting("servers", element, name),
    }
}

fn setting(section: &str, name: &str, setting: &str) -> String {
    format!("{section}.{}.{setting}", quote_segment(name))
}
