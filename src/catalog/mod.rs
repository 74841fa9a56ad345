//! The catalog: many servers' tools as one list, under names that are unique.
//!
//! It answers three questions. What may a client call ([`Catalog::route`]: a
//! tool that the configuration hides is not in it, so it cannot be called
//! either)? What does a listing say ([`Catalog::listing`], [`Catalog::page`]:
//! prepared bytes, every field as the server sent it, but for a new name or
//! description spliced in)? And has the list changed ([`Catalog::digest`])?
//!
//! On the way in, each tool is checked and compiled once ([`Tool`]); one that
//! is invalid is left out alone. The merge is a function of the configuration
//! and the lists: never of time, never of who answered first.
//!
//! Whether *this* principal may call a tool is not asked here but in `policy`;
//! how a list gets here is `link`'s matter. Everything in this room takes
//! values and returns values: it does no input or output and knows no clock.

mod cursor;
mod merge;
mod naming;
mod param_headers;
mod rules;
mod schema;
mod selection;
mod server_list;
mod strict_json;
mod tool;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;

use crate::call::{NativeName, PublicName, ServerName};
pub use cursor::{CursorError, SealedCursors};
pub use merge::{Origin, Source, Warning};
pub use naming::{MAX_PUBLIC_NAME, Naming};
pub use param_headers::{
    AnnotationError, Mismatch, ParamHeader, ParamKind, find as find_param_headers, headers_for,
    verify as verify_headers,
};
pub use rules::{Override, ServerRules};
pub use schema::{ArgumentSchema, SchemaError, Violations};
pub use selection::{Selection, SelectionFault};
pub use server_list::{CacheScope, Freshness, Refused, ServerList};
pub use strict_json::JsonError;
pub use tool::{FieldKind, HeaderRules, InvalidTool, Tool};

/// One tool in the catalog.
#[derive(Debug)]
pub struct Entry {
    /// The name that clients call it by.
    pub public: PublicName,
    /// The server that has it.
    pub server: ServerName,
    /// The tool as the server listed it.
    pub tool: Arc<Tool>,
    /// Where it stands in the listing.
    span: Range<usize>,
}

impl Entry {
    /// The name that the server calls it by.
    pub fn native(&self) -> &NativeName {
        &self.tool.native
    }
}

/// All tools of all servers, immutable.
#[derive(Debug)]
pub struct Catalog {
    entries: Vec<Entry>,
    by_name: HashMap<PublicName, usize>,
    /// The JSON array of all tools.
    listing: Bytes,
    digest: Digest,
    freshness: Freshness,
}

/// SHA-256 of a listing.
pub type Digest = [u8; 32];

/// How many tools come before a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(usize);

/// A part of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The JSON array of its tools.
    pub tools: Bytes,
    /// Where the next page begins, if there is one.
    pub next: Option<Position>,
}

impl Catalog {
    /// Merges the servers' lists; `sources` are all configured servers in file
    /// order.
    pub fn merge(naming: Naming, sources: &[Source<'_>]) -> (Self, Vec<Warning>) {
        let (candidates, warnings) = merge::settle(naming, sources);
        let bytes: usize = candidates.iter().map(|one| one.tool.raw().len() + 1).sum();
        let mut listing = Vec::with_capacity(bytes + candidates.len() * MAX_PUBLIC_NAME);
        listing.push(b'[');
        let mut entries = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            if !entries.is_empty() {
                listing.push(b',');
            }
            let start = listing.len();
            candidate.tool.splice(&candidate.name, candidate.description, &mut listing);
            entries.push(Entry {
                public: PublicName::new(&candidate.name),
                server: candidate.server.clone(),
                tool: Arc::clone(candidate.tool),
                span: start..listing.len(),
            });
        }
        listing.push(b']');
        let by_name =
            entries.iter().enumerate().map(|(i, entry)| (entry.public.clone(), i)).collect();
        let mut sum = Digest::default();
        sum.copy_from_slice(digest(&SHA256, &listing).as_ref());
        let freshness = strictest(sources);
        (Self { entries, by_name, listing: listing.into(), digest: sum, freshness }, warnings)
    }

    /// The tool that a public name stands for.
    pub fn route(&self, public: &str) -> Option<&Entry> {
        self.by_name.get(public).and_then(|place| self.entries.get(*place))
    }

    /// All tools in listing order: file order of servers, then each server's own.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The JSON array of all tools.
    pub fn listing(&self) -> &Bytes {
        &self.listing
    }

    /// The tools from a position on, at most `size` of them. A position behind
    /// the end gives an empty last page.
    pub fn page(&self, from: Option<Position>, size: NonZeroUsize) -> Page {
        let start = from.map_or(0, |position| position.0).min(self.entries.len());
        let end = start.saturating_add(size.get()).min(self.entries.len());
        let next = (end < self.entries.len()).then_some(Position(end));
        if start == 0 && next.is_none() {
            return Page { tools: self.listing.clone(), next };
        }
        let shown = self.entries.get(start..end).unwrap_or_default();
        let bytes = match (shown.first(), shown.last()) {
            (Some(first), Some(last)) => self.listing.get(first.span.start..last.span.end),
            _ => None,
        };
        let tools = [b"[", bytes.unwrap_or_default(), b"]"].concat().into();
        Page { tools, next }
    }

    /// Tells one listing from another: it changes when a client would see a
    /// change, and only then.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// How long the listing is fresh and for whom: the strictest of what the
    /// servers said.
    pub fn freshness(&self) -> Freshness {
        self.freshness
    }
}

fn strictest(sources: &[Source<'_>]) -> Freshness {
    let said = || sources.iter().filter_map(|source| source.list).map(|list| list.freshness);
    Freshness {
        ttl: said().map(|one| one.ttl).min().unwrap_or_default(),
        scope: said().map(|one| one.scope).max().unwrap_or(CacheScope::Private),
    }
}

/// At most 120 characters of somebody else's text: enough to find what is
/// meant, too little to flood a log.
fn cut(text: &str) -> String {
    text.chars().take(120).collect()
}
