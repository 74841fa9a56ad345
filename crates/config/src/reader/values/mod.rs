//! Kinds of values that many settings share: one file per kind, with its text form, its bounds and
//! its JSON Schema.

pub(crate) mod call_text;
pub(crate) mod kinds;
pub(crate) mod maps;
pub(crate) mod numbers;
pub(crate) mod pattern;
pub(crate) mod secret;
pub(crate) mod units;
