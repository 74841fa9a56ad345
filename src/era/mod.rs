//! Pure rewrites between the eras.
//!
//! [`lift`] makes Legacy things Modern, [`lower`] makes Modern things Legacy.
//! Both take bytes and give bytes: no connection, no clock, no state. What
//! need not change is not touched, and where nothing has to change at all the
//! bytes that came are the bytes that go.

pub mod lift;
pub mod lower;
mod meta;
pub mod news;

use bytes::Bytes;

use crate::call::{Edits, Params};
use crate::jsonrpc::Splice;

/// Params with the edits that the catalog asks for and another `_meta`.
///
/// `_meta` is left as it is where `meta` is `None`.
fn rewritten(params: &Params, edits: &Edits, meta: Option<Bytes>) -> Bytes {
    if edits.is_empty() && meta.is_none() {
        return params.raw().clone();
    }
    let mut splice = Splice::new(params.raw());
    for (span, json) in edits {
        splice.replace(span.clone(), json.clone());
    }
    match (meta, params.meta_span()) {
        (Some(meta), Some(span)) => {
            splice.replace(span, meta);
        }
        (Some(meta), None) if meta != "{}" => {
            splice.prepend(&[b"\"_meta\":", &meta[..]].concat());
        }
        _ => {}
    }
    splice.finish()
}
