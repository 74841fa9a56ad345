//! One loss, and its description.

use std::fmt;

/// A protection that a configuration removes or weakens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectionLoss {
    /// The key in the configuration.
    pub key: String,
    /// The change.
    pub kind: LossFault,
}

impl fmt::Display for ProtectionLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.kind)
    }
}

/// A change that weakens protection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LossFault {
    /// Neither clients nor issuers are left.
    #[error("no client and no issuer is left, so requests without a key or token are served")]
    Anonymous,
    /// A setting has a weaker value.
    #[error("`{before}` is weakened to `{after}`")]
    Lowered {
        /// The value that is replaced.
        before: &'static str,
        /// The new value.
        after: &'static str,
    },
    /// A setting or an element was removed.
    #[error("the {element} is removed")]
    Removed {
        /// The kind of element.
        element: &'static str,
    },
    /// An entry of a list was removed.
    #[error("`{entry}` is removed")]
    EntryRemoved {
        /// The entry.
        entry: String,
    },
    /// The last rule was removed.
    #[error("the last rule is removed, so everything is allowed")]
    LastRule,
    /// A deny rule denies less.
    #[error("the deny rule denies less than before")]
    DenyNarrowed,
    /// An allow rule allows more.
    #[error("the allow rule allows more than before")]
    AllowWidened,
    /// A list lets more through.
    #[error("the setting admits more than before")]
    Widened,
    /// The sandbox confines less.
    #[error("the sandbox permits more than before")]
    SandboxWidened,
}
