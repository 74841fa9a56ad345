//! Clients' own accounts at a server where the gateway has none: what nobody's request can find out,
//! the version and the lists, is found out with the account of each client, and their calls use it too.

use std::sync::atomic::Ordering;

use tokio::time::timeout;

use crate::call::{Context, Principal, ServerFault};
use crate::upstream::UpstreamError;
use crate::upstream::credentials::GrantOwner;
use crate::upstream::owner::{ClientDeclaration, InstanceKey};
use crate::upstream::supervisor::instance::Instance;
use crate::upstream::supervisor::shared::ServerShared;
use crate::upstream::supervisor::state::LifeState;

impl ServerShared {
    /// Whether the last start of the main instance failed for want of a login or a token, at a server
    /// where clients have accounts of their own.
    pub(in crate::upstream) fn has_no_account(&self) -> bool {
        self.no_account.load(Ordering::Acquire)
    }

    /// Records how a start of the main instance has ended.
    pub(in crate::upstream) fn note_account(&self, fault: Option<&UpstreamError>) {
        let is_missing =
            matches!(fault, Some(UpstreamError::LoginNeeded(_) | UpstreamError::Login(_)));
        let authorizer = self.authorizer.as_ref();
        let is_known = authorizer.is_some_and(|it| it.tells_clients_apart());
        self.no_account.store(is_missing && is_known, Ordering::Release);
    }

    /// Remembers the address of a client, and its token where that is exchanged.
    pub(in crate::upstream) fn note_caller(&self, context: &Context) {
        if let Some(authorizer) = &self.authorizer {
            authorizer.note_caller(context);
        }
    }

    /// The key of the instance that uses a client's own account; `None` if it has none.
    pub(in crate::upstream) fn account_key(&self, client: &Principal) -> Option<InstanceKey> {
        let authorizer = self.authorizer.as_ref()?;
        let has_account = authorizer.has_account(client);
        has_account.then(|| InstanceKey::lister(ClientDeclaration::of_account(client)))
    }

    /// The fault of a call to a server that is down: with the link to log in by, if the client has an
    /// account to log in to.
    pub(in crate::upstream) async fn explain_down(
        &self,
        fault: UpstreamError,
        context: &Context,
    ) -> UpstreamError {
        let waits =
            matches!(&fault, UpstreamError::Down(fault) if **fault == ServerFault::LoginNeeded);
        let Some(authorizer) = self.authorizer.as_ref().filter(|_| waits) else { return fault };
        let client = &context.principal;
        let owner = authorizer.owner_of(Some(client));
        let is_own = owner != GrantOwner::Gateway && !authorizer.has_account(client);
        if is_own && authorizer.connection(&owner).is_some() {
            authorizer.note_address(&owner, context.address);
            if let Err(login) = authorizer.begin_login(&owner).await {
                return UpstreamError::Login(Box::new(login));
            }
        }
        let demand = authorizer.open_login(&owner);
        demand.map_or(fault, |demand| UpstreamError::LoginNeeded(Box::new(demand)))
    }
}

impl Instance {
    /// Whether the main instance is not connected because the gateway itself has no account, or no
    /// token, at the server. Waits for a start that is due or under way.
    pub(in crate::upstream) async fn lacks_account(&self) -> bool {
        if self.connection.load().is_none() && !self.kin.has_no_account() {
            let mut state = self.state.subscribe();
            let is_over =
                |state: &LifeState| !matches!(state, LifeState::Idle | LifeState::Connecting);
            self.demand.notify_one();
            let _ = timeout(self.config().start_timeout, state.wait_for(is_over)).await;
        }
        self.connection.load().is_none() && self.kin.has_no_account()
    }
}
