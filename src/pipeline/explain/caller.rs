//! The assumed sender of a call that is not made: its principal, grants and endpoint.

use std::sync::Arc;

use crate::call::{Context, Endpoint, Grants, Principal, ProfileName};
use crate::config::quote_segment;
use crate::pipeline::entry::named_caller::{NamedCaller, usual_profile};
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
        let caller = NamedCaller::find(snapshot, &self.query.client);
        match caller.refusal(&self.config) {
            Some(refusal) => self.note_failure(CallGate::Client, &refusal),
            None => self.pass(CallGate::Client, describe_caller(&caller)),
        }
        match caller {
            NamedCaller::Anonymous => Some((Principal::Anonymous, None)),
            NamedCaller::User(user) => Some((user, self.token_grants())),
            NamedCaller::Client { principal, access } => Some((principal, access.grants)),
            NamedCaller::Unknown(unknown) => {
                self.refuse_unknown(&unknown);
                None
            }
        }
    }

    fn refuse_unknown(&mut self, unknown: &Principal) {
        if let Some(issuer) = unknown.issuer() {
            return self.refuse(CallGate::Client, format!("there is no [issuers.{issuer}]"));
        }
        let name = unknown.as_str();
        self.refuse(CallGate::Client, format!("there is no client {name:?}"));
        self.set_cure(CallGate::Client, "clients", "add [clients.NAME] (trunkline key)");
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
        self.query.profile.clone().unwrap_or_else(|| usual_profile(snapshot, who))
    }
}

fn describe_caller(caller: &NamedCaller) -> &'static str {
    match caller {
        NamedCaller::Anonymous => "the gateway requires no credentials",
        NamedCaller::User(_) => "a user with a valid token of the issuer",
        NamedCaller::Client { .. } => "a client with a valid key or certificate",
        NamedCaller::Unknown(_) => "unknown",
    }
}
