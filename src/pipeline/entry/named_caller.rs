//! Callers that an operator names, without a request of theirs: for explanations, and for calls with
//! the rights of a client.

use crate::call::{Failure, Principal, ProfileName};
use crate::clock;
use crate::config::Config;
use crate::identity::ClientAccess;
use crate::snapshot::Snapshot;

/// The caller of a name.
pub(crate) enum NamedCaller {
    /// A client without credentials.
    Anonymous,
    /// A user of an issuer, with rights that only its token has.
    User(Principal),
    /// The client `NAME` of `[clients.NAME]`.
    Client {
        /// The client.
        principal: Principal,
        /// Its rights.
        access: ClientAccess,
    },
    /// A client, or a user of an issuer, that the configuration does not have.
    Unknown(Principal),
}

impl NamedCaller {
    /// Finds a caller by `NAME`, `ISSUER:SUBJECT` or `anonymous`.
    pub(crate) fn find(snapshot: &Snapshot, name: &str) -> Self {
        if name == Principal::Anonymous.as_str() {
            return Self::Anonymous;
        }
        if name.contains(':') {
            let user = Principal::User(name.into());
            let is_known = snapshot.identity.has_principal(&user);
            return if is_known { Self::User(user) } else { Self::Unknown(user) };
        }
        let principal = Principal::Client(name.into());
        match snapshot.identity.client_access(name, clock::unix_now()) {
            Some(access) => Self::Client { principal, access },
            None => Self::Unknown(principal),
        }
    }

    /// Returns the refusal that every request of the caller gets, if there is one.
    pub(crate) fn refusal(&self, config: &Config) -> Option<Failure> {
        match self {
            Self::Anonymous if config.authenticates() => Some(Failure::KeyMissing),
            Self::Client { access, .. } if !access.has_credential => Some(Failure::KeyExpired),
            Self::Anonymous | Self::User(_) | Self::Client { .. } | Self::Unknown(_) => None,
        }
    }
}

/// Returns the first profile that a principal may use.
pub(crate) fn usual_profile(snapshot: &Snapshot, who: &Principal) -> String {
    let own = snapshot.config.profiles.iter().map(|profile| profile.name.as_str());
    let mut all = std::iter::once(ProfileName::DEFAULT).chain(own);
    let usable = all.find(|profile| snapshot.identity.allows(who, profile));
    usable.unwrap_or(ProfileName::DEFAULT).to_owned()
}
