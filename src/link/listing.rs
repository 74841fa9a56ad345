//! A server's whole list of tools, page by page.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::call::{Answer, AnswerFault};
use crate::catalog::{CacheScope, Freshness};
use crate::jsonrpc::object;
use crate::mcp::{Era, Method};

use super::LinkFault;
use super::connection::Connection;
use super::peer::{Peer, modern_params_for, refused};

/// What a server listed.
pub(super) struct Listing {
    /// The raw tools of all pages.
    pub(super) tools: Vec<Bytes>,
    /// What it said about caching, over all pages.
    pub(super) freshness: Freshness,
}

/// The bounds of a listing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) tools: usize,
    pub(super) pages: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow, default)]
    tools: Vec<&'a RawValue>,
    next_cursor: Option<String>,
    ttl_ms: Option<f64>,
    cache_scope: Option<String>,
}

/// Fetches all pages, as the server has them for a client with these raw
/// capabilities. The caller bounds the time.
pub(super) async fn fetch(
    connection: &Connection,
    capabilities: &Bytes,
    bounds: Bounds,
) -> Result<Listing, LinkFault> {
    let peer = connection.peer();
    let mut listing = Listing { tools: Vec::new(), freshness: start(peer) };
    if !peer.tools {
        return Ok(listing);
    }
    let mut cursor = None;
    for _ in 0..bounds.pages {
        let answer =
            connection.request(&Method::ToolsList, params(peer, capabilities, cursor)).await?;
        let result = match &answer {
            Answer::Result(result) => result,
            Answer::Error(error) => return Err(refused(error)),
        };
        let page: Page<'_> =
            object(result.raw()).map_err(|error| LinkFault::Answer(AnswerFault::Result(error)))?;
        if listing.tools.len() + page.tools.len() > bounds.tools {
            return Err(LinkFault::EndlessList { limit: bounds.tools, unit: "tools" });
        }
        let raw = result.raw();
        listing.tools.extend(page.tools.iter().map(|tool| raw.slice_ref(tool.get().as_bytes())));
        listing.freshness = stricter(listing.freshness, &page, peer.era());
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(listing),
        }
    }
    Err(LinkFault::EndlessList { limit: bounds.pages, unit: "pages" })
}

fn params(peer: &Peer, capabilities: &[u8], cursor: Option<String>) -> Bytes {
    let members = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
    match peer.era() {
        Era::Modern => modern_params_for(peer.version, capabilities, members),
        Era::Legacy => members.to_string().into(),
    }
}

/// A Legacy server says nothing about caching: its list holds until it says
/// that it changed, or for [`UNTOLD`] where it never says.
fn start(peer: &Peer) -> Freshness {
    let ttl = match (peer.era(), peer.tools_changed) {
        (Era::Legacy, false) => UNTOLD,
        _ => Duration::MAX,
    };
    Freshness { ttl, scope: CacheScope::Public }
}

fn stricter(so_far: Freshness, page: &Page<'_>, era: Era) -> Freshness {
    if era == Era::Legacy {
        return so_far;
    }
    // Absent and negative ones count as 0 (2026-07-28, Caching).
    let ttl = Duration::try_from_secs_f64(page.ttl_ms.unwrap_or(0.0).max(0.0) / 1000.0);
    let scope = match page.cache_scope.as_deref() {
        Some("public") => CacheScope::Public,
        _ => CacheScope::Private,
    };
    Freshness { ttl: so_far.ttl.min(ttl.unwrap_or(Duration::MAX)), scope: so_far.scope.max(scope) }
}

/// How long a list holds of which nobody says how long, nor when it changed.
const UNTOLD: Duration = Duration::from_mins(1);
