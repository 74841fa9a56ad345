//! The resources of the API: one file for each, with its documents and the functions of its
//! endpoints. They read the running gateway, and know no path and no role: those are in the table of
//! endpoints.

pub(super) mod calls;
pub(super) mod audit;
pub(super) mod catalog;
pub(super) mod configuration;
pub(super) mod definition_scan;
pub(super) mod definitions;
pub(super) mod explanations;
pub(super) mod log;
pub(super) mod operator_calls;
pub(super) mod overview;
pub(super) mod servers;
pub(super) mod tools;
pub(super) mod usage;
