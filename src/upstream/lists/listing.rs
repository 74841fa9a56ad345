//! A server's whole lists, page by page: of tools, prompts, resources and
//! templates, as far as it offers them.
//!
//! They are fetched side by side, and one that cannot be had does not cost the
//! others.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::call::{Answer, AnswerFault};
use crate::catalog::{ByKind, CacheScope, Freshness, Kind};
use crate::jsonrpc::object;
use crate::mcp::{Era, code};

use crate::upstream::UpstreamError;
use crate::upstream::transport::connection::ServerConnection;
use crate::upstream::transport::peer::{Peer, modern_params_for, refused};

/// What a server listed.
pub(in crate::upstream) struct FetchedLists {
    /// The raw elements of all pages; `None` for a list that could not be had.
    pub(in crate::upstream) lists: ByKind<Option<Vec<Bytes>>>,
    /// What it said about caching, over all pages.
    pub(in crate::upstream) freshness: ByKind<Freshness>,
    /// Why some could not be had.
    pub(in crate::upstream) failures: Vec<(Kind, UpstreamError)>,
}

impl FetchedLists {
    /// Whether another try may bring what is missing.
    pub(in crate::upstream) fn is_worth_another(&self) -> bool {
        let settled = |fault: &UpstreamError| {
            matches!(fault, UpstreamError::Refused { .. } | UpstreamError::EndlessList { .. })
        };
        !self.failures.iter().all(|(_, fault)| settled(fault))
    }
}

/// The bounds of a listing.
#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) struct ListingLimits {
    /// Elements of one list.
    pub(in crate::upstream) items: usize,
    /// Pages of one list.
    pub(in crate::upstream) pages: usize,
    /// The time for all of them.
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
        }
    }
}

/// Fetches all pages of all lists, as the server has them for a client with
/// these raw capabilities.
///
/// # Errors
/// The first list's [`UpstreamError`] where none could be had.
pub(in crate::upstream) async fn fetch(
    connection: &ServerConnection,
    capabilities: &Bytes,
    bounds: ListingLimits,
) -> Result<FetchedLists, UpstreamError> {
    let asking = ListRequester { connection, capabilities, bounds };
    let (tools, prompts, resources, templates) = tokio::join!(
        asking.list(Kind::Tools),
        asking.list(Kind::Prompts),
        asking.list(Kind::Resources),
        asking.list(Kind::Templates),
    );
    let mut fetched = ByKind { tools, prompts, resources, templates };
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

/// Whom a listing asks, and on whose behalf.
#[derive(Clone, Copy)]
struct ListRequester<'a> {
    connection: &'a ServerConnection,
    capabilities: &'a Bytes,
    bounds: ListingLimits,
}

impl ListRequester<'_> {
    async fn list(self, kind: Kind) -> Result<Fetched, UpstreamError> {
        let Self { connection, bounds, .. } = self;
        if !connection.peer().offers.offers_list(kind) {
            return Ok(Fetched { items: Vec::new(), freshness: Freshness::FOR_EVER });
        }
        // A server that never answers for one list is not to be kept waiting for
        // until nobody waits for the others any more.
        let after = match kind {
            Kind::Tools => bounds.time,
            _ => bounds.time / 3,
        };
        let pages = timeout(after, self.pages(kind));
        match pages.await.unwrap_or(Err(UpstreamError::Timeout { after })) {
            // Whoever has resources need not know templates.
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
            let mut page: NativeListPage<'_> =
                object(raw).map_err(|error| UpstreamError::Answer(AnswerFault::Result(error)))?;
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

/// A Legacy server says nothing about caching: its list holds until it says
/// that it changed, or for [`UNTOLD`] where it never says.
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
    // Absent and negative ones count as 0 (2026-07-28, Caching).
    let ttl = Duration::try_from_secs_f64(page.ttl_ms.unwrap_or(0.0).max(0.0) / 1000.0);
    let scope = match page.cache_scope.as_deref() {
        Some("public") => CacheScope::Public,
        _ => CacheScope::Private,
    };
    so_far.stricter(Freshness { ttl: ttl.unwrap_or(Duration::MAX), scope })
}

/// How long a list holds of which nobody says how long, nor when it changed.
const UNTOLD: Duration = Duration::from_mins(1);
