//! Endpoints: their existence, and access to them.

use crate::call::{Endpoint, Failure, Principal, ProfileName, QueryFault, ServerName};
use crate::catalog::Selection;
use crate::clock;
use crate::config::ProfileConfig;
use crate::identity::Credential;

use super::Snapshot;
use super::views::view_cache;

impl Snapshot {
    /// Returns the endpoint at a profile's URL, with the query of that URL.
    ///
    /// # Errors
    /// [`Failure::UnknownEndpoint`] if there is none for this principal, and
    /// [`Failure::InvalidRequest`] for an invalid query or an unknown server in it.
    pub fn endpoint(
        &self,
        who: &Principal,
        profile: &str,
        query: Option<&str>,
    ) -> Result<Endpoint, Failure> {
        let found = self.profile(profile);
        let profile = match found {
            _ if !self.identity.allows(who, profile) => return Err(Failure::UnknownEndpoint),
            _ if profile == ProfileName::DEFAULT => None,
            Some(profile) => Some(profile.name.clone()),
            None => return Err(Failure::UnknownEndpoint),
        };
        let narrowing = query.map(|query| self.narrowing(found, query)).transpose()?;
        let narrowing = narrowing.filter(|selection| !selection.is_everything());
        Ok(Endpoint { profile, narrowing: narrowing.map(|selection| selection.to_string().into()) })
    }

    /// Returns true if a credential that was accepted at this endpoint before is still valid there.
    pub fn admits(&self, who: &Credential, endpoint: &Endpoint) -> bool {
        self.identity.knows(who, clock::unix_now()) && self.offers(who, endpoint)
    }

    /// Returns true if a principal keeps its sessions and streams at this endpoint, even if its key
    /// is no longer valid.
    pub fn keeps(&self, who: &Credential, endpoint: &Endpoint) -> bool {
        self.identity.has(who) && self.offers(who, endpoint)
    }

    fn offers(&self, who: &Credential, endpoint: &Endpoint) -> bool {
        let there = endpoint.profile.as_ref().is_none_or(|it| self.profile(it.as_str()).is_some());
        there && self.identity.allows(who.principal(), endpoint.profile())
    }

    /// Returns the configuration of a profile, if it exists.
    pub fn profile(&self, name: &str) -> Option<&ProfileConfig> {
        view_cache::profile(&self.config, name)
    }

    /// Returns the selection that a query makes within a profile. Servers in the query must be part
    /// of the profile, so that a typo does not look like an empty list.
    fn narrowing(
        &self,
        profile: Option<&ProfileConfig>,
        query: &str,
    ) -> Result<Selection, QueryFault> {
        let narrowing = Selection::parse(query)?;
        let whole = profile.map(Selection::from_profile).unwrap_or_default();
        let is_there = |name: &str| {
            let server = ServerName::new(name).ok().filter(|name| self.server(name).is_some());
            server.is_some_and(|server| whole.admits_server(&server))
        };
        if let Some(name) = narrowing.named_servers().find(|name| !is_there(name)) {
            return Err(QueryFault::UnknownServer { name: name.to_owned() });
        }
        Ok(narrowing)
    }
}
