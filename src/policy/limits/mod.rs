//! Limits of servers: calls in flight, rates, failures and retries; and of addresses that try keys.

pub(super) mod breaker;
pub(super) mod failed_logins;
pub(super) mod failure_window;
pub(super) mod gate;
pub(super) mod retry_budget;
pub(super) mod server_rates;
pub(super) mod taking;
