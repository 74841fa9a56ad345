//! The checks of a call in their order, and the permit that only they create.

mod arguments;
pub(super) mod confirmation;
pub(super) mod dry_run;
pub(super) mod passage;
pub(super) mod permit;
pub(super) mod registry;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::call::{Call, Context, Failure, Principal, ServerName, TokenSource};
use crate::clock;
use crate::config::Config;
use crate::mcp::Method;
use crate::policy::authorization::{Authorization, CallerRights, MAX_RULES_WAIT};
use crate::policy::interceptors::{Interceptors, ReplyInterceptors};
use crate::policy::limits::taking::{Enforcement, RatePreparation};
use crate::policy::scopes::{ScopeRules, ScopedCaller};
use crate::policy::target::{ArgumentsSeen, CallTarget};
use crate::shares::{Holder, LargeWork, PermitWait};
use crate::telemetry::observation::{CallStep, CallTimer};

use arguments::MAX_CHECKS_WAIT;
use confirmation::{ConfirmRules, MAX_QUESTIONS_WAIT};
use passage::{CallGate, Passage, PassedCall};
use permit::Permitted;
use registry::{PolicyLimits, ServerLimits};

/// The compiled policy of one snapshot.
#[derive(Debug)]
pub struct Policy {
    limits: PolicyLimits,
    /// `None` if there are no rules.
    authorization: Option<Arc<Authorization>>,
    /// `None` if no scopes are required.
    scopes: Option<ScopeRules>,
    /// `None` if no call needs the user's consent.
    confirmation: Option<Arc<ConfirmRules>>,
}

impl Policy {
    /// Creates a policy that enforces `limits`.
    pub fn new(limits: PolicyLimits) -> Self {
        Self { limits, authorization: None, scopes: None, confirmation: None }
    }

    /// Returns the policy with calls that need the user's consent.
    #[must_use]
    pub fn with_confirmation(self, rules: Option<ConfirmRules>) -> Self {
        Self { confirmation: rules.map(Arc::new), ..self }
    }

    /// Returns the policy with the scopes that a configuration requires.
    #[must_use]
    pub fn with_scopes(self, config: &Config) -> Self {
        Self { scopes: ScopeRules::new(config), ..self }
    }

    /// Returns the policy with rules.
    #[must_use]
    pub fn with_authorization(self, authorization: Option<Arc<Authorization>>) -> Self {
        Self { authorization, ..self }
    }

    /// Returns the rules; `None` if there are none.
    pub fn authorization(&self) -> Option<&Arc<Authorization>> {
        self.authorization.as_ref()
    }

    /// Returns the access rights of a caller; `None` if there are no rules.
    #[inline]
    pub fn rights_of(&self, context: &Context) -> Option<CallerRights> {
        self.authorization.as_ref().map(|authorization| authorization.rights_of(context))
    }

    /// Admits a request of any method: the client's own rate, then the whole gateway's. The narrow
    /// limit is first, so that a client over its limit uses up nothing that others share.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] names the limit and the wait.
    pub fn admit_request(&self, who: &Principal, address: IpAddr) -> Result<(), Failure> {
        self.limits.check_request(who, address, &mut Enforcement(()))
    }

    /// Returns true if a request of any method takes permits from rates that replicas share. The rates of
    /// addresses and of the whole gateway are not shared.
    pub fn shares_request_rates(&self, who: &Principal) -> bool {
        self.limits.shares_rates && *who != Principal::Anonymous
    }

    /// Provides the permits that a request of any method takes from rates that replicas share. Returns
    /// the wait for them; `None` if none is needed. Called before [`Policy::admit_request`].
    pub fn prepare_request(&self, who: &Principal, address: IpAddr) -> Option<PermitWait> {
        if !self.shares_request_rates(who) {
            return None;
        }
        let mut preparation = RatePreparation::default();
        // A refusal is that of the request itself, which follows.
        let _ = self.limits.check_request(who, address, &mut preparation);
        preparation.finish()
    }

    /// Provides the permits that a call takes from rates that replicas share. Returns the wait for them;
    /// `None` if none is needed.
    fn prepare_call(
        &self,
        call: &Call,
        target: &CallTarget,
        limits: Option<&ServerLimits>,
    ) -> Option<PermitWait> {
        if !self.limits.shares_rates {
            return None;
        }
        let mut preparation = RatePreparation::default();
        let rates = limits.map(ServerLimits::rates);
        let cost = rates.map_or(Ok(NonZeroU32::MIN), |rates| {
            rates.check_call(target, &call.context, &mut preparation)
        });
        if let Ok(cost) = cost {
            // A refusal is that of the call itself, which follows.
            let _ = self.limits.check_shared(&call.context, cost, &mut preparation);
        }
        preparation.finish()
    }

    /// Checks that an address may try an unknown key or token: it may not after too many failures.
    /// Called before a signature is verified, but never for a client's key or a token that was
    /// verified before, so that no client can lock out others that share its address.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] names the limit and the wait.
    pub fn admit_attempt(&self, address: IpAddr) -> Result<(), Failure> {
        self.limits.failed_logins.as_ref().map_or(Ok(()), |it| it.check(address, clock::now()))
    }

    /// Counts a failed attempt with a key or token.
    pub fn record_failed_attempt(&self, address: IpAddr) {
        if let Some(failed) = &self.limits.failed_logins {
            failed.record(address, clock::now());
        }
    }

    /// Counts a request of an unknown sender, which is refused regardless, towards the rate of its
    /// address.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] names the limit and the wait.
    pub fn admit_unauthenticated(&self, address: IpAddr) -> Result<(), Failure> {
        self.limits.check_address(address, &mut Enforcement(()))
    }

    /// Admits a request to an endpoint: its sender has the scopes that the profile requires.
    ///
    /// # Errors
    /// [`Failure::ScopesNeeded`].
    pub fn admit_entry(
        &self,
        caller: ScopedCaller<'_>,
        profile: &str,
        source: Option<&Arc<TokenSource>>,
    ) -> Result<(), Failure> {
        let Some(rules) = &self.scopes else { return Ok(()) };
        rules.check_entry(caller, profile, source)
    }

    /// Checks that the sender of a call has the required scopes.
    ///
    /// # Errors
    /// [`Failure::ScopesNeeded`], with all of them.
    pub fn check_scopes(&self, context: &Context, target: &CallTarget) -> Result<(), Failure> {
        let Some(rules) = &self.scopes else { return Ok(()) };
        rules.check(context, &target.server, target.tool_name())
    }

    /// Admits a call. The checks, in this order: the rules, the scopes, the server's circuit
    /// breaker, the rates of its tool, its server and its profile, the tool's schema, the user's
    /// consent, the interceptors, which see the message for the server, the quotas, and a
    /// slot among the server's calls in flight. Then the consent is used at all replicas.
    ///
    /// The rules are first, so that a caller does not learn of scopes, limits or schemas of
    /// elements that it may not use; then the breaker, so that a call which it refuses uses up
    /// nothing. The slot is last, so that an invalid call never waits for one, and neither does one
    /// beyond a quota. With the slot the breaker is asked again, which may let only one call through;
    /// then the call is charged to its quotas.
    ///
    /// # Errors
    /// [`Failure::ScopesNeeded`], [`Failure::BreakerOpen`], [`Failure::OverLimit`],
    /// [`Failure::InvalidArguments`], [`Failure::NotConfirmed`], [`Failure::Intercepted`],
    /// [`Failure::InterceptorDown`], [`Failure::StoreUnavailable`], and those of [`Authorization::authorize_call`].
    pub fn admit(
        &self,
        call: Box<Call>,
        target: CallTarget,
    ) -> impl Future<Output = Result<Permitted<Call>, Failure>> + Send + '_ {
        self.pass_gates(call, target, Enforcement(()))
    }

    /// Like [`Policy::admit`], and notes the steps of an observed call.
    ///
    /// # Errors
    /// Those of [`Policy::admit`].
    pub fn admit_observed(
        &self,
        call: Box<Call>,
        target: CallTarget,
        timer: Arc<CallTimer>,
    ) -> impl Future<Output = Result<Permitted<Call>, Failure>> + Send + '_ {
        self.pass_gates(call, target, Enforcement(timer))
    }

    /// Passes a call through all gates of [`Policy::admit`], with effect or as a dry run: there is
    /// one order of the gates.
    async fn pass_gates<P: Passage>(
        &self,
        mut call: Box<Call>,
        mut target: CallTarget,
        mut passage: P,
    ) -> Result<P::Outcome, Failure> {
        passage.begin(CallStep::Rules);
        passage.pass(CallGate::Rules, self.authorize(&call, &target).await)?;
        passage.pass(CallGate::Scopes, self.check_scopes(&call.context, &target))?;
        passage.begin(CallStep::Limits);
        let limits = self.limits.server(&target.server);
        let mut cost = NonZeroU32::MIN;
        if let Some(limits) = limits {
            passage.pass(CallGate::Breaker, limits.check_breaker())?;
        }
        if P::HAS_EFFECT
            && let Some(wait) = self.prepare_call(&call, &target, limits)
        {
            wait.await;
        }
        if let Some(limits) = limits {
            cost = limits.rates().check_call(&target, &call.context, &mut passage)?;
        }
        let shared = self.limits.check_shared(&call.context, cost, &mut passage);
        passage.pass(CallGate::Rates, shared)?;
        passage.begin(CallStep::Arguments);
        let seen = target.see_arguments(&call.params);
        if seen != ArgumentsSeen::Valid {
            let judged = Box::pin(self.judge_arguments(&mut call, &mut target, seen)).await;
            passage.pass(CallGate::Arguments, judged)?;
            // The server's arguments may differ from the client's.
            passage.pass(CallGate::Rules, self.authorize(&call, &target).await)?;
        }
        passage.pass(CallGate::Arguments, Ok(()))?;
        let mut consent = passage.claim_consent(self, &call.context, &target)?;
        if let Some(interceptors) = &self.limits.interceptors {
            if P::HAS_EFFECT {
                passage.begin(CallStep::Interceptors);
                Box::pin(self.intercept_call(interceptors, &mut call, &mut target)).await?;
            } else {
                passage.note_interceptors(interceptors, &call, &target);
            }
        }
        let mut quotas = self.limits.find_quotas(&call.context, &target, cost);
        if let Some(quotas) = &quotas {
            passage.begin(CallStep::Limits);
            passage.check_quotas(quotas)?;
        }
        let holder = || Holder::of_context(&call.context);
        let slot = match limits {
            Some(limits) if P::HAS_EFFECT => {
                passage.begin(CallStep::Queue);
                Some(limits.gate().acquire_slot(&target.server, holder).await?)
            }
            Some(limits) => {
                passage.look_at_gate(limits.gate(), &target.server, &holder());
                None
            }
            None => None,
        };
        if P::HAS_EFFECT
            && self.limits.are_shared()
            && let Some(quotas) = &mut quotas
        {
            Box::pin(quotas.lease()).await?;
        }
        if P::HAS_EFFECT
            && let Some(items) = &self.limits.used_items
            && let Some(spending) = P::spend_consent(&mut consent, items)
        {
            spending.await?;
        }
        passage.complete(PassedCall { call, target, limits, slot, quotas, consent })
    }

    /// Permits another attempt of a call that was admitted before and failed: the server's circuit
    /// breaker may refuse it.
    ///
    /// # Errors
    /// [`Failure::BreakerOpen`].
    pub fn admit_retry(
        &self,
        call: Box<Call>,
        target: CallTarget,
    ) -> Result<Permitted<Call>, Failure> {
        let limits = self.limits.server(&target.server);
        let pass = limits.map(ServerLimits::enter_breaker).transpose()?.flatten();
        Ok(Permitted::new(call, target, None).watched_by(pass))
    }

    /// Decides about a call by the rules, if there are any.
    async fn authorize(&self, call: &Call, target: &CallTarget) -> Result<(), Failure> {
        match &self.authorization {
            None => Ok(()),
            Some(authorization) => match authorization.decide_at_once(call, target.access()) {
                Some(decided) => decided,
                None => {
                    Box::pin(authorization.authorize_call(call, target.access(), self.large_work()))
                        .await
                }
            },
        }
    }

    /// Permits the retry of a parked call. It still holds its slot, and the digest in its state
    /// guarantees that its arguments are the ones that were checked; the rules may have changed.
    ///
    /// # Errors
    /// [`Failure::ScopesNeeded`], and those of [`Authorization::authorize_call`].
    pub async fn readmit_parked(
        &self,
        call: Box<Call>,
        target: CallTarget,
    ) -> Result<Permitted<Call>, Failure> {
        self.authorize(&call, &target).await?;
        self.check_scopes(&call.context, &target)?;
        Ok(Permitted::new(call, target, None))
    }

    /// Permits a follow-up of a call that was admitted before under the same rules:
    /// a request about its task, the same call with task support, or another attempt.
    pub fn readmit(&self, call: Box<Call>, target: CallTarget) -> Permitted<Call> {
        let limits = self.limits.server(&target.server);
        let pass = limits.and_then(ServerLimits::follow_up);
        Permitted::new(call, target, None).watched_by(pass)
    }

    /// Permits a subscription: checks the rules, the server's scopes and its rate.
    ///
    /// # Errors
    /// [`Failure::ScopesNeeded`], [`Failure::OverLimit`], and those of
    /// [`Authorization::authorize_call`].
    pub fn permit_subscription<T>(
        &self,
        topic: T,
        target: CallTarget,
        context: &Context,
    ) -> Result<Permitted<T>, Failure> {
        if let Some(authorization) = &self.authorization {
            authorization.authorize_subscription(context, target.access())?;
        }
        self.check_scopes(context, &target)?;
        if let Some(limits) = self.limits.server(&target.server) {
            limits.rates().check_server(&target.server)?;
        }
        Ok(Permitted::new(Box::new(topic), target, None))
    }

    /// Passes a call through the interceptors. Arguments that they change have to fit the server's
    /// own schema.
    async fn intercept_call(
        &self,
        interceptors: &Interceptors,
        call: &mut Call,
        target: &mut CallTarget,
    ) -> Result<(), Failure> {
        match interceptors.intercept_call(call, target).await? {
            Some(arguments) => {
                self.take_changed_arguments(call, target, arguments).await?;
                // The rules have not seen the changed arguments.
                self.authorize(call, target).await
            }
            None => Ok(()),
        }
    }

    /// Returns the interceptors of the messages that the server of a call sends; `None` if there
    /// are none.
    pub fn call_interceptors(
        &self,
        call: &Call,
        target: &CallTarget,
    ) -> Option<Arc<ReplyInterceptors>> {
        self.limits.interceptors.as_ref()?.for_call(call, target)
    }

    /// Returns the interceptors of a server's answer to a request that is not a call; `None` if
    /// there are none.
    pub fn request_interceptors(
        &self,
        context: &Context,
        server: &ServerName,
        method: &Method,
    ) -> Option<Arc<ReplyInterceptors>> {
        self.limits.interceptors.as_ref()?.for_request(context, server, method)
    }

    /// Returns the interceptors of the messages that a server sends outside of calls; `None` if
    /// there are none.
    pub fn server_interceptors(
        &self,
        context: &Context,
        server: &ServerName,
    ) -> Option<Arc<ReplyInterceptors>> {
        self.limits.interceptors.as_ref()?.for_server(context, server)
    }

    /// Returns the runner of work on large messages, away from the threads that serve clients.
    pub fn large_work(&self) -> &Arc<LargeWork> {
        &self.limits.large_work
    }

    /// Returns the limits of one server.
    pub fn server(&self, server: &ServerName) -> Option<&ServerLimits> {
        self.limits.server(server)
    }
}

/// The longest time that the checks of one call wait for other work: the rules twice, the arguments and
/// the question to the user.
pub(crate) const MAX_ADMISSION_WAIT: Duration = MAX_RULES_WAIT
    .saturating_mul(2)
    .saturating_add(MAX_CHECKS_WAIT)
    .saturating_add(MAX_QUESTIONS_WAIT);
