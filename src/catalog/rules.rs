//! What the configuration says about the tools of one server.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::call::PublicName;

/// The rules for one server's tools.
#[derive(Clone)]
pub struct ServerRules {
    shown: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    overrides: BTreeMap<String, Override>,
}

/// What the configuration changes about one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Override {
    /// The public name, exactly: no naming rule touches it.
    pub name: Option<PublicName>,
    /// The description that clients see.
    pub description: Option<String>,
}

impl ServerRules {
    /// `shown` says of a native name whether the tool exists for clients at all
    /// (`allow` and `deny`); `overrides` are by native name.
    pub fn new(
        shown: impl Fn(&str) -> bool + Send + Sync + 'static,
        overrides: BTreeMap<String, Override>,
    ) -> Self {
        Self { shown: Arc::new(shown), overrides }
    }

    pub(super) fn shows(&self, native: &str) -> bool {
        (self.shown)(native)
    }

    pub(super) fn of(&self, native: &str) -> Option<&Override> {
        self.overrides.get(native)
    }

    /// The overrides in the order of their native names.
    pub(super) fn overrides(&self) -> impl Iterator<Item = (&str, &Override)> {
        self.overrides.iter().map(|(native, change)| (native.as_str(), change))
    }
}

impl Default for ServerRules {
    /// Every tool is shown, none is changed.
    fn default() -> Self {
        Self::new(|_| true, BTreeMap::new())
    }
}

impl fmt::Debug for ServerRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRules").field("overrides", &self.overrides).finish_non_exhaustive()
    }
}
