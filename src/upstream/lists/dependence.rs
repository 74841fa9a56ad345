//! Whether the lists of a child process depend on the capabilities of its client.
//!
//! A Legacy server is told the capabilities when it starts, so every set of them
//! takes a process of its own. Hardly any server lists other tools for them. It
//! is found out once: a child that is told all capabilities lists and ends. If it
//! lists the same as the main instance, that list is everybody's, and a process
//! for particular capabilities starts with the first call that needs it.

use serde_json::Value;

use crate::call::Abilities;
use crate::catalog::ServerList;
use crate::config::ServerKind;
use crate::mcp::{Era, ProtocolVersion};
use crate::upstream::owner::ClientDeclaration;
use crate::upstream::supervisor::instance::Instance;
use crate::upstream::supervisor::shared::ServerShared;

use super::ListingPart;

/// What is known of how a server's lists depend on capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListDependence {
    /// It has not been found out.
    #[default]
    Unknown,
    /// All clients have the same lists.
    Independent,
    /// Clients may have other lists, or the server did not tell.
    Dependent,
}

/// Whether a server's lists depend on capabilities, and how long that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DependenceVerdict {
    /// What was found out.
    pub found: ListDependence,
    /// When it was, in seconds since 1970.
    pub since: Option<u64>,
}

impl ServerShared {
    /// The declaration whose list is requested for clients of this one; `None`
    /// if they have the list of the main instance.
    pub(in crate::upstream) fn declaration_to_list(
        &self,
        told: ClientDeclaration,
    ) -> Option<ClientDeclaration> {
        if self.lists_the_same_in_legacy(&told) {
            return None;
        }
        let Some(all) = self.full_declaration(&told) else { return Some(told) };
        match self.lists.dependence() {
            ListDependence::Unknown => Some(all),
            ListDependence::Independent => None,
            ListDependence::Dependent => Some(told),
        }
    }

    /// Whether a child of a server of both eras is known to list the same for
    /// these Legacy clients as the main instance, which tells of changes.
    fn lists_the_same_in_legacy(&self, told: &ClientDeclaration) -> bool {
        let (base, own) = (self.lists.base.load(), self.lists.of(told));
        let is_same =
            || base.as_ref().zip(own).is_some_and(|(base, own)| base.offers_the_same(&own));
        told.other_era.is_some() && self.is_child() && is_same()
    }

    fn is_child(&self) -> bool {
        matches!(self.config.target, ServerKind::Command(_))
    }

    /// All capabilities that matter to a Legacy child, if these are among them.
    fn full_declaration(&self, told: &ClientDeclaration) -> Option<ClientDeclaration> {
        let version = self.version().filter(|version| version.era() == Era::Legacy)?;
        (self.is_child() && told.other_era.is_none() && is_among_all(told))
            .then(|| declare_all(version))
    }
}

impl Instance {
    /// Whether the instance is there only to find out whether lists depend on
    /// capabilities.
    pub(in crate::upstream) fn finds_out(&self) -> bool {
        let told = &self.owner.told;
        self.owner.lists()
            && !self.was_called()
            && self.kin.lists.dependence() != ListDependence::Dependent
            && self.kin.full_declaration(told).is_some_and(|all| all == *told)
    }

    /// Whether it is there only for that, and has done so.
    pub(in crate::upstream) fn has_found_out(&self) -> bool {
        self.kin.lists.dependence() == ListDependence::Independent && self.finds_out()
    }

    /// Learns from a list that was returned to clients of its own declaration.
    pub(super) fn learn_dependence(&self, list: &ServerList, part: ListingPart) {
        let (lists, told) = (&self.kin.lists, &self.owner.told);
        let Some(all) = self.kin.full_declaration(told) else { return };
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

    /// Records that the instance has ended: the list of all clients is that of
    /// its clients again.
    pub(in crate::upstream) fn forget_own_list(&self) {
        let (lists, told) = (&self.kin.lists, &self.owner.told);
        let is_own = self.owner.lists() && !self.is_main();
        if is_own
            && lists.dependence() == ListDependence::Independent
            && self.kin.full_declaration(told).is_some()
            && lists.forget(told)
        {
            self.kin.announce_lists();
        }
    }

    /// Records that the instance could not be listed.
    pub(in crate::upstream) fn give_up_on_list(&self) {
        let (lists, told) = (&self.kin.lists, &self.owner.told);
        let is_all = || self.kin.full_declaration(told).is_some_and(|all| all == *told);
        if lists.dependence() == ListDependence::Unknown && is_all() {
            lists.set_dependence(ListDependence::Dependent);
        }
        lists.failed(told);
    }
}

/// What a server is told to find out whether its lists depend on capabilities.
fn declare_all(version: ProtocolVersion) -> ClientDeclaration {
    ClientDeclaration::new(version, &Abilities::of(ALL.as_bytes(), ProtocolVersion::LATEST_LEGACY))
}

/// Whether all of these capabilities are declared to find that out.
fn is_among_all(told: &ClientDeclaration) -> bool {
    let Ok(Value::Object(told)) = serde_json::from_slice(&told.capabilities) else { return false };
    told.iter().all(|(key, value)| match (key.as_str(), value) {
        ("elicitation" | "roots" | "sampling", _) => true,
        ("extensions", Value::Object(extensions)) => extensions.keys().all(|name| name == APPS),
        _ => false,
    })
}

/// The capabilities that servers are known to choose their lists by.
const ALL: &str = r#"{
    "elicitation": { "form": {}, "url": {} },
    "extensions": { "io.modelcontextprotocol/ui": { "mimeTypes": ["text/html;profile=mcp-app"] } },
    "roots": {},
    "sampling": { "context": {}, "tools": {} }
}"#;
const APPS: &str = "io.modelcontextprotocol/ui";

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
