//! The steps of a call, and the time of each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A step of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStep {
    /// The name is searched in the client's view, and the call is planned.
    Client,
    /// The rules and scopes decide.
    Rules,
    /// The circuit breaker, rates and quotas decide.
    Limits,
    /// The arguments are checked, completed or changed.
    Arguments,
    /// The interceptors decide about the call, or about its answer.
    Interceptors,
    /// The call waits for a slot among the server's calls in flight.
    Queue,
    /// The server has the call.
    Server,
    /// The answer is rewritten for the client.
    Shaping,
}

impl CallStep {
    /// Every step, in the usual order.
    pub const ALL: [Self; 8] = [
        Self::Client,
        Self::Rules,
        Self::Limits,
        Self::Arguments,
        Self::Interceptors,
        Self::Queue,
        Self::Server,
        Self::Shaping,
    ];

    /// Returns the name in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Rules => "rules",
            Self::Limits => "limits",
            Self::Arguments => "arguments",
            Self::Interceptors => "interceptors",
            Self::Queue => "queue",
            Self::Server => "server",
            Self::Shaping => "shaping",
        }
    }
}

/// Notes the beginnings of a call's steps. A step ends where the next one begins, and the last one
/// at the end of the call.
#[derive(Debug)]
pub struct CallTimer(Mutex<Vec<(CallStep, Instant)>>);

/// A step with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedStep {
    /// The step.
    pub step: CallStep,
    /// Time from the start of the call to that of the step.
    pub after: Duration,
    /// Duration of the step.
    pub duration: Duration,
}

impl CallTimer {
    /// Creates the timer of a call that starts now, with its first step.
    pub fn start(now: Instant) -> Arc<Self> {
        let mut marks = Vec::with_capacity(CallStep::ALL.len());
        marks.push((CallStep::Client, now));
        Arc::new(Self(Mutex::new(marks)))
    }

    /// Notes that a step begins, unless it is the current one. Steps beyond the limit, of a call
    /// with many rounds of questions, are part of the last one.
    pub fn begin(&self, step: CallStep, now: Instant) {
        let mut marks = self.0.lock();
        let is_current = marks.last().is_some_and(|(last, _)| *last == step);
        if !is_current && marks.len() < MAX_STEPS {
            marks.push((step, now));
        }
    }

    /// Returns the step that has begun last.
    pub(super) fn current_step(&self) -> CallStep {
        self.0.lock().last().map_or(CallStep::Client, |(step, _)| *step)
    }

    /// Returns true if a step has begun.
    pub fn has_begun(&self, step: CallStep) -> bool {
        self.0.lock().iter().any(|(begun, _)| *begun == step)
    }

    /// Returns the steps of a call that ends now.
    pub fn finish(&self, now: Instant) -> Vec<TimedStep> {
        let marks = self.0.lock();
        let Some((_, start)) = marks.first().copied() else { return Vec::new() };
        let ends = marks.iter().skip(1).map(|(_, at)| *at).chain([now]);
        let timed = marks.iter().zip(ends).map(|((step, at), end)| TimedStep {
            step: *step,
            after: at.saturating_duration_since(start),
            duration: end.saturating_duration_since(*at),
        });
        timed.collect()
    }
}

/// Limit of a call's steps.
const MAX_STEPS: usize = 64;

#[cfg(test)]
mod tests {
    use trunkline_core::clock;

    use super::*;

    #[test]
    fn a_step_lasts_until_the_next_one_and_the_last_until_the_end() {
        let start = clock::real_now();
        let at = |ms| start + Duration::from_millis(ms);
        let timer = CallTimer::start(start);
        for (step, ms) in [(CallStep::Rules, 1), (CallStep::Rules, 2), (CallStep::Server, 4)] {
            timer.begin(step, at(ms));
        }
        let steps = timer.finish(at(9));
        let found = steps
            .iter()
            .map(|it| (it.step.as_str(), it.after.as_millis(), it.duration.as_millis()));
        assert!(found.eq([("client", 0, 1), ("rules", 1, 3), ("server", 4, 5)]), "{steps:?}");
    }

    #[test]
    fn a_call_with_many_rounds_has_a_bounded_number_of_steps() {
        let start = clock::real_now();
        let timer = CallTimer::start(start);
        for _ in 0..1000 {
            timer.begin(CallStep::Server, start);
            timer.begin(CallStep::Shaping, start);
        }
        assert_eq!(timer.finish(start).len(), MAX_STEPS);
    }
}
