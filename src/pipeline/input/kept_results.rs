//! Results that exceed the size limit for clients: kept for a time, and readable as resources,
//! whole or in ranges, by the client that made the call.
//!
//! They outlive a reload, but not the gateway, and exist in this process alone: no call depends on
//! them. Of several replicas, the URI of a result names the one that keeps it. A client cannot read the results of a tool that it no longer sees.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::call::{
    Answer, Call, Failure, InternalFault, NativeName, Principal, ResultBody, ServerName,
};
use crate::catalog::normal_form;
use crate::clock;
use crate::cluster::ReplicaId;
use crate::config::Config;
use crate::crypto::random_bytes;
use crate::mcp::Method;
use crate::policy::{KeptResource, WholeText};
use crate::shares::Holder;
use crate::snapshot::View;

use super::unknown::unknown_resource;

/// All kept results.
#[derive(Default)]
pub(crate) struct KeptResults {
    /// The oldest first.
    results: Mutex<VecDeque<KeptResult>>,
    /// The id of this gateway among several replicas. URIs name it.
    replica: Arc<OnceLock<ReplicaId>>,
}

struct KeptResult {
    id: String,
    origin: ResultOrigin,
    holder: Holder,
    text: WholeText,
    until: Instant,
}

/// Owner and tool of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResultOrigin {
    pub(crate) owner: Principal,
    pub(crate) server: ServerName,
    pub(crate) tool: NativeName,
}

/// Bounds on the number and size of kept results, and their lifetime.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptBounds {
    /// Limit of the bytes of all results, and of those of one client.
    all: usize,
    each: usize,
    /// Limit of the number of results of one client.
    most_each: usize,
    lasting: Duration,
}

impl KeptBounds {
    pub(crate) fn of(config: &Config) -> Self {
        let limits = &config.gateway.limits;
        let all = limits.kept_results;
        let (each, most_each) = (config.share_of(all), config.share_of(MAX_KEPT_RESULTS));
        Self { all, each, most_each, lasting: limits.kept_result_time }
    }
}

impl KeptResults {
    /// Creates an empty store.
    pub(crate) fn of_replica(replica: Arc<OnceLock<ReplicaId>>) -> Self {
        Self { results: Mutex::default(), replica }
    }

    /// Keeps a text for its owner. If the holder has used up its share, the text replaces the
    /// holder's oldest ones. `None` if there is no room.
    pub(crate) fn keep(
        &self,
        text: WholeText,
        origin: ResultOrigin,
        holder: Holder,
        bounds: KeptBounds,
    ) -> Option<KeptResource> {
        let size = text.text.len();
        let replica = self.replica.get().map(ReplicaId::to_string).unwrap_or_default();
        let id = replica + &HEXLOWER.encode(&random_bytes::<16>().ok()?);
        let now = clock::now();
        let mut kept = self.results.lock();
        kept.retain(|one| one.until > now);
        let size_of = |kept: &VecDeque<KeptResult>, of: &dyn Fn(&KeptResult) -> bool| {
            kept.iter().filter(|one| of(one)).map(|one| one.text.text.len()).sum::<usize>()
        };
        let is_own = |one: &KeptResult| one.holder == holder;
        let own = |kept: &VecDeque<KeptResult>| kept.iter().filter(|one| is_own(one)).count();
        while own(&kept) >= bounds.most_each || size_of(&kept, &is_own) + size > bounds.each {
            let oldest = kept.iter().position(is_own)?;
            kept.remove(oldest);
        }
        if kept.len() >= MAX_KEPT_RESULTS || size_of(&kept, &|_| true) + size > bounds.all {
            return None;
        }
        let uri = format!("{KEPT_RESULT_URI_PREFIX}{id}");
        let until = now + bounds.lasting;
        kept.push_back(KeptResult { id, origin, holder, text, until });
        Some(KeptResource { uri, lasting: bounds.lasting })
    }

    /// Drops the results of unknown owners.
    pub(crate) fn retain(&self, keep: impl Fn(&Principal) -> bool) {
        self.results.lock().retain(|one| keep(&one.origin.owner));
    }

    /// Returns the requested part of a result. The failure is the same for another owner's result
    /// and for an unknown one.
    fn read(&self, asked: &KeptAddress, who: &Principal, view: &View) -> Option<ReadPart> {
        let now = clock::now();
        let kept = self.results.lock();
        let one = kept.iter().find(|one| one.id == asked.id && one.until > now)?;
        let ResultOrigin { owner, server, tool } = &one.origin;
        if owner != who || view.catalog.find_listed_tool(server, tool).is_none() {
            return None;
        }
        let text = asked.range.part_of(&one.text.text)?.to_owned();
        Some(ReadPart { text, mime: one.text.mime, lasting: one.until - now })
    }
}

struct ReadPart {
    text: String,
    mime: &'static str,
    lasting: Duration,
}

/// The address of a kept result in a call.
pub(crate) struct KeptAddress {
    uri: String,
    id: String,
    range: TextRange,
}

/// A range of bytes, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TextRange {
    first: usize,
    last: usize,
}

impl TextRange {
    const WHOLE: Self = Self { first: 0, last: usize::MAX };

    /// Parses `range=FIRST-LAST`; `LAST` is optional.
    fn parse(query: &str) -> Option<Self> {
        let (first, last) = query.strip_prefix("range=")?.split_once('-')?;
        let last = if last.is_empty() { usize::MAX } else { last.parse().ok()? };
        let range = Self { first: first.parse().ok()?, last };
        (range.first <= range.last).then_some(range)
    }

    /// Returns the part of a text. It begins and ends between characters, so that consecutive
    /// ranges give the whole.
    fn part_of(self, text: &str) -> Option<&str> {
        if self.first > 0 && self.first >= text.len() {
            return None;
        }
        let end = text.floor_char_boundary(self.last.saturating_add(1));
        text.get(text.floor_char_boundary(self.first)..end)
    }
}

impl KeptAddress {
    /// Returns the kept result that a call reads; `None` if it reads another resource.
    pub(crate) fn of(call: &Call) -> Option<Self> {
        let uri = call.params.uri().filter(|_| call.method == Method::ResourcesRead)?;
        // Every spelling belongs to the gateway: servers never receive the URI of a kept result.
        let normal = normal_form(uri).filter(|_| has_own_scheme(uri))?;
        let rest = normal.strip_prefix(KEPT_RESULT_URI_PREFIX)?;
        let (id, range) = match rest.split_once('?') {
            None => (rest, Some(TextRange::WHOLE)),
            Some((id, query)) => (id, TextRange::parse(query)),
        };
        // A malformed range selects no part.
        let range = range.unwrap_or(TextRange { first: usize::MAX, last: usize::MAX });
        Some(Self { uri: uri.to_owned(), id: id.to_owned(), range })
    }

    /// Answers the call.
    ///
    /// # Errors
    /// [`Failure::UnknownResource`].
    pub(crate) fn answer(
        &self,
        kept: &KeptResults,
        who: &Principal,
        view: &View,
    ) -> Result<Answer, Failure> {
        let part = kept.read(self, who, view).ok_or_else(|| unknown_resource(&self.uri))?;
        let contents = json!([{ "uri": self.uri, "mimeType": part.mime, "text": part.text }]);
        let ttl = u64::try_from(part.lasting.as_millis()).unwrap_or(u64::MAX);
        let result = json!({
            "resultType": "complete", "contents": contents, "ttlMs": ttl, "cacheScope": "private",
        });
        let result = ResultBody::parse(Bytes::from(result.to_string()));
        Ok(result.map(Answer::Result).map_err(InternalFault::Result)?)
    }
}

/// Returns the replica that keeps the result with this URI; `None` for other URIs, and for results of
/// a gateway that is alone.
pub(super) fn replica_in(uri: &str) -> Option<ReplicaId> {
    let normal = normal_form(uri).filter(|_| has_own_scheme(uri))?;
    let rest = normal.strip_prefix(KEPT_RESULT_URI_PREFIX)?;
    let id = rest.split_once('?').map_or(rest, |(id, _)| id);
    let (replica, own) = id.split_at_checked(2 * ReplicaId::ID_BYTES)?;
    ReplicaId::parse(replica).filter(|_| own.len() == 32)
}

/// Returns true if a URI has the scheme of kept results, in any spelling.
fn has_own_scheme(uri: &str) -> bool {
    let uri = uri.trim_start_matches(|character: char| character <= ' ');
    uri.get(..KEPT_RESULT_SCHEME.len())
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case(KEPT_RESULT_SCHEME))
}

/// The scheme of kept results.
pub const KEPT_RESULT_SCHEME: &str = "trunkline:";
/// Prefix of the URIs of kept results.
const KEPT_RESULT_URI_PREFIX: &str = "trunkline://results/";
/// Limit of the number of kept results.
const MAX_KEPT_RESULTS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_by(store: &KeptResults, owner: &str, size: usize, bounds: KeptBounds) -> bool {
        let origin = ResultOrigin {
            owner: Principal::Client(owner.into()),
            server: ServerName::new("s").unwrap(),
            tool: NativeName::new("t"),
        };
        let text = WholeText { text: "x".repeat(size), mime: "text/plain" };
        let holder = Holder::Client(owner.into());
        store.keep(text, origin, holder, bounds).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_bytes_are_kept_for_a_time_and_for_each_client_its_share() {
        let store = KeptResults::default();
        let lasting = Duration::from_mins(1);
        let bounds = KeptBounds { all: 100, each: 60, most_each: 9, lasting };
        let owners =
            || store.results.lock().iter().map(|one| one.text.text.len()).collect::<Vec<_>>();
        assert!(!kept_by(&store, "ann", 61, bounds));
        assert!(kept_by(&store, "ann", 40, bounds) && kept_by(&store, "ann", 20, bounds));
        // The oldest result of the same client is evicted.
        assert!(kept_by(&store, "ann", 30, bounds));
        assert_eq!(owners(), [20, 30]);
        assert!(kept_by(&store, "bob", 50, bounds));
        assert!(!kept_by(&store, "eve", 10, bounds));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(kept_by(&store, "eve", 60, bounds));
        assert_eq!(owners(), [60]);
        store.retain(|owner| owner.as_str() != "eve");
        assert_eq!(owners(), [0; 0]);
    }

    #[test]
    fn the_uri_of_a_result_names_its_replica() {
        let store = KeptResults::default();
        let own = ReplicaId::new([0xab; 8]);
        store.replica.set(own).unwrap();
        let origin = ResultOrigin {
            owner: Principal::Anonymous,
            server: ServerName::new("s").unwrap(),
            tool: NativeName::new("t"),
        };
        let lasting = Duration::from_mins(1);
        let bounds = KeptBounds { all: 100, each: 60, most_each: 9, lasting };
        let text = WholeText { text: "x".into(), mime: "text/plain" };
        let kept = store.keep(text, origin, Holder::Client("ann".into()), bounds).unwrap();
        for uri in [&kept.uri, &format!("{}?range=0-1", kept.uri), &kept.uri.replacen('t', "T", 1)]
        {
            assert_eq!(replica_in(uri), Some(own), "{uri}");
        }
        let alone = format!("{KEPT_RESULT_URI_PREFIX}{}", "0".repeat(32));
        let other = kept.uri.replace("trunkline:", "other:");
        for uri in [&*alone, &other, &kept.uri[..kept.uri.len() - 1], "trunkline://results/é"] {
            assert_eq!(replica_in(uri), None, "{uri}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_client_leaves_the_others_a_number_of_results() {
        let store = KeptResults::default();
        let lasting = Duration::from_mins(1);
        let (all, most_each) = (1_000_000, MAX_KEPT_RESULTS / 2);
        let bounds = KeptBounds { all, each: all / 2, most_each, lasting };
        assert!((0..MAX_KEPT_RESULTS + 10).all(|_| kept_by(&store, "ann", 1, bounds)));
        assert_eq!(store.results.lock().len(), most_each);
        assert!((0..most_each).all(|_| kept_by(&store, "bob", 1, bounds)));
        assert!(!kept_by(&store, "eve", 1, bounds));
    }

    #[test]
    fn ranges_follow_one_another_without_a_gap() {
        let text = "aé€x".repeat(50);
        for step in 1..10 {
            let parts = (0..text.len()).step_by(step).map(|first| {
                let range = TextRange::parse(&format!("range={first}-{}", first + step - 1));
                range.unwrap().part_of(&text).unwrap()
            });
            assert_eq!(parts.collect::<String>(), text, "{step}");
        }
        for (query, expected) in [
            ("range=1-", Some("é")),
            ("range=0-0", Some("a")),
            ("range=3-9", None),
            ("range=2-1", None),
            ("range=-1", None),
            ("range=x-y", None),
            ("bytes=0-1", None),
        ] {
            let range = TextRange::parse(query);
            assert_eq!(range.and_then(|range| range.part_of("aé")), expected, "{query}");
        }
        assert_eq!(TextRange::WHOLE.part_of(""), Some(""));
    }
}
