//! What is known of a request's caller and of the decision about it, for its audit record.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::AuditTrail;

/// How a caller has proved who it is. Never the secret itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditCredential {
    /// The kind of proof: `key`, `none`, `parent`.
    pub kind: &'static str,
    /// What tells it from others of its kind: the first digits of a key's SHA-256.
    pub id: Option<Arc<str>>,
}

/// What the context of a request carries for its audit record, if there is an audit log.
#[derive(Debug, Default)]
pub struct AuditNotes {
    credential: AuditCredential,
    actors: Arc<[String]>,
    rule: OnceLock<DecidingRule>,
    permission: OnceLock<DecidingRule>,
    change: OnceLock<DecidingRule>,
    confirmation: Mutex<Option<ConfirmationNote>>,
    condition_fault: OnceLock<Box<str>>,
    /// The id of the record, if calls are made for the request.
    id: OnceLock<Arc<str>>,
    /// The id of the record of the request that this call is made for.
    parent: Option<Arc<str>>,
}

/// What a user was asked about a call, and answered.
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
    pub(super) fn label(self) -> &'static str {
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
    /// The notes of a request with this credential, which these actors have used.
    pub fn new(credential: AuditCredential, actors: Arc<[String]>) -> Arc<Self> {
        Self { credential, actors, ..Self::default() }.into()
    }

    /// Notes for a call that is made on behalf of this request: it is decided about anew, and its
    /// record names that of the request.
    pub fn for_inner_call(&self, trail: &AuditTrail) -> Arc<Self> {
        let parent = Some(Arc::clone(self.id.get_or_init(|| trail.next_id().into())));
        Self { parent, ..self.of_same_caller() }.into()
    }

    /// Notes for a part of this request that is decided about anew.
    pub fn for_part(&self) -> Arc<Self> {
        self.of_same_caller().into()
    }

    fn of_same_caller(&self) -> Self {
        let (credential, actors) = (self.credential.clone(), Arc::clone(&self.actors));
        Self { credential, actors, ..Self::default() }
    }

    /// The id that the record has to have, because others name it.
    pub fn id(&self) -> Option<&str> {
        self.id.get().map(|id| &**id)
    }

    /// The id of the record of the request that this call is made for.
    pub fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    /// How the caller has proved who it is.
    pub fn credential(&self) -> &AuditCredential {
        &self.credential
    }

    /// Who acts for the caller, the current actor first.
    pub fn actors(&self) -> &[String] {
        &self.actors
    }

    /// Says which rule permits the request, unless another check refuses it. The first one counts.
    pub fn set_permission(&self, rule: DecidingRule) {
        let _ = self.permission.set(rule);
    }

    /// The rule that permits the request, if one said so.
    pub fn permission(&self) -> Option<&DecidingRule> {
        self.permission.get()
    }

    /// Says which rule has changed the request, unless another check refuses it. The first one counts.
    pub fn set_change(&self, rule: DecidingRule) {
        let _ = self.change.set(rule);
    }

    /// The rule that has changed the request, if one did.
    pub fn change(&self) -> Option<&DecidingRule> {
        self.change.get()
    }

    /// Says what the user was asked or has answered. The last one counts.
    pub fn set_confirmation(&self, note: ConfirmationNote) {
        *self.confirmation.lock() = Some(note);
    }

    /// What the user was asked or has answered.
    pub fn confirmation(&self) -> Option<ConfirmationNote> {
        *self.confirmation.lock()
    }

    /// Notes the rule whose condition could not be evaluated, and its fault. The first one counts.
    pub fn set_condition_fault(&self, fault: Box<str>) {
        let _ = self.condition_fault.set(fault);
    }

    /// The rule whose condition could not be evaluated, and its fault.
    pub fn condition_fault(&self) -> Option<&str> {
        self.condition_fault.get().map(|fault| &**fault)
    }

    /// Says which rule decided. The first one counts.
    pub fn set_rule(&self, rule: DecidingRule) {
        let _ = self.rule.set(rule);
    }

    /// The rule that decided, if one said so.
    pub fn rule(&self) -> Option<&DecidingRule> {
        self.rule.get()
    }
}
