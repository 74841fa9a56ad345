//! Reaction to a server's refusal of a request: a renewed token, more scopes, or a login.

use std::sync::Arc;

use http::StatusCode;
use tokio::task::JoinHandle;

use trunkline_config::GrantKind;
use trunkline_protocol::call::CallerToken;
use trunkline_telemetry::metrics::ServerMetric;

use super::authorizer::{LoginDemand, ServerAuthorizer};
use super::book::{GrantSlot, LoginLink};
use super::exchange::TokenSeeker;
use super::grant::{GrantOwner, OauthGrant};
use super::keeping::KeptGrant;
use crate::fault::LoginFault;
use crate::metadata::challenge::{BearerChallenge, RequestedScopes};
use crate::proofs::token::TokenEndpointError;

/// A request that a server has refused.
pub struct RequestRefusal {
    /// The status of the response.
    pub status: StatusCode,
    /// The challenge in its head.
    pub challenge: BearerChallenge,
    /// The grant that was used.
    pub used: Option<Arc<OauthGrant>>,
    /// Number of earlier refusals of the request.
    pub before: usize,
}

/// Reaction to a refusal.
#[derive(Debug)]
pub enum AfterRefusal {
    /// There is another token. The request is repeated.
    Again,
    /// There is another token for this request only. The request is repeated with it.
    With(Arc<OauthGrant>),
    /// The refusal is final.
    Final,
    /// The owner has to log in.
    Login(LoginDemand),
}

impl ServerAuthorizer {
    /// Decides the reaction to a server's refusal of an owner's request.
    ///
    /// # Errors
    /// [`LoginFault`] if there can be no token.
    pub async fn answer_refusal(
        &self,
        owner: &GrantOwner,
        caller: Option<&CallerToken>,
        refused: RequestRefusal,
    ) -> Result<AfterRefusal, LoginFault> {
        let own = self.own().ok_or(LoginFault::Interrupted)?;
        let judging = own.spawn_judging(owner.clone(), caller.cloned(), refused);
        judging.await.unwrap_or(Err(LoginFault::Interrupted))
    }

    // A task of its own, so that the authorization server's response is not lost with a caller. Not
    // `async`, so that its result has a concrete type.
    fn spawn_judging(
        self: Arc<Self>,
        owner: GrantOwner,
        caller: Option<CallerToken>,
        refused: RequestRefusal,
    ) -> JoinHandle<Result<AfterRefusal, LoginFault>> {
        tokio::spawn(async move { self.judge_refusal(&owner, caller.as_ref(), refused).await })
    }

    async fn judge_refusal(
        &self,
        owner: &GrantOwner,
        caller: Option<&CallerToken>,
        refused: RequestRefusal,
    ) -> Result<AfterRefusal, LoginFault> {
        let is_step_up = refused.status == StatusCode::FORBIDDEN;
        if is_step_up && !refused.challenge.needs_scopes() {
            return Ok(AfterRefusal::Final);
        }
        let slot = self.book.slot(self.key_of(owner));
        let _turn = slot.turn.lock().await;
        let mut current = slot.grant.load_full().filter(|grant| grant.is_for(caller));
        let authorization = |grant: &Arc<OauthGrant>| grant.authorization.clone();
        if current.as_ref().map(authorization) != refused.used.as_ref().map(authorization) {
            // Another request has renewed it.
            return Ok(if refused.before < MAX_REFUSED_TRIES {
                AfterRefusal::Again
            } else {
                AfterRefusal::Final
            });
        }
        if refused.before == 0 {
            match self.book.compare_kept(&slot, self).await? {
                KeptGrant::Newer(_) => return Ok(AfterRefusal::Again),
                KeptGrant::Revoked => current = None,
                KeptGrant::Same => {}
            }
        }
        if let Some(link) = self.link_for(&slot, &refused.challenge) {
            return Ok(AfterRefusal::Login(self.demand(owner, &link)));
        }
        if is_step_up && let Some(grant) = &current {
            check_step_up(grant, &refused.challenge)?;
        }
        let seeker = TokenSeeker { owner, caller, slot: &slot };
        self.obtain(&seeker, current, refused).await
    }

    /// Returns the open link for the same challenge.
    fn link_for(&self, slot: &GrantSlot, challenge: &BearerChallenge) -> Option<LoginLink> {
        let link = slot.link.lock().clone()?;
        (link.challenge == *challenge && self.book.is_open(&link)).then_some(link)
    }

    /// Gets a token from the available sources, or requires a login.
    async fn obtain(
        &self,
        seeker: &TokenSeeker<'_>,
        current: Option<Arc<OauthGrant>>,
        refused: RequestRefusal,
    ) -> Result<AfterRefusal, LoginFault> {
        let (owner, slot) = (seeker.owner, seeker.slot);
        let discovered = self.discover(&refused.challenge).await?;
        // Tokens of one issuer are never shown to another.
        let known = current.filter(|grant| grant.source.issuer == discovered.metadata.issuer);
        if refused.status == StatusCode::UNAUTHORIZED {
            if refused.before == 0 && self.refresh(slot, known.as_deref()).await? {
                return Ok(AfterRefusal::Again);
            }
            // A failure is logged. The grant is of no use, even if the vault still has it.
            let _ = self.book.drop_grant(slot).await;
        }
        let needs_person = self.oauth.grant == GrantKind::AuthorizationCode;
        if !needs_person && refused.before > 0 {
            return Ok(AfterRefusal::Final);
        }
        if refused.status == StatusCode::FORBIDDEN && known.is_some() {
            slot.count_step_up()?;
            if let Some(metrics) = &self.metrics {
                metrics.count(ServerMetric::StepUps);
            }
        }
        let asked = known.map(|grant| grant.source.scopes.clone()).unwrap_or_default();
        let known_scopes = RequestedScopes { challenge: &refused.challenge, asked: &asked };
        if needs_person {
            let link = self.start_login(slot, &discovered, known_scopes, None).await?;
            return Ok(AfterRefusal::Login(self.demand(owner, &link)));
        }
        let source = self.client_source(&discovered, known_scopes)?;
        let grant = self.obtain_alone(seeker, source).await?;
        Ok(AfterRefusal::With(slot.store(grant)))
    }

    /// Refreshes a grant. Returns false if this is impossible, or if the authorization server
    /// refuses.
    async fn refresh(
        &self,
        slot: &Arc<GrantSlot>,
        grant: Option<&OauthGrant>,
    ) -> Result<bool, LoginFault> {
        let Some(grant) = grant.filter(|grant| grant.can_be_refreshed()) else { return Ok(false) };
        match self.refresh_kept(slot, grant).await {
            Ok(renewed) => Ok(renewed.is_some()),
            Err(LoginFault::Token(TokenEndpointError::Refused { error })) => {
                tracing::debug!(
                    target: "trunkline::upstream::credentials::grants::refusal",
                    server = %self.place.server,
                    %error,
                    "a grant has ended"
                );
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
    }
}

/// Refuses to request scopes that were requested already. Otherwise the user would log in without
/// end.
fn check_step_up(grant: &OauthGrant, challenge: &BearerChallenge) -> Result<(), LoginFault> {
    if grant.source.scopes.has_all(&challenge.scope) {
        return Err(LoginFault::Futile { scopes: challenge.scope.to_string() });
    }
    Ok(())
}

/// Maximum number of repetitions of a request after a refusal.
pub const MAX_REFUSED_TRIES: usize = 2;
