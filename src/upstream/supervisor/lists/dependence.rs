//! Comparison of a child process's lists between clients that differ in capabilities or era.
//!
//! A Legacy child receives the capabilities when it starts. So each set of capabilities requires a
//! separate process, and so does each era of a server that speaks both. Few servers return
//! different lists for them. The gateway compares once per server version: a Legacy child that
//! receives all capabilities lists and ends. If its lists equal those of the main instance, all
//! clients share them, and a process for particular capabilities starts with the first call that
//! needs it.

use serde_json::Value;

use crate::call::Abilities;
use crate::catalog::ServerList;
use crate::config::ServerKind;
use crate::mcp::{Era, ProtocolVersion};
use crate::upstream::lists::ListingPart;
use crate::upstream::lists::dependence::ListDependence;
use crate::upstream::owner::ClientDeclaration;
use crate::upstream::supervisor::instance::Instance;
use crate::upstream::supervisor::shared::ServerShared;

impl ServerShared {
    /// Returns the declaration under which a client's list is requested, or `None` if the client
    /// has the list of the main instance.
    pub(crate) fn declaration_to_list(&self, told: ClientDeclaration) -> Option<ClientDeclaration> {
        if self.lists_the_same_in_legacy(&told) {
            return None;
        }
        let Some(all) = self.full_declaration(&told) else { return Some(told) };
        match self.lists().dependence() {
            ListDependence::Unknown => Some(all),
            ListDependence::Independent => None,
            ListDependence::Dependent => Some(told),
        }
    }

    /// Returns true if a child of a server of both eras is known to return the same list to these
    /// Legacy clients as the main instance, which reports changes.
    fn lists_the_same_in_legacy(&self, told: &ClientDeclaration) -> bool {
        let (base, own) = (self.lists().base.load(), self.lists().of(told));
        let is_same =
            || base.as_ref().zip(own).is_some_and(|(base, own)| base.offers_the_same(&own));
        told.other_era.is_some() && self.is_child() && is_same()
    }

    fn is_child(&self) -> bool {
        matches!(self.config().target, ServerKind::Command(_))
    }

    /// Returns the declaration of all capabilities that matter to a Legacy child, if it includes
    /// these.
    fn full_declaration(&self, told: &ClientDeclaration) -> Option<ClientDeclaration> {
        let legacy = |version: &ProtocolVersion| version.era() == Era::Legacy;
        let version = match told.other_era {
            None => self.version().filter(legacy)?,
            Some(_) => ProtocolVersion::LATEST_LEGACY,
        };
        (self.is_child() && is_among_all(told)).then(|| {
            let full = ClientDeclaration { other_era: told.other_era, ..declare_all(version) };
            full.adapt_to(self.config())
        })
    }
}

impl Instance {
    /// Returns true if the instance exists only for the comparison of lists.
    pub(crate) fn finds_out(&self) -> bool {
        let told = &self.owner().told;
        self.owner().lists()
            && !self.demand().was_called()
            && self.shared().lists().dependence() != ListDependence::Dependent
            && self.shared().full_declaration(told).is_some_and(|all| all == *told)
    }

    /// Returns true if the instance exists only for a comparison that is complete.
    pub(crate) fn has_found_out(&self) -> bool {
        self.shared().lists().dependence() == ListDependence::Independent && self.finds_out()
    }

    /// Updates the comparison from a list that was returned to clients of its own declaration.
    pub(super) fn learn_dependence(&self, list: &ServerList, part: ListingPart) {
        let (lists, told) = (self.shared().lists(), &self.owner().told);
        let Some(all) = self.shared().full_declaration(told) else { return };
        let is_same = lists.base.load().as_ref().is_some_and(|base| base.offers_the_same(list));
        match lists.dependence() {
            ListDependence::Unknown if *told == all && part == ListingPart::Whole => {
                let found =
                    if is_same { ListDependence::Independent } else { ListDependence::Dependent };
                tracing::debug!(server = %self.name(), ?found, "lists were compared");
                lists.set_dependence(found);
            }
            // A process may change its own list.
            ListDependence::Independent if !is_same => lists.make_room_for(told),
            _ => {}
        }
    }

    /// Records that the instance has ended. Its clients return to the list for all clients.
    pub(crate) fn forget_own_list(&self) {
        let (lists, told) = (self.shared().lists(), &self.owner().told);
        let is_own = self.owner().lists() && !self.is_main();
        if is_own
            && lists.dependence() == ListDependence::Independent
            && self.shared().full_declaration(told).is_some()
            && lists.forget(told)
        {
            self.shared().announce_lists();
        }
    }

    /// Records that the instance could not be listed. The failure of an instance in an era that the
    /// server may not speak at all is not a result of the comparison.
    pub(crate) fn give_up_on_list(&self) {
        let (lists, told) = (self.shared().lists(), &self.owner().told);
        let is_all = || self.shared().full_declaration(told).is_some_and(|all| all == *told);
        let speaks_era =
            told.other_era.is_none() || self.shared().legacy_side().version().is_some();
        if lists.dependence() == ListDependence::Unknown && speaks_era && is_all() {
            lists.set_dependence(ListDependence::Dependent);
        }
        lists.failed(told);
    }
}

/// Returns the declaration of all capabilities by which servers are known to choose their lists.
fn declare_all(version: ProtocolVersion) -> ClientDeclaration {
    ClientDeclaration::new(
        version,
        &Abilities::of(ALL_CAPABILITIES.as_bytes(), ProtocolVersion::LATEST_LEGACY),
    )
}

/// Returns true if the comparison declares all of these capabilities.
fn is_among_all(told: &ClientDeclaration) -> bool {
    let Ok(Value::Object(told)) = serde_json::from_slice(&told.capabilities) else { return false };
    told.iter().all(|(key, value)| match (key.as_str(), value) {
        ("elicitation" | "roots" | "sampling", _) => true,
        ("extensions", Value::Object(extensions)) => {
            extensions.keys().all(|name| name == APPS_EXTENSION)
        }
        _ => false,
    })
}

/// Capabilities by which servers are known to choose their lists.
const ALL_CAPABILITIES: &str = r#"{
    "elicitation": { "form": {}, "url": {} },
    "extensions": { "io.modelcontextprotocol/ui": { "mimeTypes": ["text/html;profile=mcp-app"] } },
    "roots": {},
    "sampling": { "context": {}, "tools": {} }
}"#;
const APPS_EXTENSION: &str = "io.modelcontextprotocol/ui";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_were_not_tried_are_not_decided_about() {
        for (capabilities, expected) in [
            ("{}", true),
            (r#"{"roots":{},"sampling":{},"elicitation":{"form":{}}}"#, true),
            (r#"{"extensions":{"io.modelcontextprotocol/ui":{}}}"#, true),
            (r#"{"extensions":{"com.example/x":{}}}"#, false),
            (r#"{"experimental":{"x":{}}}"#, false),
            ("[]", false),
        ] {
            let told = ClientDeclaration {
                other_era: None,
                account: None,
                capabilities: capabilities.into(),
            };
            assert_eq!(is_among_all(&told), expected, "{capabilities}");
        }
        let all = declare_all(ProtocolVersion::LATEST_LEGACY);
        assert!(is_among_all(&all) && all.capabilities.len() > 100, "{:?}", all.capabilities);
    }
}
