//! The observed form of a call's record, for operators who look at calls.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::call::{Answer, Call, Failure};
use crate::clock;
use crate::pipeline::Gateway;
use crate::telemetry::CallRecord;
use crate::telemetry::observation::{
    CallObservers, CallSizes, CallTimer, FlightPlace, ObservedCall, StartedCall,
};

use super::{requested_name, subject};

/// Data for the observed form of a call beyond its access log record.
pub(super) struct CallObservation {
    observers: Arc<CallObservers>,
    pub(super) timer: Arc<CallTimer>,
    id: String,
    at: SystemTime,
    result_bytes: Option<u64>,
    /// Lists the call until its end.
    _in_flight: Option<FlightPlace>,
}

impl CallObservation {
    /// Begins the observation of a call that started at this time; `None` without an observation. Its id
    /// is that of its audit record.
    #[cold]
    pub(super) fn begin(gateway: &Gateway, call: &Call, started: Instant) -> Option<Box<Self>> {
        let context = &call.context;
        let timer = gateway.calls.begin(started)?;
        let next_id = || gateway.audit.next_id();
        let id = context.audit.as_ref().map_or_else(next_id, |notes| notes.id_or(next_id));
        let begun = StartedCall {
            principal: context.principal.as_str(),
            profile: context.endpoint.profile(),
            method: call.method.as_str(),
            subject: subject(&call.method, requested_name(&call.params)),
        };
        Some(Box::new(Self {
            _in_flight: gateway.calls.enter_flight(begun, &id, &timer),
            observers: Arc::clone(&gateway.calls),
            timer,
            id,
            at: clock::wall_now(),
            result_bytes: None,
        }))
    }

    /// Notes the size of an answer.
    pub(super) fn note_answer(&mut self, answer: &Result<Answer, Failure>) {
        self.result_bytes = answer_bytes(answer);
    }

    /// Notes the size of a result.
    pub(super) fn note_size(&mut self, bytes: u64) {
        self.result_bytes = Some(bytes);
    }

    /// Adds the call, which ends now, to the recent ones.
    pub(super) fn end(self, record: &CallRecord<'_>, arguments: Option<usize>, now: Instant) {
        let sizes = CallSizes { arguments, result: self.result_bytes };
        let steps = self.timer.finish(now);
        let call = ObservedCall::of(record, self.id, self.at);
        self.observers.add(ObservedCall { sizes, steps, ..call });
    }
}

/// Returns the bytes of an answer of the server.
pub(super) fn answer_bytes(answer: &Result<Answer, Failure>) -> Option<u64> {
    match answer {
        Ok(Answer::Result(result)) => Some(result.raw().len() as u64),
        Ok(Answer::Error(error)) => Some(error.raw().len() as u64),
        Err(_) => None,
    }
}
