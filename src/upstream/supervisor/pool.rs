//! Instances of one server besides the main one: opened on demand, limited in number, and closed
//! when their client leaves or they are unused.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;

use crate::config::Isolation;
use crate::oauth::GrantOwner;
use crate::shares::{Holder, Share, ShareBounds, SharedAmount};

use crate::upstream::UpstreamError;
use crate::upstream::owner::InstanceKey;
use crate::upstream::supervisor::instance::{InUse, Instance};
use crate::upstream::supervisor::shared::ServerShared;
use crate::upstream::supervisor::state::{InstanceView, MAX_SHOWN_INSTANCES};

/// The instances besides the main one.
#[derive(Default)]
pub(crate) struct Pool {
    open: Mutex<OpenInstances>,
    /// Number of instances opened for each client.
    shares: Arc<SharedAmount>,
}

type OpenInstances = HashMap<InstanceKey, OpenInstance>;

/// An instance, and the share of the client for which it was opened.
struct OpenInstance {
    instance: Arc<Instance>,
    share: Share,
}

impl Pool {
    /// Returns the instance for a call of `holder`, and opens it if missing. The instance counts as
    /// in use from this moment, so that it is not closed before it has the call.
    fn take(
        &self,
        server: &Arc<ServerShared>,
        owner: InstanceKey,
        holder: &Holder,
    ) -> Result<(Arc<Instance>, InUse), UpstreamError> {
        let mut open = self.open();
        let instance = self.find_or_open(&mut open, server, owner, holder)?;
        let in_use = InUse::begin(&instance);
        Ok((instance, in_use))
    }

    /// Returns the instance for this key, and opens it for `holder` if missing.
    fn open_for(
        &self,
        server: &Arc<ServerShared>,
        owner: InstanceKey,
        holder: &Holder,
    ) -> Result<Arc<Instance>, UpstreamError> {
        self.find_or_open(&mut self.open(), server, owner, holder)
    }

    /// Returns the instance for this key, if it is open.
    pub(crate) fn find(&self, owner: &InstanceKey) -> Option<Arc<Instance>> {
        self.open().get(owner).map(|it| Arc::clone(&it.instance))
    }

    /// Removes an unused instance. Returns false if a call has just arrived for it.
    pub(super) fn leave(&self, instance: &Instance) -> bool {
        let mut open = self.open();
        if instance.is_wanted() {
            return false;
        }
        remove(&mut open, instance);
        true
    }

    /// Removes an instance that has ended.
    pub(super) fn remove(&self, instance: &Instance) {
        remove(&mut self.open(), instance);
    }

    /// Closes the instances of a client's session once their calls have ended, or after a short
    /// wait. The calls are cancelled with the session.
    fn close_session(&self, server: &Arc<ServerShared>, session: &str) {
        self.close_if(server, |instance| instance.owner().whose.is_session(session));
    }

    fn close_if(&self, server: &Arc<ServerShared>, goes: impl Fn(&Instance) -> bool) {
        let mut closing = Vec::new();
        self.open().retain(|_, it| {
            let goes = goes(&it.instance);
            if goes {
                closing.push(Arc::clone(&it.instance));
            }
            !goes
        });
        for instance in closing {
            server.context().alive.spawn(async move {
                let _ = timeout(LAST_CALLS, instance.demand().unused()).await;
                instance.life().cancel();
            });
        }
    }

    /// Returns all instances.
    pub(crate) fn instances(&self) -> Vec<Arc<Instance>> {
        self.open().values().map(|it| Arc::clone(&it.instance)).collect()
    }

    /// Returns summaries of the oldest instances, and the total number.
    pub(crate) fn view(&self) -> (Vec<InstanceView>, usize) {
        let open = self.open();
        let mut all: Vec<_> = open.values().map(|it| Arc::clone(&it.instance)).collect();
        drop(open);
        let count = all.len();
        all.sort_by_key(|instance| instance.demand().created());
        (all.iter().take(MAX_SHOWN_INSTANCES).map(|instance| instance.view()).collect(), count)
    }

    fn find_or_open(
        &self,
        open: &mut OpenInstances,
        server: &Arc<ServerShared>,
        owner: InstanceKey,
        holder: &Holder,
    ) -> Result<Arc<Instance>, UpstreamError> {
        if let Some(there) = open.get(&owner) {
            return Ok(Arc::clone(&there.instance));
        }
        let limit = server.config().max_instances();
        if open.len() >= limit {
            // A client makes room among its own instances first, and among those of others only
            // while it has less than its share.
            close_idle(open, |it| it.share.holder() == holder);
        }
        let each = server.context().share_of(limit);
        let share = self.shares.take(holder, 1, ShareBounds { all: usize::MAX, each });
        let share = share.map_err(|_| UpstreamError::TooManyInstances { limit: each })?;
        if open.len() >= limit {
            close_idle(open, |_| true).ok_or(UpstreamError::TooManyInstances { limit })?;
        }
        let instance = Instance::start(server, owner.clone());
        open.insert(owner, OpenInstance { instance: Arc::clone(&instance), share });
        Ok(instance)
    }

    fn open(&self) -> MutexGuard<'_, OpenInstances> {
        self.open.lock()
    }
}

fn remove(open: &mut OpenInstances, instance: &Instance) {
    // Another instance may have taken this key by now.
    let there = open.get(&**instance.owner());
    if there.is_some_and(|it| std::ptr::eq(&raw const *it.instance, instance)) {
        open.remove(&**instance.owner());
    }
}

/// Closes the least recently used idle shared instance among those that `may` be closed. An
/// equivalent one can be opened when it is needed again. Returns `None` if there is no such
/// instance.
fn close_idle(open: &mut OpenInstances, may: impl Fn(&OpenInstance) -> bool) -> Option<()> {
    let idle = open.iter().filter(|(owner, it)| owner.lists() && !it.instance.is_in_use());
    let idle = idle.filter(|(_, it)| may(it));
    let idle = idle.min_by_key(|(_, it)| it.instance.demand().last_used());
    let idle = idle.map(|(owner, _)| owner.clone())?;
    open.remove(&idle)?.instance.life().cancel();
    Some(())
}

impl ServerShared {
    /// Returns the instance for a call of `holder`, held open, and opens it if missing.
    #[inline]
    pub(crate) fn take_instance(
        self: &Arc<Self>,
        owner: InstanceKey,
        holder: &Holder,
    ) -> Result<(Arc<Instance>, InUse), UpstreamError> {
        self.pool().take(self, owner, holder)
    }

    /// Returns the instance for this key, and opens it for `holder` if missing.
    pub(crate) fn open_instance(
        self: &Arc<Self>,
        owner: InstanceKey,
        holder: &Holder,
    ) -> Result<Arc<Instance>, UpstreamError> {
        self.pool().open_for(self, owner, holder)
    }

    /// Closes the instances of a Legacy client's session after its end.
    pub(crate) fn close_session(self: &Arc<Self>, session: &str) {
        self.pool().close_session(self, session);
    }

    /// Closes the instances that use the grant of this owner, which has been revoked.
    pub(crate) fn close_account(self: &Arc<Self>, owner: &GrantOwner) {
        let uses = |instance: &Instance| instance.grant_owner().as_ref() == Some(owner);
        self.pool().close_if(self, uses);
    }

    /// Waits until the server is released, and has no holders and calls.
    pub(crate) async fn released(&self) {
        self.users.wait().await;
    }

    /// Opens the instances with waiting subscriptions, if this server replaces another.
    pub(crate) fn resume(self: &Arc<Self>) {
        for (owner, holder) in self.context().hub.waiting(&self.config().name) {
            let expected = match self.config().isolation() {
                Isolation::Shared => owner.lists(),
                Isolation::Client => true,
            };
            let version = self.version();
            let expected = expected
                && owner.told == owner.told.clone().adapt_to(self.config())
                && owner.told.other_era.is_none_or(|era| {
                    version.is_some_and(|version| self.serves_legacy(version, era))
                });
            if expected && let Err(fault) = self.open_instance(owner, &holder) {
                let fault = fault.chain_without(&self.config().secrets);
                self.lists().log_fault(&self.config().name, "subscriptions are lost", &fault);
            }
        }
    }
}

/// Time limit for calls to end after their session.
const LAST_CALLS: Duration = Duration::from_secs(2);
