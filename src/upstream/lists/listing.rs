//! Reads a server's lists page by page: tools, prompts, resources, templates
//! and skills, as far as the server offers them.
//!
//! The lists are requested concurrently, and a failure of one does not affect
//! the others.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::call::Answer;
use crate::catalog::{ByKind, CacheScope, Freshness, Kind, ServerOffers};
use crate::jsonrpc::{object, text};
use crate::mcp::{Era, code};

use crate::upstream::UpstreamError;
use crate::upstream::peer::{AssumedLists, Peer, modern_params_for, refused};
use crate::upstream::transport::connection::ServerConnection;

/// Lists that a server returned.
pub(crate) struct FetchedLists {
    /// Raw elements of all pages. `None` for a list that failed.
    pub(crate) lists: ByKind<Option<Vec<Bytes>>>,
    /// The server's caching hints, over all pages.
    pub(crate) freshness: ByKind<Freshness>,
    /// Errors of the lists that failed.
    pub(crate) failures: Vec<(Kind, UpstreamError)>,
    /// Flaws at which lists ended.
    pub(crate) flaws: Vec<(Kind, CursorFault)>,
}

/// A cursor that leads to no further page. The entries of all earlier pages count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CursorFault {
    /// It is the empty string.
    #[error("the list ends at an empty nextCursor")]
    Empty,
    /// It led to an earlier page.
    #[error("the list ends at a nextCursor that the server returned before")]
    Repeated,
    /// It is not a string.
    #[error("the list ends at a nextCursor that is not a string")]
    NotText,
}

impl FetchedLists {
    /// Returns the missing lists that a retry may return.
    pub(crate) fn retried_kinds(&self) -> ByKind<bool> {
        let is_settled = |fault: &UpstreamError| {
            matches!(fault, UpstreamError::Refused { .. } | UpstreamError::EndlessList { .. })
        };
        let failed = self.failures.iter().filter(|(_, fault)| !is_settled(fault));
        let failed: Vec<_> = failed.map(|(kind, _)| *kind).collect();
        ByKind::from_fn(|kind| failed.contains(&kind))
    }
}

/// Limits of a list request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListingLimits {
    /// Maximum number of elements of one list.
    pub(crate) items: usize,
    /// Maximum number of pages of one list.
    pub(crate) pages: usize,
    /// Maximum size in bytes of all pages of all lists together.
    pub(crate) bytes: usize,
    /// Timeout for all lists.
    pub(crate) time: Duration,
}

/// One list.
struct Fetched {
    items: Vec<Bytes>,
    freshness: Freshness,
    flaw: Option<CursorFault>,
    /// False if the server does not have the list.
    exists: bool,
}

impl Fetched {
    /// Creates a list without entries.
    fn new(freshness: Freshness) -> Self {
        Self { items: Vec::new(), freshness, flaw: None, exists: true }
    }

    /// Creates the list of a server that does not have it.
    fn missing(freshness: Freshness) -> Self {
        Self { exists: false, ..Self::new(freshness) }
    }
}

/// A page of a list. Members that do not affect its entries may have any value.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NativeListPage<'a> {
    #[serde(borrow)]
    tools: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    prompts: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    resources: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    resource_templates: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    skills: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    next_cursor: Option<&'a RawValue>,
    #[serde(borrow)]
    ttl_ms: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_scope: Option<&'a RawValue>,
}

impl<'a> NativeListPage<'a> {
    fn items(self, kind: Kind) -> Vec<&'a RawValue> {
        let items = match kind {
            Kind::Tools => self.tools,
            Kind::Prompts => self.prompts,
            Kind::Resources => self.resources,
            Kind::Templates => self.resource_templates,
            Kind::Skills => self.skills,
        };
        items.unwrap_or_default()
    }

    /// Returns the cursor of the next page, or `None` on the last one.
    ///
    /// # Errors
    /// [`CursorFault`] if there is a cursor that leads to no further page.
    fn next_cursor(&self, seen: &mut HashSet<String>) -> Result<Option<String>, CursorFault> {
        let Some(raw) = self.next_cursor else { return Ok(None) };
        let cursor = text(raw).ok_or(CursorFault::NotText)?.into_owned();
        if cursor.is_empty() {
            return Err(CursorFault::Empty);
        }
        if seen.insert(cursor.clone()) { Ok(Some(cursor)) } else { Err(CursorFault::Repeated) }
    }
}

/// Requests all pages of the lists of these kinds, as the server offers them to a client with these
/// raw capabilities.
///
/// # Errors
/// The [`UpstreamError`] of the first list if all lists failed.
pub(crate) async fn fetch(
    connection: &ServerConnection,
    capabilities: &Bytes,
    kinds: &ByKind<bool>,
    bounds: ListingLimits,
) -> Result<FetchedLists, UpstreamError> {
    let read = AtomicUsize::new(0);
    // The lists of an HTTP API are declared by the gateway itself.
    let is_api = matches!(connection, ServerConnection::OpenApi(_));
    let is_assuming = !is_api && connection.peer().awaits_assumption();
    let read = &read;
    let asking = ListRequester { connection, capabilities, kinds, bounds, read, is_assuming };
    let (tools, prompts, resources, templates, skills) = tokio::join!(
        asking.list(Kind::Tools),
        asking.list(Kind::Prompts),
        asking.list(Kind::Resources),
        asking.list(Kind::Templates),
        asking.list(Kind::Skills),
    );
    let mut fetched = ByKind { tools, prompts, resources, templates, skills };
    let mut listing = FetchedLists {
        lists: ByKind::default(),
        freshness: ByKind::default(),
        failures: Vec::new(),
        flaws: Vec::new(),
    };
    let mut offered = 0;
    let mut found = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| *kinds.get(*kind)) {
        offered += usize::from(asking.is_asked_for(kind));
        let fetched = std::mem::replace(fetched.get_mut(kind), Err(UpstreamError::NoAnswer));
        match fetched {
            Ok(fetched) => {
                found.extend(fetched.exists.then_some(kind));
                listing.flaws.extend(fetched.flaw.map(|flaw| (kind, flaw)));
                *listing.lists.get_mut(kind) = Some(fetched.items);
                *listing.freshness.get_mut(kind) = fetched.freshness;
            }
            Err(fault) => listing.failures.push((kind, fault)),
        }
    }
    if offered > 0 && listing.failures.len() == offered {
        return Err(listing.failures.swap_remove(0).1);
    }
    if asking.is_assuming && listing.failures.is_empty() {
        let assumed = assume_lists(connection.peer(), &found);
        // Another task may have requested them at the same time.
        let _ = connection.peer().assumed.set(assumed);
    }
    Ok(listing)
}

/// Returns the lists of a server that declares none, after a request for each.
fn assume_lists(peer: &Peer, found: &[Kind]) -> AssumedLists {
    let offers = ServerOffers::clone(&peer.offers).with_lists(found);
    let names: Vec<_> = found.iter().map(|kind| kind.member()).collect();
    let names = if names.is_empty() { "none of them".to_owned() } else { names.join(", ") };
    let remark = format!(
        "the server declares none of the capabilities tools, prompts and resources: each list was \
         requested once, and it has {names}"
    );
    AssumedLists { offers: Arc::new(offers), remark }
}

/// Requests lists from one server on behalf of certain clients.
#[derive(Clone, Copy)]
struct ListRequester<'a> {
    connection: &'a ServerConnection,
    capabilities: &'a Bytes,
    kinds: &'a ByKind<bool>,
    bounds: ListingLimits,
    /// Size in bytes of all pages so far.
    read: &'a AtomicUsize,
    /// True if the server declares no lists and none has been requested yet.
    is_assuming: bool,
}

impl ListRequester<'_> {
    /// Returns true if a list is requested from the server.
    fn is_asked_for(self, kind: Kind) -> bool {
        let is_assumed = self.is_assuming && kind.capability().is_some();
        let is_offered = is_assumed || self.connection.peer().known_offers().offers_list(kind);
        is_offered && *self.kinds.get(kind)
    }

    async fn list(self, kind: Kind) -> Result<Fetched, UpstreamError> {
        let Self { connection, bounds, .. } = self;
        if !self.is_asked_for(kind) {
            return Ok(Fetched::missing(Freshness::FOR_EVER));
        }
        let is_declared = connection.peer().offers.offers_list(kind);
        // A shorter timeout, so that one unanswered list request does not delay the others too
        // long.
        let after = match kind {
            Kind::Tools if is_declared => bounds.time,
            _ => bounds.time / 3,
        };
        let pages = timeout(after, self.pages(kind));
        match pages.await.unwrap_or(Err(UpstreamError::Timeout { after })) {
            // A server with resources does not have to support templates.
            Err(UpstreamError::Refused { code: code::METHOD_NOT_FOUND, .. })
                if kind == Kind::Templates || !is_declared =>
            {
                Ok(Fetched::missing(start(connection.peer(), kind)))
            }
            // Some servers answer an unknown method with another error, or never.
            Err(UpstreamError::Refused { .. } | UpstreamError::Timeout { .. })
                if self.is_assuming =>
            {
                Ok(Fetched::missing(Freshness::FOR_EVER))
            }
            fetched => fetched,
        }
    }

    async fn pages(self, kind: Kind) -> Result<Fetched, UpstreamError> {
        let Self { connection, bounds, .. } = self;
        let peer = connection.peer();
        let mut fetched = Fetched::new(start(peer, kind));
        let (mut cursor, mut seen) = (None, HashSet::new());
        for _ in 0..bounds.pages {
            let answer = connection.request(&kind.method(), self.params(cursor)).await?;
            let result = match &answer {
                Answer::Result(result) => result,
                Answer::Error(error) => return Err(refused(error)),
            };
            let raw = result.raw();
            let read = self.read.fetch_add(raw.len(), Ordering::Relaxed) + raw.len();
            if read > bounds.bytes {
                return Err(UpstreamError::EndlessList { limit: bounds.bytes, unit: "bytes" });
            }
            let page: NativeListPage<'_> =
                object(raw).map_err(|error| UpstreamError::Shape(Arc::new(error)))?;
            fetched.freshness = stricter(fetched.freshness, &page, peer.era());
            let next = page.next_cursor(&mut seen);
            let mut items = page.items(kind);
            if next == Err(CursorFault::Repeated) {
                // A server without pagination returns its first page again.
                let known: HashSet<&[u8]> = fetched.items.iter().map(AsRef::as_ref).collect();
                items.retain(|item| !known.contains(item.get().as_bytes()));
            }
            if fetched.items.len() + items.len() > bounds.items {
                return Err(UpstreamError::EndlessList {
                    limit: bounds.items,
                    unit: kind.member(),
                });
            }
            fetched.items.extend(items.iter().map(|item| raw.slice_ref(item.get().as_bytes())));
            match next {
                Ok(Some(next)) => cursor = Some(next),
                Ok(None) => return Ok(fetched),
                Err(flaw) => return Ok(Fetched { flaw: Some(flaw), ..fetched }),
            }
        }
        Err(UpstreamError::EndlessList { limit: bounds.pages, unit: "pages" })
    }

    fn params(self, cursor: Option<String>) -> Bytes {
        let peer = self.connection.peer();
        let members = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        match peer.era() {
            Era::Modern => modern_params_for(peer.version, self.capabilities, members),
            Era::Legacy => members.to_string().into(),
        }
    }
}

/// Returns the freshness before the first page. A Legacy server sends no caching hints. Its list is
/// fresh until the server announces a change, or for [`DEFAULT_FRESHNESS`] if it announces none.
fn start(peer: &Peer, kind: Kind) -> Freshness {
    let ttl = match (peer.era(), peer.known_offers().announces_changes(kind)) {
        (Era::Legacy, false) => DEFAULT_FRESHNESS,
        _ => Duration::MAX,
    };
    Freshness { ttl, scope: CacheScope::Public }
}

fn stricter(so_far: Freshness, page: &NativeListPage<'_>, era: Era) -> Freshness {
    if era == Era::Legacy {
        return so_far;
    }
    // Absent and negative values count as 0 (2026-07-28, Caching).
    let ttl = page.ttl_ms.and_then(|raw| serde_json::from_str::<f64>(raw.get()).ok());
    let ttl = Duration::try_from_secs_f64(ttl.unwrap_or(0.0).max(0.0) / 1000.0);
    let scope = match page.cache_scope.and_then(text).as_deref() {
        Some("public") => CacheScope::Public,
        _ => CacheScope::Private,
    };
    so_far.stricter(Freshness { ttl: ttl.unwrap_or(Duration::MAX), scope })
}

/// Time for which a list is fresh if the server sends neither caching hints nor changes.
const DEFAULT_FRESHNESS: Duration = Duration::from_mins(1);
