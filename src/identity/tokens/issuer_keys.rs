//! The known keys of one issuer, and the state of fetching them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use url::Url;

use crate::config::IssuerConfig;

use super::key_set::KeySet;

/// The source of an issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySource {
    /// The place.
    pub place: KeyPlace,
    /// Accepted values of `issuer` in the issuer's metadata.
    pub issuers: Vec<String>,
    /// CA certificates to trust besides the system's.
    pub ca: Option<PathBuf>,
    /// Interval of fetching them again.
    pub refresh: Duration,
}

/// The place of a key set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPlace {
    /// In the metadata of the first issuer.
    Discovered,
    /// At a URL.
    Url(Url),
    /// In a file.
    File(PathBuf),
}

impl KeySource {
    pub(super) fn of(config: &IssuerConfig) -> Self {
        let place = match (&config.jwks_url, &config.jwks_file) {
            (_, Some(path)) => KeyPlace::File(path.clone()),
            (Some(url), None) => KeyPlace::Url(url.clone()),
            (None, None) => KeyPlace::Discovered,
        };
        let issuers = [&config.issuer].into_iter().chain(&config.issuer_aliases).cloned();
        let (ca, refresh) = (config.ca.clone(), config.jwks_refresh);
        Self { place, issuers: issuers.collect(), ca, refresh }
    }
}

/// The keys of one issuer. They survive reloads that leave their source as it is.
#[derive(Debug)]
pub struct IssuerKeys {
    /// Their source.
    pub source: KeySource,
    current: ArcSwapOption<KeySet>,
    state: watch::Sender<FetchState>,
    wanted: Arc<Notify>,
    /// Time of the last fetch for an unknown key, in seconds since 1970.
    asked_at: AtomicU64,
    is_followed: AtomicBool,
}

/// State of fetching the keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchState {
    /// Number of fetches that have ended.
    pub rounds: u64,
    /// True while a fetch is under way.
    pub is_fetching: bool,
    /// Time of the last successful fetch, as time since 1970.
    pub fetched_at: Option<Duration>,
    /// The fault of the last fetch, if it failed.
    pub fault: Option<Arc<str>>,
}

impl IssuerKeys {
    /// Creates an empty set of keys, to be fetched at once.
    pub(super) fn new(source: KeySource) -> Arc<Self> {
        let state = FetchState { is_fetching: true, ..FetchState::default() };
        Arc::new(Self {
            source,
            current: ArcSwapOption::empty(),
            state: watch::Sender::new(state),
            wanted: Arc::default(),
            asked_at: AtomicU64::new(0),
            is_followed: AtomicBool::new(false),
        })
    }

    /// Returns true the first time: the caller has to follow the keys then.
    pub fn begin_following(&self) -> bool {
        !self.is_followed.swap(true, Ordering::AcqRel)
    }

    /// Returns the signal to fetch the keys now. It does not keep the keys alive.
    pub fn wanted(&self) -> Arc<Notify> {
        Arc::clone(&self.wanted)
    }

    /// Returns the keys that were last fetched.
    pub fn current(&self) -> Option<Arc<KeySet>> {
        self.current.load_full()
    }

    /// Returns the state of fetching them.
    pub fn state(&self) -> FetchState {
        self.state.borrow().clone()
    }

    /// Notes that a fetch begins.
    pub fn fetch_begins(&self) {
        self.state.send_modify(|state| state.is_fetching = true);
    }

    /// Notes the end of a fetch at this time since 1970. After a failed fetch the keys stay.
    pub fn fetch_ended(&self, fetched: Result<KeySet, Arc<str>>, now: Duration) {
        let fault = match fetched {
            Ok(keys) => {
                let known = self.current.load();
                if !known.as_ref().is_some_and(|known| known.is_same_as(&keys)) {
                    self.current.store(Some(Arc::new(keys)));
                }
                None
            }
            Err(fault) => Some(fault),
        };
        self.state.send_modify(|state| {
            state.rounds += 1;
            state.is_fetching = false;
            if fault.is_none() {
                state.fetched_at = Some(now);
            }
            state.fault = fault;
        });
    }

    /// Returns the fetch that is under way.
    pub(super) fn pending(&self) -> Option<KeyWait> {
        let mut ends = self.state.subscribe();
        let is_fetching = ends.borrow_and_update().is_fetching;
        is_fetching.then_some(KeyWait(ends))
    }

    /// Requests a fetch for a token with an unknown key, unless one happened a moment ago: such
    /// tokens are easy to forge.
    pub(super) fn ask_again(&self, now: Duration) -> Option<KeyWait> {
        if let Some(wait) = self.pending() {
            return Some(wait);
        }
        let (now, before) = (now.as_secs(), self.asked_at.load(Ordering::Acquire));
        if now.saturating_sub(before) < REFETCH_FLOOR.as_secs() {
            return None;
        }
        let order = (Ordering::AcqRel, Ordering::Acquire);
        if self.asked_at.compare_exchange(before, now, order.0, order.1).is_err() {
            return self.pending();
        }
        self.fetch_begins();
        self.wanted.notify_one();
        self.pending()
    }
}

/// A fetch that a request waits for.
#[derive(Debug)]
pub struct KeyWait(watch::Receiver<FetchState>);

impl KeyWait {
    /// Waits until the fetch has ended, within a limit.
    pub async fn wait(mut self) {
        let ended = self.0.wait_for(|state| !state.is_fetching);
        let _ = timeout(KEY_FETCH_TIMEOUT, ended).await;
    }
}

/// Minimum time between two fetches for unknown keys.
const REFETCH_FLOOR: Duration = Duration::from_mins(1);
/// Limit of a request's wait for a fetch.
const KEY_FETCH_TIMEOUT: Duration = Duration::from_secs(5);
