//! Kinds of values that many settings share: one file per kind, with its text form, its bounds and
//! its JSON Schema.

pub(crate) mod header_name;
pub(crate) mod kinds;
pub(crate) mod numbers;
pub(crate) mod pattern;
pub(crate) mod substitute;
pub(crate) mod units;
