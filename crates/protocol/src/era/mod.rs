//! Pure rewrites between the eras.
//!
//! [`lift`] rewrites Legacy messages as Modern, [`lower`] Modern messages as Legacy. Both take
//! bytes and return bytes, and use no connection, no clock and no state. They rewrite only the
//! differences between the eras; a message that needs no change is returned unchanged. [`state`]
//! seals the `requestState` that a client holds while a server waits for its input; the caller
//! passes the time.

pub mod lift;
pub mod lower;
mod meta;
pub mod change_notification;
pub mod state;
pub mod tasks;

use bytes::Bytes;

use trunkline_jsonrpc::{Members, Splice};

use crate::call::{Edits, Params, Question};
use crate::mcp::meta::{META, PROGRESS_TOKEN};

/// Applies the catalog's edits to params, and replaces their `_meta`.
///
/// `_meta` is unchanged if `meta` is `None`.
fn rewritten<'a>(params: &'a Params, edits: &Edits, meta: Option<Bytes>) -> Splice<'a> {
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
    splice
}

/// An input request without progress tokens and client-side tasks, which the gateway does not carry
/// between a server and a client. The client answers without them.
fn without_progress(question: &Question) -> Question {
    let mut question = question.clone();
    let Some(params) = &question.params else { return question };
    let Ok(members) = Members::parse(params) else { return question };
    let meta = members.find(META).map(|meta| meta.get().as_bytes());
    let token = meta.and_then(|meta| Members::parse(meta).ok()?.find(PROGRESS_TOKEN));
    if token.is_some() {
        let meta = meta::rewrite(meta, &[PROGRESS_TOKEN], &[]);
        let drop = if meta == "{}" { [META, TASK_PARAM] } else { [TASK_PARAM, TASK_PARAM] };
        let add: &[(&str, &[u8])] = if meta == "{}" { &[] } else { &[(META, &meta)] };
        question.params = Some(meta::rewrite(Some(params), &drop, add));
    } else if members.find(TASK_PARAM).is_some() {
        question.params = Some(meta::rewrite(Some(params), &[TASK_PARAM], &[]));
    }
    question
}

/// Requests a task instead of an immediate result.
const TASK_PARAM: &str = "task";

#[cfg(test)]
mod tests;
