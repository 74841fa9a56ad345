//! legacy
