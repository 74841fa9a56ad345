//! Audit records of subscriptions.
//!
//! A Legacy client's refused subscription is answered with an error, and recorded as a refused
//! request. A Modern client requests several subscriptions at once and is granted the permitted
//! ones; each has its own record here.

use std::sync::Arc;

use crate::call::{AuditNotes, Context, Failure};
use crate::mcp::{Era, Method};
use crate::pipeline::record::audit::{DEFAULT_CHECK, allowed_request};
use crate::pipeline::{Gateway, route};
use crate::telemetry::audit::{
    AuditDecision, AuditKind, AuditRecord, RecordRoom, check_of_failure, session_digest,
};
use crate::telemetry::{CallOutcome, CallSubject};
use crate::upstream::{SubscriptionGuard, SubscriptionRefusal, Topic};

/// Answer of a server to a subscription.
pub(crate) enum SubscriptionVerdict {
    Subscribed(Arc<SubscriptionGuard>),
    Refused(SubscriptionRefusal),
}

impl SubscriptionVerdict {
    /// Returns the subscription, unless it was refused.
    pub(super) fn guard(&self) -> Option<&Arc<SubscriptionGuard>> {
        match self {
            Self::Subscribed(guard) => Some(guard),
            Self::Refused(_) => None,
        }
    }
}

/// Subject of a subscription's record.
pub(super) struct AuditedSubscription<'a> {
    /// Public URI of the resource; `None` for a subject without one.
    pub(super) uri: Option<&'a str>,
    /// Room for the record, if the audit log is required.
    pub(super) room: Option<RecordRoom>,
}

/// Outcome of a subscription.
pub(crate) type SubscriptionOutcome = Result<SubscriptionVerdict, Failure>;

/// The decision, the outcome, and the reason if it failed.
type RecordedOutcome = (AuditDecision, &'static str, Option<&'static str>);

impl Gateway {
    /// Records the outcome of a subscription. `notes` belong to this subscription alone: the others
    /// of the request are decided separately.
    pub(super) fn audit_subscription(
        &self,
        context: &Context,
        notes: &AuditNotes,
        subject: AuditedSubscription<'_>,
        outcome: &SubscriptionOutcome,
    ) {
        let AuditedSubscription { uri, room } = subject;
        let is_legacy = context.client.version.era() == Era::Legacy;
        let Some((decision, ended, reason)) = verdict_on(outcome, is_legacy) else { return };
        if let (AuditDecision::Deny, Some(uri)) = (decision, uri) {
            let (snapshot, key) = (self.snapshots.load(), self.view_key(context));
            route::note_rule_hiding_resource(&snapshot, &key, context, uri);
        }
        let by_default = match decision {
            AuditDecision::Deny => check_of_failure(reason.unwrap_or_default()),
            _ => DEFAULT_CHECK,
        };
        let rule = match decision {
            AuditDecision::Deny => notes.rule(),
            _ => notes.rule().or(notes.permission()),
        };
        let limit = outcome.as_ref().err().and_then(Failure::limit);
        let held = outcome.as_ref().ok().and_then(SubscriptionVerdict::guard);
        let native = match held.map(|held| held.topic()) {
            Some(Topic::Resource(uri)) => CallSubject::Resource(uri),
            _ => CallSubject::Nothing,
        };
        let method = if is_legacy { Method::ResourcesSubscribe } else { Method::Listen };
        let session = context.session.as_deref().map(session_digest);
        self.audit.record_in(
            room,
            &AuditRecord {
                method: method.as_str(),
                public: uri.map_or(CallSubject::Nothing, CallSubject::Resource),
                native,
                server: held.map(|held| held.server().as_str()),
                decision,
                check: rule.map_or(by_default, |rule| rule.check),
                rule: rule.and_then(|rule| rule.rule.as_deref()).or(limit),
                outcome: ended,
                reason,
                session: session.as_deref(),
                ..allowed_request(AuditKind::Subscribe, context, notes)
            },
        );
    }
}

/// Returns the record's outcome; `None` for subscriptions that are recorded as refused requests.
fn verdict_on(outcome: &SubscriptionOutcome, is_legacy: bool) -> Option<RecordedOutcome> {
    match outcome {
        Ok(SubscriptionVerdict::Subscribed(_)) => {
            Some((AuditDecision::Allow, CallOutcome::Ok.label(), None))
        }
        Ok(SubscriptionVerdict::Refused(SubscriptionRefusal::Said(_))) => {
            Some((AuditDecision::Allow, "failed", Some("server_error")))
        }
        Ok(SubscriptionVerdict::Refused(_)) | Err(_) if is_legacy => None,
        Ok(SubscriptionVerdict::Refused(_)) => {
            Some((AuditDecision::Allow, "failed", Some("no_updates")))
        }
        Err(failure) => Some((AuditDecision::Deny, "refused", Some(failure.wire().label))),
    }
}
