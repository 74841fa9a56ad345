//! The gates of a call, and the way in which it passes them: with effect, or as a dry run.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::call::{Call, Context, Failure, InFlightSlot, ServerName};
use crate::clock;
use crate::cluster::UsedItems;
use crate::policy::interceptors::Interceptors;
use crate::policy::limits::gate::Gate;
use crate::policy::limits::taking::{Enforcement, RateTaker};
use crate::policy::quotas::set_quotas::CallQuotas;
use crate::policy::target::CallTarget;
use crate::shares::Holder;
use crate::telemetry::observation::{CallStep, CallTimer};

use super::Policy;
use super::confirmation::ClaimedConsent;
use super::permit::Permitted;
use super::registry::ServerLimits;

/// A check of a call, in the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallGate {
    /// The caller exists, and its credential is valid.
    Client,
    /// The caller may use the profile, which exists.
    Profile,
    /// The rates of the client and of the gateway.
    RequestRates,
    /// The profile shows a tool of this name.
    Name,
    /// The definition of the tool is not held.
    Definitions,
    /// The rules of `[policy]`.
    Rules,
    /// The required scopes.
    Scopes,
    /// The circuit breaker of the server.
    Breaker,
    /// The rates of the tool, the server and the profile.
    Rates,
    /// The arguments fit the schema.
    Arguments,
    /// The consent of the user.
    Consent,
    /// The interceptors.
    Interceptors,
    /// The quotas.
    Quotas,
    /// The limit of calls in flight.
    InFlight,
    /// The state of the server.
    Server,
}

/// The way in which a call passes the gates of [`Policy::pass_gates`]. [`Enforcement`] takes permits,
/// slots and consents, and stops at the first refusal. A [`DryRun`](super::dry_run::DryRun) looks at all
/// gates and takes nothing: it cannot create a [`Permitted`] call.
pub(super) trait Passage: RateTaker + Send + Sized {
    /// True if interceptors are asked, and a slot among the calls in flight is taken. A constant: the
    /// other branch is not compiled.
    const HAS_EFFECT: bool;
    /// The claimed consent to a call.
    type Consent: Send;
    /// The result of the passage of all gates.
    type Outcome: Send;

    /// Notes that a step begins, for an observed call.
    #[inline]
    fn begin(&mut self, _step: CallStep) {}

    /// Passes a gate that changes nothing.
    ///
    /// # Errors
    /// The refusal, if it ends the passage.
    fn pass(&mut self, gate: CallGate, checked: Result<(), Failure>) -> Result<(), Failure>;

    /// Claims the user's consent.
    fn claim_consent(
        &mut self,
        policy: &Policy,
        context: &Context,
        target: &CallTarget,
    ) -> Result<Self::Consent, Failure>;

    /// Uses the claimed consent at all replicas; `None` if there is nothing to use.
    fn spend_consent<'a>(
        consent: &'a mut Self::Consent,
        items: &'a UsedItems,
    ) -> Option<impl Future<Output = Result<(), Failure>> + Send + 'a>;

    /// Notes that interceptors would see the call. Called instead of them if the passage has no
    /// effect.
    fn note_interceptors(&mut self, interceptors: &Interceptors, call: &Call, target: &CallTarget);

    /// Checks the quotas.
    fn check_quotas(&mut self, quotas: &CallQuotas<'_>) -> Result<(), Failure>;

    /// Looks at the calls in flight, instead of taking a slot, if the passage has no effect.
    fn look_at_gate(&mut self, gate: &Gate, server: &ServerName, holder: &Holder);

    /// Completes the passage: enters the breaker, charges the quotas and keeps the consent.
    fn complete(self, passed: PassedCall<'_, Self>) -> Result<Self::Outcome, Failure>;
}

/// A call that has passed all gates, and the limits that it is charged to.
pub(super) struct PassedCall<'a, P: Passage> {
    pub(super) call: Box<Call>,
    pub(super) target: CallTarget,
    pub(super) limits: Option<&'a ServerLimits>,
    pub(super) slot: Option<InFlightSlot>,
    pub(super) quotas: Option<CallQuotas<'a>>,
    pub(super) consent: P::Consent,
}

/// Observes the steps of an admission. A type, so that a call without observers has no branch for it.
pub(super) trait StepObserver: Send {
    /// Notes that a step begins.
    fn note_step(&self, step: CallStep);
}

impl StepObserver for () {
    #[inline]
    fn note_step(&self, _: CallStep) {}
}

impl StepObserver for Arc<CallTimer> {
    fn note_step(&self, step: CallStep) {
        self.begin(step, clock::real_now());
    }
}

impl<O: StepObserver> Passage for Enforcement<O> {
    const HAS_EFFECT: bool = true;
    type Consent = Option<Box<ClaimedConsent>>;
    type Outcome = Permitted<Call>;

    #[inline]
    fn begin(&mut self, step: CallStep) {
        self.0.note_step(step);
    }

    #[inline]
    fn pass(&mut self, _gate: CallGate, checked: Result<(), Failure>) -> Result<(), Failure> {
        checked
    }

    #[inline]
    fn claim_consent(
        &mut self,
        policy: &Policy,
        context: &Context,
        target: &CallTarget,
    ) -> Result<Self::Consent, Failure> {
        policy.claim_consent(context, target)
    }

    #[inline]
    fn spend_consent<'a>(
        consent: &'a mut Self::Consent,
        items: &'a UsedItems,
    ) -> Option<impl Future<Output = Result<(), Failure>> + Send + 'a> {
        consent.as_mut().map(|consent| Box::pin(consent.spend(items)))
    }

    fn note_interceptors(&mut self, _: &Interceptors, _: &Call, _: &CallTarget) {}

    #[inline]
    fn check_quotas(&mut self, quotas: &CallQuotas<'_>) -> Result<(), Failure> {
        quotas.check()
    }

    fn look_at_gate(&mut self, _: &Gate, _: &ServerName, _: &Holder) {}

    #[inline]
    fn complete(self, passed: PassedCall<'_, Self>) -> Result<Self::Outcome, Failure> {
        let PassedCall { call, target, limits, slot, quotas, consent } = passed;
        let pass = limits.map(ServerLimits::enter_breaker).transpose()?.flatten();
        if let Some(quotas) = quotas {
            quotas.charge()?;
        }
        if let Some(consent) = consent {
            consent.keep();
        }
        Ok(Permitted::new(call, target, slot).watched_by(pass))
    }
}
