//! Lists of one server that clients may receive.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::call::ServerName;
use crate::catalog::{ByKind, Freshness, ServerList};
use crate::clock;
use crate::shares::Holder;
use crate::telemetry::log::SharedFaultLog;

use crate::upstream::owner::ClientDeclaration;

use super::dependence::{DependenceVerdict, ListDependence};
use super::store::KnownServer;

/// The lists of one server.
#[derive(Default)]
pub(crate) struct OfferedLists {
    /// The list for all clients, without client capabilities.
    pub(crate) base: ArcSwapOption<ServerList>,
    /// Lists for clients that declare more than the main instance.
    further: Mutex<HashMap<ClientDeclaration, CapabilityList>>,
    /// Counts completed requests for further lists.
    ticks: watch::Sender<u64>,
    /// Counts the changes of the further lists.
    version: AtomicU64,
    /// Result of the comparison of a child's further lists with `base`.
    dependence: Mutex<DependenceVerdict>,
    /// True if the server itself has returned `base`. Until then it may be from an earlier run.
    pub(crate) is_current: AtomicBool,
    /// Time at which the server's own `base` was last requested, in milliseconds since 1970.
    pub(crate) listed_at: AtomicU64,
    /// True if some of them were taken over from the server that this one replaces.
    pub(crate) inherited: AtomicBool,
    /// Logged repairs of elements, each once.
    logged_repairs: Mutex<HashSet<String>>,
    /// Faults of lists and subscriptions for some clients, in the log.
    faults: SharedFaultLog,
    /// Locked while one of the lists is built.
    pub(crate) building: Arc<tokio::sync::Mutex<()>>,
    /// Notified when a missing list is to be requested from a Modern server.
    pub(crate) wanted: Notify,
}

/// A list for one declaration.
#[derive(Clone)]
struct CapabilityList {
    list: Option<Arc<ServerList>>,
    /// Freshness of the list, as the server states it.
    freshness: ByKind<Freshness>,
    /// The client for which it was first requested. `None` if no client has requested it in this
    /// run.
    holder: Option<Holder>,
    /// Time of a client's last request.
    asked: Instant,
    /// Time at which the server last returned it, or failed to.
    tried: Option<Instant>,
}

/// State of a list that a client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListFreshness {
    /// The server returned the list, or failed to, this long ago.
    Tried(Duration),
    /// The list has not been requested from the server.
    New,
}

impl CapabilityList {
    /// Creates the entry of a list that has not been requested from the server.
    fn unknown(holder: Option<Holder>) -> Self {
        let (freshness, asked) = (ByKind::default(), clock::now());
        Self { list: None, freshness, holder, asked, tried: None }
    }
}

impl OfferedLists {
    /// Restores the lists of an earlier run, until the server returns its own.
    pub(crate) fn restored(known: Option<&KnownServer>) -> Self {
        let lists = Self::default();
        if let Some(known) = known {
            lists.restore(known);
        }
        lists
    }

    /// Uses the lists of an earlier run, or of another replica, until the server returns its own.
    /// Returns false if there are other ones.
    pub(crate) fn restore(&self, known: &KnownServer) -> bool {
        let base = Some(Arc::clone(&known.base));
        if self.base.compare_and_swap(&None::<Arc<ServerList>>, base).is_some() {
            return false;
        }
        *self.dependence.lock() = known.dependence;
        let now = clock::now();
        let long_ago = now.checked_sub(RECENT_LIST_TIME).unwrap_or(now);
        let mut all = self.further();
        for (told, list) in &known.further {
            all.entry(told.clone()).or_insert_with(|| CapabilityList {
                list: Some(Arc::clone(list)),
                freshness: list.freshness,
                holder: None,
                asked: long_ago,
                tried: Some(long_ago),
            });
        }
        true
    }

    /// Returns the known dependence of the lists on capabilities.
    pub(crate) fn dependence(&self) -> ListDependence {
        self.dependence.lock().found
    }

    /// Returns the dependence with the time of its comparison.
    pub(crate) fn dependence_verdict(&self) -> DependenceVerdict {
        *self.dependence.lock()
    }

    /// Returns true if a warning about a repair has not been logged yet. Returns false once
    /// [`MAX_LOGGED_REPAIRS`] are logged.
    pub(crate) fn is_first_repair(&self, warning: &str) -> bool {
        let mut logged = self.logged_repairs.lock();
        logged.len() < MAX_LOGGED_REPAIRS && logged.insert(warning.to_owned())
    }

    /// Records the dependence of the lists on capabilities.
    pub(crate) fn set_dependence(&self, dependence: ListDependence) {
        let since = (dependence != ListDependence::Unknown).then(|| clock::unix_now().as_secs());
        *self.dependence.lock() = DependenceVerdict { found: dependence, since };
    }

    /// Adds an entry for a list that no client has requested by its declaration.
    pub(crate) fn make_room_for(&self, told: &ClientDeclaration) {
        let mut further = self.further();
        if further.len() < MAX_DECLARATIONS || further.contains_key(told) {
            further.entry(told.clone()).or_insert_with(|| CapabilityList::unknown(None));
        }
    }

    /// Removes the list for these clients. Returns true if their list differs from now on.
    pub(crate) fn forget(&self, told: &ClientDeclaration) -> bool {
        let removed = self.further().remove(told).and_then(|slot| slot.list);
        let base = self.base.load();
        removed.is_some_and(|own| !base.as_ref().is_some_and(|base| base.offers_the_same(&own)))
    }

    /// Returns true if the list for all clients is not yet the server's own, but that of an earlier
    /// run.
    pub(crate) fn is_restored(&self) -> bool {
        !self.is_current.load(Ordering::Acquire) && self.base.load().is_some()
    }

    /// Returns the lists to store for the next run, besides that for all clients. Lists of a single
    /// client's account are excluded.
    pub(crate) fn lists_to_keep(&self) -> Vec<(ClientDeclaration, Arc<ServerList>)> {
        let further = self.further();
        let kept = further.iter().filter(|(told, _)| told.account.is_none());
        let mut slots: Vec<_> = kept.filter(|(_, slot)| slot.list.is_some()).collect();
        slots.sort_by(|(one, first), (other, second)| {
            let by_use = second.asked.cmp(&first.asked);
            by_use.then_with(|| one.capabilities.cmp(&other.capabilities))
        });
        let slots = slots.into_iter().take(MAX_LISTS_PER_CLIENT);
        slots.filter_map(|(told, slot)| Some((told.clone(), slot.list.clone()?))).collect()
    }

    /// Returns the lists for clients that declare more than the main instance.
    pub(crate) fn further_lists(&self) -> Vec<Arc<ServerList>> {
        self.further().values().filter_map(|slot| slot.list.clone()).collect()
    }

    /// Returns the list for clients of this declaration.
    pub(crate) fn of(&self, told: &ClientDeclaration) -> Option<Arc<ServerList>> {
        self.further().get(told).and_then(|slot| slot.list.clone())
    }

    /// Returns the freshness of the list for these clients, if there is one.
    pub(crate) fn freshness(&self, told: &ClientDeclaration) -> Option<ByKind<Freshness>> {
        let further = self.further();
        further.get(told).filter(|slot| slot.list.is_some()).map(|slot| slot.freshness)
    }

    /// Returns the list for clients of this declaration. Until it is known, returns another one of
    /// the same other era or account.
    pub(crate) fn known(&self, told: &ClientDeclaration) -> Option<Arc<ServerList>> {
        let sibling = || {
            let further = self.further();
            let mut same = further.iter().filter(|(key, _)| key.is_of_same(told));
            same.find_map(|(_, slot)| slot.list.clone())
        };
        self.of(told).or_else(|| (!told.is_made_by_main()).then(sibling).flatten())
    }

    /// Returns a list that may share elements with the next one for these clients.
    pub(crate) fn similar(&self, told: &ClientDeclaration) -> Option<Arc<ServerList>> {
        self.known(told).or_else(|| self.base.load_full())
    }

    /// Returns true if clients of both eras all have the same lists.
    pub(crate) fn are_same_in_both_eras(&self) -> bool {
        let Some(base) = self.base.load_full() else { return true };
        let further = self.further();
        let of_all = further.iter().filter(|(told, _)| told.account.is_none());
        let known = of_all.filter_map(|(told, slot)| Some((told, slot.list.as_ref()?)));
        let mut of_both = known.clone().filter(|(told, _)| told.other_era.is_some());
        let mut others = known.filter(|(_, list)| !list.offers_the_same(&base));
        of_both.next().is_none() || others.next().is_none()
    }

    /// Counts a change of the further lists.
    pub(crate) fn count_change(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Records a client's request for such a list. Returns the list's state. Returns `None` if
    /// there is no room for another list, or if this client has `each` of them already. The client
    /// then receives the list for all clients.
    pub(crate) fn ask(
        &self,
        told: &ClientDeclaration,
        holder: &Holder,
        each: usize,
    ) -> Option<ListFreshness> {
        let now = clock::now();
        let mut further = self.further();
        if let Some(slot) = further.get_mut(told) {
            slot.asked = now;
            slot.holder.get_or_insert_with(|| holder.clone());
            let tried = slot.tried.map(|tried| ListFreshness::Tried(now - tried));
            return Some(tried.unwrap_or(ListFreshness::New));
        }
        let has_account = told.account.is_some();
        let most = if has_account { MAX_ACCOUNT_LISTS } else { MAX_DECLARATIONS };
        let alike = |key: &ClientDeclaration| key.account.is_some() == has_account;
        let own = |slot: &CapabilityList| slot.holder.as_ref() == Some(holder);
        let count = |is_own: bool| {
            let alike = further.iter().filter(|(key, slot)| alike(key) && (!is_own || own(slot)));
            alike.count()
        };
        if count(true) >= each {
            remove_unused(&mut further, |key, slot| alike(key) && own(slot))?;
        } else if count(false) >= most {
            remove_unused(&mut further, |key, _| alike(key))?;
        }
        let slot = CapabilityList::unknown(Some(holder.clone()));
        further.insert(told.clone(), slot);
        Some(ListFreshness::New)
    }

    /// Returns the client for which a list was first requested.
    pub(crate) fn holder(&self, told: &ClientDeclaration) -> Option<Holder> {
        self.further().get(told).and_then(|slot| slot.holder.clone())
    }

    /// Returns the number of changes of the further lists.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Takes over the lists of the server that this one replaces, unless it has its own.
    pub(crate) fn inherit(&self, from: &Self) {
        // Atomic, because the server's own list may arrive concurrently and
        // must stay.
        self.base.compare_and_swap(&None::<Arc<ServerList>>, from.base.load_full());
        let inherited: Vec<_> = from
            .further()
            .iter()
            .filter(|(_, slot)| slot.list.is_some())
            .map(|(told, slot)| (told.clone(), slot.clone()))
            .collect();
        let mut further = self.further();
        for (told, slot) in inherited {
            further.entry(told).or_insert(slot);
        }
        self.inherited.store(!further.is_empty(), Ordering::Release);
        drop(further);
        self.count_change();
    }

    /// Waits until such a list has been requested from the server.
    pub(crate) async fn tried(&self, told: &ClientDeclaration) {
        let mut ticks = self.ticks.subscribe();
        let settled = |_: &u64| {
            let further = self.further();
            further.get(told).is_none_or(|slot| slot.tried.is_some())
        };
        // The sender is part of `self`, so it cannot be dropped.
        let _ = ticks.wait_for(settled).await;
    }

    /// Waits until the server has returned this list, or failed to, after this time.
    pub(crate) async fn tried_since(&self, told: &ClientDeclaration, since: Instant) {
        let mut ticks = self.ticks.subscribe();
        let settled = |_: &u64| {
            let further = self.further();
            further.get(told).is_none_or(|slot| slot.tried.is_some_and(|tried| tried >= since))
        };
        // The sender is part of `self`, so it cannot be dropped.
        let _ = ticks.wait_for(settled).await;
    }

    /// Logs a fault that concerns some clients of a server.
    pub(crate) fn log_fault(&self, server: &ServerName, text: &str, fault: &str) {
        let text = format!("{text}: {fault}");
        if let Some(line) = self.faults.note_about(&text, &text) {
            tracing::warn!(%server, "{line}");
        }
    }

    /// Records that the list could not be requested from the server, for this reason.
    pub(crate) fn failed_with(&self, told: &ClientDeclaration, server: &ServerName, fault: &str) {
        self.log_fault(server, "no list for some clients", fault);
        self.failed(told);
    }

    /// Records that the list could not be requested from the server.
    pub(crate) fn failed(&self, told: &ClientDeclaration) {
        if let Some(slot) = self.further().get_mut(told) {
            slot.tried = Some(clock::now());
        }
        self.wake_waiting();
    }

    /// Marks a list as stale, so that it is requested again for the next client that needs it.
    pub(crate) fn doubt(&self, told: &ClientDeclaration) {
        let long_ago = clock::now().checked_sub(RECENT_LIST_TIME);
        if let Some(slot) = self.further().get_mut(told) {
            slot.tried = slot.tried.and(long_ago.or(slot.tried));
        }
    }

    /// Returns the declarations of clients' recent requests.
    pub(crate) fn recent(&self) -> Vec<ClientDeclaration> {
        let further = self.further();
        let recent = further.iter().filter(|(_, slot)| slot.asked.elapsed() < RECENT_LIST_TIME);
        recent.map(|(told, _)| told.clone()).collect()
    }

    /// Returns the declarations with a list that was never requested, if the main instance can make
    /// them.
    pub(crate) fn untried(&self) -> Vec<ClientDeclaration> {
        let further = self.further();
        let untried = further.iter().filter(|(_, slot)| slot.tried.is_none());
        let own = untried.filter(|(told, _)| told.is_made_by_main());
        own.map(|(told, _)| told.clone()).collect()
    }

    /// Wakes the tasks that wait for a list.
    pub(crate) fn wake_waiting(&self) {
        self.ticks.send_modify(|count| *count += 1);
    }

    /// Stores a list. Returns true if it has changed. Wakes no waiting task.
    pub(crate) fn put(&self, told: &ClientDeclaration, list: ServerList) -> bool {
        // The two eras state the freshness of a list differently.
        let is_same = |known: &Arc<ServerList>| match told.other_era {
            Some(_) => known.offers_the_same(&list),
            None => known.is_same(&list),
        };
        let base = self.base.load_full().filter(is_same);
        let mut further = self.further();
        let siblings = further.iter().filter(|(key, _)| key.is_of_same(told));
        let sibling = siblings.filter_map(|(_, slot)| slot.list.as_ref());
        let sibling = sibling.into_iter().find(|sibling| is_same(sibling)).cloned();
        // The entry was removed because no client requested it.
        let Some(slot) = further.get_mut(told) else { return false };
        let same = slot.list.as_ref().is_some_and(is_same);
        let first = slot.list.is_none() && base.is_some();
        slot.freshness = list.freshness;
        // If it equals the list for all clients, or for others of the era, that one is shared.
        slot.list = Some(base.or(sibling).unwrap_or_else(|| Arc::new(list)));
        slot.tried = Some(clock::now());
        drop(further);
        if !same {
            self.count_change();
        }
        !same && !first
    }

    fn further(&self) -> MutexGuard<'_, HashMap<ClientDeclaration, CapabilityList>> {
        self.further.lock()
    }
}

/// Removes the list that clients have not requested for the longest time, among those that `may` be
/// removed. Returns `None` if all are in use.
fn remove_unused(
    further: &mut HashMap<ClientDeclaration, CapabilityList>,
    may: impl Fn(&ClientDeclaration, &CapabilityList) -> bool,
) -> Option<()> {
    let is_unused = |slot: &CapabilityList| slot.asked.elapsed() >= IN_USE;
    let oldest = further.iter().filter(|(key, slot)| may(key, slot) && is_unused(slot));
    let oldest = oldest.min_by_key(|(_, slot)| slot.asked);
    let oldest = oldest.map(|(told, _)| told.clone())?;
    further.remove(&oldest);
    Some(())
}

/// Maximum number of sets of capabilities with a list for one server.
pub(crate) const MAX_DECLARATIONS: usize = 64;
/// Maximum number of lists for clients' accounts at one server.
const MAX_ACCOUNT_LISTS: usize = 1024;
/// Maximum number of lists for one client, if clients can be distinguished.
pub(crate) const MAX_LISTS_PER_CLIENT: usize = MAX_DECLARATIONS / 4;
/// A list that a client requested within this time is not removed for another.
const IN_USE: Duration = Duration::from_mins(1);
/// A list that no client requested within this time is not updated.
const RECENT_LIST_TIME: Duration = Duration::from_hours(1);
/// Maximum number of logged warnings about repairs for one server.
const MAX_LOGGED_REPAIRS: usize = 256;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::captured_log::CapturedLog;
    use crate::catalog::HeaderRules;
    use crate::mcp::Era;

    #[test]
    fn a_list_that_is_not_known_yet_is_another_one_of_the_same_other_era() {
        let lists = OfferedLists::default();
        let holder = Holder::Client("anyone".into());
        let told = |other_era, capabilities: &'static str| ClientDeclaration {
            other_era,
            account: None,
            capabilities: Bytes::from_static(capabilities.as_bytes()),
        };
        let rooted = told(Some(Era::Legacy), r#"{"roots":{}}"#);
        lists.ask(&rooted, &holder, MAX_DECLARATIONS).unwrap();
        let name = ServerName::new("s").unwrap();
        let list = ServerList::build(name, &ByKind::default(), HeaderRules::Ignore, None).0;
        assert!(lists.put(&rooted, list));
        let known = |told| lists.known(&told).is_some();
        assert!(known(rooted) && known(told(Some(Era::Legacy), "{}")));
        assert!(!known(told(None, r#"{"roots":{}}"#)), "of the main instance's era");
    }

    #[test]
    fn a_fault_of_lists_that_repeats_is_logged_once() {
        let log = CapturedLog::start();
        let (lists, name) = (OfferedLists::default(), ServerName::new("s").unwrap());
        for capabilities in ["{}", r#"{"roots":{}}"#, r#"{"sampling":{}}"#] {
            let told = ClientDeclaration {
                other_era: None,
                account: None,
                capabilities: Bytes::from_static(capabilities.as_bytes()),
            };
            lists.failed_with(&told, &name, "refused");
        }
        let text = log.text();
        assert_eq!(text.matches("no list for some clients: refused").count(), 1, "{text}");
    }
}
