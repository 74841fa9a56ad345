//! Screening of definitions: clients see those that were accepted at first sight or approved, and
//! that a scan did not find dangerous.
//!
//! [`DefinitionGuard`] keeps each server's baseline ([`BaselineRecord`]): the accepted forms of its
//! definitions, and those that wait for approval. Whenever a snapshot is compiled, it compares the
//! servers' lists with the baselines, and returns a [`DefinitionScreen`]: the one immutable state
//! that decides the content of that snapshot's catalog, and so the elements that can be listed,
//! found and called. It differs from the rest of `policy`, which decides about calls.
//!
//! Baselines are in files ([`BaselineFolder`]), or in the store that replicas share
//! ([`SharedBaselines`]).

mod baseline_file;
mod following;
mod judgement;
mod record;
mod screen;
mod shared_baselines;
mod storage;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

pub use baseline_file::{BaselineError, BaselineFolder};
pub use judgement::{ScreenReason, ScreenedDefinition};
pub use record::{
    BaselineRecord, PendingForm, PinBasis, PinDecision, PinnedDefinition, PinnedForm,
};
pub use screen::DefinitionScreen;
pub use shared_baselines::SharedBaselines;
pub use storage::BaselineStorage;

use crate::call::ServerName;
use crate::catalog::{ConfusableNames, DefinitionDigest, ServerList};
use crate::codec::file::FileReader;
use crate::config::{Config, PinsChoice, ScanChoice, ServerConfig};
use crate::shared_records::SharedRecord;
use crate::telemetry::log::FaultLog;
use crate::text::error_chain;
use judgement::ListComparison;
use record::BaselineChange;
use screen::ServerScreen;

/// The accepted definitions of all servers, across snapshots and reloads.
#[derive(Debug, Default)]
pub struct DefinitionGuard {
    /// `None` if baselines last as long as the process, or are in the store alone.
    folder: Option<BaselineFolder>,
    /// The store of the replicas; `None` if the gateway is alone.
    shared: Option<SharedBaselines>,
    files: FileReader,
    /// True if a replica should add the decisions in its files to the store.
    files_due: AtomicBool,
    faults: Mutex<FaultLog>,
    baselines: Mutex<HashMap<ServerName, KnownBaseline>>,
}

/// One server's baseline in memory, without the texts of its definitions.
#[derive(Debug, Clone)]
struct KnownBaseline {
    state: Arc<BaselineState>,
    /// Changes that are not in the file yet.
    unsaved: Vec<BaselineChange>,
    /// Forms that wait for approval because this process has seen them. Other processes, with other
    /// lists, may have added further ones to the same file.
    awaited: HashSet<DefinitionDigest>,
    /// True if it is in the store of the replicas.
    is_shared: bool,
    /// Its version there.
    version: Option<SharedRecord>,
    /// True if that store could not be read or written: changes of this process may be lost.
    is_behind: bool,
}

/// State of a server's baseline.
#[derive(Debug, Clone)]
enum BaselineState {
    /// The stored record.
    Known(BaselineRecord),
    /// Its file cannot be used: no definition counts as accepted, and the file is not written.
    Unusable(String),
}

/// New findings in the lists of one server.
#[derive(Debug, Clone)]
pub struct DefinitionNews {
    /// The server.
    pub server: ServerName,
    /// The definitions that were not reported before.
    pub found: Vec<ScreenedDefinition>,
}

impl DefinitionGuard {
    /// Creates a guard with baselines that are stored in a folder, or last as long as the process.
    pub fn new(folder: Option<BaselineFolder>) -> Self {
        Self { folder, ..Self::default() }
    }

    /// Shares the baselines with other replicas.
    #[must_use]
    pub fn sharing(self, shared: Option<SharedBaselines>) -> Self {
        let files_due = AtomicBool::new(shared.is_some());
        Self { shared, files_due, ..self }
    }

    /// Compares all lists of all servers with the baselines. A definition that is seen for the
    /// first time is added to its baseline; [`Self::save_changes`] writes the change. A replica adds
    /// it when the store has it.
    pub fn observe_lists(
        &self,
        config: &Config,
        lists: &HashMap<ServerName, Vec<Arc<ServerList>>>,
    ) -> (Arc<DefinitionScreen>, Vec<DefinitionNews>) {
        let confusable = find_confusable(config, lists);
        let mut screens = HashMap::new();
        let mut news = Vec::new();
        let mut baselines = self.baselines.lock();
        for server in &config.servers {
            let mut settings = ServerScreen::settings_of(config, server);
            if settings.is_off() {
                continue;
            }
            settings.awaits_record = self.shared.is_some();
            let known = baselines.entry(server.name.clone()).or_insert_with(|| match self.shared {
                Some(_) => KnownBaseline::unread(),
                None => KnownBaseline::read(self.folder.as_ref(), server),
            });
            let own = lists.get(&server.name).map_or(&[][..], Vec::as_slice);
            let keeps_texts = self.folder.is_some() || self.shared.is_some();
            let comparison = ListComparison { settings, confusable: &confusable, keeps_texts };
            let found = known.observe(comparison, own);
            if !found.is_empty() {
                news.push(DefinitionNews { server: server.name.clone(), found });
            }
            screens
                .insert(server.name.clone(), ServerScreen::new(settings, Arc::clone(&known.state)));
        }
        (Arc::new(DefinitionScreen::new(screens, confusable)), news)
    }

    /// Returns the folder of the baselines.
    pub fn folder(&self) -> Option<&BaselineFolder> {
        self.folder.as_ref()
    }

    /// Returns the place of the baselines in which operators decide; `None` if they last as long as the
    /// process.
    pub fn storage(&self) -> Option<BaselineStorage> {
        let shared = self.shared.clone().map(BaselineStorage::Shared);
        shared.or_else(|| self.folder.clone().map(BaselineStorage::Files))
    }
}

impl KnownBaseline {
    /// Reads the stored baseline of a server, or creates an empty one.
    fn read(folder: Option<&BaselineFolder>, server: &ServerConfig) -> Self {
        let read = folder.map_or(Ok(BaselineRecord::default()), |folder| folder.read(&server.name));
        let state = match read {
            Ok(record) => BaselineState::Known(record.without_texts()),
            Err(error) => BaselineState::unusable(&error),
        };
        state.log_fault(&server.name);
        Self::with_state(Arc::new(state))
    }

    fn with_state(state: Arc<BaselineState>) -> Self {
        let (unsaved, awaited) = (Vec::new(), HashSet::new());
        Self { state, unsaved, awaited, is_shared: false, version: None, is_behind: false }
    }

    /// Compares these lists with the baseline, the main one first, and returns the new findings.
    fn observe(
        &mut self,
        comparison: ListComparison<'_>,
        lists: &[Arc<ServerList>],
    ) -> Vec<ScreenedDefinition> {
        let compared = judgement::compare_lists(comparison, &self.state, lists);
        let judgement::ComparedLists { mut changes, found, listed } = compared;
        if let BaselineState::Known(record) = &*self.state
            && !lists.is_empty()
        {
            changes.extend(record.unlisted_pending(|digest| {
                !listed.contains(&digest) && self.awaited.contains(&digest)
            }));
        }
        self.awaited.retain(|digest| listed.contains(digest));
        self.awaited.extend(found.iter().map(|one| one.digest));
        if !changes.is_empty()
            && let BaselineState::Known(record) = Arc::make_mut(&mut self.state)
        {
            for change in &changes {
                // Another replica may have recorded another form.
                if !(self.is_shared && change.is_acceptance()) {
                    record.apply(change.without_text());
                }
            }
            if comparison.keeps_texts {
                self.unsaved.extend(changes);
            }
        }
        found
    }

    /// Replaces the state by the one that was read or written, and adds the unsaved changes to it.
    /// Returns true if the state has changed.
    fn replace(&mut self, server: &ServerName, state: BaselineState) -> bool {
        let state = match state {
            BaselineState::Known(mut record) => {
                for change in &self.unsaved {
                    if !(self.is_shared && change.is_acceptance()) {
                        record.apply(change.without_text());
                    }
                }
                BaselineState::Known(record)
            }
            unusable @ BaselineState::Unusable(_) => unusable,
        };
        let has_changed = *self.state != state;
        if has_changed {
            state.log_fault(server);
            self.state = Arc::new(state);
        }
        has_changed
    }
}

impl BaselineState {
    fn unusable(error: &BaselineError) -> Self {
        Self::Unusable(error_chain(error))
    }

    fn log_fault(&self, server: &ServerName) {
        if let Self::Unusable(reason) = self {
            tracing::error!(%server, "its definitions cannot be compared: {reason}");
        }
    }
}

impl PartialEq for BaselineState {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Known(one), Self::Known(two)) => one == two,
            (Self::Unusable(one), Self::Unusable(two)) => one == two,
            _ => false,
        }
    }
}

/// Returns the names that look like those of other servers, if any server is scanned.
fn find_confusable(
    config: &Config,
    lists: &HashMap<ServerName, Vec<Arc<ServerList>>>,
) -> ConfusableNames {
    let is_scanned = |server: &Arc<ServerConfig>| scan_of(config, server) != ScanChoice::Off;
    if !config.servers.iter().any(is_scanned) {
        return ConfusableNames::default();
    }
    let all = lists.values().flatten();
    ConfusableNames::compare(all.flat_map(|list| {
        let listed = list.definitions();
        listed.filter_map(|one| Some((&list.server, one.kind.listed()?, one.native)))
    }))
}

/// Returns the scan setting of a server.
pub fn scan_of(config: &Config, server: &ServerConfig) -> ScanChoice {
    server.definitions.scan.unwrap_or(config.gateway.scan)
}

/// Returns the pin setting of a server.
pub fn pins_of(config: &Config, server: &ServerConfig) -> PinsChoice {
    server.definitions.pins.unwrap_or(config.gateway.pins)
}
