//! Requests the lists of an instance: when it opens, and when they may have changed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::catalog::{ByKind, Kind, ListRules, ServerList};
use crate::clock;
use crate::mcp::Era;
use crate::text::{clip, escape_controls};

use crate::upstream::lists::listing::{self, ListingLimits};
use crate::upstream::lists::{
    EVERY_KIND, FinishedListing, ListingOutcome, ListingPart, header_rules, schema_exemption,
};
use crate::upstream::owner::{ClientDeclaration, InstanceKey};
use crate::upstream::supervisor::instance::Instance;
use crate::upstream::supervisor::shared::ServerShared;
use crate::upstream::transport::connection::ServerConnection;
use crate::upstream::{SetupFault, UpstreamError};

impl Instance {
    /// Requests the lists of these kinds for which this instance is responsible, and notifies the
    /// gateway of a change.
    pub(crate) async fn list(
        &self,
        connection: &ServerConnection,
        kinds: &ByKind<bool>,
    ) -> Result<ListingOutcome, UpstreamError> {
        let begun = clock::now();
        let outcome = self.request_lists(connection, kinds).await;
        let has_succeeded = outcome.is_ok() && !connection.is_stale();
        if *kinds == EVERY_KIND {
            self.note_listing(FinishedListing { begun, has_succeeded });
        }
        outcome
    }

    async fn request_lists(
        &self,
        connection: &ServerConnection,
        kinds: &ByKind<bool>,
    ) -> Result<ListingOutcome, UpstreamError> {
        let lists = self.shared().lists();
        let told = &self.owner().told;
        if !self.owner().lists() {
            return Ok(ListingOutcome { part: ListingPart::Whole, has_changed: false });
        }
        if !self.is_main() {
            let known = match lists.of(told) {
                Some(own) => KnownLists { old: Some(own), kinds: *kinds },
                None => KnownLists::similar(lists.similar(told)),
            };
            let (list, part) = self.fetch(connection, told, known).await?;
            self.learn_dependence(&list, part);
            let has_changed = lists.put(told, list);
            self.tell(has_changed);
            return Ok(ListingOutcome { part, has_changed });
        }
        let old = lists.base.load_full();
        let is_own = old.is_some() && lists.is_current.load(Ordering::Acquire);
        let kinds = if is_own { *kinds } else { EVERY_KIND };
        let known = KnownLists { old: old.clone(), kinds };
        let requested = u64::try_from(clock::unix_now().as_millis()).unwrap_or(u64::MAX);
        let (list, part) = self.fetch(connection, told, known).await?;
        if kinds == EVERY_KIND {
            self.life().history().listed_at = Some(clock::now());
        }
        let mut has_changed = !old.is_some_and(|old| old.is_same(&list));
        if has_changed {
            lists.base.store(Some(Arc::new(list)));
        }
        lists.listed_at.fetch_max(requested, Ordering::AcqRel);
        lists.is_current.store(true, Ordering::Release);
        self.tell(has_changed);
        match connection.peer().era() {
            Era::Modern => {
                let recent = lists.recent().into_iter();
                let (own, others): (Vec<_>, Vec<_>) =
                    recent.partition(ClientDeclaration::is_made_by_main);
                // The list of an account may have changed by itself.
                for told in others.iter().filter(|told| has_changed || told.account.is_some()) {
                    self.shared().relist_for(told);
                }
                has_changed |= self.list_further(connection, own).await;
            }
            // Other instances may have been idle and missed the notification, so their lists may
            // have changed as well.
            Era::Legacy if has_changed || lists.inherited.swap(false, Ordering::AcqRel) => {
                self.shared().relist();
            }
            Era::Legacy => {}
        }
        Ok(ListingOutcome { part, has_changed })
    }

    /// Requests one of the missing lists that clients of a Modern server need. The others follow
    /// after everything else that is due.
    pub(crate) async fn list_untried(&self, connection: &ServerConnection) {
        let lists = self.shared().lists();
        let mut untried = lists.untried();
        let Some(next) = untried.pop() else { return };
        if !untried.is_empty() {
            lists.wanted.notify_one();
        }
        let _ = self.list_further(connection, vec![next]).await;
    }

    /// Requests these lists. Returns true if one has changed.
    async fn list_further(
        &self,
        connection: &ServerConnection,
        wanted: Vec<ClientDeclaration>,
    ) -> bool {
        let lists = self.shared().lists();
        let mut has_changed = false;
        for told in wanted {
            let known = KnownLists::similar(lists.similar(&told));
            match self.fetch(connection, &told, known).await {
                Ok((list, _)) => {
                    let is_new = lists.put(&told, list);
                    self.tell(is_new);
                    has_changed |= is_new;
                }
                Err(fault) => {
                    let fault = fault.chain_without(&self.config().secrets);
                    lists.failed_with(&told, self.name(), &fault);
                }
            }
        }
        has_changed
    }

    /// Announces a stored list: to the tasks that wait for it, after the check for lists that
    /// differ by era, and to all clients if it has changed.
    fn tell(&self, changed: bool) {
        if !self.shared().lists().are_same_in_both_eras() {
            self.shared().context().note_lists_by_era();
        }
        self.shared().lists().wake_waiting();
        self.shared().keep_soon();
        if changed {
            self.shared().context().listed.notify_one();
        }
    }

    /// Requests lists with all their pages. Unchanged elements, and lists of other kinds, are taken
    /// from the known lists.
    async fn fetch(
        &self,
        connection: &ServerConnection,
        told: &ClientDeclaration,
        KnownLists { old, kinds }: KnownLists,
    ) -> Result<(ServerList, ListingPart), UpstreamError> {
        let config = self.config();
        let time = config.start_timeout;
        let bounds = ListingLimits {
            items: config.max_tools,
            pages: config.max_pages,
            bytes: config.max_response,
            time,
        };
        let listing = listing::fetch(connection, &told.capabilities, &kinds, bounds).await?;
        let failed = listing.retried_kinds();
        let listed = if failed == ByKind::default() {
            ListingPart::Whole
        } else {
            ListingPart::Without(failed)
        };
        let missing: Vec<_> = listing
            .failures
            .iter()
            .map(|(kind, fault)| {
                format!("{}: {}", kind.method().as_str(), fault.chain_without(&config.secrets))
            })
            .collect();
        let flaws: Vec<_> = listing
            .flaws
            .iter()
            .map(|(kind, flaw)| format!("{}: {flaw}", kind.method().as_str()))
            .collect();
        let rules = header_rules(connection.peer().era());
        let (name, offers) = (config.name.clone(), Arc::clone(connection.peer().known_offers()));
        // Only one list of a server is built at a time, so the lists of other servers wait for at
        // most one of them.
        let own_turn = Arc::clone(&self.shared().lists().building).lock_owned().await;
        let turn = Arc::clone(&self.shared().context().list_builds).acquire_owned().await.ok();
        // Compiling thousands of schemas takes long. It runs on a blocking thread and is completed
        // even if all its callers stop waiting.
        let scans = self.shared().context().scans_definitions();
        let config = Arc::clone(config);
        let built = tokio::task::spawn_blocking(move || {
            let _turns = (own_turn, turn);
            let exemption = |native: &str| schema_exemption(&config, native);
            let rules = ListRules { headers: rules, exemption: &exemption };
            let (mut list, refused) =
                ServerList::build_with(name, &listing.lists, rules, old.as_deref());
            list.freshness = ByKind::from_fn(|kind| match &old {
                Some(old) if !kinds.get(kind) => *old.freshness.get(kind),
                _ => *listing.freshness.get(kind),
            });
            list.offers = offers;
            if scans {
                list.scan_definitions();
            }
            (list, refused)
        });
        let (list, refused) = built.await.map_err(|error| SetupFault::Task(Arc::new(error)))?;
        let refused = refused.iter().map(|(kind, name, reason)| warning(*kind, name, reason));
        let repaired = list
            .repairs()
            .map(|one| warning(one.kind, clip(one.native, MAX_LABEL_BYTES), &one.repairs));
        let left_out = missing.into_iter().chain(refused).map(|text| (LEFT_OUT, text));
        let repaired = repaired.map(|text| (REPAIRED_WARNING, text));
        let flaws = flaws.into_iter().map(|text| (ENDED_WARNING, text));
        let assumed = connection.peer().assumed.get().map(|assumed| assumed.remark.clone());
        let assumed = assumed.into_iter().map(|text| (UNDECLARED_WARNING, text));
        let all = assumed.chain(flaws).chain(left_out).chain(repaired);
        self.note_warnings(all, connection.remarks());
        Ok((list, listed))
    }
}

/// Lists that are known before a request.
struct KnownLists {
    old: Option<Arc<ServerList>>,
    /// Requested kinds.
    kinds: ByKind<bool>,
}

impl KnownLists {
    /// Lists of another declaration, which may have the same elements.
    fn similar(old: Option<Arc<ServerList>>) -> Self {
        Self { old, kinds: EVERY_KIND }
    }
}

impl Instance {
    /// Records the omissions and repairs of the list, and logs the new ones. Of thousands of
    /// invalid elements the first ones are enough. The `remarks` were logged at their origin.
    fn note_warnings(
        &self,
        all: impl Iterator<Item = (&'static str, String)>,
        remarks: Vec<String>,
    ) {
        let secrets = &self.config().secrets;
        let clipped =
            |text: String| escape_controls(clip(&secrets.hide_in(&text), MAX_WARNING_BYTES));
        let mut all = all.map(|(cause, text)| (cause, clipped(text)));
        let mut warnings: Vec<_> = all.by_ref().take(MAX_LIST_WARNINGS).collect();
        let more = all.count();
        if more > 0 {
            warnings.push((LEFT_OUT_OR_REPAIRED, format!("and {more} more")));
        }
        let texts = warnings.iter().map(|(_, text)| text.clone());
        let shown = remarks.into_iter().map(clipped).chain(texts).collect();
        let before = std::mem::replace(&mut self.life().history().warnings, shown);
        for (cause, warning) in warnings.iter().filter(|(_, warning)| !before.contains(warning)) {
            // Each instance of a server reads the same definitions.
            if *cause != REPAIRED_WARNING || self.shared().lists().is_first_repair(warning) {
                tracing::warn!(server = %self.name(), "{cause}: {warning}");
            }
        }
    }
}

impl ServerShared {
    /// Requests all lists that clients with capabilities have used recently. Instances that run or
    /// can be opened do this at once. Otherwise the list is requested when a client needs it next.
    fn relist(self: &Arc<Self>) {
        for told in self.lists().recent() {
            self.relist_for(&told);
        }
    }

    /// Like [`relist`](Self::relist), for one list. Returns false if it is not requested.
    pub(crate) fn relist_for(self: &Arc<Self>, told: &ClientDeclaration) -> bool {
        self.open_lister(told).inspect(|lister| lister.want_list()).is_some()
    }

    /// Like [`relist_for`](Self::relist_for), for a request of an operator.
    pub(crate) fn refresh_for(self: &Arc<Self>, told: &ClientDeclaration) -> bool {
        self.open_lister(told).inspect(|lister| lister.refresh_list()).is_some()
    }

    /// Returns the instance that lists for a declaration, or `None` if the list is not requested.
    fn open_lister(self: &Arc<Self>, told: &ClientDeclaration) -> Option<Arc<Instance>> {
        let is_served =
            |era| self.version().is_some_and(|version| self.serves_legacy(version, era));
        if self.lists().of(told).is_none() || !told.other_era.is_none_or(is_served) {
            return None;
        }
        let holder = self.lists().holder(told)?;
        self.lists().doubt(told);
        self.open_instance(InstanceKey::lister(told.clone()), &holder).ok()
    }
}

/// Builds a warning about an element of a list.
fn warning(kind: Kind, name: &str, text: &dyn fmt::Display) -> String {
    match kind {
        Kind::Tools => format!("{name}: {text}"),
        kind => format!("{} {name}: {text}", kind.noun()),
    }
}

/// Beginnings of warnings about elements, in the log.
const LEFT_OUT: &str = "left out of the list";
const REPAIRED_WARNING: &str = "repaired in the list";
const ENDED_WARNING: &str = "read in part";
const UNDECLARED_WARNING: &str = "lists without a capability";
const LEFT_OUT_OR_REPAIRED: &str = "left out of the list, or repaired";
/// Maximum number of warnings that are kept for a list, and maximum length of each in bytes.
const MAX_LIST_WARNINGS: usize = 20;
const MAX_WARNING_BYTES: usize = 1024;
/// Maximum length in bytes of an element's name in a warning.
const MAX_LABEL_BYTES: usize = 120;
