//! One list of the catalog, serialized in advance.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::ops::Range;

use bytes::Bytes;

use trunkline_core::crypto::sha256;
use trunkline_jsonrpc::{Members, text};
use trunkline_protocol::mcp::Era;

use super::server_list::Freshness;
use crate::kind::Kind;

/// SHA-256 of a listing.
pub type Digest = [u8; 32];

/// A position in a list: the number of elements before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPosition(pub usize);

/// The name of an element of a list, by its definition.
#[inline]
pub fn listed_name(raw: &[u8]) -> Option<Cow<'_, str>> {
    text(Members::parse(raw).ok()?.find("name")?)
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage {
    /// The JSON array of the page's elements.
    pub items: Bytes,
    /// The position of the next page; `None` on the last page.
    pub next: Option<ListPosition>,
}

/// A serialized JSON array, and the spans of its elements.
#[derive(Debug)]
pub struct CatalogList {
    /// An object with the array as its only member.
    object: Bytes,
    bytes: Bytes,
    /// Offsets into `bytes`.
    spans: Vec<Range<usize>>,
    digest: Digest,
    freshness: Freshness,
    /// The list for Legacy clients, if it differs.
    legacy: Option<Box<Self>>,
}

impl CatalogList {
    /// Builds a list from the elements that each of `write` appends.
    pub(crate) fn write_list(
        kind: Kind,
        freshness: Freshness,
        capacity: usize,
        write: impl IntoIterator<Item = impl FnOnce(&mut Vec<u8>)>,
    ) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        let mut spans = Vec::new();
        bytes.extend_from_slice(format!("{{\"{}\":", kind.member()).as_bytes());
        let begin = bytes.len();
        bytes.push(b'[');
        for write in write {
            if !spans.is_empty() {
                bytes.push(b',');
            }
            let start = bytes.len() - begin;
            write(&mut bytes);
            spans.push(start..bytes.len() - begin);
        }
        bytes.extend_from_slice(b"]}");
        let object = Bytes::from(bytes);
        let bytes = object.slice(begin..object.len() - 1);
        let digest = sha256(&bytes);
        Self { object, bytes, spans, digest, freshness, legacy: None }
    }

    /// The list with other elements for Legacy clients: those that `rewrite` returns.
    pub(crate) fn with_legacy_form(
        mut self,
        kind: Kind,
        rewrite: impl Fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Self {
        let write = self.items().map(|item| {
            let written = rewrite(&item).map_or(item, Bytes::from);
            move |out: &mut Vec<u8>| out.extend_from_slice(&written)
        });
        let legacy = Self::write_list(kind, self.freshness, self.bytes.len(), write);
        self.legacy = Some(Box::new(legacy));
        self
    }

    /// The list for clients of an era.
    #[inline]
    pub fn for_era(&self, era: Era) -> &Self {
        self.legacy.as_deref().filter(|_| era == Era::Legacy).unwrap_or(self)
    }

    /// The JSON array of all elements.
    #[inline]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The object with the array as its only member: the complete result of a
    /// list request that has nothing to add.
    #[inline]
    pub fn list_result(&self) -> &Bytes {
        &self.object
    }

    /// The number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns true if the list is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The JSON of each element.
    #[inline]
    pub fn items(&self) -> impl Iterator<Item = Bytes> {
        self.spans.iter().map(|span| self.bytes.slice(span.clone()))
    }

    /// The JSON of the element at this position.
    #[inline]
    pub fn item(&self, place: usize) -> Option<Bytes> {
        self.spans.get(place).map(|span| self.bytes.slice(span.clone()))
    }

    /// At most `size` elements from a position on. A position past the end
    /// gives an empty last page.
    pub fn page(&self, from: Option<ListPosition>, size: NonZeroUsize) -> ListPage {
        let start = from.map_or(0, |position| position.0).min(self.spans.len());
        let end = start.saturating_add(size.get()).min(self.spans.len());
        let next = (end < self.spans.len()).then_some(ListPosition(end));
        if start == 0 && next.is_none() {
            return ListPage { items: self.bytes.clone(), next };
        }
        let shown = self.spans.get(start..end).unwrap_or_default();
        let bytes = match (shown.first(), shown.last()) {
            (Some(first), Some(last)) => self.bytes.get(first.start..last.end),
            _ => None,
        };
        let items = [b"[", bytes.unwrap_or_default(), b"]"].concat().into();
        ListPage { items, next }
    }

    /// The digest of the list: it changes if and only if a client would see a
    /// change.
    #[inline]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The time for which the list is fresh, and its audience: the strictest of the servers'
    /// values.
    #[inline]
    pub fn freshness(&self) -> Freshness {
        self.freshness
    }
}
