//! Requests a server's lists on behalf of particular clients.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Abilities, Context, Principal};
use crate::catalog::Kind;
use crate::mcp::{Era, ProtocolVersion};
use crate::shares::Holder;

use super::Server;
use crate::upstream::lists::{self, ListFreshness};
use crate::upstream::owner::{ClientDeclaration, InstanceKey};
use crate::upstream::supervisor::state::LifeState;

impl Server {
    /// Requests the lists for clients like this one, if they are due, without waiting. The request
    /// counts for this client. The returned future waits until the server has responded or failed
    /// for the first time. It is ready at once if there is no server to ask, or if the client has
    /// requested too many lists. The caller sets a time limit.
    pub fn list_on_behalf(
        &self,
        context: &Context,
        holder: &Holder,
        kind: Kind,
    ) -> impl Future<Output = ()> + Send + use<> {
        let client = &context.client;
        let era = client.version.era();
        self.shared.note_caller(context);
        if self.shared.version().is_some_and(|version| self.shared.wants_legacy(version, era)) {
            self.shared.retry_legacy(holder);
        }
        let told = self.told(era, client.abilities(), Some(&context.principal));
        let told = told.and_then(|told| self.shared.declaration_to_list(told));
        let told = told.filter(|told| told.account.is_some() || self.list().is_some());
        let asked = told.and_then(|told| {
            let standing = self.ask_for_list(&told, holder)?;
            self.have_listed(&told, holder, standing, kind);
            Some((told, standing))
        });
        let shared = Arc::clone(&self.shared);
        // Until the server is ready, its clients have the lists of an earlier run.
        let waits = !shared.lists().is_restored();
        async move {
            if waits && let Some((told, ListFreshness::New)) = asked {
                shared.lists().tried(&told).await;
            }
        }
    }

    /// Returns the declaration of these clients to the server. Returns `None` if it is the same as
    /// for all clients, or if the server's version is unknown and they have no account with which
    /// to detect it.
    pub(super) fn told(
        &self,
        era: Era,
        abilities: &Abilities,
        account: Option<&Principal>,
    ) -> Option<ClientDeclaration> {
        let authorizer = self.shared.authorizer();
        let account = account.filter(|it| authorizer.is_some_and(|own| own.has_account(it)));
        let Some(version) = self.shared.version() else {
            return account.map(ClientDeclaration::of_account);
        };
        let told = if self.shared.serves_legacy(version, era) {
            ClientDeclaration::of_legacy_client(abilities)
        } else {
            ClientDeclaration::new(version, abilities)
        };
        let told = told.adapt_to(self.shared.config()).with_account(account);
        let is_special =
            told != ClientDeclaration::main() && told != self.shared.main_declaration(version);
        let may_differ = account.is_some() || !self.shared.config().has_one_instance();
        (is_special && may_differ).then_some(told)
    }

    /// Records a client's request for a list. Returns the list's state, or `None` if there is no
    /// room for another list of this client.
    pub(super) fn ask_for_list(
        &self,
        told: &ClientDeclaration,
        holder: &Holder,
    ) -> Option<ListFreshness> {
        let has_shares = self.shared.context().has_shares();
        let each = if has_shares { lists::MAX_LISTS_PER_CLIENT } else { lists::MAX_DECLARATIONS };
        self.shared.lists().ask(told, holder, each)
    }

    /// Requests a list that is missing or may be stale.
    fn have_listed(
        &self,
        told: &ClientDeclaration,
        holder: &Holder,
        standing: ListFreshness,
        kind: Kind,
    ) {
        let lists = self.shared.lists();
        let is_modern = self.shared.version().map(ProtocolVersion::era) == Some(Era::Modern);
        if is_modern && told.is_made_by_main() {
            match (self.main.life().state(), standing) {
                (LifeState::Ready, ListFreshness::New) => lists.wanted.notify_one(),
                (LifeState::Idle, ListFreshness::New) => self.main.want_list(),
                (LifeState::Connecting, _) | (_, ListFreshness::Tried(_)) => {}
                _ => lists.failed(told),
            }
            return;
        }
        let owner = InstanceKey::lister(told.clone());
        let running = self.shared.pool().find(&owner);
        if let Some(running) = &running {
            running.demand().touch();
        }
        let fresh = lists.freshness(told).filter(|_| running.is_some());
        let fresh =
            fresh.map_or(Duration::ZERO, |fresh| fresh.get(kind).ttl).max(MIN_REFRESH_INTERVAL);
        if matches!(standing, ListFreshness::Tried(age) if age <= fresh) {
            return;
        }
        match self.shared.open_instance(owner, holder) {
            Ok(lister) => lister.want_list(),
            Err(fault) => {
                let fault = fault.chain_without(&self.shared.config().secrets);
                lists.failed_with(told, self.name(), &fault);
            }
        }
    }
}

/// Minimum time between two refreshes of a list for clients.
pub(super) const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(5);
