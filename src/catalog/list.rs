//! One list of the catalog, as bytes that are ready to be sent.

use std::num::NonZeroUsize;
use std::ops::Range;

use bytes::Bytes;

use crate::crypto::sha256;

use super::kind::Kind;
use super::server_list::Freshness;

/// SHA-256 of a listing.
pub type Digest = [u8; 32];

/// How many elements come before a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPosition(pub usize);

/// A part of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage {
    /// The JSON array of its elements.
    pub items: Bytes,
    /// Where the next page begins, if there is one.
    pub next: Option<ListPosition>,
}

/// A JSON array and where its elements stand.
#[derive(Debug)]
pub struct CatalogList {
    /// The array, as the only member of an object.
    object: Bytes,
    bytes: Bytes,
    /// Within `bytes`.
    spans: Vec<Range<usize>>,
    digest: Digest,
    freshness: Freshness,
}

impl CatalogList {
    /// A list of what each of `write` appends.
    pub(super) fn write_list(
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
        Self { object, bytes, spans, digest, freshness }
    }

    /// The JSON array of all elements.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The object whose only member it is: what a list request is answered with
    /// that has no more to say.
    pub fn list_result(&self) -> &Bytes {
        &self.object
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The elements from a position on, at most `size` of them. A position
    /// behind the end gives an empty last page.
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

    /// Tells one list from another: it changes when a client would see a
    /// change, and only then.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// How long the list is fresh and for whom: the strictest of what the
    /// servers said.
    pub fn freshness(&self) -> Freshness {
        self.freshness
    }
}
