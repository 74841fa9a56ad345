//! Cached resource reads of a Modern server, kept for as long as the server allows (2026-07-28,
//! Caching).
//!
//! A public result is available to any client, a private one only to the principal that read it.
//! Both are available only to clients with the same capabilities. A change notification removes a
//! result at once. A read that answers a server's question is never cached, nor is one with params
//! besides the URI.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::call::{
    Abilities, Answer, Call, Event, NativeName, Principal, Reply, ResultBody, ResultType,
};
use crate::clock;
use crate::jsonrpc::{Splice, object, span_of};
use crate::mcp::{Method, meta};
use crate::policy::CallTarget;

/// The cached reads of one server.
#[derive(Default)]
pub(super) struct ReadCache(Mutex<CachedReads>);

#[derive(Default)]
struct CachedReads {
    entries: HashMap<ReadKey, CachedRead>,
    /// The total size of the entries.
    bytes: usize,
    /// Counts removals because of changes.
    changes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ReadKey {
    uri: NativeName,
    abilities: Abilities,
    /// Principal of a private result. `None` for a public one.
    owner: Option<Principal>,
}

struct CachedRead {
    result: ResultBody,
    /// Size of the entry, including its key.
    size: usize,
    /// Span of `ttlMs` in the result.
    ttl: std::ops::Range<usize>,
    until: Instant,
}

/// A read in flight that may be cached.
pub(super) struct Reading {
    key: ReadKey,
    changes: u64,
    most: usize,
}

impl ReadCache {
    /// Finds a cached reply to a call. Otherwise returns the data to cache its result, if that is
    /// allowed, in a cache of `most` bytes.
    pub(super) fn find(
        &self,
        call: &Call,
        target: &CallTarget,
        most: Option<usize>,
    ) -> Result<Reply, Option<Reading>> {
        let (Some(most), Some(uri)) = (most, target.native.as_ref()) else { return Err(None) };
        if call.method != Method::ResourcesRead || !asks_for_nothing_else(call) {
            return Err(None);
        }
        let abilities = call.context.client.abilities().clone();
        let mut key = ReadKey { uri: uri.clone(), abilities, owner: None };
        let now = clock::now();
        let kept = self.kept();
        if let Some(found) = kept.fresh(&key, now) {
            return Ok(found);
        }
        key.owner = Some(call.context.principal.clone());
        kept.fresh(&key, now).ok_or(Some(Reading { key, changes: kept.changes, most }))
    }

    /// Forwards the reply to a read, and caches its result if the server allows it.
    pub(super) fn keep(self: &Arc<Self>, reading: Reading, mut reply: Reply) -> Reply {
        let answers = reply.answers();
        let reads = Arc::clone(self);
        let kept = Reply::stream(stream! {
            let mut reading = Some(reading);
            while let Some(event) = reply.next().await {
                match &event {
                    Event::Answer(Ok(Answer::Result(result))) => {
                        if let Some(reading) = reading.take() {
                            reads.take(reading, result);
                        }
                    }
                    // The result depends on this client's answers.
                    Event::Asks(..) => reading = None,
                    _ => {}
                }
                yield event;
            }
        });
        kept.with_answers(answers)
    }

    /// Removes a changed resource, those within it, and those that contain it.
    pub(super) fn forget(&self, uri: &str) {
        let related = |key: &ReadKey| {
            let known = key.uri.as_str();
            known.starts_with(uri) || uri.starts_with(known)
        };
        self.kept().remove(|key, _| related(key));
    }

    /// Removes everything: anything may have changed.
    pub(super) fn clear(&self) {
        self.kept().remove(|_, _| true);
    }

    fn take(&self, reading: Reading, result: &ResultBody) {
        let Some(caching) = Caching::of(result) else { return };
        // Clients determine most of the key.
        let size = result.raw().len() + reading.key.size() + READ_OVERHEAD_BYTES;
        let now = clock::now();
        let mut kept = self.kept();
        // Changes that were announced during the read may concern its result.
        if kept.changes != reading.changes || size > reading.most / 2 {
            return;
        }
        kept.make_room(size, reading.most, now);
        let owner = reading.key.owner.filter(|_| caching.private);
        let until = now + caching.ttl;
        let entry = CachedRead { result: result.clone(), size, ttl: caching.place, until };
        kept.bytes += size;
        if let Some(before) = kept.entries.insert(ReadKey { owner, ..reading.key }, entry) {
            kept.bytes -= before.size;
        }
    }

    fn kept(&self) -> MutexGuard<'_, CachedReads> {
        self.0.lock()
    }
}

impl CachedReads {
    /// Returns the reply with the remaining time to live.
    fn fresh(&self, key: &ReadKey, now: Instant) -> Option<Reply> {
        let entry = self.entries.get(key).filter(|entry| entry.until > now)?;
        let left = entry.until.saturating_duration_since(now).as_millis().to_string();
        let raw = Splice::new(entry.result.raw()).replace(entry.ttl.clone(), left).finish();
        let result = entry.result.with(raw).ok()?;
        Some(Reply::ready(Ok(Answer::Result(result))))
    }

    fn remove(&mut self, gone: impl Fn(&ReadKey, &CachedRead) -> bool) {
        self.changes += 1;
        self.entries.retain(|key, entry| !gone(key, entry));
        self.bytes = self.entries.values().map(|entry| entry.size).sum();
    }

    /// Removes stale entries, then those that expire first.
    fn make_room(&mut self, size: usize, most: usize, now: Instant) {
        let full = |kept: &Self| kept.bytes + size > most || kept.entries.len() >= MAX_CACHED_READS;
        if !full(self) {
            return;
        }
        self.entries.retain(|_, entry| entry.until > now);
        self.bytes = self.entries.values().map(|entry| entry.size).sum();
        while full(self) {
            let soonest = self.entries.iter().min_by_key(|(_, entry)| entry.until);
            let Some(key) = soonest.map(|(key, _)| key.clone()) else { return };
            if let Some(entry) = self.entries.remove(&key) {
                self.bytes -= entry.size;
            }
        }
    }
}

impl ReadKey {
    fn size(&self) -> usize {
        let owner = self.owner.as_ref().map_or(0, |owner| owner.as_str().len());
        self.uri.as_str().len() + self.abilities.raw().len() + owner
    }
}

impl fmt::Debug for ReadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").finish_non_exhaustive()
    }
}

/// Caching hints of a result.
struct Caching {
    ttl: Duration,
    place: std::ops::Range<usize>,
    private: bool,
}

impl Caching {
    fn of(result: &ResultBody) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct CacheHints<'a> {
            #[serde(borrow)]
            ttl_ms: &'a RawValue,
            #[serde(default)]
            cache_scope: Option<String>,
        }
        if *result.kind() != ResultType::Complete {
            return None;
        }
        let raw: &Bytes = result.raw();
        let wire: CacheHints<'_> = object(raw).ok()?;
        let place = span_of(raw, wire.ttl_ms.get().as_bytes())?;
        let ms: f64 = wire.ttl_ms.get().parse().ok().filter(|ms| *ms >= 1.0)?;
        let ttl = Duration::try_from_secs_f64(ms / 1000.0)
            .unwrap_or(MAX_READ_LIFETIME)
            .min(MAX_READ_LIFETIME);
        Some(Self { ttl, place, private: wire.cache_scope.as_deref() != Some("public") })
    }
}

/// Returns true if a read has no params besides the URI and the usual metadata. The key then covers
/// everything that affects the result.
fn asks_for_nothing_else(call: &Call) -> bool {
    let raw = call.params.raw();
    let only = |raw: &[u8], known: &[&str]| {
        let members = serde_json::from_slice::<HashMap<String, &RawValue>>(raw);
        members.is_ok_and(|members| members.keys().all(|key| known.contains(&key.as_str())))
    };
    let of_meta = call.params.meta_span().and_then(|span| raw.get(span));
    only(raw, &["uri", meta::META])
        && of_meta.is_none_or(|meta| meta == b"null" || only(meta, &NEUTRAL_META_KEYS))
}

/// The members of `_meta` that do not affect the result.
const NEUTRAL_META_KEYS: [&str; 8] = [
    meta::PROGRESS_TOKEN,
    meta::PROTOCOL_VERSION,
    meta::CLIENT_INFO,
    meta::CLIENT_CAPABILITIES,
    meta::LOG_LEVEL,
    meta::TRACEPARENT,
    meta::TRACESTATE,
    "baggage",
];
/// Size in bytes of an entry besides its result and its key.
const READ_OVERHEAD_BYTES: usize = 512;
/// Maximum number of entries.
const MAX_CACHED_READS: usize = 4096;
/// Maximum time that an entry is kept, whatever the server allows.
const MAX_READ_LIFETIME: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Client, Params, ServerName};
    use crate::mcp::ProtocolVersion;

    const SIZE: Option<usize> = Some(100_000);

    fn read(params: &str, principal: &str, capabilities: &str) -> Call {
        let mut call = crate::upstream::tests::call("x");
        call.method = Method::ResourcesRead;
        call.params = Params::parse(Some(params.to_owned().into())).unwrap();
        call.context.principal = Principal::Client(principal.into());
        let capabilities = Bytes::copy_from_slice(capabilities.as_bytes());
        call.context.client =
            Arc::new(Client::new(ProtocolVersion::LATEST_MODERN, None, capabilities));
        call
    }

    fn target(uri: &str) -> CallTarget {
        let server = ServerName::new("s").unwrap();
        let native = Some(NativeName::new(uri));
        let confirmation = crate::policy::Confirmation::default();
        CallTarget {
            server,
            native,
            tool: None,
            requested: None,
            confirmation,
            edits: Box::default(),
        }
    }

    async fn answered(reply: &mut Reply) -> String {
        match reply.next().await {
            Some(Event::Answer(Ok(Answer::Result(result)))) => {
                String::from_utf8(result.raw().to_vec()).unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns the cached result. Otherwise reads, caches, and returns `None`.
    async fn ask(reads: &Arc<ReadCache>, call: &Call, uri: &str, answer: &str) -> Option<String> {
        match reads.find(call, &target(uri), SIZE) {
            Ok(mut reply) => Some(answered(&mut reply).await),
            Err(reading) => {
                let result = ResultBody::parse(answer.to_owned().into()).unwrap();
                let reply = Reply::ready(Ok(Answer::Result(result)));
                if let Some(reading) = reading {
                    answered(&mut reads.keep(reading, reply)).await;
                }
                None
            }
        }
    }

    const PUBLIC: &str = r#"{"contents":[],"ttlMs":60000,"cacheScope":"public"}"#;
    const PRIVATE: &str = r#"{"contents":[],"ttlMs":60000,"cacheScope":"private"}"#;

    #[tokio::test(start_paused = true)]
    async fn public_results_serve_all_clients_and_private_ones_their_reader() {
        for (answer, shared) in [(PUBLIC, true), (PRIVATE, false), (r#"{"ttlMs":60000}"#, false)] {
            let reads = Arc::new(ReadCache::default());
            let params = r#"{"uri":"a:b","_meta":{"progressToken":1}}"#;
            assert!(ask(&reads, &read(params, "x", "{}"), "a:b", answer).await.is_none());
            let again = ask(&reads, &read(params, "x", "{}"), "a:b", answer).await;
            assert_eq!(again.as_deref(), Some(answer));
            let other = reads.find(&read(params, "y", "{}"), &target("a:b"), SIZE);
            assert_eq!(other.is_ok(), shared, "{answer}");
            let able = read(params, "x", r#"{"roots":{}}"#);
            assert!(reads.find(&able, &target("a:b"), SIZE).is_err(), "it can do more");
            assert!(reads.find(&read(params, "x", "{}"), &target("a:c"), SIZE).is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_says_how_long_it_is_still_good_and_then_is_gone() {
        let reads = Arc::new(ReadCache::default());
        let call = read(r#"{"uri":"a:b"}"#, "x", "{}");
        ask(&reads, &call, "a:b", PUBLIC).await;
        tokio::time::sleep(Duration::from_secs(59)).await;
        let again = ask(&reads, &call, "a:b", PUBLIC).await;
        assert_eq!(again, Some(PUBLIC.replace("60000", "1000")));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(ask(&reads, &call, "a:b", PUBLIC).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn uncacheable_results_are_not_kept() {
        let reads = Arc::new(ReadCache::default());
        for params in [
            r#"{"uri":"a:b","inputResponses":{}}"#,
            r#"{"uri":"a:b","requestState":"x"}"#,
            r#"{"uri":"a:b","later":1}"#,
            r#"{"uri":"a:b","_meta":{"com.example/tenant":1}}"#,
        ] {
            let found = reads.find(&read(params, "x", "{}"), &target("a:b"), SIZE);
            assert!(matches!(found, Err(None)), "{params}");
        }
        let call = read(r#"{"uri":"a:b"}"#, "x", "{}");
        assert!(matches!(reads.find(&call, &target("a:b"), None), Err(None)));
        for answer in [
            "{}",
            r#"{"ttlMs":0,"cacheScope":"public"}"#,
            r#"{"ttlMs":-5,"cacheScope":"public"}"#,
            r#"{"ttlMs":"9","cacheScope":"public"}"#,
            r#"{"resultType":"input_required","ttlMs":60000,"cacheScope":"public"}"#,
            &PUBLIC.replace("[]", &format!("[{:?}]", "x".repeat(60_000))),
        ] {
            assert!(ask(&reads, &call, "a:b", answer).await.is_none());
            assert!(reads.kept().entries.is_empty(), "{answer:.80}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn news_end_it_even_while_it_is_being_read() {
        let reads = Arc::new(ReadCache::default());
        let call = read(r#"{"uri":"a:b/c"}"#, "x", "{}");
        for (news, gone) in [("a:b/c", true), ("a:b", true), ("a:b/c/d", true), ("a:x", false)] {
            ask(&reads, &call, "a:b/c", PUBLIC).await;
            reads.forget(news);
            assert_eq!(ask(&reads, &call, "a:b/c", PUBLIC).await.is_none(), gone, "{news}");
        }
        reads.clear();
        assert_eq!(reads.kept().bytes, 0);
        let Err(Some(reading)) = reads.find(&call, &target("a:b/c"), SIZE) else { panic!() };
        reads.forget("a:b");
        let result = ResultBody::parse(Bytes::from_static(PUBLIC.as_bytes())).unwrap();
        answered(&mut reads.keep(reading, Reply::ready(Ok(Answer::Result(result))))).await;
        assert!(reads.kept().entries.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn it_never_takes_more_room_than_it_may() {
        let reads = Arc::new(ReadCache::default());
        let answer = PUBLIC.replace("[]", &format!("[{:?}]", "x".repeat(9_000)));
        for number in 0..50 {
            let call = read(r#"{"uri":"a:b"}"#, "x", "{}");
            ask(&reads, &call, &format!("a:{number}"), &answer).await;
            let kept = reads.kept();
            assert!(kept.bytes <= 100_000);
            assert_eq!(kept.bytes, kept.entries.values().map(|entry| entry.size).sum::<usize>());
        }
        let call = read(r#"{"uri":"a:b"}"#, "x", "{}");
        assert!(reads.find(&call, &target("a:49"), SIZE).is_ok(), "the newest is there");
    }

    #[tokio::test(start_paused = true)]
    async fn text_of_clients_in_cache_keys_counts_toward_the_bound() {
        let long = "x".repeat(3_000);
        for (capabilities, uri) in [(long.as_str(), ""), ("", long.as_str())] {
            let reads = Arc::new(ReadCache::default());
            for number in 0..100 {
                let can = format!(r#"{{"experimental":{{"x":{{"{number}":"{capabilities}"}}}}}}"#);
                let call = read(r#"{"uri":"a:b"}"#, "x", &can);
                ask(&reads, &call, &format!("a:{number}/{uri}"), PUBLIC).await;
            }
            let entries = reads.kept().entries.len();
            assert!((10..=33).contains(&entries), "{entries}");
        }
    }
}
