//! Facts about a request's caller and about the decision, for the request's audit record.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

/// Proof of the caller's identity. Never the secret itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditCredential {
    /// The kind of proof: `key`, `none`, `parent`.
    pub kind: &'static str,
    /// Identifier among proofs of its kind: the first digits of a key's SHA-256.
    pub id: Option<Arc<str>>,
}

/// Notes for the audit record in the context of a request, if the audit log is on.
#[derive(Debug, Default)]
pub struct AuditNotes {
    credential: AuditCredential,
    actors: Arc<[String]>,
    rule: OnceLock<DecidingRule>,
    permission: OnceLock<DecidingRule>,
    change: OnceLock<DecidingRule>,
    confirmation: Mutex<Option<ConfirmationNote>>,
    condition_fault: OnceLock<Box<str>>,
    /// Id of the record, if calls are made for the request.
    id: OnceLock<Arc<str>>,
    /// Id of the parent request's record.
    parent: Option<Arc<str>>,
}

/// Confirmation by the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfirmationNote {
    /// The user was asked.
    Asked,
    /// The user has agreed.
    Accepted,
    /// The user has declined, or dismissed the question.
    Declined,
    /// The client cannot ask its user.
    Impossible,
}

impl ConfirmationNote {
    /// Returns the word for the state in records.
    pub fn label(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Accepted => "accepted",
            Self::Declined => "declined",
            Self::Impossible => "impossible",
        }
    }
}

/// The check, and the rule within it, that decided about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidingRule {
    /// The check: `catalog`, `limit`, `arguments`, …
    pub check: &'static str,
    /// The rule's name, as in the configuration.
    pub rule: Option<Arc<str>>,
}

impl AuditNotes {
    /// Creates the notes of a request with this credential and these actors.
    #[inline]
    pub fn new(credential: AuditCredential, actors: Arc<[String]>) -> Arc<Self> {
        Self { credential, actors, ..Self::default() }.into()
    }

    /// Creates notes for a call on behalf of this request. The call gets a decision of its own, and
    /// its record names the record of this request, which gets its id by `next_id` if it has none.
    pub fn for_inner_call(&self, next_id: impl FnOnce() -> String) -> Arc<Self> {
        let parent = Some(Arc::clone(self.id.get_or_init(|| next_id().into())));
        Self { parent, ..self.of_same_caller() }.into()
    }

    /// Creates notes for a part of this request that gets a decision of its own.
    #[inline]
    pub fn for_part(&self) -> Arc<Self> {
        self.of_same_caller().into()
    }

    fn of_same_caller(&self) -> Self {
        let (credential, actors) = (self.credential.clone(), Arc::clone(&self.actors));
        Self { credential, actors, ..Self::default() }
    }

    /// Returns the id for the record, if others refer to it.
    #[inline]
    pub fn id(&self) -> Option<&str> {
        self.id.get().map(|id| &**id)
    }

    /// Returns the id for the record, which is made by `next_id` if there is none yet.
    pub fn id_or(&self, next_id: impl FnOnce() -> String) -> String {
        self.id.get_or_init(|| next_id().into()).to_string()
    }

    /// Returns the id of the parent request's record.
    #[inline]
    pub fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    /// Returns the proof of the caller's identity.
    #[inline]
    pub fn credential(&self) -> &AuditCredential {
        &self.credential
    }

    /// Returns the actors on behalf of the caller, the current one first.
    #[inline]
    pub fn actors(&self) -> &[String] {
        &self.actors
    }

    /// Sets the rule that permits the request unless another check refuses it. The first one
    /// counts.
    #[inline]
    pub fn set_permission(&self, rule: DecidingRule) {
        let _ = self.permission.set(rule);
    }

    /// Returns the rule that permits the request, if there is one.
    #[inline]
    pub fn permission(&self) -> Option<&DecidingRule> {
        self.permission.get()
    }

    /// Sets the rule that changed the request, unless another check refuses it. The first one
    /// counts.
    #[inline]
    pub fn set_change(&self, rule: DecidingRule) {
        let _ = self.change.set(rule);
    }

    /// Returns the rule that changed the request, if there is one.
    #[inline]
    pub fn change(&self) -> Option<&DecidingRule> {
        self.change.get()
    }

    /// Sets the state of the user's confirmation. The last one counts.
    #[inline]
    pub fn set_confirmation(&self, note: ConfirmationNote) {
        *self.confirmation.lock() = Some(note);
    }

    /// Returns the state of the user's confirmation.
    #[inline]
    pub fn confirmation(&self) -> Option<ConfirmationNote> {
        *self.confirmation.lock()
    }

    /// Sets the rule with a condition that could not be evaluated, and its fault. The first one
    /// counts.
    #[inline]
    pub fn set_condition_fault(&self, fault: Box<str>) {
        let _ = self.condition_fault.set(fault);
    }

    /// Returns the rule with a condition that could not be evaluated, and its fault.
    #[inline]
    pub fn condition_fault(&self) -> Option<&str> {
        self.condition_fault.get().map(|fault| &**fault)
    }

    /// Sets the deciding rule. The first one counts.
    #[inline]
    pub fn set_rule(&self, rule: DecidingRule) {
        let _ = self.rule.set(rule);
    }

    /// Returns the deciding rule, if there is one.
    #[inline]
    pub fn rule(&self) -> Option<&DecidingRule> {
        self.rule.get()
    }
}
