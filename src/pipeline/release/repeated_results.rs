//! Large results that a client already has: in a profile with `repeated_results = "reference"` they
//! are not sent again.
//!
//! There are two ways to know the client's results. A Legacy session remembers the results sent in
//! it. A client of either era may list the results that it holds in the `_meta` of each call, by
//! the digests that came with them; a Modern client has no session and must do so.
//!
//! Only tools annotated as read-only by their servers are concerned: a model that has lost a result
//! makes the call again.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use serde_json::value::RawValue;

use crate::call::{
    Call, Failure, Params, ParamsFault, ResultBody, ResultDigest, ResultType, SentResults,
    text_content,
};
use crate::crypto::sha256;
use crate::jsonrpc::{Members, object_of, string};
use crate::mcp::{Method, meta};
use crate::pipeline::route::Route;
use crate::snapshot::View;
use crate::telemetry::metrics::{ServerMetric, ServerMetrics};

/// Decides whether a client needs the result of one call.
pub(crate) struct RepeatWatch {
    known: KnownResults,
    /// The client checks `structuredContent` against an `outputSchema`.
    has_output_schema: bool,
    metrics: Arc<ServerMetrics>,
}

enum KnownResults {
    /// Results sent in the session, and the digest of this call.
    Sent(Arc<SentResults>, ResultDigest),
    /// Digests of the results that the client lists as held.
    Held(Vec<String>),
}

impl RepeatWatch {
    /// Prepares the check for a call; `None` if the client gets every result of the call.
    ///
    /// # Errors
    /// [`Failure::InvalidMeta`] if the client's list of held results is malformed.
    pub(super) fn for_call(
        call: &Call,
        route: &Route<'_>,
        view: &View,
    ) -> Result<Option<Box<Self>>, Failure> {
        if !view.refers_to_repeats || call.method != Method::ToolsCall {
            return Ok(None);
        }
        let Some(tool) = route.tool.filter(|tool| tool.hints().read_only == Some(true)) else {
            return Ok(None);
        };
        let held = held_results(&call.params).map_err(Failure::InvalidMeta)?;
        let known = match (held, &call.context.sent) {
            (Some(held), _) => KnownResults::Held(held),
            (None, Some(sent)) => {
                KnownResults::Sent(Arc::clone(sent), digest_of_call(&call.params))
            }
            (None, None) => return Ok(None),
        };
        let metrics = Arc::clone(&route.member.metrics);
        Ok(Some(Box::new(Self { known, has_output_schema: tool.has_output_schema(), metrics })))
    }

    /// Returns the replacement of a result; `None` if the client gets the result as it is.
    pub(crate) fn replace(&self, result: &ResultBody) -> Option<Bytes> {
        if *result.kind() != ResultType::Complete || result.is_error() {
            return None;
        }
        let members = Members::parse(result.raw()).ok()?;
        let texts = [CONTENT_MEMBER, STRUCTURED_CONTENT]
            .map(|name| members.find(name).map_or("", RawValue::get));
        let size = texts.iter().map(|text| text.len()).sum::<usize>();
        if size < MIN_REPEATED_BYTES {
            return None;
        }
        let digest = digest_of(texts.map(str::as_bytes));
        let (is_known, name) = match &self.known {
            KnownResults::Sent(sent, call) => (sent.note(*call, digest), None),
            KnownResults::Held(held) => {
                let name = HEXLOWER.encode(&digest);
                (held.contains(&name), Some(name))
            }
        };
        if is_known {
            self.metrics.count(ServerMetric::RepeatedResults);
        }
        let content = is_known.then(|| text_content(&describe_repeat(name.as_deref(), size)));
        let meta = name.map(|name| named_meta(members.find(meta::META), &name));
        (content.is_some() || meta.is_some())
            .then(|| self.rewrite(&members, content.as_deref(), meta.as_deref()).into())
    }

    /// Rebuilds the result with other content, other metadata, or both.
    fn rewrite(&self, members: &Members<'_>, content: Option<&str>, meta: Option<&str>) -> Vec<u8> {
        let replaced = |name: &str| match name {
            CONTENT_MEMBER => content,
            STRUCTURED_CONTENT if !self.has_output_schema => content,
            meta::META => meta,
            _ => None,
        };
        let kept = members.0.iter().filter(|(name, _)| replaced(name).is_none());
        let kept = kept.map(|(name, value)| (&**name, Cow::Borrowed(value.get())));
        let new = [(CONTENT_MEMBER, content), (meta::META, meta)].into_iter();
        let new = new.filter_map(|(name, value)| Some((name, Cow::Borrowed(value?))));
        object_of(kept.chain(new).collect::<Vec<_>>())
    }
}

/// Returns the digests of the results that a client lists as held; `None` without such a list.
fn held_results(params: &Params) -> Result<Option<Vec<String>>, ParamsFault> {
    let meta = params.meta_span().and_then(|span| params.raw().get(span));
    let members = meta.and_then(|raw| Members::parse(raw).ok());
    let Some(held) = members.and_then(|members| members.find(meta::HELD_RESULTS)) else {
        return Ok(None);
    };
    let held = serde_json::from_str::<Vec<String>>(held.get()).ok();
    let held = held.filter(|held| held.len() <= MAX_HELD_RESULTS);
    held.map(Some).ok_or(ParamsFault::Kind {
        member: "_meta dev.trunkline/heldResults",
        kind: "an array of at most 256 strings",
    })
}

/// Builds metadata with the digest of a result.
fn named_meta(own: Option<&RawValue>, name: &str) -> String {
    let own = own.and_then(|own| Members::parse(own.get().as_bytes()).ok());
    let own = own.map(|members| members.0).unwrap_or_default();
    let kept = own.iter().filter(|(key, _)| key != meta::RESULT_DIGEST);
    let kept = kept.map(|(key, value)| (&**key, Cow::Borrowed(value.get())));
    let digest = [(meta::RESULT_DIGEST, Cow::Owned(string(name)))];
    String::from_utf8(object_of(kept.chain(digest).collect::<Vec<_>>())).unwrap_or_default()
}

/// Describes a repeated result of this size for the model: one that the client holds under a name,
/// or one that was sent in the session.
fn describe_repeat(name: Option<&str>, size: usize) -> String {
    match name {
        Some(name) => {
            format!("The result is the same as {name} ({size} bytes), and is not sent again.")
        }
        None => format!(
            "The result is the same as the last time that this call was made in this session \
             ({size} bytes), and is not sent again. If you no longer have it, make the same call \
             once more: it is sent then."
        ),
    }
}

fn digest_of_call(params: &Params) -> ResultDigest {
    digest_of([
        params.name().unwrap_or_default().as_bytes(),
        params.arguments().unwrap_or_default(),
    ])
}

fn digest_of(parts: [&[u8]; 2]) -> ResultDigest {
    let whole = sha256(&parts.map(sha256).concat());
    let mut digest = ResultDigest::default();
    digest.copy_from_slice(whole.split_at(size_of::<ResultDigest>()).0);
    digest
}

const CONTENT_MEMBER: &str = "content";
const STRUCTURED_CONTENT: &str = "structuredContent";
/// Minimum size of a large result: about a thousand tokens.
const MIN_REPEATED_BYTES: usize = 4096;
/// Limit of the results that a client may list as held.
const MAX_HELD_RESULTS: usize = 256;
