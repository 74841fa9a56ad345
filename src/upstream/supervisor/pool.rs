//! The instances of one server besides the first: opened when they are needed,
//! bounded in number, and gone when their client or their work is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;

use crate::config::Isolation;

use crate::upstream::UpstreamError;
use crate::upstream::owner::InstanceKey;
use crate::upstream::supervisor::instance::{InUse, Instance};
use crate::upstream::supervisor::kin::ServerShared;
use crate::upstream::supervisor::state::{InstanceView, SHOWN};

/// The instances besides the first, by whose they are.
#[derive(Default)]
pub(in crate::upstream) struct Pool {
    open: Mutex<HashMap<InstanceKey, Arc<Instance>>>,
}

impl Pool {
    /// The instance for a call, opened where there is none; in use from this
    /// moment on, so that it is not closed before it has the call.
    pub(in crate::upstream) fn take(
        &self,
        kin: &Arc<ServerShared>,
        owner: InstanceKey,
    ) -> Result<(Arc<Instance>, InUse), UpstreamError> {
        let mut open = self.open();
        let instance = find_or_open(&mut open, kin, owner)?;
        let in_use = InUse::begin(&instance);
        Ok((instance, in_use))
    }

    /// The instance of that owner, opened where there is none.
    pub(in crate::upstream) fn open_for(
        &self,
        kin: &Arc<ServerShared>,
        owner: InstanceKey,
    ) -> Result<Arc<Instance>, UpstreamError> {
        find_or_open(&mut self.open(), kin, owner)
    }

    /// The instance of that owner, where it is open.
    pub(in crate::upstream) fn find(&self, owner: &InstanceKey) -> Option<Arc<Instance>> {
        self.open().get(owner).cloned()
    }

    /// Lets an instance that is done leave; false where a call has come just
    /// then, and has it.
    pub(in crate::upstream) fn leave(&self, instance: &Instance) -> bool {
        let mut open = self.open();
        if instance.is_wanted() {
            return false;
        }
        remove(&mut open, instance);
        true
    }

    /// Forgets an instance whose life is over.
    pub(in crate::upstream) fn remove(&self, instance: &Instance) {
        remove(&mut self.open(), instance);
    }

    /// Closes what belongs to a client's session: once its calls, which end
    /// with the session, have done so, or soon.
    pub(in crate::upstream) fn close_session(&self, kin: &Arc<ServerShared>, session: &str) {
        let mut closing = Vec::new();
        self.open().retain(|owner, instance| {
            let goes = owner.whose.is_session(session);
            if goes {
                closing.push(Arc::clone(instance));
            }
            !goes
        });
        for instance in closing {
            kin.surroundings.alive.spawn(async move {
                let _ = timeout(LAST_CALLS, instance.unused()).await;
                instance.stop.cancel();
            });
        }
    }

    /// What can be told of them, and how many there are.
    pub(in crate::upstream) fn view(&self) -> (Vec<InstanceView>, usize) {
        let open = self.open();
        let mut all: Vec<_> = open.values().cloned().collect();
        drop(open);
        let count = all.len();
        all.sort_by_key(|instance| instance.born);
        (all.iter().take(SHOWN).map(|instance| instance.view()).collect(), count)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<InstanceKey, Arc<Instance>>> {
        self.open.lock()
    }
}

fn remove(open: &mut HashMap<InstanceKey, Arc<Instance>>, instance: &Instance) {
    // Another may have its place by now.
    if open.get(&*instance.owner).is_some_and(|it| std::ptr::eq(&raw const **it, instance)) {
        open.remove(&*instance.owner);
    }
}

fn find_or_open(
    open: &mut HashMap<InstanceKey, Arc<Instance>>,
    kin: &Arc<ServerShared>,
    owner: InstanceKey,
) -> Result<Arc<Instance>, UpstreamError> {
    let limit = kin.config.max_instances();
    if let Some(instance) = open.get(&owner) {
        return Ok(Arc::clone(instance));
    }
    if open.len() >= limit {
        // One that is nobody's and does nothing makes room: whoever needs it
        // again gets another that is the same.
        let idle = open.iter().filter(|(owner, instance)| owner.lists() && !instance.is_in_use());
        let idle = idle.min_by_key(|(_, instance)| instance.last_used());
        let Some(idle) = idle.map(|(owner, _)| owner.clone()) else {
            return Err(UpstreamError::TooManyInstances { limit });
        };
        if let Some(instance) = open.remove(&idle) {
            instance.stop.cancel();
        }
    }
    let instance = Instance::start(kin, owner.clone());
    open.insert(owner, Arc::clone(&instance));
    Ok(instance)
}

impl ServerShared {
    /// Opens the instances, if this server takes over from another, at which
    /// clients are subscribed to something.
    pub(in crate::upstream) fn resume(self: &Arc<Self>) {
        for owner in self.surroundings.hub.waiting(&self.config.name) {
            let expected = match self.config.isolation() {
                Isolation::Shared => owner.lists(),
                Isolation::Client => true,
            };
            if expected && let Err(fault) = self.pool.open_for(self, owner) {
                tracing::warn!(server = %self.config.name, fault = %fault.chain(), "subscriptions are lost");
            }
        }
    }
}

/// How long calls may take to end once their session has.
const LAST_CALLS: Duration = Duration::from_secs(2);
