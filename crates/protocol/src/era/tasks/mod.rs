//! Tasks between clients and servers.
//!
//! There are two forms: the extension `io.modelcontextprotocol/tasks` of 2026-07-28 (SEP-2663) and
//! the experimental tasks of 2025-11-25. [`ids`] makes the ids of all servers unique and resolves
//! them; [`rename`] replaces ids in servers' messages; [`form`] translates the Legacy form into the
//! Modern one.

pub mod form;
pub mod ids;
pub mod rename;
