//! Arguments of a call.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;

use trunkline_jsonrpc::Members;

use super::parameters::ArgumentFault;

/// Arguments of a call by name, each as the client wrote it.
pub(crate) struct CallArguments<'a>(HashMap<Cow<'a, str>, &'a RawValue>);

impl<'a> CallArguments<'a> {
    /// Reads the arguments.
    ///
    /// # Errors
    /// [`ArgumentFault::Unreadable`].
    pub(crate) fn read(raw: &'a [u8]) -> Result<Self, ArgumentFault> {
        let members = Members::parse(raw).map_err(|_| ArgumentFault::Unreadable)?;
        Ok(Self(members.0.into_iter().collect()))
    }

    /// Returns the argument with this name. `null` counts as absent.
    pub(crate) fn find(&self, name: &str) -> Option<&'a RawValue> {
        self.find_or_null(name).filter(|raw| raw.get() != "null")
    }

    /// Returns the argument with this name, even if it is `null`.
    pub(crate) fn find_or_null(&self, name: &str) -> Option<&'a RawValue> {
        self.0.get(name).copied()
    }

    /// Removes empty strings from the arguments, except required ones.
    pub(crate) fn drop_empty(&mut self, required: &HashSet<&str>) {
        self.0.retain(|name, raw| raw.get() != "\"\"" || required.contains(&**name));
    }
}
