//! Lists a server again for an operator.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use crate::call::Client;
use crate::catalog::{Kind, ServerList};
use crate::clock;
use crate::mcp::{Era, ProtocolVersion};

use super::Server;
use crate::upstream::owner::ClientDeclaration;
use crate::upstream::supervisor::instance::Instance;
use crate::upstream::supervisor::state::LifeState;

/// Error of a refresh that an operator requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefreshError {
    /// It could not be started, or is stopped.
    #[error("the server could not be started: `last_error` in /status has the reason")]
    Failed,
    /// It did not list in time.
    #[error("the server did not list within {after:?}")]
    Timeout {
        /// Its `start_timeout`.
        after: Duration,
    },
    /// It could not list. The log has the reason.
    #[error("the server could not be listed")]
    Listing,
}

/// Changes of the elements of one kind, by native names and URIs, sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ElementChanges {
    /// New elements.
    pub added: Vec<String>,
    /// Removed elements.
    pub removed: Vec<String>,
    /// Elements with another definition.
    pub changed: Vec<String>,
}

impl ElementChanges {
    /// Returns true if nothing differs.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }

    fn between(before: Option<&ServerList>, after: Option<&ServerList>, kind: Kind) -> Self {
        let old = before.map(|list| elements(list, kind)).unwrap_or_default();
        let new = after.map(|list| elements(list, kind)).unwrap_or_default();
        let mut changes = Self::default();
        for (name, raw) in &new {
            match old.get(name) {
                None => changes.added.push((*name).to_owned()),
                Some(known) if known != raw => changes.changed.push((*name).to_owned()),
                Some(_) => {}
            }
        }
        let gone = old.keys().filter(|name| !new.contains_key(*name));
        changes.removed.extend(gone.map(|name| (*name).to_owned()));
        changes
    }

    /// Adds the changes of another list of the same server.
    fn merge(&mut self, other: Self) {
        let pairs = [
            (&mut self.added, other.added),
            (&mut self.removed, other.removed),
            (&mut self.changed, other.changed),
        ];
        for (all, more) in pairs {
            all.extend(more);
            all.sort_unstable();
            all.dedup();
        }
    }
}

/// The lists to request again.
struct RefreshPlan {
    /// True if they include the list for all clients.
    base: bool,
    /// Lists for declarations of clients.
    own: Vec<ClientDeclaration>,
}

impl Server {
    /// Requests the lists that these clients have, or all lists of the server, and waits until it
    /// has returned them. Returns the changes. A server that is idle is started.
    ///
    /// # Errors
    /// [`RefreshError`], after `start_timeout` at the latest. The previous lists stay.
    pub async fn refresh(
        &self,
        clients: Option<&[Arc<Client>]>,
    ) -> Result<Vec<(Kind, ElementChanges)>, RefreshError> {
        let plan = self.plan_refresh(clients);
        let before = self.lists_of(&plan);
        let patience = self.shared.config().start_timeout;
        let listed = timeout(patience, self.list_anew(&plan)).await;
        listed.unwrap_or(Err(RefreshError::Timeout { after: patience }))?;
        let after = self.lists_of(&plan);
        let changes = Kind::ALL.into_iter().map(|kind| {
            let mut changes = ElementChanges::default();
            for (old, new) in before.iter().zip(&after) {
                changes.merge(ElementChanges::between(old.as_deref(), new.as_deref(), kind));
            }
            (kind, changes)
        });
        Ok(changes.filter(|(_, changes)| !changes.is_empty()).collect())
    }

    fn plan_refresh(&self, clients: Option<&[Arc<Client>]>) -> RefreshPlan {
        let lists = self.shared.lists();
        let Some(clients) = clients else {
            return RefreshPlan { base: true, own: lists.recent() };
        };
        let told = clients
            .iter()
            .map(|client| self.told(client.version.era(), client.abilities(), None))
            .map(|told| told.filter(|told| lists.of(told).is_some()));
        let told: Vec<_> = told.collect();
        // A Modern server returns those lists together with the one for all clients.
        let is_modern = self.shared.version().map(ProtocolVersion::era) == Some(Era::Modern);
        let has_own = |told: &Option<ClientDeclaration>| {
            told.as_ref().is_some_and(|told| !is_modern || !told.is_made_by_main())
        };
        let base = told.is_empty() || !told.iter().all(has_own);
        RefreshPlan { base, own: told.into_iter().flatten().collect() }
    }

    fn lists_of(&self, plan: &RefreshPlan) -> Vec<Option<Arc<ServerList>>> {
        let own = plan.own.iter().map(|told| self.shared.lists().of(told));
        own.chain(plan.base.then(|| self.list())).collect()
    }

    async fn list_anew(&self, plan: &RefreshPlan) -> Result<(), RefreshError> {
        let asked = clock::now();
        if plan.base {
            let state_before = self.main.life().state();
            let restarts = self.main.life().restarts();
            self.main.refresh_list();
            let is_tried = move |main: &Instance| {
                state_before != LifeState::Failed || main.life().restarts() != restarts
            };
            self.base_listed_since(asked, is_tried).await?;
        }
        for told in &plan.own {
            if self.shared.refresh_for(told) {
                self.shared.lists().tried_since(told, asked).await;
            }
        }
        Ok(())
    }

    /// Waits for the end of a list request that began after this time. A server that is failed at
    /// first counts once it has been tried again.
    async fn base_listed_since(
        &self,
        asked: Instant,
        is_tried: impl Fn(&Instance) -> bool,
    ) -> Result<(), RefreshError> {
        let mut listings = self.main.finished_listings();
        let mut state = self.main.life().watch_state();
        let is_over = |state: &LifeState| match state {
            LifeState::Failed => is_tried(&self.main),
            state => *state == LifeState::Stopped,
        };
        tokio::select! {
            // Both senders are part of the instance, so they cannot be dropped.
            listed = listings.wait_for(|listed| listed.is_some_and(|one| one.begun >= asked)) => {
                let has_succeeded = listed.is_ok_and(|one| one.is_some_and(|one| one.has_succeeded));
                if has_succeeded { Ok(()) } else { Err(RefreshError::Listing) }
            }
            _ = state.wait_for(is_over) => Err(RefreshError::Failed),
        }
    }
}

fn elements(list: &ServerList, kind: Kind) -> HashMap<&str, &Bytes> {
    let tools = list.tools.iter().filter(|_| kind == Kind::Tools);
    let tools = tools.map(|tool| (tool.native.as_str(), tool.raw()));
    let items = list.items(kind).iter().map(|item| (item.native.as_str(), item.raw()));
    tools.chain(items).collect()
}
