//! The analysed definitions of elements: the terms of each field, and the action.

pub(crate) mod actions;
pub(crate) mod element;
pub(crate) mod schema_text;
