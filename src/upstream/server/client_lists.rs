//! Requests a server's lists on behalf of particular clients.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Abilities, Context, Principal};
use crate::catalog::Kind;
use crate::mcp::{Era, ProtocolVersion};
use crate::policy::Holder;

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
        self.kin.note_caller(context);
        if self.kin.version().is_some_and(|version| self.kin.wants_legacy(version, era)) {
            self.kin.retry_legacy(holder);
        }
        let told = self.told(era, client.abilities(), Some(&context.principal));
        let told = told.and_then(|told| self.kin.declaration_to_list(told));
        let told = told.filter(|told| told.account.is_some() || self.list().is_some());
        let asked = told.and_then(|told| {
            let standing = self.ask_for_list(&told, holder)?;
            self.have_listed(&told, holder, (standing, kind));
            Some((told, standing))
        });
        let kin = Arc::clone(&self.kin);
        // Until the server is ready, its clients have the lists of an earlier run.
        let waits = !kin.lists.is_restored();
        async move {
            if waits && let Some((told, ListFreshness::New)) = asked {
                kin.lists.tried(&told).await;
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
        let authorizer = self.kin.authorizer.as_ref();
        let account = account.filter(|it| authorizer.is_some_and(|own| own.has_account(it)));
        let Some(version) = self.kin.version() else {
            return account.map(ClientDeclaration::of_account);
        };
        let told = if self.kin.serves_legacy(version, era) {
            ClientDeclaration::of_legacy_client(abilities)
        } else {
            ClientDeclaration::new(version, abilities)
        };
        let told = told.adapt_to(&self.kin.config).with_account(account);
        let is_special =
            told != ClientDeclaration::main() && told != self.kin.main_declaration(version);
        let may_differ = account.is_some() || !self.kin.config.has_one_instance();
        (is_special && may_differ).then_some(told)
    }

    /// Records a client's request for a list. Returns the list's state, or `None` if there is no
    /// room for another list of this client.
    pub(super) fn ask_for_list(
        &self,
        told: &ClientDeclaration,
        holder: &Holder,
    ) -> Option<ListFreshness> {
        let has_shares = self.kin.surroundings.has_shares();
        let each = if has_shares { lists::MOST_EACH } else { lists::MOST };
        self.kin.lists.ask(told, holder, each)
    }

    /// Requests a list that is missing or may be stale.
    fn have_listed(
        &self,
        told: &ClientDeclaration,
        holder: &Holder,
        (standing, kind): (ListFreshness, Kind),
    ) {
        let lists = &self.kin.lists;
        let is_modern = self.kin.version().map(ProtocolVersion::era) == Some(Era::Modern);
        if is_modern && told.is_made_by_main() {
            match (&*self.main.state.borrow(), standing) {
                (LifeState::Ready, ListFreshness::New) => lists.wanted.notify_one(),
                (LifeState::Idle, ListFreshness::New) => self.main.want_list(),
                (LifeState::Connecting, _) | (_, ListFreshness::Tried(_)) => {}
                _ => lists.failed(told),
            }
            return;
        }
        let owner = InstanceKey::lister(told.clone());
        let running = self.kin.pool.find(&owner);
        if let Some(running) = &running {
            running.touch();
        }
        let fresh = lists.freshness(told).filter(|_| running.is_some());
        let fresh = fresh.map_or(Duration::ZERO, |fresh| fresh.get(kind).ttl).max(LEAST_FRESH);
        if matches!(standing, ListFreshness::Tried(age) if age <= fresh) {
            return;
        }
        match self.kin.pool.open_for(&self.kin, owner, holder) {
            Ok(lister) => lister.want_list(),
            Err(fault) => {
                let fault = fault.chain_without(&self.kin.config.secrets);
                tracing::warn!(server = %self.name(), fault, "no list for some clients");
                lists.failed(told);
            }
        }
    }
}

/// Minimum time between two refreshes of a list for clients.
pub(super) const LEAST_FRESH: Duration = Duration::from_secs(5);
