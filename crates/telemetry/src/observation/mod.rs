//! Observation of calls: a bounded ring of recent calls, and a live stream of new ones.
//!
//! The ring has the record that the access log and the audit log receive, in an owned form, with the
//! times of the call's steps. Without an observer and without `admin.recent` nothing is kept, and a
//! call pays for one relaxed load ([`CallObservers::is_on`]). Arguments, results and headers are
//! never an input; their sizes are. This module differs from [`log`](super::log), whose lines are
//! written, and from [`metrics`](super::metrics), which only count.

mod call;
mod in_flight;
mod observers;
mod steps;

pub use call::{CallSizes, ObservedCall};
pub use in_flight::{CallInFlight, FlightPlace, StartedCall};
pub use observers::{CallObservers, LiveCalls};
pub use steps::{CallStep, CallTimer, TimedStep};
