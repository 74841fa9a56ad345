//! Rates, quotas and consents that replicas share, and each path without the store.

mod consents;
mod degraded;
mod patterns;
mod rates;
