//! What is known of a request's caller and of the decision about it, for its audit record.

use std::sync::{Arc, OnceLock};

/// How a caller has proved who it is. Never the secret itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditCredential {
    /// The kind of proof: `key`, `none`, `parent`.
    pub kind: &'static str,
    /// What tells it from others of its kind: the first digits of a key's SHA-256.
    pub id: Option<String>,
}

/// What the context of a request carries for its audit record, if there is an audit log.
#[derive(Debug, Default)]
pub struct AuditNotes {
    credential: Arc<AuditCredential>,
    rule: OnceLock<DecidingRule>,
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
    /// The notes of a request with this credential.
    pub fn new(credential: AuditCredential) -> Arc<Self> {
        Arc::new(Self { credential: Arc::new(credential), rule: OnceLock::new() })
    }

    /// Notes for a call that is made on behalf of this request: it is decided about anew.
    pub fn for_inner_call(&self) -> Arc<Self> {
        Arc::new(Self { credential: Arc::clone(&self.credential), rule: OnceLock::new() })
    }

    /// How the caller has proved who it is.
    pub fn credential(&self) -> &AuditCredential {
        &self.credential
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
