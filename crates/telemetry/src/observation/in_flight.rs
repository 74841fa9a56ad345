//! The observed calls that have not ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use trunkline_core::clock;
use trunkline_core::text::clip;

use super::call::subject_text;
use super::steps::{CallStep, CallTimer};
use crate::{CallSubject, MAX_CLIENT_TEXT_BYTES};

/// An observed call that has not ended.
#[derive(Debug)]
pub struct CallInFlight {
    /// The id of the call, and of its record in the audit log if there is one.
    pub id: String,
    /// Time of its start.
    pub at: SystemTime,
    /// The caller.
    pub principal: String,
    /// The profile.
    pub profile: String,
    /// The method.
    pub method: String,
    /// The tool, prompt or resource by its public name, as the client wrote it.
    pub name: Option<String>,
    timer: Arc<CallTimer>,
}

/// The facts of a call that starts.
#[derive(Debug, Clone, Copy)]
pub struct StartedCall<'a> {
    /// The caller.
    pub principal: &'a str,
    /// The profile.
    pub profile: &'a str,
    /// The method.
    pub method: &'a str,
    /// The tool, prompt or resource by its public name.
    pub subject: CallSubject<'a>,
}

impl CallInFlight {
    /// Describes a call that starts.
    pub(super) fn new(call: StartedCall<'_>, id: &str, timer: &Arc<CallTimer>) -> Self {
        let text = |text: &str| clip(text, MAX_CLIENT_TEXT_BYTES).to_owned();
        Self {
            id: id.to_owned(),
            at: clock::wall_now(),
            principal: text(call.principal),
            profile: text(call.profile),
            method: text(call.method),
            name: subject_text(call.subject),
            timer: Arc::clone(timer),
        }
    }

    /// Returns the current step.
    pub fn step(&self) -> CallStep {
        self.timer.current_step()
    }
}

/// The observed calls in flight, the oldest first.
#[derive(Debug, Default)]
pub(super) struct FlightTable {
    last_number: u64,
    calls: BTreeMap<u64, Arc<CallInFlight>>,
}

/// A call among those in flight, until it is dropped.
#[derive(Debug)]
pub struct FlightPlace {
    number: u64,
    table: Arc<Mutex<FlightTable>>,
}

impl FlightPlace {
    /// Lists a call; `None` if as many are listed as allowed.
    pub(super) fn enter(table: &Arc<Mutex<FlightTable>>, call: CallInFlight) -> Option<Self> {
        let mut calls = table.lock();
        if calls.calls.len() >= MAX_CALLS_IN_FLIGHT {
            return None;
        }
        calls.last_number += 1;
        let number = calls.last_number;
        calls.calls.insert(number, Arc::new(call));
        drop(calls);
        Some(Self { number, table: Arc::clone(table) })
    }
}

impl FlightTable {
    /// Returns the calls, the oldest first.
    pub(super) fn list(&self) -> Vec<Arc<CallInFlight>> {
        self.calls.values().cloned().collect()
    }
}

impl Drop for FlightPlace {
    fn drop(&mut self) {
        self.table.lock().calls.remove(&self.number);
    }
}

/// Limit of the calls that are listed.
const MAX_CALLS_IN_FLIGHT: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_flight_are_bounded_and_leave_at_their_end() {
        let table = Arc::default();
        let enter = |number: usize| {
            let timer = CallTimer::start(clock::real_now());
            let subject = CallSubject::Tool("s__echo");
            let (principal, profile, method) = ("ci", "default", "tools/call");
            let call = StartedCall { principal, profile, method, subject };
            let call = CallInFlight::new(call, &number.to_string(), &timer);
            FlightPlace::enter(&table, call)
        };
        let mut places: Vec<_> = (0..MAX_CALLS_IN_FLIGHT).map(enter).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(enter(0).is_none());
        places.truncate(1);
        let listed = table.lock().list();
        assert_eq!(listed.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["0"]);
        assert!(enter(1).is_some());
    }
}
