//! The configured rules for one server's lists.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use trunkline_config::TransformSettings;
use trunkline_protocol::call::PublicName;

use crate::elements::held::{HeldDefinitions, HeldName};
use crate::kind::Kind;

/// The rules for one server's lists.
#[derive(Clone)]
pub struct ServerRules {
    shown: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    overrides: BTreeMap<String, ToolChange>,
    variables: BTreeMap<String, String>,
    /// The changes of the calls and results of tools without an override.
    transforms: Option<Arc<TransformSettings>>,
    /// The definitions in its list that are withheld from clients for now.
    held: Arc<HeldDefinitions>,
}

/// The configured changes to one tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolChange {
    /// The public name, used exactly as configured.
    pub name: Option<PublicName>,
    /// The description that clients see.
    pub description: Option<String>,
    /// The changes of its calls and results.
    pub transforms: Option<Arc<TransformSettings>>,
}

impl ServerRules {
    /// `shown` returns true for the native names of tools that clients see (`allow` and `deny`);
    /// `overrides` are by native name.
    pub fn new(
        shown: impl Fn(&str) -> bool + Send + Sync + 'static,
        overrides: BTreeMap<String, ToolChange>,
    ) -> Self {
        Self {
            shown: Arc::new(shown),
            overrides,
            variables: BTreeMap::new(),
            transforms: None,
            held: Arc::default(),
        }
    }

    /// Sets the definitions in its list that are withheld from clients for now.
    #[must_use]
    pub fn with_held(mut self, held: Arc<HeldDefinitions>) -> Self {
        self.held = held;
        self
    }

    /// The definitions in its list that are withheld from clients for now.
    pub(crate) fn held(&self) -> &Arc<HeldDefinitions> {
        &self.held
    }

    /// Adds values for variables of the server's resource templates.
    #[must_use]
    pub fn with_variables(mut self, variables: BTreeMap<String, String>) -> Self {
        self.variables = variables;
        self
    }

    /// Sets the changes of the calls and results of tools without an override.
    #[must_use]
    pub fn with_transforms(mut self, transforms: Option<Arc<TransformSettings>>) -> Self {
        self.transforms = transforms;
        self
    }

    /// The changes of the calls and results of a tool.
    pub(crate) fn transforms_of(&self, native: &str) -> Option<&Arc<TransformSettings>> {
        match self.overrides.get(native) {
            Some(change) => change.transforms.as_ref(),
            None => self.transforms.as_ref(),
        }
    }

    /// Returns true if clients see the element at all. Only tools can be hidden so far.
    pub(crate) fn shows(&self, kind: Kind, native: &str) -> bool {
        kind != Kind::Tools || (self.shown)(native)
    }

    /// Returns true if the element takes part in naming: clients see it, or saw it before it was held.
    pub(crate) fn names(&self, kind: Kind, native: &str) -> bool {
        self.shows(kind, native) && self.held.name_of(kind, native) != Some(HeldName::Unclaimed)
    }

    /// The configured value of a template's variable.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// The names of all variables with a value.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().map(String::as_str)
    }

    pub(crate) fn override_of(&self, native: &str) -> Option<&ToolChange> {
        self.overrides.get(native)
    }

    /// The overrides in the order of their native names.
    pub(crate) fn overrides(&self) -> impl Iterator<Item = (&str, &ToolChange)> {
        self.overrides.iter().map(|(native, change)| (native.as_str(), change))
    }
}

impl Default for ServerRules {
    /// Shows every tool, changes none.
    fn default() -> Self {
        Self::new(|_| true, BTreeMap::new())
    }
}

impl fmt::Debug for ServerRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRules")
            .field("overrides", &self.overrides)
            .field("variables", &self.variables)
            .finish_non_exhaustive()
    }
}
