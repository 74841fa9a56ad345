//! Protections that a new configuration removes or weakens.
//!
//! [`find_losses`] compares two configurations. It differs from `diff`, which finds the servers to
//! restart. A change counts as a loss unless it is provably as strict as before, so that settings
//! unknown to this module err on the safe side where a whole table is compared (rules, sandboxes).
//! New servers, clients, profiles and rules are not losses, and a removed server takes its
//! protections with it.

mod access;
mod loss;
mod patterns;
mod rules;
mod sandboxes;
mod servers;
#[cfg(test)]
mod tests;

pub use loss::{LossFault, ProtectionLoss};

use crate::config::Config;

/// Returns the protections of `before` that `after` lacks, by key.
pub fn find_losses(before: &Config, after: &Config) -> Vec<ProtectionLoss> {
    let mut losses = LossList::default();
    access::compare_access(before, after, &mut losses);
    rules::compare_rules(&before.policy, &after.policy, &mut losses);
    rules::compare_profiles(before, after, &mut losses);
    servers::compare_interceptors(before, after, &mut losses);
    servers::compare_servers(before, after, &mut losses);
    losses.0
}

/// Losses found so far.
#[derive(Default)]
struct LossList(Vec<ProtectionLoss>);

impl LossList {
    fn add(&mut self, key: impl Into<String>, kind: LossFault) {
        self.0.push(ProtectionLoss { key: key.into(), kind });
    }

    fn add_if(&mut self, is_lost: impl Into<Option<LossFault>>, key: impl FnOnce() -> String) {
        if let Some(kind) = is_lost.into() {
            self.add(key(), kind);
        }
    }
}
