//! Handles of metrics, and the estimated tokens of lists.

pub(crate) mod counts;
pub(crate) mod operations;
pub(crate) mod token_counter;
pub(crate) mod tokens;
