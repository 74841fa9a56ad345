//! What one server lists: once for the gateway itself, which can do nothing
//! for servers, and once more for each set of abilities that clients have.
//!
//! A Modern server is asked for all of them on its one connection. A Legacy
//! server knows a client's abilities from the start of a connection, so that
//! one instance lists for each.

pub(in crate::upstream) mod listing;
pub(in crate::upstream) mod pace;
pub(in crate::upstream) mod reads;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use crate::catalog::{HeaderRules, Kind, ServerList};
use crate::mcp::Era;

use crate::upstream::UpstreamError;
use crate::upstream::owner::InstanceKey;
use crate::upstream::supervisor::instance::Instance;
use crate::upstream::transport::connection::ServerConnection;
use listing::ListingLimits;

/// The lists of one server.
#[derive(Default)]
pub(in crate::upstream) struct OfferedLists {
    /// The gateway's own.
    pub(in crate::upstream) base: ArcSwapOption<ServerList>,
    /// Those for clients that can do something, by their raw capabilities as
    /// the server is told them.
    further: Mutex<HashMap<Bytes, CapabilityList>>,
    /// Counts what happens to the further ones.
    ticks: watch::Sender<u64>,
    /// Counts the changes of the further ones.
    version: AtomicU64,
    /// Some of them are those of the server that was there before.
    inherited: AtomicBool,
    /// A Modern server is to be asked for one that is not there.
    pub(in crate::upstream) wanted: Notify,
}

/// How much of its lists a server gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum ListingOutcome {
    /// All that there is to be had.
    Whole,
    /// Not all: another try may bring more.
    InPart,
}

/// A list for some abilities.
struct CapabilityList {
    list: Option<Arc<ServerList>>,
    /// When a client asked for it last.
    asked: Instant,
    /// When the server last gave it, or failed to.
    tried: Option<Instant>,
}

/// How a list stands that somebody asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum ListFreshness {
    /// There, and as old as this; or it could not be had, so long ago.
    Tried(Duration),
    /// The server has not been asked for it yet.
    New,
}

impl OfferedLists {
    /// The list for clients whom the server knows by these capabilities.
    pub(in crate::upstream) fn of(&self, capabilities: &Bytes) -> Option<Arc<ServerList>> {
        self.further().get(capabilities).and_then(|slot| slot.list.clone())
    }

    /// Notes that a client asks for such a list; tells how it stands.
    pub(in crate::upstream) fn ask(&self, capabilities: &Bytes) -> ListFreshness {
        let now = Instant::now();
        let mut further = self.further();
        if let Some(slot) = further.get_mut(capabilities) {
            slot.asked = now;
            return slot
                .tried
                .map_or(ListFreshness::New, |tried| ListFreshness::Tried(now - tried));
        }
        if further.len() >= MOST {
            let oldest = further.iter().min_by_key(|(_, slot)| slot.asked);
            if let Some(oldest) = oldest.map(|(capabilities, _)| capabilities.clone()) {
                further.remove(&oldest);
            }
        }
        let slot = CapabilityList { list: None, asked: now, tried: None };
        further.insert(capabilities.clone(), slot);
        ListFreshness::New
    }

    /// Changes whenever one of the further lists does.
    pub(in crate::upstream) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Takes the lists of the server that was there before, where there are
    /// none of its own.
    pub(in crate::upstream) fn inherit(&self, from: &Self) {
        // In one step: its own may come this very moment, and stays.
        self.base.compare_and_swap(&None::<Arc<ServerList>>, from.base.load_full());
        let inherited: Vec<_> = from
            .further()
            .iter()
            .filter(|(_, slot)| slot.list.is_some())
            .map(|(told, slot)| (told.clone(), CapabilityList { list: slot.list.clone(), ..*slot }))
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
    pub(in crate::upstream) async fn tried(&self, capabilities: &Bytes) {
        let mut ticks = self.ticks.subscribe();
        let settled = |_: &u64| {
            let further = self.further();
            further.get(capabilities).is_none_or(|slot| slot.tried.is_some())
        };
        // The sender is part of `self`: it cannot be gone.
        let _ = ticks.wait_for(settled).await;
    }

    /// The server could not be asked.
    pub(in crate::upstream) fn failed(&self, capabilities: &Bytes) {
        if let Some(slot) = self.further().get_mut(capabilities) {
            slot.tried = Some(Instant::now());
        }
        self.ticks.send_modify(|count| *count += 1);
    }

    /// Whoever asks next has it listed anew.
    pub(in crate::upstream) fn doubt(&self, capabilities: &Bytes) {
        let long_ago = Instant::now().checked_sub(RECENT);
        if let Some(slot) = self.further().get_mut(capabilities) {
            slot.tried = slot.tried.and(long_ago.or(slot.tried));
        }
    }

    /// The capabilities for which there is, or should be, a list that clients
    /// have asked for not too long ago.
    pub(in crate::upstream) fn recent(&self) -> Vec<Bytes> {
        let further = self.further();
        let recent = further.iter().filter(|(_, slot)| slot.asked.elapsed() < RECENT);
        recent.map(|(capabilities, _)| capabilities.clone()).collect()
    }

    fn untried(&self) -> Vec<Bytes> {
        let further = self.further();
        let untried = further.iter().filter(|(_, slot)| slot.tried.is_none());
        untried.map(|(capabilities, _)| capabilities.clone()).collect()
    }

    /// Notes a list; true where it is another than before.
    fn put(&self, capabilities: &Bytes, list: ServerList) -> bool {
        let base = self.base.load_full().filter(|base| base.is_same(&list));
        let mut further = self.further();
        // One that nobody asks for any more has lost its place.
        let Some(slot) = further.get_mut(capabilities) else { return false };
        let same = slot.list.as_ref().is_some_and(|old| old.is_same(&list));
        let first = slot.list.is_none() && base.is_some();
        // The same as for all: one of them is enough.
        slot.list = Some(base.unwrap_or_else(|| Arc::new(list)));
        slot.tried = Some(Instant::now());
        drop(further);
        if !same {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        self.ticks.send_modify(|count| *count += 1);
        !same && !first
    }

    fn further(&self) -> MutexGuard<'_, HashMap<Bytes, CapabilityList>> {
        self.further.lock()
    }
}

impl Instance {
    /// Fetches what this instance is to list and, where it is another list,
    /// tells the gateway.
    pub(in crate::upstream) async fn list(
        &self,
        connection: &ServerConnection,
    ) -> Result<ListingOutcome, UpstreamError> {
        let lists = &self.kin.lists;
        let told = &self.owner.told;
        if !self.owner.lists() {
            return Ok(ListingOutcome::Whole);
        }
        if !self.is_main() {
            let old = lists.of(told).or_else(|| lists.base.load_full());
            let (list, listed) = self.fetch(connection, told, old).await?;
            self.tell(lists.put(told, list));
            return Ok(listed);
        }
        let old = lists.base.load_full();
        let (list, listed) = self.fetch(connection, told, old.clone()).await?;
        self.notes().listed_at = Some(Instant::now());
        let changed = !old.is_some_and(|old| old.is_same(&list));
        lists.base.store(Some(Arc::new(list)));
        self.tell(changed);
        match connection.peer().era() {
            Era::Modern => self.list_further(connection, lists.recent()).await,
            // What changed for the gateway may have changed for clients whose
            // instances are at rest and did not hear of it.
            Era::Legacy if changed || lists.inherited.swap(false, Ordering::AcqRel) => {
                self.kin.relist();
            }
            Era::Legacy => {}
        }
        Ok(listed)
    }

    /// Fetches the lists of a Modern server that clients have asked for and
    /// that are not there yet.
    pub(in crate::upstream) async fn list_untried(&self, connection: &ServerConnection) {
        self.list_further(connection, self.kin.lists.untried()).await;
    }

    async fn list_further(&self, connection: &ServerConnection, wanted: Vec<Bytes>) {
        let lists = &self.kin.lists;
        for capabilities in wanted {
            let old = lists.of(&capabilities).or_else(|| lists.base.load_full());
            match self.fetch(connection, &capabilities, old).await {
                Ok((list, _)) => self.tell(lists.put(&capabilities, list)),
                Err(fault) => {
                    tracing::warn!(server = %self.name(), fault = %fault.chain(), "no list for some clients");
                    lists.failed(&capabilities);
                }
            }
        }
    }

    fn tell(&self, changed: bool) {
        if changed {
            self.kin.surroundings.listed.notify_one();
        }
    }

    /// One list, made of all pages. What the `old` one has is not compiled again.
    async fn fetch(
        &self,
        connection: &ServerConnection,
        capabilities: &Bytes,
        old: Option<Arc<ServerList>>,
    ) -> Result<(ServerList, ListingOutcome), UpstreamError> {
        let config = self.config();
        let time = config.start_timeout;
        let bounds = ListingLimits { items: config.max_tools, pages: config.max_pages, time };
        let listing = listing::fetch(connection, capabilities, bounds).await?;
        let listed =
            if listing.is_worth_another() { ListingOutcome::InPart } else { ListingOutcome::Whole };
        let missing: Vec<_> = listing
            .failures
            .iter()
            .map(|(kind, fault)| format!("{}: {}", kind.method().as_str(), fault.chain()))
            .collect();
        // Modern clients reach every Modern server's tools through the
        // gateway by HTTP, where the rules for mirrored parameters hold.
        let rules = match connection.peer().era() {
            Era::Modern => HeaderRules::Enforce,
            Era::Legacy => HeaderRules::Ignore,
        };
        let (name, offers) = (config.name.clone(), Arc::clone(&connection.peer().offers));
        // Compiling thousands of schemas takes a while: not on a thread that
        // serves calls.
        let turn = BUILDING.acquire().await.ok();
        let built = tokio::task::spawn_blocking(move || {
            let (mut list, refused) =
                ServerList::build(name, &listing.lists, rules, old.as_deref());
            list.freshness = listing.freshness;
            list.offers = offers;
            (list, refused)
        });
        let (list, refused) = built
            .await
            .map_err(|error| UpstreamError::Setup(format!("its list cannot be read: {error}")))?;
        drop(turn);
        let refused = refused.iter().map(|(kind, name, reason)| match kind {
            Kind::Tools => format!("{name}: {reason}"),
            kind => format!("{} {name}: {reason}", kind.noun()),
        });
        let warnings: Vec<_> = missing.into_iter().chain(refused).collect();
        let mut notes = self.notes();
        // Once, not with each listing.
        for warning in warnings.iter().filter(|warning| !notes.warnings.contains(warning)) {
            tracing::warn!(server = %config.name, "left out of the list: {warning}");
        }
        notes.warnings = warnings;
        Ok((list, listed))
    }
}

impl crate::upstream::supervisor::kin::ServerShared {
    /// Has every list made anew that clients with abilities have asked for: at
    /// once by the instances that run or can be had, or when one is asked for
    /// next.
    fn relist(self: &Arc<Self>) {
        for told in self.lists.recent() {
            self.relist_for(&told);
        }
    }

    /// The same for one list.
    pub(in crate::upstream) fn relist_for(self: &Arc<Self>, told: &Bytes) {
        if self.lists.of(told).is_none() {
            return;
        }
        self.lists.doubt(told);
        let lister = InstanceKey { told: told.clone(), ..InstanceKey::main() };
        if let Ok(lister) = self.pool.open_for(self, lister) {
            lister.want_list();
        }
    }
}

/// Lists that are built at once: each thread that builds keeps megabytes for it.
static BUILDING: Semaphore = Semaphore::const_new(2);
/// The most sets of abilities for which one server's list is kept.
const MOST: usize = 64;
/// A list that nobody asked for within this time is not kept up to date.
const RECENT: Duration = Duration::from_hours(1);
