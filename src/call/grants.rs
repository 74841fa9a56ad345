//! What a principal was granted beside its name: groups, scopes and the claims of its token.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

/// What the credential of a principal says of it, and what `[clients.NAME]` adds.
///
/// Rules of `policy` read it; nothing of it is sent to a server unless the configuration says so.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// The groups that the principal belongs to.
    pub groups: BTreeSet<Arc<str>>,
    /// The scopes of the credential.
    pub scopes: BTreeSet<Arc<str>>,
    /// The claims of a verified token; empty for any other credential.
    pub claims: Map<String, Value>,
}
