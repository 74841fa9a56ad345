//! A dry run: the gates of a call evaluated without making it.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;

use crate::call::{Call, Context, Failure, Principal, ServerName};
use crate::cluster::UsedItems;
use crate::policy::interceptors::Interceptors;
use crate::policy::limits::gate::Gate;
use crate::policy::limits::taking::{LimitLevel, RateTaker};
use crate::policy::quotas::set_quotas::CallQuotas;
use crate::policy::target::CallTarget;
use crate::shares::{AddressBuckets, Bucket, BucketLevel, Holder, KeyedBuckets};

use super::Policy;
use super::passage::{CallGate, Passage, PassedCall};
use super::registry::GATEWAY_LIMIT;

/// The outcomes of all gates that a call would pass. Nothing is charged, and a refusal does not end
/// the run.
#[derive(Debug)]
pub struct DryRun {
    outcomes: BTreeMap<CallGate, GateOutcome>,
    /// The gate that rates belong to at this step.
    rates: CallGate,
    /// Permits that earlier steps of the call would have taken from each rate.
    taken: BTreeMap<String, u32>,
}

/// The outcome of one gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateOutcome {
    /// The gate.
    pub gate: CallGate,
    /// Its verdict.
    pub verdict: GateVerdict,
    /// The limits that it has checked.
    pub limits: Vec<LimitLevel>,
}

/// The verdict of a gate about a call that is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateVerdict {
    /// The call would pass.
    Passes,
    /// The call would be refused.
    Refuses(Failure),
    /// The call would wait for other calls of the server.
    Waits {
        /// Calls in flight.
        in_flight: usize,
    },
    /// The user would be asked.
    AsksUser,
    /// Only a real call could tell.
    Unknown,
}

impl Default for DryRun {
    fn default() -> Self {
        Self { outcomes: BTreeMap::new(), rates: CallGate::RequestRates, taken: BTreeMap::new() }
    }
}

impl DryRun {
    /// Adds the outcome of a gate that is not part of admission.
    pub fn note(&mut self, gate: CallGate, verdict: GateVerdict) {
        let noted = self.outcome(gate);
        if noted.verdict == GateVerdict::Passes {
            noted.verdict = verdict;
        }
    }

    /// Returns the outcomes, in the order of the gates.
    pub fn into_outcomes(self) -> Vec<GateOutcome> {
        self.outcomes.into_values().collect()
    }

    fn outcome(&mut self, gate: CallGate) -> &mut GateOutcome {
        let new = || GateOutcome { gate, verdict: GateVerdict::Passes, limits: Vec::new() };
        self.outcomes.entry(gate).or_insert_with(new)
    }

    /// Looks at a rate with the permits of this step and of earlier ones.
    fn look(
        &mut self,
        limit: String,
        cost: NonZeroU32,
        level: BucketLevel,
        check: impl FnOnce(NonZeroU32, String) -> Result<(), Failure>,
    ) {
        let taken = self.taken.entry(limit.clone()).or_default();
        let total = cost.saturating_add(*taken);
        *taken = total.get();
        let checked = check(total, limit.clone());
        let mut level = LimitLevel::of_bucket(limit, level);
        level.is_exceeded = checked.is_err();
        let gate = self.rates;
        self.outcome(gate).limits.push(level);
        self.note_checked(gate, checked);
    }

    fn note_checked(&mut self, gate: CallGate, checked: Result<(), Failure>) {
        let verdict = checked.map_or_else(GateVerdict::Refuses, |()| GateVerdict::Passes);
        self.note(gate, verdict);
    }
}

impl RateTaker for DryRun {
    fn take(
        &mut self,
        bucket: &Bucket,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        self.look(name(), cost, bucket.level(), |cost, name| bucket.look(cost, || name));
        Ok(())
    }

    fn take_keyed<K: Clone + Eq + Hash>(
        &mut self,
        buckets: &KeyedBuckets<K>,
        key: &K,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let look = |cost, name| buckets.look(key, cost, || name);
        self.look(name(), cost, buckets.level(key), look);
        Ok(())
    }

    fn take_of_address(
        &mut self,
        buckets: &AddressBuckets,
        address: IpAddr,
        cost: NonZeroU32,
    ) -> Result<(), Failure> {
        let look = |cost, _| buckets.look(address, cost);
        self.look("client".into(), cost, buckets.level(address), look);
        Ok(())
    }
}

impl Passage for DryRun {
    const HAS_EFFECT: bool = false;
    type Consent = ();
    type Outcome = Self;

    fn pass(&mut self, gate: CallGate, checked: Result<(), Failure>) -> Result<(), Failure> {
        self.rates = CallGate::Rates;
        self.note_checked(gate, checked);
        Ok(())
    }

    fn claim_consent(
        &mut self,
        policy: &Policy,
        _context: &Context,
        target: &CallTarget,
    ) -> Result<Self::Consent, Failure> {
        if policy.asks_about(target) {
            self.note(CallGate::Consent, GateVerdict::AsksUser);
        }
        Ok(())
    }

    fn spend_consent<'a>(
        _consent: &'a mut Self::Consent,
        _items: &'a UsedItems,
    ) -> Option<impl Future<Output = Result<(), Failure>> + Send + 'a> {
        None::<std::future::Ready<_>>
    }

    fn note_interceptors(&mut self, interceptors: &Interceptors, call: &Call, target: &CallTarget) {
        if interceptors.concern_call(call, target) {
            self.note(CallGate::Interceptors, GateVerdict::Unknown);
        }
    }

    fn check_quotas(&mut self, quotas: &CallQuotas<'_>) -> Result<(), Failure> {
        self.note_checked(CallGate::Quotas, quotas.check());
        self.outcome(CallGate::Quotas).limits = quotas.levels();
        Ok(())
    }

    fn look_at_gate(&mut self, gate: &Gate, server: &ServerName, holder: &Holder) {
        let level = gate.look(server, holder);
        let verdict = match level.refusal {
            Some(failure) => GateVerdict::Refuses(failure),
            None if level.waits => GateVerdict::Waits { in_flight: level.in_flight },
            None => GateVerdict::Passes,
        };
        let is_exceeded = matches!(verdict, GateVerdict::Refuses(_));
        self.note(CallGate::InFlight, verdict);
        let remaining = level.settings.in_flight.saturating_sub(level.in_flight);
        self.outcome(CallGate::InFlight).limits.push(LimitLevel {
            limit: format!("in_flight:{server}"),
            remaining: u64::try_from(remaining).unwrap_or(u64::MAX),
            setting: format!("{} in flight", level.settings.in_flight),
            is_exceeded,
        });
    }

    fn complete(self, _passed: PassedCall<'_, Self>) -> Result<Self::Outcome, Failure> {
        Ok(self)
    }
}

impl Policy {
    /// Evaluates the rates of a request without counting it, as [`Policy::admit_request`] checks
    /// them.
    pub fn try_request(&self, context: &Context) -> DryRun {
        let mut run = DryRun::default();
        let (who, address) = (&context.principal, context.address);
        let checked = self.limits.check_request(who, address, &mut run);
        run.note_checked(CallGate::RequestRates, checked);
        run
    }

    /// Returns the rest of a caller's rates and quotas, and takes nothing: its own ones, and those of
    /// each caller at servers and tools that it has used.
    pub fn levels_of_caller(&self, who: &Principal, address: IpAddr) -> Vec<LimitLevel> {
        let mut run = DryRun::default();
        // Refusals are noted and never end a dry run.
        let _ = self.limits.check_request(who, address, &mut run);
        let own = run.into_outcomes().into_iter().flat_map(|outcome| outcome.limits);
        let own = own.filter(|level| level.limit != GATEWAY_LIMIT);
        own.chain(self.limits.levels_of_caller(who, address)).collect()
    }

    /// Evaluates all gates of [`Policy::admit`] for a call, and neither makes nor counts it.
    pub async fn try_call(&self, call: Box<Call>, target: CallTarget, run: DryRun) -> DryRun {
        // Refusals are noted and never end a dry run.
        self.pass_gates(call, target, run).await.unwrap_or_default()
    }
}
