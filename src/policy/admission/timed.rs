//! Admission of an observed call: the same as that of any other call, with the times of its steps.

use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::call::{Call, Context, Failure, ServerName};
use crate::clock;
use crate::cluster::UsedItems;
use crate::policy::interceptors::Interceptors;
use crate::policy::limits::gate::Gate;
use crate::policy::limits::taking::{Enforcement, RateTaker};
use crate::policy::quotas::set_quotas::CallQuotas;
use crate::policy::target::CallTarget;
use crate::shares::{AddressBuckets, Bucket, Holder, KeyedBuckets};
use crate::telemetry::observation::{CallStep, CallTimer};

use super::Policy;
use super::passage::{CallGate, Passage, PassedCall};

/// [`Enforcement`] that notes the beginning of each step. A type of its own, so that a call without
/// observers has no branch for it.
pub(super) struct TimedEnforcement {
    timer: Arc<CallTimer>,
    inner: Enforcement,
}

impl TimedEnforcement {
    pub(super) fn new(timer: Arc<CallTimer>) -> Self {
        Self { timer, inner: Enforcement }
    }
}

impl RateTaker for TimedEnforcement {
    fn take_one(&mut self, bucket: &Bucket, name: impl FnOnce() -> String) -> Result<(), Failure> {
        self.inner.take_one(bucket, name)
    }

    fn take(
        &mut self,
        bucket: &Bucket,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        self.inner.take(bucket, cost, name)
    }

    fn take_keyed<K: Clone + Eq + Hash>(
        &mut self,
        buckets: &KeyedBuckets<K>,
        key: &K,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        self.inner.take_keyed(buckets, key, cost, name)
    }

    fn take_of_address(
        &mut self,
        buckets: &AddressBuckets,
        address: IpAddr,
        cost: NonZeroU32,
    ) -> Result<(), Failure> {
        self.inner.take_of_address(buckets, address, cost)
    }
}

impl Passage for TimedEnforcement {
    const HAS_EFFECT: bool = Enforcement::HAS_EFFECT;
    type Consent = <Enforcement as Passage>::Consent;
    type Outcome = <Enforcement as Passage>::Outcome;

    fn begin(&mut self, step: CallStep) {
        self.timer.begin(step, clock::real_now());
    }

    fn pass(&mut self, gate: CallGate, checked: Result<(), Failure>) -> Result<(), Failure> {
        self.inner.pass(gate, checked)
    }

    fn claim_consent(
        &mut self,
        policy: &Policy,
        context: &Context,
        target: &CallTarget,
    ) -> Result<Self::Consent, Failure> {
        self.inner.claim_consent(policy, context, target)
    }

    fn spend_consent<'a>(
        consent: &'a mut Self::Consent,
        items: &'a UsedItems,
    ) -> Option<impl Future<Output = Result<(), Failure>> + Send + 'a> {
        Enforcement::spend_consent(consent, items)
    }

    fn note_interceptors(&mut self, interceptors: &Interceptors, call: &Call, target: &CallTarget) {
        self.inner.note_interceptors(interceptors, call, target);
    }

    fn check_quotas(&mut self, quotas: &CallQuotas<'_>) -> Result<(), Failure> {
        self.inner.check_quotas(quotas)
    }

    fn look_at_gate(&mut self, gate: &Gate, server: &ServerName, holder: &Holder) {
        self.inner.look_at_gate(gate, server, holder);
    }

    fn complete(self, passed: PassedCall<'_, Self>) -> Result<Self::Outcome, Failure> {
        let PassedCall { call, target, limits, slot, quotas, consent } = passed;
        self.inner.complete(PassedCall { call, target, limits, slot, quotas, consent })
    }
}
