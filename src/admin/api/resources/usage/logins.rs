//! Logins of the gateway and its users at servers. A document never has a token.
//!
//! The gateway issues no grants itself: relayed logins belong to their authorization server, and
//! consents to them are kept by browsers.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::call::Principal;
use crate::oauth::{GrantOwner, LoginOverview, LoginRevoker, RevocationOutcome};
use crate::telemetry::audit::OperationActor;
use crate::text::{error_chain, escape_controls};

/// Every login.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LoginsPage {
    /// By server and owner.
    logins: Vec<LoginStatus>,
}

/// A login at a server.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LoginStatus {
    /// Digits that name it here.
    login: String,
    /// The server.
    server: String,
    /// `gateway` for a login that all clients use, `client` or `user` for one of their own.
    kind: &'static str,
    /// The client of the configuration, or the user of an issuer; `None` for the gateway.
    owner: Option<String>,
    /// The authorization server; `None` if the vault's row cannot be read.
    issuer: Option<String>,
    /// The granted scopes, as far as is known.
    scopes: Vec<String>,
    /// The time of the login; `None` if it was made by an earlier version.
    since: Option<Timestamp>,
    /// The time from which its access token is renewed before use; `None` if no end was announced.
    renewed_at: Option<Timestamp>,
    /// True if it can be renewed without its owner.
    refreshable: bool,
    /// The announced end of that: its owner has to log in again.
    ends_at: Option<Timestamp>,
    /// True if its authorization server can revoke it.
    revocable: bool,
    /// True while it is in use; false if it waits in the vault for its server.
    active: bool,
}

/// A login that was revoked. The gateway has deleted it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RevokedLogin {
    /// The login.
    login: LoginStatus,
    /// The result at its authorization server.
    provider: ProviderOutcome,
    /// The reason that the authorization server has not revoked it.
    reason: Option<String>,
}

/// The result of a revocation at the authorization server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProviderOutcome {
    /// It has revoked the login.
    Revoked,
    /// It has no revocation endpoint.
    NoEndpoint,
    /// It has not revoked the login: see `reason`.
    Refused,
    /// It was not asked, because the configuration has the server no longer.
    NotAsked,
}

/// Lists the logins.
pub(crate) fn list_logins(request: &EndpointRequest) -> EndpointAnswer {
    let logins = request.report.gateway.snapshots.grants().logins();
    answer(&LoginsPage { logins: logins.iter().map(login_status).collect() })
}

/// Revokes a login at its authorization server, deletes it, and ends the sessions that use it.
pub(crate) async fn revoke_login(request: EndpointRequest) -> EndpointAnswer {
    let digest = request.argument("login").unwrap_or_default();
    let snapshots = &request.report.gateway.snapshots;
    let found = snapshots.grants().logins().into_iter().find(|login| login.digest == digest);
    let missing = || ApiProblem::new(ProblemCode::UnknownLogin, "there is no such login");
    let login = found.ok_or_else(missing)?;
    let name = request.operator.actor.to_string();
    let actor = OperationActor::Operator(Some(&name));
    let by = LoginRevoker { actor, address: request.operator.address };
    let outcome = if login.is_resting {
        let deleted = snapshots.grants().delete_resting_login(digest, by).await;
        deleted.map(|_| None)
    } else {
        let snapshot = snapshots.load_full();
        let member = snapshot.server(&login.server).ok_or_else(|| not_running(&login))?;
        let revoked = member.server.revoke_grant(&login.owner, by).await;
        revoked.map(Some)
    };
    if login.owner == GrantOwner::Gateway && !login.is_resting {
        // Its session has begun with the login, and may last without it.
        let _ = snapshots.restart(&login.server).await;
    }
    let kept = |fault: crate::oauth::LoginFault| {
        let detail = format!("the login is used no more, but not deleted: {}", error_chain(&fault));
        ApiProblem::new(ProblemCode::Internal, detail)
    };
    let (provider, reason) = match outcome.map_err(kept)? {
        None => (ProviderOutcome::NotAsked, None),
        Some(RevocationOutcome::Revoked | RevocationOutcome::Missing) => {
            (ProviderOutcome::Revoked, None)
        }
        Some(RevocationOutcome::NoEndpoint) => (ProviderOutcome::NoEndpoint, None),
        Some(RevocationOutcome::Refused { reason }) => {
            (ProviderOutcome::Refused, Some(escape_controls(&reason)))
        }
    };
    answer(&RevokedLogin { login: login_status(&login), provider, reason })
}

fn not_running(login: &LoginOverview) -> ApiProblem {
    let server = &login.server;
    let detail =
        format!("the server {server} is disabled or removed: enable it to revoke its login");
    ApiProblem::new(ProblemCode::ServerUnavailable, detail)
}

fn login_status(login: &LoginOverview) -> LoginStatus {
    let (kind, owner) = match &login.owner {
        GrantOwner::Gateway | GrantOwner::Client(Principal::Anonymous) => ("gateway", None),
        GrantOwner::Client(Principal::Client(name)) => ("client", Some(name.to_string())),
        GrantOwner::Client(Principal::User(name)) => ("user", Some(name.to_string())),
    };
    let grant = login.grant.as_ref();
    let time = |at: Option<Duration>| {
        at.and_then(|since_1970| Timestamp::try_from(SystemTime::UNIX_EPOCH + since_1970).ok())
    };
    LoginStatus {
        login: login.digest.clone(),
        server: login.server.to_string(),
        kind,
        owner,
        issuer: grant.map(|grant| grant.issuer.clone()),
        scopes: grant
            .map(|grant| grant.scopes.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        since: time(grant.and_then(|grant| grant.since)),
        renewed_at: time(grant.and_then(|grant| grant.renewed_at)),
        refreshable: grant.is_some_and(|grant| grant.is_refreshable),
        ends_at: time(grant.and_then(|grant| grant.ends_at)),
        revocable: grant.is_some_and(|grant| grant.is_revocable),
        active: !login.is_resting,
    }
}
