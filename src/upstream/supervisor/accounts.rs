//! Clients' own accounts at a server where the gateway has none. The gateway cannot detect the
//! version and the lists itself, so it detects them with the account of each client, which the
//! client's calls use as well.

use tokio::time::timeout;

use crate::call::{Context, Principal, ServerFault};
use crate::oauth::GrantOwner;
use crate::upstream::UpstreamError;
use crate::upstream::owner::{ClientDeclaration, InstanceKey};
use crate::upstream::supervisor::instance::Instance;
use crate::upstream::supervisor::shared::ServerShared;
use crate::upstream::supervisor::state::LifeState;

impl ServerShared {
    /// Records the result of a start of the main instance.
    pub(super) fn note_account(&self, fault: Option<&UpstreamError>) {
        let is_missing =
            matches!(fault, Some(UpstreamError::LoginNeeded(_) | UpstreamError::Login(_)));
        let authorizer = self.authorizer();
        let is_known = authorizer.is_some_and(|it| it.tells_clients_apart());
        self.set_no_account(is_missing && is_known);
    }

    /// Remembers the address of a client, and its token if tokens are exchanged.
    pub(crate) fn note_caller(&self, context: &Context) {
        if let Some(authorizer) = self.authorizer() {
            authorizer.note_caller(context);
        }
    }

    /// Returns the key of the instance that uses a client's own account, or `None` if it has none.
    pub(crate) fn account_key(&self, client: &Principal) -> Option<InstanceKey> {
        let authorizer = self.authorizer()?;
        let has_account = authorizer.has_account(client);
        has_account.then(|| InstanceKey::lister(ClientDeclaration::of_account(client)))
    }

    /// Returns the fault of a call to a server that is down. It includes a link to log in by, if
    /// the client has an account for it.
    pub(crate) async fn explain_down(
        &self,
        fault: UpstreamError,
        context: &Context,
    ) -> UpstreamError {
        let waits =
            matches!(&fault, UpstreamError::Down(fault) if **fault == ServerFault::LoginNeeded);
        let Some(authorizer) = self.authorizer().filter(|_| waits) else { return fault };
        let client = &context.principal;
        let owner = authorizer.owner_of(Some(client));
        let is_own = owner != GrantOwner::Gateway && !authorizer.has_account(client);
        if is_own && authorizer.connection(&owner).is_some() {
            authorizer.note_address(&owner, context.address);
            if let Err(login) = authorizer.begin_login(&owner, None).await {
                return UpstreamError::Login(Box::new(login));
            }
        }
        let demand = authorizer.open_login(&owner);
        demand.map_or(fault, |demand| UpstreamError::LoginNeeded(Box::new(demand)))
    }
}

impl Instance {
    /// Returns true if the main instance is not connected because the gateway itself has no
    /// account, or no token, at the server. Waits for a start that is due or in progress.
    pub(crate) async fn lacks_account(&self) -> bool {
        if !self.life().is_connected() && !self.shared().has_no_account() {
            let mut state = self.life().watch_state();
            let is_over =
                |state: &LifeState| !matches!(state, LifeState::Idle | LifeState::Connecting);
            self.demand().request_start();
            let _ = timeout(self.config().start_timeout, state.wait_for(is_over)).await;
        }
        !self.life().is_connected() && self.shared().has_no_account()
    }
}
