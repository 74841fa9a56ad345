//! Facts about a caller and a call that rules read.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use crate::call::{Call, Client, Context, Grants, Principal, ProfileName};
use crate::config::{ConditionCost, ConditionReads, MemberReads};
use crate::jsonrpc::OutlineParts;
use crate::mcp::{Era, Method};

use crate::policy::authorization::rule::SettledRule;

/// Facts about a caller that rules read.
#[derive(Debug, Clone)]
pub(crate) struct CallerFacts {
    pub(crate) principal: Principal,
    profile: Option<ProfileName>,
    pub(crate) grants: Option<Arc<Grants>>,
    pub(crate) client: Arc<Client>,
    pub(crate) address: IpAddr,
    pub(crate) transport: &'static str,
}

impl CallerFacts {
    pub(crate) fn of(context: &Context) -> Self {
        Self {
            principal: context.principal.clone(),
            profile: context.endpoint.profile.clone(),
            grants: context.grants.clone(),
            client: Arc::clone(&context.client),
            address: context.address,
            transport: context.transport,
        }
    }

    pub(crate) fn profile(&self) -> &str {
        self.profile.as_ref().map_or(ProfileName::DEFAULT, ProfileName::as_str)
    }

    /// Returns the kind of the principal.
    pub(crate) fn principal_kind(&self) -> &'static str {
        match self.principal {
            Principal::Anonymous => "anonymous",
            Principal::Client(_) => "client",
            Principal::User(_) => "user",
        }
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = &str> {
        self.grants.iter().flat_map(|grants| grants.groups.iter().map(|group| &**group))
    }

    pub(crate) fn scopes(&self) -> impl Iterator<Item = &str> {
        self.grants.iter().flat_map(|grants| grants.scopes.iter().map(|scope| &**scope))
    }

    pub(crate) fn actors(&self) -> impl Iterator<Item = &str> {
        self.grants.iter().flat_map(|grants| grants.actors())
    }

    pub(crate) fn era(&self) -> &'static str {
        match self.client.version.era() {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        }
    }

    /// Returns true if rules with these reads cannot distinguish two callers.
    fn is_same(&self, other: &Self, reads: &ConditionReads) -> bool {
        let (principal, client) = (reads.of("principal"), reads.of("client"));
        let request = reads.of("request");
        let names_client = client.has("name") || client.has("version");
        (!(principal.has("name") || principal.has("kind")) || self.principal == other.principal)
            && (!principal.has("groups") || self.groups().eq(other.groups()))
            && (!principal.has("scopes") || self.scopes().eq(other.scopes()))
            && (!principal.has("actors") || self.actors().eq(other.actors()))
            && self.has_same_claims(other, reads.of("claims"))
            && (!names_client || self.client.info == other.client.info)
            && (!client.has("era") || self.era() == other.era())
            && (!request.has("profile") || self.profile() == other.profile())
            && (!request.has("address") || self.address == other.address)
            && (!request.has("transport") || self.transport == other.transport)
    }

    /// Compares only the claims that rules read: tokens of one principal differ in others, such as
    /// their expiry.
    fn has_same_claims(&self, other: &Self, reads: &MemberReads) -> bool {
        let claims = |facts: &Self, name: &str| facts.grants.as_ref()?.claims.get(name).cloned();
        let all = |facts: &Self| facts.grants.as_ref().map(|grants| grants.claims.clone());
        match reads {
            MemberReads::Nothing => true,
            MemberReads::Named(names) => {
                names.iter().all(|name| claims(self, name) == claims(other, name))
            }
            MemberReads::Keys(_) | MemberReads::All => {
                all(self).unwrap_or_default() == all(other).unwrap_or_default()
            }
        }
    }
}

/// Facts of a caller, as far as rules read them: equal for callers that these rules cannot
/// distinguish.
#[derive(Debug, Clone)]
pub(crate) struct FactsRead {
    pub(crate) facts: CallerFacts,
    pub(crate) reads: Arc<ConditionReads>,
}

impl PartialEq for FactsRead {
    fn eq(&self, other: &Self) -> bool {
        self.reads == other.reads && self.facts.is_same(&other.facts, &self.reads)
    }
}

impl Eq for FactsRead {}

impl Hash for FactsRead {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if self.reads.of("principal").has("name") {
            self.facts.principal.hash(state);
        }
    }
}

/// Facts about a call that rules read.
pub(crate) struct RequestFacts<'a> {
    pub(crate) method: &'a Method,
    pub(crate) arguments: Option<ReadArguments<'a>>,
    pub(crate) context: &'a Context,
    /// Limit of the steps to evaluate a condition; `None` if they are known to be few.
    pub(crate) most_steps: Option<u64>,
    /// Results of the rules for the requested element that were settled before the call, if its
    /// view has them.
    pub(crate) settled: Option<&'a [SettledRule]>,
}

/// The arguments of a call, with their outline if they have one.
#[derive(Debug, Clone)]
pub(crate) struct ReadArguments<'a> {
    pub(crate) raw: &'a [u8],
    pub(crate) parts: Option<OutlineParts<'a>>,
}

impl<'a> RequestFacts<'a> {
    pub(crate) fn of(call: &'a Call) -> Self {
        let parts = call.params.arguments_parts();
        let arguments = call.params.arguments().map(|raw| ReadArguments { raw, parts });
        Self { arguments, ..Self::new(&call.method, None, &call.context) }
    }

    /// Facts of a request with arguments that have no outline.
    pub(crate) fn new(method: &'a Method, raw: Option<&'a [u8]>, context: &'a Context) -> Self {
        let most_steps = Some(ConditionCost::MAX_STEPS);
        let arguments = raw.map(|raw| ReadArguments { raw, parts: None });
        Self { method, arguments, context, most_steps, settled: None }
    }

    /// Facts of a call with conditions that are known to be cheap.
    pub(crate) fn of_cheap(call: &'a Call) -> Self {
        Self { most_steps: None, ..Self::of(call) }
    }

    /// Adds the rules' results that were settled before the call.
    pub(crate) fn settled_by(self, settled: &'a [SettledRule]) -> Self {
        Self { settled: Some(settled), ..self }
    }
}
