//! The lists of one server: one for the gateway itself, which has no client
//! capabilities, and one for each declaration that clients make: their
//! capabilities and, at a server that speaks both eras, their era.
//!
//! A Modern server receives all list requests on its one connection. A Legacy
//! server learns the capabilities when a connection is opened, so one instance
//! reads the lists for each set.

pub(in crate::upstream) mod listing;
pub(in crate::upstream) mod pace;
pub(in crate::upstream) mod reads;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use crate::catalog::{HeaderRules, Kind, ServerList};
use crate::clock;
use crate::mcp::Era;
use crate::policy::Holder;
use crate::text::{clip, escape_controls};

use crate::upstream::owner::{ClientDeclaration, InstanceKey};
use crate::upstream::supervisor::instance::Instance;
use crate::upstream::transport::connection::ServerConnection;
use crate::upstream::{SetupFault, UpstreamError};
use listing::ListingLimits;

/// The lists of one server.
#[derive(Default)]
pub(in crate::upstream) struct OfferedLists {
    /// The gateway's own, without client capabilities.
    pub(in crate::upstream) base: ArcSwapOption<ServerList>,
    /// The lists for clients that declare more than the main instance.
    further: Mutex<HashMap<ClientDeclaration, CapabilityList>>,
    /// Counts the requests for further lists that have ended.
    ticks: watch::Sender<u64>,
    /// Counts the changes of the further lists.
    version: AtomicU64,
    /// Whether some of them were taken over from the server that this one
    /// replaces.
    inherited: AtomicBool,
    /// Locked while one of the lists is built.
    pub(in crate::upstream) building: Arc<tokio::sync::Mutex<()>>,
    /// Notified when a Modern server is to be asked for a missing list.
    pub(in crate::upstream) wanted: Notify,
}

/// What a server returned of its lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) struct ListingOutcome {
    pub(in crate::upstream) part: ListingPart,
    /// Whether clients see other lists than before.
    pub(in crate::upstream) has_changed: bool,
}

/// How many of its lists a server returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum ListingPart {
    /// All of them.
    Whole,
    /// Some of them: a retry may return more.
    Some,
}

/// A list for one declaration.
#[derive(Clone)]
struct CapabilityList {
    list: Option<Arc<ServerList>>,
    /// The client that it was first requested for.
    holder: Holder,
    /// When a client last asked for it.
    asked: Instant,
    /// When the server last returned it, or failed to.
    tried: Option<Instant>,
}

/// The state of a list that a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum ListFreshness {
    /// The server returned the list, or failed to, this long ago.
    Tried(Duration),
    /// The server has not been asked for the list.
    New,
}

impl OfferedLists {
    /// The list for clients of this declaration.
    pub(in crate::upstream) fn of(&self, told: &ClientDeclaration) -> Option<Arc<ServerList>> {
        self.further().get(told).and_then(|slot| slot.list.clone())
    }

    /// Whether these clients have the same list as all others.
    fn is_base(&self, told: &ClientDeclaration) -> bool {
        let (own, base) = (self.of(told), self.base.load_full());
        own.zip(base).is_none_or(|(own, base)| Arc::ptr_eq(&own, &base))
    }

    /// Records that a client asks for such a list; returns its state. `None` if there is no room
    /// for another list now, or not for another of this client's, of which there may be `each`:
    /// the client then has the list for all clients.
    pub(in crate::upstream) fn ask(
        &self,
        told: &ClientDeclaration,
        holder: &Holder,
        each: usize,
    ) -> Option<ListFreshness> {
        let now = clock::now();
        let mut further = self.further();
        if let Some(slot) = further.get_mut(told) {
            slot.asked = now;
            let tried = slot.tried.map(|tried| ListFreshness::Tried(now - tried));
            return Some(tried.unwrap_or(ListFreshness::New));
        }
        let own = |slot: &CapabilityList| slot.holder == *holder;
        if further.values().filter(|slot| own(slot)).count() >= each {
            remove_unused(&mut further, own)?;
        } else if further.len() >= MOST {
            remove_unused(&mut further, |_| true)?;
        }
        let slot = CapabilityList { list: None, holder: holder.clone(), asked: now, tried: None };
        further.insert(told.clone(), slot);
        Some(ListFreshness::New)
    }

    /// The client that a list was first requested for.
    fn holder(&self, told: &ClientDeclaration) -> Option<Holder> {
        self.further().get(told).map(|slot| slot.holder.clone())
    }

    /// The number of changes of the further lists.
    pub(in crate::upstream) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Takes over the lists of the server that this one replaces, unless it has
    /// its own.
    pub(in crate::upstream) fn inherit(&self, from: &Self) {
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
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until the server has been asked for such a list.
    pub(in crate::upstream) async fn tried(&self, told: &ClientDeclaration) {
        let mut ticks = self.ticks.subscribe();
        let settled = |_: &u64| {
            let further = self.further();
            further.get(told).is_none_or(|slot| slot.tried.is_some())
        };
        // The sender is part of `self`, so it cannot be dropped.
        let _ = ticks.wait_for(settled).await;
    }

    /// Records that the server could not be asked.
    pub(in crate::upstream) fn failed(&self, told: &ClientDeclaration) {
        if let Some(slot) = self.further().get_mut(told) {
            slot.tried = Some(clock::now());
        }
        self.ticks.send_modify(|count| *count += 1);
    }

    /// Marks a list as stale: the next client that asks has it requested again.
    pub(in crate::upstream) fn doubt(&self, told: &ClientDeclaration) {
        let long_ago = clock::now().checked_sub(RECENT);
        if let Some(slot) = self.further().get_mut(told) {
            slot.tried = slot.tried.and(long_ago.or(slot.tried));
        }
    }

    /// The declarations whose lists clients have recently asked for.
    pub(in crate::upstream) fn recent(&self) -> Vec<ClientDeclaration> {
        let further = self.further();
        let recent = further.iter().filter(|(_, slot)| slot.asked.elapsed() < RECENT);
        recent.map(|(told, _)| told.clone()).collect()
    }

    /// The declarations that the main instance can make whose lists were never
    /// requested.
    fn untried(&self) -> Vec<ClientDeclaration> {
        let further = self.further();
        let untried = further.iter().filter(|(_, slot)| slot.tried.is_none());
        let own = untried.filter(|(told, _)| told.other_era.is_none());
        own.map(|(told, _)| told.clone()).collect()
    }

    /// Stores a list; true if it has changed.
    fn put(&self, told: &ClientDeclaration, list: ServerList) -> bool {
        let base = self.base.load_full().filter(|base| base.is_same(&list));
        let mut further = self.further();
        // The entry was removed because no client asked for it.
        let Some(slot) = further.get_mut(told) else { return false };
        let same = slot.list.as_ref().is_some_and(|old| old.is_same(&list));
        let first = slot.list.is_none() && base.is_some();
        // If it equals the list for all clients, that one is shared.
        slot.list = Some(base.unwrap_or_else(|| Arc::new(list)));
        slot.tried = Some(clock::now());
        drop(further);
        if !same {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        self.ticks.send_modify(|count| *count += 1);
        !same && !first
    }

    fn further(&self) -> MutexGuard<'_, HashMap<ClientDeclaration, CapabilityList>> {
        self.further.lock()
    }
}

/// Removes the list of those that `may` be removed that clients have not asked for the longest
/// time; `None` if all are in use.
fn remove_unused(
    further: &mut HashMap<ClientDeclaration, CapabilityList>,
    may: impl Fn(&CapabilityList) -> bool,
) -> Option<()> {
    let unused = |slot: &CapabilityList| may(slot) && slot.asked.elapsed() >= IN_USE;
    let oldest = further.iter().filter(|(_, slot)| unused(slot));
    let oldest = oldest.min_by_key(|(_, slot)| slot.asked);
    let oldest = oldest.map(|(told, _)| told.clone())?;
    further.remove(&oldest);
    Some(())
}

impl Instance {
    /// Requests the lists that this instance is responsible for, and notifies
    /// the gateway of a change.
    pub(in crate::upstream) async fn list(
        &self,
        connection: &ServerConnection,
    ) -> Result<ListingOutcome, UpstreamError> {
        let lists = &self.kin.lists;
        let told = &self.owner.told;
        if !self.owner.lists() {
            return Ok(ListingOutcome { part: ListingPart::Whole, has_changed: false });
        }
        if !self.is_main() {
            let old = lists.of(told).or_else(|| lists.base.load_full());
            let (list, part) = self.fetch(connection, told, old).await?;
            let has_changed = lists.put(told, list);
            if told.other_era.is_some() && !lists.is_base(told) {
                self.kin.surroundings.note_lists_by_era();
            }
            self.tell(has_changed);
            return Ok(ListingOutcome { part, has_changed });
        }
        let old = lists.base.load_full();
        let (list, part) = self.fetch(connection, told, old.clone()).await?;
        self.notes().listed_at = Some(clock::now());
        let mut has_changed = !old.is_some_and(|old| old.is_same(&list));
        lists.base.store(Some(Arc::new(list)));
        self.tell(has_changed);
        match connection.peer().era() {
            Era::Modern => {
                let recent = lists.recent().into_iter();
                let (own, others): (Vec<_>, Vec<_>) =
                    recent.partition(|told| told.other_era.is_none());
                for told in others.iter().filter(|_| has_changed) {
                    self.kin.relist_for(told);
                }
                has_changed |= self.list_further(connection, own).await;
            }
            // The lists of other instances, which may be idle and have missed
            // the notification, may have changed as well.
            Era::Legacy if has_changed || lists.inherited.swap(false, Ordering::AcqRel) => {
                self.kin.relist();
            }
            Era::Legacy => {}
        }
        Ok(ListingOutcome { part, has_changed })
    }

    /// Requests one of the missing lists that clients have asked a Modern server for. The others
    /// follow after everything else that is due.
    pub(in crate::upstream) async fn list_untried(&self, connection: &ServerConnection) {
        let lists = &self.kin.lists;
        let mut untried = lists.untried();
        let Some(next) = untried.pop() else { return };
        if !untried.is_empty() {
            lists.wanted.notify_one();
        }
        let _ = self.list_further(connection, vec![next]).await;
    }

    /// Requests these lists; true if one has changed.
    async fn list_further(
        &self,
        connection: &ServerConnection,
        wanted: Vec<ClientDeclaration>,
    ) -> bool {
        let lists = &self.kin.lists;
        let mut has_changed = false;
        for told in wanted {
            let old = lists.of(&told).or_else(|| lists.base.load_full());
            match self.fetch(connection, &told, old).await {
                Ok((list, _)) => {
                    let is_new = lists.put(&told, list);
                    self.tell(is_new);
                    has_changed |= is_new;
                }
                Err(fault) => {
                    let fault = fault.chain_without(&self.config().secrets);
                    tracing::warn!(server = %self.name(), fault, "no list for some clients");
                    lists.failed(&told);
                }
            }
        }
        has_changed
    }

    fn tell(&self, changed: bool) {
        if changed {
            self.kin.surroundings.listed.notify_one();
        }
    }

    /// Requests one list with all its pages. Unchanged elements are taken from
    /// `old`, not compiled again.
    async fn fetch(
        &self,
        connection: &ServerConnection,
        told: &ClientDeclaration,
        old: Option<Arc<ServerList>>,
    ) -> Result<(ServerList, ListingPart), UpstreamError> {
        let config = self.config();
        let time = config.start_timeout;
        let bounds = ListingLimits {
            items: config.max_tools,
            pages: config.max_pages,
            bytes: config.max_response,
            time,
        };
        let listing = listing::fetch(connection, &told.capabilities, bounds).await?;
        let listed =
            if listing.is_worth_another() { ListingPart::Some } else { ListingPart::Whole };
        let missing: Vec<_> = listing
            .failures
            .iter()
            .map(|(kind, fault)| {
                format!("{}: {}", kind.method().as_str(), fault.chain_without(&config.secrets))
            })
            .collect();
        // Modern clients call tools of Modern servers through the gateway over
        // HTTP, where the rules for mirrored parameters apply.
        let rules = match connection.peer().era() {
            Era::Modern => HeaderRules::Enforce,
            Era::Legacy => HeaderRules::Ignore,
        };
        let (name, offers) = (config.name.clone(), Arc::clone(&connection.peer().offers));
        // One list of a server at a time: the lists of others wait for one of them at most.
        let own_turn = Arc::clone(&self.kin.lists.building).lock_owned().await;
        let turn = BUILDING.acquire().await.ok();
        // Compiling thousands of schemas takes long, so it runs on a blocking
        // thread, to its end even if nobody waits for it any more.
        let built = tokio::task::spawn_blocking(move || {
            let _turns = (own_turn, turn);
            let (mut list, refused) =
                ServerList::build(name, &listing.lists, rules, old.as_deref());
            list.freshness = listing.freshness;
            list.offers = offers;
            (list, refused)
        });
        let (list, refused) = built.await.map_err(|error| SetupFault::Task(Arc::new(error)))?;
        let refused = refused.iter().map(|(kind, name, reason)| match kind {
            Kind::Tools => format!("{name}: {reason}"),
            kind => format!("{} {name}: {reason}", kind.noun()),
        });
        self.note_warnings(missing.into_iter().chain(refused));
        Ok((list, listed))
    }
}

impl Instance {
    /// Notes what is left out of the list, and logs what was not left out before. Of thousands of
    /// invalid elements the first ones are enough.
    fn note_warnings(&self, all: impl Iterator<Item = String>) {
        let secrets = &self.config().secrets;
        let clipped =
            |text: String| escape_controls(clip(&secrets.hide_in(&text), LONGEST_WARNING));
        let mut all = all.map(clipped);
        let mut warnings: Vec<_> = all.by_ref().take(MOST_WARNINGS).collect();
        let more = all.count();
        if more > 0 {
            warnings.push(format!("and {more} more"));
        }
        let before = std::mem::replace(&mut self.notes().warnings, warnings.clone());
        for warning in warnings.iter().filter(|warning| !before.contains(warning)) {
            tracing::warn!(server = %self.name(), "left out of the list: {warning}");
        }
    }
}

impl crate::upstream::supervisor::shared::ServerShared {
    /// Requests all lists again that clients with capabilities have recently
    /// asked for: at once by the instances that run or can be opened, otherwise
    /// when a client next asks.
    fn relist(self: &Arc<Self>) {
        for told in self.lists.recent() {
            self.relist_for(&told);
        }
    }

    /// Like [`relist`](Self::relist), for one list.
    pub(in crate::upstream) fn relist_for(self: &Arc<Self>, told: &ClientDeclaration) {
        if self.lists.of(told).is_none() {
            return;
        }
        let Some(holder) = self.lists.holder(told) else { return };
        self.lists.doubt(told);
        let lister = InstanceKey::lister(told.clone());
        if let Ok(lister) = self.pool.open_for(self, lister, &holder) {
            lister.want_list();
        }
    }
}

/// The most lists that are built at once: each build keeps megabytes on its
/// thread.
static BUILDING: Semaphore = Semaphore::const_new(2);
/// How many warnings of a list are kept, and how long each may be, in bytes.
const MOST_WARNINGS: usize = 20;
const LONGEST_WARNING: usize = 1024;
/// The most sets of capabilities whose lists are kept for one server.
pub(in crate::upstream) const MOST: usize = 64;
/// How many of them each client may have, where clients can be distinguished.
pub(in crate::upstream) const MOST_EACH: usize = MOST / 4;
/// A list that a client asked for within this time makes room for no other.
const IN_USE: Duration = Duration::from_mins(1);
/// A list that no client asked for within this time is not updated.
const RECENT: Duration = Duration::from_hours(1);
