//! Access to the admin interface: the operator of a request, and its role.
//!
//! Over the private socket the system names the user: the gateway's own or root, with the role
//! `admin`. Over TCP an operator is a client of the configuration, or a user of an issuer, with a
//! role; its key, token or certificate is verified like that of any client.

use std::fmt;
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, HeaderName, header};
use tokio::sync::watch;

use crate::call::{Failure, PeerAddress, Principal, ProfileName};
use crate::clock;
use crate::config::{AdminRole, Config};
use crate::identity::{ClientCertificate, Credential, Unidentified, wait_for_expiry};
use crate::listener::LocalUser;
use crate::pipeline::{EntryCredentials, Gateway};
use crate::snapshot::Snapshot;
use crate::telemetry::log::SharedFaultLog;

use super::problem::{ApiProblem, ProblemCode};

/// The way by which a request arrived.
#[derive(Debug, Clone, Copy)]
pub enum AdminEntrance {
    /// The private socket.
    Private(LocalUser),
    /// The admin listener.
    Listener(PeerAddress),
}

impl AdminEntrance {
    /// Returns true if only programs on this machine can use it.
    pub(crate) fn is_loopback(self) -> bool {
        match self {
            Self::Private(_) => true,
            Self::Listener(peer) => peer.local.ip().to_canonical().is_loopback(),
        }
    }
}

/// The sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OperatorIdentity {
    /// Its name in records.
    pub(crate) actor: Actor,
    /// Its rights; `None` for a client without a role.
    pub(crate) role: Option<AdminRole>,
    /// Its address, over TCP.
    pub(crate) address: Option<IpAddr>,
}

/// The name of an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Actor {
    /// A user of this machine.
    Local(LocalUser),
    /// A client or a user of an issuer, with the kind of its credential and the digits that
    /// identify it.
    Principal { principal: Principal, credential: Credential },
}

impl OperatorIdentity {
    /// Returns the credential of an operator over TCP.
    pub(crate) fn credential(&self) -> Option<&Credential> {
        match &self.actor {
            Actor::Local(_) => None,
            Actor::Principal { credential, .. } => Some(credential),
        }
    }

    /// Checks the role, and returns it.
    ///
    /// # Errors
    /// [`ProblemCode::RoleNeeded`].
    pub(crate) fn require(&self, least: AdminRole) -> Result<AdminRole, ApiProblem> {
        let needed = least.as_str();
        let detail = match self.role {
            Some(role) if role.includes(least) => return Ok(role),
            Some(role) => {
                let role = role.as_str();
                format!("{} has the role `{role}`, and the request needs `{needed}`", self.actor)
            }
            None => format!("{} has no role, and the request needs `{needed}`", self.actor),
        };
        Err(ApiProblem::new(ProblemCode::RoleNeeded, detail))
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(user) => write!(f, "uid {}", user.uid),
            Self::Principal { principal: Principal::Client(name), .. } => {
                write!(f, "client {name}")
            }
            Self::Principal { principal, .. } => write!(f, "user {}", principal.as_str()),
        }
    }
}

/// Identifies the sender of a request, and removes its key or token from the headers.
///
/// # Errors
/// [`ProblemCode::Unauthenticated`] and [`ProblemCode::TooManyAttempts`].
pub(crate) async fn identify_operator(
    gateway: &Gateway,
    entrance: AdminEntrance,
    headers: &mut HeaderMap,
    certificate: Option<&Arc<ClientCertificate>>,
) -> Result<OperatorIdentity, ApiProblem> {
    let peer = match entrance {
        AdminEntrance::Private(user) => {
            let actor = Actor::Local(user);
            return Ok(OperatorIdentity { actor, role: Some(AdminRole::Admin), address: None });
        }
        AdminEntrance::Listener(peer) => peer,
    };
    let mut has_waited = false;
    loop {
        let snapshot = gateway.snapshots.load_full();
        // The audience of a token is the URL of `/mcp`: there is one per gateway.
        let resource = snapshot.identity.resource(ProfileName::DEFAULT, || None);
        let address = peer.addr.ip();
        let entry = EntryCredentials { resource: resource.as_deref(), certificate, address };
        match gateway.identify(&snapshot, headers, entry) {
            // A gateway without clients and issuers accepts every client, but no operator.
            Ok(credential) if *credential.principal() == Principal::Anonymous => {
                let mark = || snapshot.identity.mark_credential(headers, certificate);
                let missing = Failure::KeyMissing;
                return Err(refuse(&gateway.refuse_stranger(&snapshot, address, missing, mark)));
            }
            Ok(credential) => {
                let operator = judge_operator(&snapshot, credential, address);
                admit_without_role(gateway, &snapshot, &operator)?;
                return Ok(operator);
            }
            Err(Unidentified::Refused(failure) | Unidentified::WrongCredential(failure)) => {
                let mut problem = refuse(&failure);
                if resource.is_none() && !snapshot.identity.issuers().is_empty() {
                    problem.detail.push_str(TOKENS_NEED_URL);
                }
                return Err(problem);
            }
            Err(Unidentified::Pending(_)) if has_waited => {
                return Err(refuse(&Failure::IssuerUnavailable));
            }
            Err(Unidentified::Pending(wait)) => wait.wait().await,
        }
        has_waited = true;
    }
}

/// Counts a request of a client without a role towards its rates. Such a request is refused in any
/// case; above the rates it is refused without a record, or it could fill the audit log.
///
/// # Errors
/// [`ProblemCode::TooManyAttempts`].
fn admit_without_role(
    gateway: &Gateway,
    snapshot: &Snapshot,
    operator: &OperatorIdentity,
) -> Result<(), ApiProblem> {
    let OperatorIdentity { actor, role: None, address: Some(address) } = operator else {
        return Ok(());
    };
    let Actor::Principal { principal, .. } = actor else { return Ok(()) };
    gateway.admit_request(snapshot, principal, *address).map_err(|failure| {
        let text = "refused requests of a client without a role, above its rate";
        if let Some(line) = UNRECORDED_REFUSALS.note_about(principal.as_str(), text) {
            tracing::warn!(%actor, %address, "{line}");
        }
        refuse(&failure)
    })
}

/// Finds the role of an accepted credential.
fn judge_operator(
    snapshot: &Snapshot,
    credential: Credential,
    address: IpAddr,
) -> OperatorIdentity {
    let role = role_of(&snapshot.config, &credential);
    let actor = Actor::Principal { principal: credential.principal().clone(), credential };
    OperatorIdentity { actor, role, address: Some(address) }
}

fn role_of(config: &Config, credential: &Credential) -> Option<AdminRole> {
    match credential.principal() {
        Principal::Anonymous => None,
        Principal::Client(name) => client_role(config, name),
        Principal::User(_) => user_role(config, credential),
    }
}

fn client_role(config: &Config, name: &str) -> Option<AdminRole> {
    config.clients.iter().find(|client| *client.name == *name)?.role
}

/// Returns the highest role of a user's groups.
fn user_role(config: &Config, credential: &Credential) -> Option<AdminRole> {
    let issuer = credential.principal().issuer()?;
    let issuer = config.issuers.iter().find(|known| known.name.as_str() == issuer)?;
    let groups = &credential.grants()?.groups;
    let roles = issuer.roles.iter().filter(|(group, _)| groups.contains(group.as_str()));
    roles.map(|(_, role)| *role).reduce(|one, other| if one.includes(other) { one } else { other })
}

/// Watches for the loss of an operator's access, for answers that last.
pub(crate) struct OperatorWatch {
    gateway: Arc<Gateway>,
    operator: OperatorIdentity,
    least: AdminRole,
    /// Notifies of configurations that are loaded later.
    loads: watch::Receiver<SystemTime>,
}

impl OperatorWatch {
    pub(super) fn new(
        gateway: &Arc<Gateway>,
        operator: OperatorIdentity,
        least: AdminRole,
    ) -> Self {
        let loads = gateway.snapshots.load_count();
        Self { gateway: Arc::clone(gateway), operator, least, loads }
    }

    /// Waits until the operator's key, token or certificate is no longer valid, or its role does not
    /// include the least one any more. Never resolves for a user of this machine.
    ///
    /// # Cancel safety
    /// Safe: the next call sees changes that were missed.
    pub(super) async fn revoked(&mut self) {
        let Actor::Principal { credential, .. } = &self.operator.actor else {
            return pending().await;
        };
        loop {
            let snapshot = self.gateway.snapshots.load_full();
            let role = role_of(&snapshot.config, credential);
            let is_permitted = role.is_some_and(|role| role.includes(self.least));
            if !is_permitted || !snapshot.identity.knows(credential, clock::unix_now()) {
                return;
            }
            let expiry = snapshot.identity.expiry(credential);
            drop(snapshot);
            tokio::select! {
                loaded = self.loads.changed() => if loaded.is_err() { pending().await },
                () = wait_for_expiry(expiry) => {}
            }
        }
    }
}

fn refuse(failure: &Failure) -> ApiProblem {
    if let Failure::OverLimit { retry_after, .. } = failure {
        let seconds = u64::try_from(retry_after.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
        return ApiProblem::too_many_attempts(failure.to_string(), seconds);
    }
    ApiProblem::unauthenticated(format!(
        "{failure}: send the key or token of a client with a `role`, or use the private socket \
         (`trunkline status`)"
    ))
}

/// Refuses a request that changes something and may come from a web page of another site. The
/// listener's guard has judged `Origin`, which browsers send with every such request; this is the
/// second check, for credentials that a browser adds by itself, such as a certificate.
///
/// # Errors
/// [`ProblemCode::ForeignPage`].
pub(super) fn refuse_foreign_page(headers: &HeaderMap) -> Result<(), ApiProblem> {
    let Some(site) = headers.get(SEC_FETCH_SITE) else { return Ok(()) };
    let is_own = site == "same-origin" || site == "none";
    if is_own || headers.contains_key(header::ORIGIN) {
        return Ok(());
    }
    let detail = "a web page of another site sent the request";
    Err(ApiProblem::new(ProblemCode::ForeignPage, detail))
}

/// Clients without a role above their rates, in the log.
static UNRECORDED_REFUSALS: SharedFaultLog = SharedFaultLog::holding(MAX_REFUSED_CLIENTS);
/// Maximum number of clients that are counted.
const MAX_REFUSED_CLIENTS: usize = 64;
/// Added to a refusal where no token can be accepted.
const TOKENS_NEED_URL: &str =
    "; tokens are accepted once `gateway.public_url` names their resource";
/// Relation of a page to the requested host (Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_role_includes_those_below_it() {
        use AdminRole::{Admin, Operator as Operates, Viewer};
        let actor = Actor::Local(LocalUser { uid: 7 });
        for (role, least, is_enough) in [
            (None, Viewer, false),
            (Some(Viewer), Viewer, true),
            (Some(Viewer), Operates, false),
            (Some(Operates), Operates, true),
            (Some(Operates), Admin, false),
            (Some(Admin), Viewer, true),
            (Some(Admin), Admin, true),
        ] {
            let checked = OperatorIdentity { actor: actor.clone(), role, address: None };
            let checked = checked.require(least);
            assert_eq!(checked.is_ok(), is_enough, "{role:?} {least:?}");
            if let Err(problem) = checked {
                assert_eq!(problem.code, ProblemCode::RoleNeeded);
                assert!(problem.detail.starts_with("uid 7 has "), "{problem}");
            }
        }
    }

    #[test]
    fn a_page_of_another_site_changes_nothing() {
        for (site, origin, is_refused) in [
            (None, None, false),
            (Some("none"), None, false),
            (Some("same-origin"), None, false),
            (Some("same-site"), None, true),
            (Some("cross-site"), None, true),
            (Some("unknown"), None, true),
            // The listener's guard has admitted it.
            (Some("cross-site"), Some("https://console.example.com"), false),
        ] {
            let mut headers = HeaderMap::new();
            let mut add = |name: HeaderName, value: Option<&'static str>| {
                value.map(|value| headers.insert(name, HeaderValue::from_static(value)))
            };
            add(SEC_FETCH_SITE, site);
            add(header::ORIGIN, origin);
            let refused = refuse_foreign_page(&headers);
            assert_eq!(refused.is_err(), is_refused, "{site:?} {origin:?}");
        }
    }
}
