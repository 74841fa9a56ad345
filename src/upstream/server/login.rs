//! A server that requires a login, as the rest of the gateway sees it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::call::{Context, Failure, ServerFault};
use crate::catalog::Kind;
use crate::oauth::{
    Connection, GrantOwner, LinkRequest, LoginFault, LoginRevoker, RevocationOutcome,
};
use crate::shares::Holder;
use crate::upstream::UpstreamError;
use crate::upstream::supervisor::state::LifeState;

use super::Server;

impl Server {
    /// Returns the URL at which the operator logs in to the server, if it requires a login.
    pub(super) fn operator_link(&self) -> Option<Arc<str>> {
        let authorizer = self.shared.authorizer()?;
        authorizer.open_login(&GrantOwner::Gateway).map(|demand| demand.link)
    }

    /// Returns the server as a connection of this owner, or `None` if it has no OAuth, or if this
    /// owner cannot log in to it.
    pub fn connection(&self, owner: &GrantOwner) -> Option<Connection> {
        self.shared.authorizer()?.connection(owner)
    }

    /// Shows the server among the owner's connections, if the owner can log in to it.
    pub fn offer_connection(&self, owner: &GrantOwner) {
        if let Some(authorizer) = self.shared.authorizer() {
            authorizer.offer_connection(owner);
        }
    }

    /// Returns the link by which an owner logs in.
    ///
    /// # Errors
    /// [`LoginFault`] if there can be no login.
    pub async fn begin_login(
        &self,
        owner: &GrantOwner,
        request: LinkRequest,
    ) -> Result<Arc<str>, LoginFault> {
        let authorizer = self.shared.authorizer().ok_or(LoginFault::UnknownLink)?;
        authorizer.note_address(owner, request.address);
        authorizer.begin_login(owner, request.room).await
    }

    /// Revokes an owner's grant at its authorization server, and deletes it. Ends the instances
    /// that were opened with it, except the main one, which further requests need.
    ///
    /// # Errors
    /// [`LoginFault`] if the vault still has it.
    pub async fn revoke_grant(
        &self,
        owner: &GrantOwner,
        by: LoginRevoker<'_>,
    ) -> Result<RevocationOutcome, LoginFault> {
        let Some(authorizer) = self.shared.authorizer() else {
            return Ok(RevocationOutcome::Missing);
        };
        let revoked = authorizer.revoke_grant(owner, by).await;
        self.shared.close_account(owner);
        revoked
    }

    /// Notices an owner's login at another replica.
    pub async fn follow_login(&self, owner: &GrantOwner) {
        if let Some(authorizer) = self.shared.authorizer() {
            authorizer.follow_login(owner).await;
        }
    }

    /// Returns the failure of a call to a server that has no list for its client yet, because it
    /// requires a login. Returns `None` if it does not, or if the client has logged in.
    pub async fn login_failure(&self, context: &Context) -> Option<Failure> {
        let authorizer = self.shared.authorizer()?;
        if self.list().is_some() || authorizer.has_account(&context.principal) {
            return None;
        }
        // After a failed login, the next start creates another link.
        let mut state = self.main.life().watch_state();
        let has_link = || authorizer.open_login(&GrantOwner::Gateway).is_some();
        let is_settled = |state: &LifeState| match state {
            LifeState::Connecting => false,
            LifeState::AwaitsLogin => has_link(),
            _ => true,
        };
        let _ = timeout(LINK_PATIENCE, state.wait_for(is_settled)).await;
        if !self.main.life().is_in(&LifeState::AwaitsLogin) {
            let told = self.main.life().history().told.clone();
            let impossible =
                told.filter(|fault| matches!(fault, ServerFault::LoginImpossible { .. }))?;
            let fault = UpstreamError::Down(Box::new(impossible));
            return Some(fault.into_failure(self.name(), &self.shared.config().secrets));
        }
        let fault = UpstreamError::Down(Box::new(ServerFault::LoginNeeded));
        let fault = self.shared.explain_down(fault, context).await;
        Some(fault.into_failure(self.name(), &self.shared.config().secrets))
    }

    /// Waits for the client's pending login, and then for the server's list, within a time limit.
    /// Returns at once if there is nothing to wait for.
    pub async fn await_login(&self, context: &Context, patience: Duration) {
        let Some(authorizer) = self.shared.authorizer() else { return };
        authorizer.await_login(&authorizer.owner_of(Some(&context.principal)), patience).await;
        if self.list().is_some() {
            return;
        }
        let limit = self.shared.config().start_timeout;
        if authorizer.has_account(&context.principal) {
            let holder = Holder::of_context(context);
            let listed = self.list_on_behalf(context, &holder, Kind::Tools);
            let _ = timeout(limit, listed).await;
        } else if authorizer.has_grant(&GrantOwner::Gateway) {
            let mut state = self.main.life().watch_state();
            let is_over = |state: &LifeState| {
                !matches!(state, LifeState::AwaitsLogin | LifeState::Connecting | LifeState::Idle)
            };
            let _ = timeout(limit, state.wait_for(is_over)).await;
        }
    }
}

/// Time that a call waits for a link to log in by.
const LINK_PATIENCE: Duration = Duration::from_secs(5);
