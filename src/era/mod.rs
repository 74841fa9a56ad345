//! Pure rewrites between the eras.
//!
//! [`lift`] makes Legacy things Modern, [`lower`] makes Modern things Legacy.
//! Both take bytes and give bytes: no connection, no clock, no state. What
//! need not change is not touched, and where nothing has to change at all the
//! bytes that came are the bytes that go.

pub mod lift;
pub mod lower;
mod meta;

use bytes::Bytes;

use crate::call::{NativeName, Params};
use crate::jsonrpc::{Splice, string};

/// Params with the native name and another `_meta`.
///
/// `_meta` is left as it is where `meta` is `None`.
fn rewritten(params: &Params, native: Option<&NativeName>, meta: Option<Bytes>) -> Bytes {
    let name = native.filter(|native| params.name() != Some(native.as_str()));
    if name.is_none() && meta.is_none() {
        return params.raw().clone();
    }
    let mut splice = Splice::new(params.raw());
    if let (Some(native), Some(span)) = (name, params.name_span()) {
        splice.replace(span, string(native.as_str()));
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
