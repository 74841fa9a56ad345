//! The circuit breaker of a server. After too many failures it refuses calls at once for a while,
//! then single calls probe the server.
//!
//! A call takes a [`BreakerPass`] when it is admitted, and the pass records the end of its reply.
//! The results of calls that began before the last transition are ignored.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::call::{Failure, ReplyWatch, ServerFault, ServerName};
use crate::clock;
use crate::config::{BreakerConfig, InterceptorName};
use crate::telemetry::events::{EventSender, LifecycleEvent};
use crate::telemetry::metrics::{BreakerLevel, ServerMetrics};

use super::failure_window::{CallVerdict, FailureWindow};

/// The circuit breaker of one server. It lives as long as its settings and its server's address.
#[derive(Debug)]
pub struct Breaker {
    subject: BreakerSubject,
    settings: BreakerConfig,
    state: Mutex<BreakerState>,
    reports: Option<BreakerReports>,
}

/// Subjects of breakers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BreakerSubject {
    /// A server.
    Server(ServerName),
    /// An interceptor.
    Interceptor(InterceptorName),
}

/// Destinations of reports about transitions, besides the log.
#[derive(Debug)]
pub(crate) struct BreakerReports {
    pub(crate) metrics: Arc<ServerMetrics>,
    pub(crate) events: EventSender,
}

#[derive(Debug)]
struct BreakerState {
    phase: Phase,
    /// The number of transitions so far.
    generation: u64,
}

#[derive(Debug)]
enum Phase {
    /// Calls pass, and their failures are counted.
    Closed {
        /// Failures since the last success.
        in_a_row: usize,
        /// The calls that `ratio` is about.
        recent: FailureWindow,
    },
    /// Calls are refused until this time.
    Open { until: Instant },
    /// One call at a time passes, to find out if the server has recovered.
    HalfOpen {
        /// Number of successful probes.
        succeeded: usize,
        /// State of the current probe.
        probing: Probing,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probing {
    No,
    Yes,
}

/// The state of a breaker, for status pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerView {
    /// Calls pass.
    Closed {
        /// Failures since the last success.
        failures: usize,
    },
    /// Calls are refused for this time.
    Open {
        /// The rest of the time.
        remaining: Duration,
    },
    /// Single calls probe the server.
    HalfOpen,
}

/// A call that a breaker has let through. It records the end of the reply. If it is dropped before,
/// the call does not count.
#[derive(Debug)]
pub(crate) struct BreakerPass {
    breaker: Arc<Breaker>,
    generation: u64,
    kind: PassKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassKind {
    Usual,
    Probe,
}

impl Breaker {
    pub(crate) fn new(
        subject: BreakerSubject,
        settings: BreakerConfig,
        reports: Option<BreakerReports>,
    ) -> Self {
        let state = BreakerState { phase: Phase::closed(&settings), generation: 0 };
        Self { subject, settings, state: Mutex::new(state), reports }
    }

    /// Checks whether a call may pass at this time, without letting one through.
    ///
    /// # Errors
    /// [`Failure::BreakerOpen`].
    pub(crate) fn check(&self, now: Instant) -> Result<(), Failure> {
        let state = self.state.lock();
        match &state.phase {
            Phase::Open { until } if now < *until => Err(self.refuse(*until - now)),
            Phase::HalfOpen { probing: Probing::Yes, .. } => Err(self.refuse(PROBE_WAIT)),
            Phase::Closed { .. } | Phase::Open { .. } | Phase::HalfOpen { .. } => Ok(()),
        }
    }

    /// Lets a call through.
    ///
    /// # Errors
    /// [`Failure::BreakerOpen`].
    pub(crate) fn enter(self: &Arc<Self>, now: Instant) -> Result<BreakerPass, Failure> {
        self.check(now)?;
        let mut state = self.state.lock();
        if matches!(&state.phase, Phase::Open { until } if now >= *until) {
            let half_open = Phase::HalfOpen { succeeded: 0, probing: Probing::No };
            self.change_phase(&mut state, half_open);
        }
        let kind = match &mut state.phase {
            Phase::Closed { .. } => PassKind::Usual,
            Phase::HalfOpen { probing: probing @ Probing::No, .. } => {
                *probing = Probing::Yes;
                PassKind::Probe
            }
            // Another call was faster.
            Phase::HalfOpen { .. } | Phase::Open { .. } => return Err(self.refuse(PROBE_WAIT)),
        };
        Ok(self.pass(state.generation, kind))
    }

    /// Returns a pass for the follow-up of a call that was let through before: it is sent
    /// unconditionally.
    pub(crate) fn follow_up(self: &Arc<Self>) -> BreakerPass {
        self.pass(self.state.lock().generation, PassKind::Usual)
    }

    /// Returns the state at this time.
    pub fn view(&self, now: Instant) -> BreakerView {
        match &self.state.lock().phase {
            Phase::Closed { in_a_row, .. } => BreakerView::Closed { failures: *in_a_row },
            Phase::Open { until } if now < *until => BreakerView::Open { remaining: *until - now },
            Phase::Open { .. } | Phase::HalfOpen { .. } => BreakerView::HalfOpen,
        }
    }

    fn pass(self: &Arc<Self>, generation: u64, kind: PassKind) -> BreakerPass {
        BreakerPass { breaker: Arc::clone(self), generation, kind }
    }

    fn refuse(&self, retry_after: Duration) -> Failure {
        let BreakerSubject::Server(server) = &self.subject else {
            // An interceptor's failure names it.
            return Failure::OverLimit { limit: "breaker".into(), retry_after };
        };
        Failure::BreakerOpen { server: server.clone(), retry_after }
    }

    /// Records the end of a call.
    fn record(&self, pass: &BreakerPass, verdict: CallVerdict, now: Instant) {
        let is_probe = pass.kind == PassKind::Probe;
        let mut state = self.state.lock();
        if state.generation != pass.generation {
            return;
        }
        let next = match &mut state.phase {
            Phase::Closed { in_a_row, recent } => {
                recent.record(now, verdict);
                *in_a_row = if verdict == CallVerdict::Failed { *in_a_row + 1 } else { 0 };
                let too_many = self.settings.failures.is_some_and(|most| *in_a_row >= most);
                let is_over = too_many || recent.is_over(&self.settings, now);
                (is_over && verdict == CallVerdict::Failed).then(|| self.open(now))
            }
            Phase::HalfOpen { .. } if verdict == CallVerdict::Failed && is_probe => {
                Some(self.open(now))
            }
            Phase::HalfOpen { succeeded, probing } if is_probe => {
                (*succeeded, *probing) = (*succeeded + 1, Probing::No);
                (*succeeded >= self.settings.probes).then(|| Phase::closed(&self.settings))
            }
            Phase::HalfOpen { .. } | Phase::Open { .. } => None,
        };
        if let Some(next) = next {
            self.change_phase(&mut state, next);
        }
    }

    /// Ends a probe without a result.
    fn release_probe(&self, generation: u64) {
        let mut state = self.state.lock();
        if state.generation == generation
            && let Phase::HalfOpen { probing, .. } = &mut state.phase
        {
            *probing = Probing::No;
        }
    }

    fn open(&self, now: Instant) -> Phase {
        Phase::Open { until: now + self.settings.open_time }
    }

    fn change_phase(&self, state: &mut BreakerState, next: Phase) {
        state.phase = next;
        state.generation += 1;
        self.report(&state.phase);
    }

    /// Reports a transition in the log, the metrics and the lifecycle events.
    fn report(&self, phase: &Phase) {
        let open_for = self.settings.open_time;
        let server = match &self.subject {
            BreakerSubject::Server(server) => server.as_str(),
            BreakerSubject::Interceptor(interceptor) => return log_interceptor(interceptor, phase),
        };
        let (level, event) = match phase {
            Phase::Open { .. } => {
                tracing::warn!(server, ?open_for, "the circuit breaker opens: calls are refused");
                (BreakerLevel::Open, Some(LifecycleEvent::BreakerOpened { server }))
            }
            Phase::HalfOpen { .. } => {
                tracing::info!(
                    server,
                    "the circuit breaker is half-open: a call probes the server"
                );
                (BreakerLevel::HalfOpen, None)
            }
            Phase::Closed { .. } => {
                tracing::info!(server, "the circuit breaker closes: calls are sent again");
                (BreakerLevel::Closed, Some(LifecycleEvent::BreakerClosed { server }))
            }
        };
        let Some(reports) = &self.reports else { return };
        reports.metrics.set_breaker(level);
        if let Some(event) = event {
            reports.events.send(&event);
        }
    }
}

impl Phase {
    fn closed(settings: &BreakerConfig) -> Self {
        Self::Closed { in_a_row: 0, recent: FailureWindow::new(settings.window) }
    }
}

impl BreakerPass {
    /// Records the end of the call.
    pub(crate) fn record(self, ended: Result<(), &Failure>, now: Instant) {
        if let Some(verdict) = judge_end(ended) {
            self.record_verdict(verdict, now);
        }
    }

    /// Records a verdict about the end of the call.
    pub(crate) fn record_verdict(mut self, verdict: CallVerdict, now: Instant) {
        self.breaker.record(&self, verdict, now);
        // Another probe may be under way when this one is dropped.
        self.kind = PassKind::Usual;
    }
}

impl ReplyWatch for BreakerPass {
    fn ended(self: Box<Self>, ended: Result<(), &Failure>) {
        self.record(ended, clock::now());
    }
}

impl Drop for BreakerPass {
    fn drop(&mut self) {
        if self.kind == PassKind::Probe {
            self.breaker.release_probe(self.generation);
        }
    }
}

fn log_interceptor(name: &InterceptorName, phase: &Phase) {
    let state = match phase {
        Phase::Open { .. } => "open",
        Phase::HalfOpen { .. } => "half-open",
        Phase::Closed { .. } => "closed",
    };
    tracing::warn!(interceptor = %name, state, "the circuit breaker of an interceptor has changed");
}

/// Derives the server's state from the end of a call; `None` if it shows nothing.
fn judge_end(ended: Result<(), &Failure>) -> Option<CallVerdict> {
    let Err(failure) = ended else { return Some(CallVerdict::Answered) };
    match failure {
        Failure::ServerBroke { .. } | Failure::ServerTimeout { .. } => Some(CallVerdict::Failed),
        Failure::ServerDown { fault, .. } => match **fault {
            // A limit of the gateway, and faults that only a person can fix.
            ServerFault::TooManyInstances { .. }
            | ServerFault::LoginNeeded
            | ServerFault::LoginImpossible { .. } => None,
            _ => Some(CallVerdict::Failed),
        },
        Failure::BadAnswer { fault, .. } => match **fault {
            ServerFault::Status { status, .. } if status.is_server_error() => {
                Some(CallVerdict::Failed)
            }
            // A rate limit does not indicate a failing server.
            ServerFault::Status { status, .. } if status.as_u16() == 429 => None,
            _ => Some(CallVerdict::Answered),
        },
        _ => None,
    }
}

/// Retry delay for a call that arrives during a probe.
const PROBE_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: BreakerConfig = BreakerConfig {
        failures: Some(3),
        ratio: None,
        window: Duration::from_secs(10),
        minimum: 4,
        open_time: Duration::from_secs(30),
        probes: 2,
    };

    fn breaker(settings: BreakerConfig) -> Arc<Breaker> {
        Arc::new(Breaker::new(BreakerSubject::Server(server()), settings, None))
    }

    fn server() -> ServerName {
        ServerName::new("s").unwrap()
    }

    fn broke() -> Failure {
        Failure::server_broke(server(), ServerFault::Disconnected)
    }

    fn bad(status: u16) -> Failure {
        let status = http::StatusCode::from_u16(status).unwrap();
        Failure::bad_answer(server(), ServerFault::of_status(status))
    }

    /// Makes a call with this result, at this time.
    fn call(breaker: &Arc<Breaker>, now: Instant, ended: Result<(), &Failure>) {
        breaker.enter(now).unwrap().record(ended, now);
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_between_them_does_not() {
        let (breaker, now) = (breaker(SETTINGS), clock::now());
        for _ in 0..2 {
            call(&breaker, now, Err(&broke()));
            call(&breaker, now, Err(&broke()));
            call(&breaker, now, Ok(()));
        }
        assert_eq!(breaker.view(now), BreakerView::Closed { failures: 0 });
        for _ in 0..3 {
            call(&breaker, now, Err(&broke()));
        }
        assert_eq!(breaker.view(now), BreakerView::Open { remaining: SETTINGS.open_time });
        let later = now + Duration::from_secs(10);
        let refusal =
            Failure::BreakerOpen { server: server(), retry_after: Duration::from_secs(20) };
        assert_eq!(breaker.check(later), Err(refusal.clone()));
        assert_eq!(breaker.enter(later).map(drop), Err(refusal));
    }

    #[test]
    fn one_call_at_a_time_probes_and_so_many_close_it() {
        let (breaker, now) = (breaker(SETTINGS), clock::now());
        let early = breaker.enter(now).unwrap();
        for _ in 0..3 {
            call(&breaker, now, Err(&broke()));
        }
        let now = now + SETTINGS.open_time;
        assert_eq!(breaker.view(now), BreakerView::HalfOpen);
        let probe = breaker.enter(now).unwrap();
        assert!(breaker.enter(now).is_err() && breaker.check(now).is_err(), "one at a time");
        // A call from before the transition does not close it, and neither does a follow-up.
        early.record(Ok(()), now);
        breaker.follow_up().record(Ok(()), now);
        probe.record(Ok(()), now);
        assert_eq!(breaker.view(now), BreakerView::HalfOpen, "one of two");
        // A cancelled call makes room for the next.
        drop(breaker.enter(now).unwrap());
        call(&breaker, now, Ok(()));
        assert_eq!(breaker.view(now), BreakerView::Closed { failures: 0 });
    }

    #[test]
    fn a_probe_that_fails_opens_it_again() {
        let (breaker, now) = (breaker(SETTINGS), clock::now());
        for _ in 0..3 {
            call(&breaker, now, Err(&broke()));
        }
        let now = now + SETTINGS.open_time;
        call(&breaker, now, Ok(()));
        call(&breaker, now, Err(&broke()));
        assert_eq!(breaker.view(now), BreakerView::Open { remaining: SETTINGS.open_time });
    }

    #[test]
    fn a_ratio_needs_a_minimum_of_calls_within_the_window() {
        let settings = BreakerConfig { failures: None, ratio: Some(50), ..SETTINGS };
        let (breaker, now) = (breaker(settings), clock::now());
        call(&breaker, now, Err(&broke()));
        call(&breaker, now, Err(&broke()));
        // They are outside the window.
        let now = now + settings.window * 2;
        for ended in [Ok(()), Ok(()), Ok(()), Err(broke()), Err(broke())] {
            call(&breaker, now, ended.as_ref().copied());
            assert!(matches!(breaker.view(now), BreakerView::Closed { .. }));
        }
        call(&breaker, now, Err(&broke()));
        assert!(matches!(breaker.view(now), BreakerView::Open { .. }));
    }

    #[test]
    fn only_a_server_that_fails_is_counted() {
        use CallVerdict::{Answered, Failed};
        let full = ServerFault::TooManyInstances { limit: 1 };
        let down = |fault| Failure::server_down(server(), fault);
        let late = Failure::ServerTimeout { server: server(), after: Duration::ZERO };
        let over = Failure::OverLimit { limit: "x".into(), retry_after: Duration::ZERO };
        for (failure, verdict) in [
            (broke(), Some(Failed)),
            (late, Some(Failed)),
            (down(ServerFault::Unreachable), Some(Failed)),
            (down(full), None),
            (bad(500), Some(Failed)),
            (bad(503), Some(Failed)),
            (bad(404), Some(Answered)),
            (bad(429), None),
            (Failure::bad_answer(server(), ServerFault::WrongId), Some(Answered)),
            (Failure::Cancelled, None),
            (over, None),
        ] {
            assert_eq!(judge_end(Err(&failure)), verdict, "{failure}");
        }
        assert_eq!(judge_end(Ok(())), Some(Answered));
    }

    /// A call that outlasted the open state shows nothing about the server's current state.
    #[test]
    fn a_call_from_before_the_last_transition_counts_for_nothing() {
        let settings = BreakerConfig { failures: Some(1), probes: 1, ..SETTINGS };
        let (breaker, now) = (breaker(settings), clock::now());
        let [early, other, third] = [(); 3].map(|()| breaker.enter(now).unwrap());
        call(&breaker, now, Err(&broke()));
        let open = BreakerView::Open { remaining: SETTINGS.open_time };
        assert_eq!(breaker.view(now), open);
        other.record(Ok(()), now);
        assert_eq!(breaker.view(now), open, "an early success does not close it");
        let later = now + SETTINGS.open_time;
        let probe = breaker.enter(later).unwrap();
        third.record(Err(&broke()), later);
        assert_eq!(breaker.view(later), BreakerView::HalfOpen, "an early failure is no probe");
        probe.record(Ok(()), later);
        assert_eq!(breaker.view(later), BreakerView::Closed { failures: 0 });
        early.record(Err(&broke()), later);
        assert_eq!(breaker.view(later), BreakerView::Closed { failures: 0 });
        assert!(breaker.check(later).is_ok());
    }
}
