//! The answer to `tools/list`, prepared once for each era.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use crate::catalog::{CacheScope, Catalog, Freshness};
use crate::mcp::{Era, meta};

/// Results of `tools/list` without their envelope.
#[derive(Debug, Clone)]
pub struct Listing {
    modern: Bytes,
    legacy: Bytes,
    /// What a Modern result says after its tools.
    tail: Bytes,
}

impl Listing {
    /// Prepares the whole list. `info` is the gateway's raw `serverInfo`;
    /// nothing is told fresh for longer than `most`.
    pub fn prepare(catalog: &Catalog, most: Duration, info: &[u8]) -> Self {
        let tail = tail(catalog.freshness(), most, info);
        let tools = catalog.listing();
        Self { modern: modern(tools, None, &tail), legacy: legacy(tools, None), tail }
    }

    /// The whole list.
    pub fn whole(&self, era: Era) -> &Bytes {
        match era {
            Era::Modern => &self.modern,
            Era::Legacy => &self.legacy,
        }
    }

    /// One page of it.
    pub fn page(&self, era: Era, tools: &[u8], next: Option<&str>) -> Bytes {
        match era {
            Era::Modern => modern(tools, next, &self.tail),
            Era::Legacy => legacy(tools, next),
        }
    }
}

fn modern(tools: &[u8], next: Option<&str>, tail: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(tools.len() + tail.len() + 64);
    out.put_slice(b"{\"resultType\":\"complete\",\"tools\":");
    out.put_slice(tools);
    put_cursor(&mut out, next);
    out.put_slice(tail);
    out.put_u8(b'}');
    out.freeze()
}

fn legacy(tools: &[u8], next: Option<&str>) -> Bytes {
    let mut out = BytesMut::with_capacity(tools.len() + 64);
    out.put_slice(b"{\"tools\":");
    out.put_slice(tools);
    put_cursor(&mut out, next);
    out.put_u8(b'}');
    out.freeze()
}

fn put_cursor(out: &mut BytesMut, next: Option<&str>) {
    // A sealed cursor is base64url: nothing in it needs an escape.
    if let Some(next) = next {
        out.put_slice(b",\"nextCursor\":\"");
        out.put_slice(next.as_bytes());
        out.put_u8(b'"');
    }
}

fn tail(freshness: Freshness, most: Duration, info: &[u8]) -> Bytes {
    let ttl = freshness.ttl.min(most).as_millis();
    let scope = match freshness.scope {
        CacheScope::Public => "public",
        CacheScope::Private => "private",
    };
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
