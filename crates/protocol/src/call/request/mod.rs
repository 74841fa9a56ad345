//! The request of a call: its parameters, its sender and the circumstances.

pub(crate) mod abilities;
pub(crate) mod audit_notes;
pub(crate) mod context;
pub(crate) mod grants;
pub(crate) mod params;
pub(crate) mod token_source;
