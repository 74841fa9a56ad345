//! The load of a run: its pace, its threads and connections, and the counts.

pub(crate) mod caller;
pub(crate) mod clock;
pub(crate) mod tally;
pub(crate) mod threads;
pub(crate) mod worker;
