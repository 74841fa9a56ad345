//! list_changes
