//! Reads a server's lists page by page: tools, prompts, resources, templates
//! and skills, as far as the server offers them.
//!
//! The lists are requested concurrently, and a failure of one does not affect
//! the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::call::Answer;
use crate::catalog::{ByKind, CacheScope, Freshness, Kind};
use crate::jsonrpc::object;
use crate::mcp::{Era, code};

use crate::upstream::UpstreamError;
use crate::upstream::transport::connection::ServerConnection;
use crate::upstream::transport::peer::{Peer, modern_params_for, refused};

/// The lists that a server returned.
pub(in crate::upstream) struct FetchedLists {
    /// The raw elements of all pages; `None` for a list that failed.
    pub(in crate::upstream) lists: ByKind<Option<Vec<Bytes>>>,
    /// The server's caching hints, over all pages.
    pub(in crate::upstream) freshness: ByKind<Freshness>,
    /// The errors of the lists that failed.
    pub(in crate::upstream) failures: Vec<(Kind, UpstreamError)>,
}

impl FetchedLists {
    /// Whether a retry may return the missing lists.
    pub(in crate::upstream) fn is_worth_another(&self) -> bool {
        let settled = |fault: &UpstreamError| {
            matches!(fault, UpstreamError::Refused { .. } | UpstreamError::EndlessList { .. })
        };
        !self.failures.iter().all(|(_, fault)| settled(fault))
    }
}

/// Limits of a list request.
#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) struct ListingLimits {
    /// The most elements of one list.
    pub(in crate::upstream) items: usize,
    /// The most pages of one list.
    pub(in crate::upstream) pages: usize,
    /// The most bytes of all pages of all lists together.
    pub(in crate::upstream) bytes: usize,
    /// The timeout for all lists.
    pub(in crate::upstream) time: Duration,
}

/// One list.
struct Fetched {
    items: Vec<Bytes>,
    freshness: Freshness,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NativeListPage<'a> {
    #[serde(borrow, default)]
    tools: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    prompts: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    resources: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    resource_templates: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    skills: Vec<&'a RawValue>,
    next_cursor: Option<String>,
    ttl_ms: Option<f64>,
    cache_scope: Option<String>,
}

impl<'a> NativeListPage<'a> {
    fn items(self, kind: Kind) -> Vec<&'a RawValue> {
        match kind {
            Kind::Tools => self.tools,
            Kind::Prompts => self.prompts,
            Kind::Resources => self.resources,
            Kind::Templates => self.resource_templates,
            Kind::Skills => self.skills,
        }
    }
}

/// Requests all pages of all lists, as the server offers them to a client with
/// these raw capabilities.
///
/// # Errors
/// The first list's [`UpstreamError`] if all lists failed.
pub(in crate::upstream) async fn fetch(
    connection: &ServerConnection,
    capabilities: &Bytes,
    bounds: ListingLimits,
) -> Result<FetchedLists, UpstreamError> {
    let read = AtomicUsize::new(0);
    let asking = ListRequester { connection, capabilities, bounds, read: &read };
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
    };
    let mut offered = 0;
    for kind in Kind::ALL {
        offered += usize::from(connection.peer().offers.offers_list(kind));
        let fetched = std::mem::replace(fetched.get_mut(kind), Err(UpstreamError::NoAnswer));
        match fetched {
            Ok(fetched) => {
                *listing.lists.get_mut(kind) = Some(fetched.items);
                *listing.freshness.get_mut(kind) = fetched.freshness;
            }
            Err(fault) => listing.failures.push((kind, fault)),
        }
    }
    if offered > 0 && listing.failures.len() == offered {
        return Err(listing.failures.swap_remove(0).1);
    }
    Ok(listing)
}

/// Requests lists from one server on behalf of some clients.
#[derive(Clone, Copy)]
struct ListRequester<'a> {
    connection: &'a ServerConnection,
    capabilities: &'a Bytes,
    bounds: ListingLimits,
    /// The bytes of all pages so far.
    read: &'a AtomicUsize,
}

impl ListRequester<'_> {
    async fn list(self, kind: Kind) -> Result<Fetched, UpstreamError> {
        let Self { connection, bounds, .. } = self;
        if !connection.peer().offers.offers_list(kind) {
            return Ok(Fetched { items: Vec::new(), freshness: Freshness::FOR_EVER });
        }
        // A shorter timeout, so that a server that does not respond for one
        // list does not delay the others too long.
        let after = match kind {
            Kind::Tools => bounds.time,
            _ => bounds.time / 3,
        };
        let pages = timeout(after, self.pages(kind));
        match pages.await.unwrap_or(Err(UpstreamError::Timeout { after })) {
            // A server with resources need not support templates.
            Err(UpstreamError::Refused { code: code::METHOD_NOT_FOUND, .. })
                if kind == Kind::Templates =>
            {
                Ok(Fetched { items: Vec::new(), freshness: start(connection.peer(), kind) })
            }
            fetched => fetched,
        }
    }

    async fn pages(self, kind: Kind) -> Result<Fetched, UpstreamError> {
        let Self { connection, bounds, .. } = self;
        let peer = connection.peer();
        let mut fetched = Fetched { items: Vec::new(), freshness: start(peer, kind) };
        let mut cursor = None;
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
            let mut page: NativeListPage<'_> =
                object(raw).map_err(|error| UpstreamError::Shape(Arc::new(error)))?;
            fetched.freshness = stricter(fetched.freshness, &page, peer.era());
            cursor = page.next_cursor.take();
            let items = page.items(kind);
            if fetched.items.len() + items.len() > bounds.items {
                return Err(UpstreamError::EndlessList {
                    limit: bounds.items,
                    unit: kind.member(),
                });
            }
            fetched.items.extend(items.iter().map(|item| raw.slice_ref(item.get().as_bytes())));
            if cursor.is_none() {
                return Ok(fetched);
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

/// The freshness before the first page. A Legacy server sends no caching hints:
/// its list is fresh until the server announces a change, or for [`UNTOLD`] if
/// it announces none.
fn start(peer: &Peer, kind: Kind) -> Freshness {
    let ttl = match (peer.era(), peer.offers.announces_changes(kind)) {
        (Era::Legacy, false) => UNTOLD,
        _ => Duration::MAX,
    };
    Freshness { ttl, scope: CacheScope::Public }
}

fn stricter(so_far: Freshness, page: &NativeListPage<'_>, era: Era) -> Freshness {
    if era == Era::Legacy {
        return so_far;
    }
    // Absent and negative values count as 0 (2026-07-28, Caching).
    let ttl = Duration::try_from_secs_f64(page.ttl_ms.unwrap_or(0.0).max(0.0) / 1000.0);
    let scope = match page.cache_scope.as_deref() {
        Some("public") => CacheScope::Public,
        _ => CacheScope::Private,
    };
    so_far.stricter(Freshness { ttl: ttl.unwrap_or(Duration::MAX), scope })
}

/// How long a list is fresh if the server sends neither caching hints nor
/// changes.
const UNTOLD: Duration = Duration::from_mins(1);
