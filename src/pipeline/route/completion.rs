//! `completion/complete`: the prompt or the resource template that `ref` names.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::call::{Edits, Failure, Params};
use crate::catalog::PublicReference;
use crate::jsonrpc::{object, span_of, string, text};
use crate::snapshot::View;

/// The parsed `ref`.
enum Reference {
    Prompt(RawName),
    Resource(RawName),
}

/// A name or URI as written in the params, and its position.
struct RawName {
    text: String,
    span: Range<usize>,
}

/// Finds the prompt or resource template of a completion.
///
/// # Errors
/// [`Failure::InvalidParams`], and the failure of an unknown prompt or resource.
pub(super) fn find(view: &View, params: &Params) -> Result<PublicReference, Failure> {
    match read_reference(params)? {
        Reference::Prompt(name) => {
            let origin = super::find_prompt(view, &name.text)?.clone();
            Ok(PublicReference { origin, bound: Arc::default() })
        }
        Reference::Resource(uri) => {
            let found = view.catalog.uris().reference(&uri.text);
            found.ok_or_else(|| super::unknown_resource(&uri.text))
        }
    }
}

/// The edits that make the params a completion of `native` at its server.
pub(super) fn edits(params: &Params, native: &str, bound: &[(String, String)]) -> Box<Edits> {
    // `find` has read it before; without it there is no route.
    let Ok(Reference::Prompt(public) | Reference::Resource(public)) = read_reference(params) else {
        return Box::default();
    };
    let renamed = (public.text != native).then(|| (public.span, string(native).into()));
    renamed.into_iter().chain(bind_variables(params, bound)).collect()
}

fn read_reference(params: &Params) -> Result<Reference, Failure> {
    #[derive(Deserialize)]
    struct RawReference<'a> {
        #[serde(borrow, rename = "type")]
        kind: &'a RawValue,
        #[serde(borrow, default)]
        name: Option<&'a RawValue>,
        #[serde(borrow, default)]
        uri: Option<&'a RawValue>,
    }
    let invalid =
        |detail: &str| Failure::InvalidParams { detail: format!("invalid params: {detail}") };
    let raw = params.reference_span().and_then(|span| params.raw().get(span));
    let raw = raw.ok_or_else(|| invalid("`ref` is missing"))?;
    let raw: RawReference<'_> =
        object(raw).map_err(|error| invalid(&format!("`ref` cannot be read: {error}")))?;
    let name = |raw: Option<&RawValue>, member| {
        let text = raw.and_then(|raw| Some(text(raw)?.into_owned()));
        let span = raw.and_then(|raw| span_of(params.raw(), raw.get().as_bytes()));
        text.zip(span)
            .map(|(text, span)| RawName { text, span })
            .ok_or_else(|| invalid(&format!("`ref.{member}` is missing or no string")))
    };
    match text(raw.kind).as_deref() {
        Some("ref/prompt") => name(raw.name, "name").map(Reference::Prompt),
        Some("ref/resource") => name(raw.uri, "uri").map(Reference::Resource),
        _ => Err(invalid("`ref.type` must be \"ref/prompt\" or \"ref/resource\"")),
    }
}

/// Adds the variables that the configuration binds to the arguments that the
/// client has already chosen (`context.arguments`).
fn bind_variables(params: &Params, bound: &[(String, String)]) -> Option<(Range<usize>, Bytes)> {
    #[derive(Deserialize)]
    struct WithContext<'a> {
        #[serde(borrow, default)]
        context: Option<&'a RawValue>,
    }
    if bound.is_empty() {
        return None;
    }
    let read: WithContext<'_> = object(params.raw()).ok()?;
    let context = read.context.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let mut context: Map<String, Value> = context.unwrap_or_default();
    let arguments = context.remove("arguments");
    let mut arguments = arguments.and_then(|it| it.as_object().cloned()).unwrap_or_default();
    arguments.extend(bound.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))));
    context.insert("arguments".into(), Value::Object(arguments));
    let context = Value::Object(context);
    if let Some(raw) = read.context {
        return Some((span_of(params.raw(), raw.get().as_bytes())?, context.to_string().into()));
    }
    // After `ref`, which is present.
    let end = params.reference_span()?.end;
    Some((end..end, format!(",\"context\":{context}").into()))
}
