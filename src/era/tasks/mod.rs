//! Tasks on their way between clients and servers.
//!
//! Two forms of them are about: the extension `io.modelcontextprotocol/tasks`
//! of 2026-07-28 (SEP-2663) and the experimental ones of 2025-11-25. [`ids`]
//! makes the ids of all servers unique and leads them back; [`rename`] puts
//! them where ids stand in what servers send; [`form`] turns one form into the
//! other.

pub mod form;
pub mod ids;
pub mod rename;
