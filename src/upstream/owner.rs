//! Whose an instance of a server is, and which one a call goes to.

use std::sync::Arc;

use bytes::Bytes;

use crate::call::{Abilities, Context, Principal};
use crate::config::Isolation;
use crate::era::lower;
use crate::mcp::{Era, ProtocolVersion};

/// Whose something is: two calls with the same one come from the same client,
/// as far as anybody can tell.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InstanceScope {
    /// Nobody's in particular.
    Everybody,
    /// One Legacy session's, by its id.
    Session {
        /// The gateway's id for the session.
        id: Arc<str>,
        /// Whose session it is.
        principal: Principal,
    },
    /// A principal's who has no session: a Modern client's.
    Principal(Principal),
}

impl InstanceScope {
    /// Whose a call is.
    pub fn of(context: &Context) -> Self {
        let principal = context.principal.clone();
        match &context.session {
            Some(id) => Self::Session { id: Arc::clone(id), principal },
            None => Self::Principal(principal),
        }
    }

    /// The Legacy session that it belongs to, if it does.
    pub fn session(&self) -> Option<Arc<str>> {
        match self {
            Self::Session { id, .. } => Some(Arc::clone(id)),
            Self::Everybody | Self::Principal(_) => None,
        }
    }

    /// Whether it belongs to that Legacy session.
    pub fn is_session(&self, session: &str) -> bool {
        matches!(self, Self::Session { id, .. } if **id == *session)
    }

    /// Its name in status and log. A session's id is a secret.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Everybody => "shared",
            Self::Session { principal, .. } | Self::Principal(principal) => principal.as_str(),
        }
    }
}

/// What tells the instances of one server apart: whose it is, and what it was
/// told its client can do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InstanceKey {
    /// Whose it is.
    pub whose: InstanceScope,
    /// The raw capabilities that a Legacy server is told when it is opened.
    pub told: Bytes,
}

impl InstanceKey {
    /// The first instance's: everybody's, and told of nothing.
    pub fn main() -> Self {
        Self { whose: InstanceScope::Everybody, told: Bytes::from_static(b"{}") }
    }

    /// Whether it is the first instance's.
    pub fn is_main(&self) -> bool {
        self.whose == InstanceScope::Everybody && self.told == "{}"
    }

    /// Whether such an instance lists what the server has. One client's own
    /// does not: the list is that of all clients that can do the same.
    pub fn lists(&self) -> bool {
        self.whose == InstanceScope::Everybody
    }

    /// The instance that lists for clients with these abilities.
    pub(super) fn lister(version: ProtocolVersion, abilities: &Abilities) -> Self {
        match version.era() {
            // Told with each request.
            Era::Modern => Self::main(),
            Era::Legacy => {
                let told = lower::capabilities(abilities, version);
                Self { whose: InstanceScope::Everybody, told }
            }
        }
    }

    /// The instance that a call goes to.
    pub(super) fn of(version: ProtocolVersion, isolation: Isolation, context: &Context) -> Self {
        let lister = Self::lister(version, context.client.abilities());
        match (version.era(), isolation) {
            (Era::Modern, _) | (_, Isolation::Shared) => lister,
            (Era::Legacy, Isolation::Client) => {
                Self { whose: InstanceScope::of(context), ..lister }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Client;
    use crate::upstream::tests::call;

    fn context(session: Option<&str>, capabilities: &'static str) -> Context {
        let mut context = call("t").context;
        context.session = session.map(Arc::from);
        let raw = Bytes::from_static(capabilities.as_bytes());
        context.client = Arc::new(Client::new(ProtocolVersion::LATEST_LEGACY, None, raw));
        context
    }

    #[test]
    fn who_can_do_the_same_shares_where_sharing_is_allowed() {
        let (modern, legacy) = (ProtocolVersion::LATEST_MODERN, ProtocolVersion::LATEST_LEGACY);
        let roots = "{\"roots\":{}}";
        let (one, two) = (context(Some("1"), roots), context(Some("2"), roots));
        let (plain, anyone) = (context(Some("3"), "{}"), context(None, roots));
        let of = |version, isolation, context| InstanceKey::of(version, isolation, context);
        for context in [&one, &two, &plain, &anyone] {
            for isolation in [Isolation::Shared, Isolation::Client] {
                assert!(of(modern, isolation, context).is_main(), "capabilities travel by request");
            }
        }
        let shared = |context| of(legacy, Isolation::Shared, context);
        assert_eq!(shared(&one), shared(&two));
        assert_eq!(shared(&one), shared(&anyone));
        assert!(shared(&plain).is_main() && !shared(&one).is_main() && shared(&one).lists());
        let own = |context| of(legacy, Isolation::Client, context);
        assert_ne!(own(&one), own(&two));
        assert_ne!(own(&one), own(&anyone));
        let idle = context(None, "{}");
        assert_ne!(own(&idle), own(&anyone), "told of other abilities");
        assert!(own(&one).whose.is_session("1") && !own(&plain).is_main() && !own(&plain).lists());
    }
}
