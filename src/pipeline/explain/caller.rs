//! The assumed sender of a call that is not made: its principal, grants and endpoint.

use std::sync::Arc;

use crate::call::{Context, Endpoint, Failure, Grants, Principal, ProfileName};
use crate::clock;
use crate::config::quote_segment;
use crate::policy::{CallGate, ScopedCaller};
use crate::snapshot::Snapshot;

use super::explainer::Explainer;

impl Explainer<'_> {
    /// Evaluates the gates before the call itself. Returns the context of the call; `None` if the
    /// caller or the profile does not exist, so that no further gate can be evaluated.
    pub(super) fn find_caller(&mut self, snapshot: &Snapshot) -> Option<Context> {
        let (principal, grants) = self.find_principal(snapshot)?;
        self.grants.clone_from(&grants);
        let endpoint = self.find_endpoint(snapshot, &principal)?;
        let caller = ScopedCaller { principal: &principal, grants: grants.as_deref() };
        let entry = snapshot.policy.admit_entry(caller, endpoint.profile(), None);
        if let Err(failure) = entry {
            self.note_failure(CallGate::Profile, &failure);
        }
        Some(Context::assumed(principal, grants, endpoint))
    }

    fn find_principal(&mut self, snapshot: &Snapshot) -> Option<(Principal, Option<Arc<Grants>>)> {
        let (name, identity) = (self.query.client.as_str(), &snapshot.identity);
        if name == Principal::Anonymous.as_str() {
            if self.config.authenticates() {
                self.note_failure(CallGate::Client, &Failure::KeyMissing);
            } else {
                self.pass(CallGate::Client, "the gateway requires no credentials");
            }
            return Some((Principal::Anonymous, None));
        }
        if name.contains(':') {
            let user = Principal::User(name.into());
            if !identity.has_principal(&user) {
                let issuer = user.issuer().unwrap_or_default();
                self.refuse(CallGate::Client, format!("there is no [issuers.{issuer}]"));
                return None;
            }
            self.pass(CallGate::Client, "a user with a valid token of the issuer");
            return Some((user, self.token_grants()));
        }
        let Some(access) = identity.client_access(name, clock::unix_now()) else {
            self.refuse(CallGate::Client, format!("there is no client {name:?}"));
            self.set_cure(CallGate::Client, "clients", "add [clients.NAME] (trunkline key)");
            return None;
        };
        if access.has_credential {
            self.pass(CallGate::Client, "a client with a valid key or certificate");
        } else {
            self.note_failure(CallGate::Client, &Failure::KeyExpired);
        }
        Some((Principal::Client(name.into()), access.grants))
    }

    /// Returns the given facts of a user's token.
    fn token_grants(&self) -> Option<Arc<Grants>> {
        let token = self.query.token.as_ref()?;
        let shared = |names: &std::collections::BTreeSet<String>| {
            names.iter().map(|name| name.as_str().into()).collect()
        };
        let (groups, scopes) = (shared(&token.groups), shared(&token.scopes));
        let grants = Grants { groups, scopes, claims: token.claims.clone(), token: None };
        Some(Arc::new(grants))
    }

    /// Returns the endpoint, also if the caller may not use it; `None` if it does not exist.
    fn find_endpoint(&mut self, snapshot: &Snapshot, who: &Principal) -> Option<Endpoint> {
        self.profile = self.choose_profile(snapshot, who);
        let profile = self.profile.clone();
        let refusal = match snapshot.endpoint(who, &profile, None) {
            Ok(endpoint) => {
                self.pass(CallGate::Profile, &format!("the client may use {profile}"));
                return Some(endpoint);
            }
            Err(refusal) => refusal,
        };
        let known = snapshot.profile(&profile).map(|found| found.name.clone());
        if known.is_none() && profile != ProfileName::DEFAULT {
            self.refuse(CallGate::Profile, format!("there is no profile {profile:?}"));
            self.set_cure(CallGate::Profile, "profiles", "add [profiles.NAME]");
            return None;
        }
        self.note_failure(CallGate::Profile, &refusal);
        let setting = match who {
            Principal::Client(name) => format!("clients.{}.profiles", quote_segment(name)),
            Principal::User(_) | Principal::Anonymous => {
                format!("issuers.{}.profiles", quote_segment(who.issuer().unwrap_or_default()))
            }
        };
        let cure = format!("add {profile:?} to {setting}");
        self.refuse(CallGate::Profile, format!("the client may not use the profile {profile:?}"));
        self.set_cure(CallGate::Profile, &setting, &cure);
        let profile = known.filter(|name| name.as_str() != ProfileName::DEFAULT);
        Some(Endpoint { profile, narrowing: None })
    }

    /// Returns the requested profile, or the first one that the caller may use.
    fn choose_profile(&self, snapshot: &Snapshot, who: &Principal) -> String {
        if let Some(profile) = &self.query.profile {
            return profile.clone();
        }
        let own = self.config.profiles.iter().map(|profile| profile.name.as_str());
        let mut all = std::iter::once(ProfileName::DEFAULT).chain(own);
        let usable = all.find(|profile| snapshot.identity.allows(who, profile));
        usable.unwrap_or(ProfileName::DEFAULT).to_owned()
    }
}
