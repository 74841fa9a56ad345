//! State of the gateway that outlives calls and reloads.

pub(super) mod code_budgets;
pub(super) mod paged_lists;
pub(super) mod refused_logins;
pub(super) mod seen_clients;
