//! Commands that list servers once: their tools, pins and unused tools.

mod decisions;
pub(crate) mod listed;
pub(crate) mod openapi;
pub(crate) mod pin;
pub(crate) mod report;
pub(crate) mod tools;
