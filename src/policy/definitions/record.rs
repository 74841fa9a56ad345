//! The stored record of one server's definitions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::{DefinitionDigest, DefinitionKind};

/// Accepted and pending definitions of one server, by kind (`tools`, `prompts`, …) and native name.
/// A kind is present once the server has listed some of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BaselineRecord(BTreeMap<String, BTreeMap<String, PinnedDefinition>>);

/// The known forms of one definition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinnedDefinition {
    /// Forms that clients may see. A server may list several: one for each set of capabilities.
    pub accepted: Vec<PinnedForm>,
    /// Forms that wait for approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingForm>,
    /// Returns true if clients have seen the element in any form: its name stays reserved while it
    /// is held.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
}

/// A form that clients may see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinnedForm {
    /// The digest of its canonical form.
    pub sha256: DefinitionDigest,
    /// The basis of its acceptance.
    pub basis: PinBasis,
    /// Its canonical form; `None` in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Value>,
}

/// A form that waits for approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingForm {
    /// The digest of its canonical form.
    pub sha256: DefinitionDigest,
    /// The reasons to ask for approval.
    pub reasons: Vec<String>,
    /// Its canonical form; `None` in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Value>,
    /// True if an operator has rejected it: it stays held, and is not reported any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rejected: bool,
}

/// Reasons to accept a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinBasis {
    /// It was there when the server was first listed.
    Seen,
    /// An operator approved it.
    Approved,
}

/// A decision about definitions that wait for approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinDecision {
    /// Clients may see them.
    Approve,
    /// They stay held, and are not reported any more.
    Reject,
}

/// A definition's key in the record, with its form.
#[derive(Debug, Clone)]
pub(super) struct DefinitionKey {
    pub(super) kind: DefinitionKind,
    pub(super) name: String,
    pub(super) sha256: DefinitionDigest,
    pub(super) definition: Option<Value>,
}

/// A change of the record.
#[derive(Debug, Clone)]
pub(super) enum BaselineChange {
    /// Accepts a definition at first sight.
    Accept(DefinitionKey),
    /// Adds a form to those that wait for approval.
    Await(DefinitionKey, Vec<String>),
    /// Drops a form that is no longer listed and was not approved.
    Withdraw(DefinitionKey),
    /// Marks an element that clients see.
    Serve(DefinitionKind, String),
}

impl BaselineChange {
    /// Returns true if it accepts a definition.
    pub(super) fn is_acceptance(&self) -> bool {
        matches!(self, Self::Accept(_))
    }

    /// Returns the change without the text of the definition.
    pub(super) fn without_text(&self) -> Self {
        let bare = |key: &DefinitionKey| DefinitionKey { definition: None, ..key.clone() };
        match self {
            Self::Accept(key) => Self::Accept(bare(key)),
            Self::Await(key, reasons) => Self::Await(bare(key), reasons.clone()),
            Self::Withdraw(key) => Self::Withdraw(bare(key)),
            Self::Serve(kind, name) => Self::Serve(*kind, name.clone()),
        }
    }
}

impl BaselineRecord {
    /// Returns the known forms of a definition.
    pub fn find(&self, kind: DefinitionKind, name: &str) -> Option<&PinnedDefinition> {
        self.0.get(kind.member())?.get(name)
    }

    /// Returns true if the server has listed some definition of this kind.
    pub fn has_kind(&self, kind: DefinitionKind) -> bool {
        let definitions = self.0.get(kind.member());
        let has_forms = |all: &BTreeMap<_, _>| all.values().any(PinnedDefinition::has_forms);
        definitions.is_some_and(|all| all.is_empty() || has_forms(all))
    }

    /// Returns true if clients have seen the element in any form.
    pub(super) fn was_served(&self, kind: DefinitionKind, name: &str) -> bool {
        self.find(kind, name).is_some_and(|pinned| pinned.served)
    }

    /// Iterates over all definitions with known forms, with their kinds and names.
    pub fn definitions(&self) -> impl Iterator<Item = (DefinitionKind, &str, &PinnedDefinition)> {
        DefinitionKind::ALL.into_iter().flat_map(|kind| {
            let named = self.0.get(kind.member()).into_iter().flatten();
            let named = named.filter(|(_, pinned)| pinned.has_forms());
            named.map(move |(name, pinned)| (kind, name.as_str(), pinned))
        })
    }

    /// Returns the number of its definitions with known forms.
    pub fn len(&self) -> usize {
        self.definitions().count()
    }

    /// Returns true if it has no definitions with known forms.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the record has reached its limit.
    fn is_full(&self) -> bool {
        self.0.values().map(BTreeMap::len).sum::<usize>() >= MAX_STORED_DEFINITIONS
    }

    /// Decides about the pending forms with these digests; returns the kinds and names of their
    /// definitions.
    pub(super) fn decide(
        &mut self,
        decision: PinDecision,
        digests: &[String],
    ) -> Vec<(DefinitionKind, String)> {
        match decision {
            PinDecision::Approve => self.approve_forms(digests),
            PinDecision::Reject => self.reject_forms(digests),
        }
    }

    /// Approves the pending forms with these digests. A name with another form that waits is left
    /// out: approval is by name. Forms that were accepted before stay so: another client may have them.
    fn approve_forms(&mut self, digests: &[String]) -> Vec<(DefinitionKind, String)> {
        let names = self.names_pending_in(digests);
        let is_meant = |name: &String| names.contains(name);
        let has_digest = |form: &PendingForm| digests.contains(&form.sha256.to_string());
        self.edit_pending(is_meant, |pinned| pinned.approve_pending(has_digest))
    }

    /// Rejects the pending forms with these digests; returns the kinds and names of those that were
    /// not rejected before.
    fn reject_forms(&mut self, digests: &[String]) -> Vec<(DefinitionKind, String)> {
        let has_digest = |form: &PendingForm| digests.contains(&form.sha256.to_string());
        self.edit_pending(|_| true, |pinned| pinned.reject_pending(has_digest))
    }

    /// Edits the definitions with these names. Returns the kinds and names of those that have
    /// changed.
    fn edit_pending(
        &mut self,
        is_meant: impl Fn(&String) -> bool,
        edit: impl Fn(&mut PinnedDefinition) -> bool,
    ) -> Vec<(DefinitionKind, String)> {
        let mut edited = Vec::new();
        for kind in DefinitionKind::ALL {
            let Some(definitions) = self.0.get_mut(kind.member()) else { continue };
            for (name, pinned) in definitions {
                if is_meant(name) && edit(pinned) {
                    edited.push((kind, name.clone()));
                }
            }
        }
        edited
    }

    /// Returns the names with pending forms, if all of these have one of the digests, in any kind.
    /// Rejected forms wait no longer, and need not have one.
    fn names_pending_in(&self, digests: &[String]) -> Vec<String> {
        let mut names: BTreeMap<&str, bool> = BTreeMap::new();
        for (_, name, pinned) in self.definitions() {
            for form in &pinned.pending {
                let is_meant = form.rejected || digests.contains(&form.sha256.to_string());
                *names.entry(name).or_insert(true) &= is_meant;
            }
        }
        let meant = names.into_iter().filter(|(_, is_meant)| *is_meant);
        meant.map(|(name, _)| name.to_owned()).collect()
    }

    /// Returns the record without the texts of definitions.
    #[must_use]
    pub fn without_texts(mut self) -> Self {
        for pinned in self.0.values_mut().flat_map(BTreeMap::values_mut) {
            pinned.accepted.iter_mut().for_each(|form| form.definition = None);
            pinned.pending.iter_mut().for_each(|form| form.definition = None);
        }
        self
    }

    /// Returns the withdrawals of those pending forms that `is_gone` holds for.
    pub(super) fn unlisted_pending(
        &self,
        is_gone: impl Fn(DefinitionDigest) -> bool,
    ) -> Vec<BaselineChange> {
        let all = self.definitions().flat_map(|(kind, name, pinned)| {
            pinned.pending.iter().map(move |form| (kind, name, form.sha256))
        });
        let gone = all.filter(|(_, _, sha256)| is_gone(*sha256));
        gone.map(|(kind, name, sha256)| {
            let name = name.to_owned();
            BaselineChange::Withdraw(DefinitionKey { kind, name, sha256, definition: None })
        })
        .collect()
    }

    /// Adds the decisions of another record: approved and rejected forms, the accepted forms of
    /// definitions that are unknown here, and names that clients have seen.
    pub(super) fn adopt(&mut self, other: &Self) {
        for (kind, theirs) in &other.0 {
            self.0.entry(kind.clone()).or_default();
            for (name, decided) in theirs {
                let mut own = self.0.get_mut(kind).and_then(|own| own.remove(name));
                if own.is_none() && !self.is_full() {
                    own = Some(PinnedDefinition::default());
                }
                let Some(mut own) = own else { continue };
                own.adopt(decided);
                if let Some(definitions) = self.0.get_mut(kind)
                    && (own.has_forms() || own.served)
                {
                    definitions.insert(name.clone(), own);
                }
            }
        }
    }

    pub(super) fn apply(&mut self, change: BaselineChange) {
        match change {
            BaselineChange::Accept(key) => self.accept_seen(key),
            BaselineChange::Await(key, reasons) => self.await_approval(key, reasons),
            BaselineChange::Withdraw(key) => self.withdraw(&key),
            BaselineChange::Serve(kind, name) => self.mark_served(kind, name),
        }
    }

    /// Accepts a definition at first sight, unless it is known already: another process may have
    /// seen it, and an operator may have decided about it.
    fn accept_seen(&mut self, key: DefinitionKey) {
        if self.is_full() {
            return;
        }
        let definitions = self.0.entry(key.kind.member().to_owned()).or_default();
        let pinned = definitions.entry(key.name).or_default();
        if !pinned.has_forms() {
            let (sha256, definition) = (key.sha256, key.definition);
            pinned.accepted.push(PinnedForm { sha256, basis: PinBasis::Seen, definition });
        }
    }

    fn await_approval(&mut self, key: DefinitionKey, reasons: Vec<String>) {
        if self.is_full() {
            return;
        }
        let definitions = self.0.entry(key.kind.member().to_owned()).or_default();
        let pinned = definitions.entry(key.name).or_default();
        let is_approved =
            |form: &PinnedForm| form.sha256 == key.sha256 && form.basis == PinBasis::Approved;
        if pinned.accepted.iter().any(is_approved) {
            return;
        }
        let is_same = |form: &PendingForm| form.sha256 == key.sha256;
        let rejected = pinned.pending.iter().any(|form| is_same(form) && form.rejected);
        pinned.pending.retain(|form| !is_same(form));
        if pinned.pending.len() >= MAX_PENDING_FORMS {
            // Rejections stay as long as possible: others are asked for again.
            let oldest = pinned.pending.iter().position(|form| !form.rejected).unwrap_or(0);
            pinned.pending.remove(oldest);
        }
        let (sha256, definition) = (key.sha256, key.definition);
        pinned.pending.push(PendingForm { sha256, reasons, definition, rejected });
    }

    fn mark_served(&mut self, kind: DefinitionKind, name: String) {
        let is_known = self.find(kind, &name).is_some();
        if is_known || !self.is_full() {
            let definitions = self.0.entry(kind.member().to_owned()).or_default();
            definitions.entry(name).or_default().served = true;
        }
    }

    fn withdraw(&mut self, key: &DefinitionKey) {
        let Some(definitions) = self.0.get_mut(key.kind.member()) else { return };
        let Some(pinned) = definitions.get_mut(&key.name) else { return };
        // A rejection holds also when the server lists the form again.
        pinned.pending.retain(|form| form.rejected || form.sha256 != key.sha256);
        if !pinned.has_forms() && !pinned.served {
            definitions.remove(&key.name);
        }
    }
}

impl PinnedDefinition {
    /// Returns true if a form of it was accepted or waits for approval. Without pins, only the name
    /// of an element is known.
    pub(super) fn has_forms(&self) -> bool {
        !self.accepted.is_empty() || !self.pending.is_empty()
    }

    /// Adds the decisions of another record. Own accepted forms are newer.
    fn adopt(&mut self, other: &Self) {
        let is_known = self.has_forms();
        self.served |= other.served;
        let mut older = Vec::new();
        for form in &other.accepted {
            let is_approved = form.basis == PinBasis::Approved;
            if is_approved {
                self.pending.retain(|pending| pending.sha256 != form.sha256);
            }
            match self.accepted.iter_mut().find(|own| own.sha256 == form.sha256) {
                Some(own) if is_approved => own.basis = PinBasis::Approved,
                None if is_approved || !is_known => older.push(form.clone()),
                Some(_) | None => {}
            }
        }
        self.accepted.splice(..0, older);
        let surplus = self.accepted.len().saturating_sub(MAX_ACCEPTED_FORMS);
        self.accepted.drain(..surplus);
        for form in other.pending.iter().filter(|form| form.rejected) {
            let is_approved = self
                .accepted
                .iter()
                .any(|own| own.sha256 == form.sha256 && own.basis == PinBasis::Approved);
            let has_room = self.pending.len() < MAX_PENDING_FORMS;
            match self.pending.iter_mut().find(|own| own.sha256 == form.sha256) {
                Some(own) => own.rejected = true,
                None if !is_approved && has_room => {
                    self.pending.push(form.clone());
                }
                None => {}
            }
        }
    }

    /// Returns the accepted form with this digest.
    pub fn find_accepted(&self, digest: DefinitionDigest) -> Option<&PinnedForm> {
        self.accepted.iter().find(|form| form.sha256 == digest)
    }

    /// Returns the pending form with this digest, if an operator has rejected it.
    pub(super) fn find_rejected(&self, digest: DefinitionDigest) -> Option<&PendingForm> {
        self.pending.iter().find(|form| form.sha256 == digest && form.rejected)
    }

    /// Rejects its pending forms that are meant. Returns false if there are none.
    fn reject_pending(&mut self, is_meant: impl Fn(&PendingForm) -> bool) -> bool {
        let mut has_changed = false;
        for form in self.pending.iter_mut().filter(|form| !form.rejected) {
            form.rejected = is_meant(form);
            has_changed |= form.rejected;
        }
        has_changed
    }

    /// Approves its pending forms that are meant. Returns false if there are none.
    fn approve_pending(&mut self, is_meant: impl Fn(&PendingForm) -> bool) -> bool {
        let all = std::mem::take(&mut self.pending);
        let (meant, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|form| is_meant(form));
        self.pending = others;
        if meant.is_empty() {
            return false;
        }
        for form in meant {
            let PendingForm { sha256, definition, .. } = form;
            self.accepted.retain(|known| known.sha256 != sha256);
            self.accepted.push(PinnedForm { sha256, basis: PinBasis::Approved, definition });
        }
        let surplus = self.accepted.len().saturating_sub(MAX_ACCEPTED_FORMS);
        self.accepted.drain(..surplus);
        true
    }
}

/// Limit of the stored definitions of one server.
const MAX_STORED_DEFINITIONS: usize = 50_000;
/// Limit of the accepted forms of one definition; the newest stay.
const MAX_ACCEPTED_FORMS: usize = 8;
/// Limit of the pending forms of one definition.
const MAX_PENDING_FORMS: usize = 4;

#[cfg(test)]
mod tests;
