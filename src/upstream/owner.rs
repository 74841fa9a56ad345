//! Scope of an instance, and the routing of calls to instances.

use std::sync::Arc;

use bytes::Bytes;

use crate::call::{Abilities, Context, Principal};
use crate::config::{CapabilitiesChoice, Isolation, ServerConfig};
use crate::era::lower;
use crate::mcp::{Era, ProtocolVersion};

/// The client to which an instance or a call belongs. Two calls with equal scopes come from the
/// same client, as far as the gateway can determine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InstanceScope {
    /// Shared by all clients.
    Everybody,
    /// A Legacy session, by its id.
    Session {
        /// Id that the gateway gave the session.
        id: Arc<str>,
        /// Principal that owns the session.
        principal: Principal,
    },
    /// A principal without a session: a Modern client.
    Principal(Principal),
}

impl InstanceScope {
    /// Returns the scope of a call.
    pub fn of(context: &Context) -> Self {
        let principal = context.principal.clone();
        match &context.session {
            Some(id) => Self::Session { id: Arc::clone(id), principal },
            None => Self::Principal(principal),
        }
    }

    /// Returns the principal of the scope, unless it is shared.
    pub fn principal(&self) -> Option<&Principal> {
        match self {
            Self::Everybody => None,
            Self::Session { principal, .. } | Self::Principal(principal) => Some(principal),
        }
    }

    /// Returns the id of the Legacy session, if the scope is one.
    pub fn session(&self) -> Option<Arc<str>> {
        match self {
            Self::Session { id, .. } => Some(Arc::clone(id)),
            Self::Everybody | Self::Principal(_) => None,
        }
    }

    /// Returns true if the scope is that Legacy session.
    pub fn is_session(&self, session: &str) -> bool {
        matches!(self, Self::Session { id, .. } if **id == *session)
    }

    /// Returns the name in status and log. It omits a session's id, which is a secret.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Everybody => "shared",
            Self::Session { principal, .. } | Self::Principal(principal) => principal.as_str(),
        }
    }
}

/// Declaration of some clients to a server. The server's lists may depend on all of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientDeclaration {
    /// The clients' era, if it differs from that of the server's main instance.
    pub other_era: Option<Era>,
    /// The client that owns the account at the server, if each client has its own.
    pub account: Option<Principal>,
    /// Raw capabilities: in each request to a Modern server, or in the `initialize` of a Legacy
    /// one.
    pub capabilities: Bytes,
}

impl ClientDeclaration {
    /// Returns the declaration of the main instance: its own era, and no capabilities.
    pub fn main() -> Self {
        Self { other_era: None, account: None, capabilities: Bytes::from_static(b"{}") }
    }

    /// Returns the declaration of clients with these abilities to a server of this version. For a
    /// Legacy server, it contains only the capabilities that all clients of a shared instance have
    /// in common.
    pub(super) fn new(version: ProtocolVersion, abilities: &Abilities) -> Self {
        let capabilities = match version.era() {
            Era::Modern => abilities.raw().clone(),
            Era::Legacy => lower::common_capabilities(abilities, version),
        };
        Self { other_era: None, account: None, capabilities }
    }

    /// Returns the declaration of one client to a Legacy server of this version, in an instance of
    /// its own.
    fn of_one_client(version: ProtocolVersion, abilities: &Abilities) -> Self {
        Self {
            other_era: None,
            account: None,
            capabilities: lower::capabilities(abilities, version),
        }
    }

    /// Returns the declaration of Legacy clients with these abilities to a server with a Modern
    /// main instance.
    pub(super) fn of_legacy_client(abilities: &Abilities) -> Self {
        let other_era = Some(Era::Legacy);
        Self { other_era, ..Self::new(ProtocolVersion::LATEST_LEGACY, abilities) }
    }

    /// Returns true if the main instance can make the declaration, with its own era and account.
    pub(super) fn is_made_by_main(&self) -> bool {
        self.other_era.is_none() && self.account.is_none()
    }

    /// Returns true if another declaration has the same other era and account.
    pub(super) fn is_of_same(&self, other: &Self) -> bool {
        (self.other_era, &self.account) == (other.other_era, &other.account)
    }

    /// Returns the declaration with a client's account before the server's version is known, and
    /// for the client's calls if the main instance has no account.
    pub(super) fn of_account(account: &Principal) -> Self {
        Self::main().with_account(Some(account))
    }

    /// Returns the same declaration with this account.
    pub(super) fn with_account(self, account: Option<&Principal>) -> Self {
        Self { account: account.cloned(), ..self }
    }

    /// Adapts the declaration to the server's configuration.
    pub(super) fn adapt_to(self, config: &ServerConfig) -> Self {
        match config.client_capabilities {
            CapabilitiesChoice::Declare => self,
            CapabilitiesChoice::Hide => {
                Self { other_era: self.other_era, account: self.account, ..Self::main() }
            }
        }
    }
}

/// Identifies an instance among those of one server, by its scope and by the declaration of its
/// clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InstanceKey {
    /// Clients that the instance serves.
    pub whose: InstanceScope,
    /// Declaration of these clients to the server.
    pub told: ClientDeclaration,
}

impl InstanceKey {
    /// Returns the key of the main instance: shared, with no capabilities.
    pub fn main() -> Self {
        Self::lister(ClientDeclaration::main())
    }

    /// Returns the key of the instance that reads the lists for clients of this declaration.
    pub(super) fn lister(told: ClientDeclaration) -> Self {
        Self { whose: InstanceScope::Everybody, told }
    }

    /// Returns true if this is the key of the main instance.
    pub fn is_main(&self) -> bool {
        self.whose == InstanceScope::Everybody && self.told == ClientDeclaration::main()
    }

    /// Returns the declaration of the lists that clients of such an instance receive.
    pub(super) fn list_declaration(&self) -> ClientDeclaration {
        if self.lists() {
            return self.told.clone();
        }
        let capabilities = lower::common_part(&self.told.capabilities);
        ClientDeclaration { capabilities, ..self.told.clone() }
    }

    /// Returns true if such an instance reads the server's lists. An instance of a single client
    /// does not: it uses the list of all clients with the same capabilities.
    pub fn lists(&self) -> bool {
        self.whose == InstanceScope::Everybody
    }

    /// Returns the instance for a call, in the era of the main instance.
    pub(super) fn of(version: ProtocolVersion, config: &ServerConfig, context: &Context) -> Self {
        match version.era() {
            // Modern servers receive capabilities with each request.
            Era::Modern => Self::main(),
            Era::Legacy if config.has_one_instance() => Self::main(),
            Era::Legacy => Self::of_legacy_server(None, version, config, context),
        }
    }

    /// Returns the instance for a Legacy client's call, at a server with a Modern main instance.
    pub(super) fn of_legacy_client(config: &ServerConfig, context: &Context) -> Self {
        let version = ProtocolVersion::LATEST_LEGACY;
        Self::of_legacy_server(Some(Era::Legacy), version, config, context)
    }

    fn of_legacy_server(
        other_era: Option<Era>,
        version: ProtocolVersion,
        config: &ServerConfig,
        context: &Context,
    ) -> Self {
        let abilities = context.client.abilities();
        let (whose, told) = match config.isolation() {
            Isolation::Shared => {
                (InstanceScope::Everybody, ClientDeclaration::new(version, abilities))
            }
            Isolation::Client => {
                let told = ClientDeclaration::of_one_client(version, abilities);
                (InstanceScope::of(context), told)
            }
        };
        Self { whose, told: ClientDeclaration { other_era, ..told }.adapt_to(config) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Client;
    use crate::upstream::tests::{call, config};

    fn context(session: Option<&str>, capabilities: &'static str) -> Context {
        let mut context = call("t").context;
        context.session = session.map(Arc::from);
        let raw = Bytes::from_static(capabilities.as_bytes());
        context.client = Arc::new(Client::new(ProtocolVersion::LATEST_LEGACY, None, raw));
        context
    }

    fn server(lines: &str) -> Arc<ServerConfig> {
        Arc::clone(&config(&[("s", lines)]).servers[0])
    }

    #[test]
    fn who_can_do_the_same_shares_where_sharing_is_allowed() {
        let (in_common, apart) = (server(""), server("isolation = \"client\""));
        let (modern, legacy) = (ProtocolVersion::LATEST_MODERN, ProtocolVersion::LATEST_LEGACY);
        let roots = "{\"roots\":{}}";
        let (one, two) = (context(Some("1"), roots), context(Some("2"), roots));
        let (plain, anyone) = (context(Some("3"), "{}"), context(None, roots));
        for context in [&one, &two, &plain, &anyone] {
            for config in [&in_common, &apart] {
                let key = InstanceKey::of(modern, config, context);
                assert!(key.is_main(), "capabilities travel by request");
            }
        }
        let shared = |context| InstanceKey::of(legacy, &in_common, context);
        assert_eq!(shared(&one), shared(&two));
        assert_eq!(shared(&one), shared(&anyone));
        assert!(shared(&plain).is_main() && !shared(&one).is_main() && shared(&one).lists());
        let own = |context| InstanceKey::of(legacy, &apart, context);
        assert_ne!(own(&one), own(&two));
        assert_ne!(own(&one), own(&anyone));
        let idle = context(None, "{}");
        assert_ne!(own(&idle), own(&anyone), "told of other abilities");
        assert!(own(&one).whose.is_session("1") && !own(&plain).is_main() && !own(&plain).lists());
    }

    #[test]
    fn a_legacy_client_shares_no_instance_with_modern_ones() {
        let plain = context(Some("1"), "{}");
        let shared = InstanceKey::of_legacy_client(&server(""), &plain);
        assert!(!shared.is_main() && shared.lists());
        let own = InstanceKey::of_legacy_client(&server("isolation = \"client\""), &plain);
        assert!(own.whose.is_session("1") && own.told == shared.told);
    }

    #[test]
    fn a_server_that_capabilities_are_hidden_from_has_one_instance_unless_clients_are_isolated() {
        let (legacy, able) = (ProtocolVersion::LATEST_LEGACY, context(Some("1"), "{\"roots\":{}}"));
        let hidden = "client_capabilities = \"hide\"\n";
        assert!(InstanceKey::of(legacy, &server(hidden), &able).is_main());
        let apart = server(&format!("{hidden}isolation = \"client\""));
        for key in
            [InstanceKey::of(legacy, &apart, &able), InstanceKey::of_legacy_client(&apart, &able)]
        {
            assert!(key.whose.is_session("1") && key.told.capabilities == "{}", "{key:?}");
        }
    }

    #[test]
    fn clients_that_differ_in_nothing_that_matters_share_an_instance() {
        let legacy = ProtocolVersion::LATEST_LEGACY;
        let shared = |raw| InstanceKey::of(legacy, &server(""), &context(None, raw)).told;
        let told = |raw: &'static str| String::from_utf8(shared(raw).capabilities.into()).unwrap();
        for (one, other) in [
            (r#"{"roots":{}}"#, r#"{"roots":{"listChanged":true},"experimental":{"x":{}}}"#),
            (r#"{"sampling":{"tools":{}}}"#, r#"{"sampling":{"tools":{"x":1},"y":{}},"z":{}}"#),
            (r#"{"elicitation":{}}"#, r#"{"elicitation":{"form":{"x":1},"y":{}},"tasks":{}}"#),
            ("{}", r#"{"experimental":{"x":{}}}"#),
        ] {
            assert_eq!(told(one), told(other));
        }
        let all = [
            "{}",
            r#"{"roots":{}}"#,
            r#"{"sampling":{}}"#,
            r#"{"sampling":{"context":{}}}"#,
            r#"{"sampling":{"tools":{}}}"#,
            r#"{"elicitation":{"form":{}}}"#,
            r#"{"elicitation":{"url":{}}}"#,
            r#"{"extensions":{"com.example/x":{}}}"#,
            r#"{"extensions":{"com.example/x":{"y":1}}}"#,
        ];
        assert_eq!(all.map(told), all, "what matters");
    }

    #[test]
    fn a_client_with_an_instance_of_its_own_declares_everything_and_has_the_lists_of_all_like_it() {
        let legacy = ProtocolVersion::LATEST_LEGACY;
        let client = context(Some("1"), r#"{"experimental":{"x":{}},"roots":{}}"#);
        let own = InstanceKey::of(legacy, &server("isolation = \"client\""), &client);
        assert_eq!(own.told.capabilities, *client.client.abilities().raw());
        let shared = InstanceKey::of(legacy, &server(""), &client);
        assert_eq!(own.list_declaration(), shared.told);
        assert_eq!(shared.list_declaration(), shared.told);
    }
}
