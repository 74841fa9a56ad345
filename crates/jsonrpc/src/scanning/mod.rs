//! Responses that are still arriving, followed to their end.

pub(crate) mod scanner;
pub(crate) mod value_end;
