//! Queries: their words, action and language, and the terms of an index that may match them.

pub(crate) mod concepts;
pub(crate) mod embedded_text;
pub(crate) mod question;
