//! The reason for an instance of a server, in words.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::call::Principal;
use crate::text::clip;
use crate::upstream::{ClientDeclaration, InstanceScope, InstanceView};

/// Returns the reason for an instance.
pub(super) fn instance_reason(view: &InstanceView) -> String {
    if view.owner.is_main() {
        return "main".to_owned();
    }
    if view.finds_out {
        return "finds out whether lists depend on client capabilities".to_owned();
    }
    match &view.owner.whose {
        InstanceScope::Everybody => shared_reason(&view.owner.told),
        InstanceScope::Session { principal, .. } | InstanceScope::Principal(principal) => {
            match principal {
                Principal::Anonymous => "an anonymous client's own".to_owned(),
                Principal::Client(name) => format!("client {name}'s own"),
                Principal::User(name) => format!("user {name}'s own"),
            }
        }
    }
}

/// Describes the clients that share an instance.
fn shared_reason(told: &ClientDeclaration) -> String {
    let capabilities = capability_names(&told.capabilities);
    if let Some(account) = &told.account {
        return format!("the lists of the account of {}", account.as_str());
    }
    match (told.other_era.is_some(), capabilities.is_empty()) {
        (true, true) => "Legacy clients".to_owned(),
        (true, false) => format!("Legacy clients; client capabilities: {capabilities}"),
        (false, _) => format!("client capabilities: {capabilities}"),
    }
}

/// Returns the names of capabilities, with those of their parts: `elicitation(form, url), roots`.
fn capability_names(capabilities: &[u8]) -> String {
    let declared: Map<String, Value> = serde_json::from_slice(capabilities).unwrap_or_default();
    let mut names = String::new();
    for (name, parts) in &declared {
        let parts = parts.as_object().into_iter().flat_map(Map::keys);
        let parts = parts.map(String::as_str).collect::<Vec<_>>().join(", ");
        let separator = if names.is_empty() { "" } else { ", " };
        let parts = if parts.is_empty() { parts } else { format!("({parts})") };
        let _ = write!(names, "{separator}{name}{parts}");
    }
    clip(&names, MAX_EXTENSION_NAME_BYTES).to_owned()
}

/// Limit of the bytes of names: clients choose those of extensions.
const MAX_EXTENSION_NAME_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::mcp::Era;
    use crate::upstream::{InstanceKey, LifeState};

    fn view(whose: InstanceScope, other_era: Option<Era>, capabilities: &str) -> InstanceView {
        let capabilities = capabilities.to_owned().into();
        let told = ClientDeclaration { other_era, account: None, capabilities };
        InstanceView {
            owner: Arc::new(InstanceKey { whose, told: told.clone() }),
            told,
            era: Some(Era::Legacy),
            finds_out: false,
            state: LifeState::Ready,
            since: SystemTime::UNIX_EPOCH,
            pid: None,
            calls: 0,
            last_error: None,
        }
    }

    #[test]
    fn the_reason_of_an_instance_names_capabilities_and_configured_clients_and_no_session() {
        let ci = Principal::Client("ci".into());
        let session = |principal| InstanceScope::Session { id: "secret".into(), principal };
        let able = r#"{"elicitation":{"form":{},"url":{}},"roots":{}}"#;
        let all = InstanceScope::Everybody;
        for (whose, other_era, told, reason) in [
            (all.clone(), None, "{}", "main"),
            (all.clone(), None, able, "client capabilities: elicitation(form, url), roots"),
            (all.clone(), Some(Era::Legacy), "{}", "Legacy clients"),
            (
                all,
                Some(Era::Legacy),
                r#"{"sampling":{}}"#,
                "Legacy clients; client capabilities: sampling",
            ),
            (session(ci.clone()), None, able, "client ci's own"),
            (InstanceScope::Principal(ci), None, "{}", "client ci's own"),
            (session(Principal::Anonymous), None, "{}", "an anonymous client's own"),
        ] {
            assert_eq!(instance_reason(&view(whose, other_era, told)), reason);
        }
        let long = format!(r#"{{"extensions":{{"{}":{{}}}}}}"#, "x".repeat(4000));
        let reason = instance_reason(&view(InstanceScope::Everybody, None, &long));
        assert!(reason.len() < 300, "{} bytes", reason.len());
    }

    #[test]
    fn an_instance_that_finds_out_about_lists_is_not_there_for_a_client() {
        let finds_out = InstanceView {
            finds_out: true,
            ..view(InstanceScope::Everybody, None, r#"{"roots":{}}"#)
        };
        assert!(instance_reason(&finds_out).starts_with("finds out"));
    }
}
