//! Ends of logins, client secrets and issuers' keys, which only the running gateway knows.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::admin::{Expiry, ExpiryKind};
use crate::cli::running::{GatewayOption, GatewayRequest};

/// Returns the ends that the gateway knows that runs with a configuration; none without one.
pub(super) fn ask_ends(path: &Path) -> Vec<Expiry> {
    let gateway = GatewayOption::of_config(path.to_owned());
    let asked = gateway.request_within(&GatewayRequest::get("/status"), STATUS_PATIENCE);
    // Most checks are made while no gateway runs.
    let Ok(status) = asked else { return Vec::new() };
    let all = status.get("expiries").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(read_end).collect()
}

fn read_end(expiry: &Value) -> Option<Expiry> {
    let text = |member: &str| expiry.get(member).and_then(Value::as_str);
    let known = [ExpiryKind::Grant, ExpiryKind::ProviderSecret, ExpiryKind::IssuerKey];
    let kind = known.into_iter().find(|kind| text("kind") == Some(kind.label()))?;
    Some(Expiry {
        kind,
        name: text("name")?.to_owned(),
        subject: text("subject")?.to_owned(),
        at: text("expires_at")?.parse().ok()?,
    })
}

/// Time limit for the answer of the gateway.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);
