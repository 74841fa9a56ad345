//! Results of list requests, prepared once for each era.

use bytes::{BufMut, Bytes, BytesMut};

use crate::catalog::{CatalogList, Freshness, Kind};
use crate::mcp::{Era, meta};

/// The results of one kind of list request, without envelopes.
#[derive(Debug, Clone)]
pub struct PreparedListing {
    kind: Kind,
    modern: Bytes,
    legacy: Bytes,
    /// The members of a Modern result after its list.
    tail: Bytes,
}

impl PreparedListing {
    /// Prepares the whole list. `info` is the gateway's raw `serverInfo`. `most` bounds the list's
    /// freshness and cache scope.
    pub fn prepare(kind: Kind, list: &CatalogList, most: Freshness, info: &[u8]) -> Self {
        let tail = tail(list.freshness().stricter(most), info);
        let items = list.bytes();
        let modern = modern(kind, items, None, &tail);
        let legacy = list.for_era(Era::Legacy).list_result().clone();
        Self { kind, modern, legacy, tail }
    }

    /// Returns the whole list.
    pub fn whole(&self, era: Era) -> &Bytes {
        match era {
            Era::Modern => &self.modern,
            Era::Legacy => &self.legacy,
        }
    }

    /// Returns one page of the list.
    pub fn page(&self, era: Era, items: &[u8], next: Option<&str>) -> Bytes {
        match era {
            Era::Modern => modern(self.kind, items, next, &self.tail),
            Era::Legacy => legacy(self.kind, items, next),
        }
    }
}

fn modern(kind: Kind, items: &[u8], next: Option<&str>, tail: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(items.len() + tail.len() + 64);
    out.put_slice(b"{\"resultType\":\"complete\",");
    put_items(&mut out, kind, items, next);
    out.put_slice(tail);
    out.put_u8(b'}');
    out.freeze()
}

fn legacy(kind: Kind, items: &[u8], next: Option<&str>) -> Bytes {
    let mut out = BytesMut::with_capacity(items.len() + 64);
    out.put_u8(b'{');
    put_items(&mut out, kind, items, next);
    out.put_u8(b'}');
    out.freeze()
}

fn put_items(out: &mut BytesMut, kind: Kind, items: &[u8], next: Option<&str>) {
    out.put_u8(b'"');
    out.put_slice(kind.member().as_bytes());
    out.put_slice(b"\":");
    out.put_slice(items);
    put_cursor(out, next);
}

fn put_cursor(out: &mut BytesMut, next: Option<&str>) {
    // A sealed cursor is base64url, which needs no escapes.
    if let Some(next) = next {
        out.put_slice(b",\"nextCursor\":\"");
        out.put_slice(next.as_bytes());
        out.put_u8(b'"');
    }
}

fn tail(freshness: Freshness, info: &[u8]) -> Bytes {
    let (ttl, scope) = (freshness.ttl.as_millis(), freshness.scope.as_str());
    let mut out = BytesMut::new();
    out.put_slice(
        format!(
            ",\"ttlMs\":{ttl},\"cacheScope\":\"{scope}\",\"_meta\":{{\"{}\":",
            meta::SERVER_INFO
        )
        .as_bytes(),
    );
    out.put_slice(info);
    out.put_u8(b'}');
    out.freeze()
}
