//! Scopes that imply others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::config::{GatewayConfig, IssuerConfig, ScopeName};

/// The scopes that each scope directly implies (`gateway.scopes`).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ScopeRanks(HashMap<Arc<str>, Vec<Arc<str>>>);

impl ScopeRanks {
    pub(crate) fn new(config: &GatewayConfig) -> Self {
        let shared = |names: &[ScopeName]| names.iter().map(ScopeName::shared).collect();
        let ranks = config.scopes.iter();
        Self(ranks.map(|(broad, narrow)| (broad.shared(), shared(narrow))).collect())
    }

    /// Returns these scopes, and all that they imply.
    pub(crate) fn expand(&self, scopes: impl IntoIterator<Item = Arc<str>>) -> BTreeSet<Arc<str>> {
        let mut waiting: Vec<_> = scopes.into_iter().collect();
        let mut all = BTreeSet::new();
        while let Some(scope) = waiting.pop() {
            if let Some(implied) = self.0.get(&scope) {
                waiting.extend(implied.iter().filter(|scope| !all.contains(*scope)).cloned());
            }
            all.insert(scope);
        }
        all
    }
}

/// Maps the scopes of an issuer's token to their names in the gateway.
pub(super) fn own_names(config: &IssuerConfig, scopes: Vec<String>) -> Vec<Arc<str>> {
    let mut own = Vec::with_capacity(scopes.len());
    for scope in scopes {
        match config.scope_map.iter().find(|(name, _)| name.as_str() == scope) {
            Some((_, names)) => own.extend(names.iter().map(ScopeName::shared)),
            None => own.push(scope.into()),
        }
    }
    own
}
