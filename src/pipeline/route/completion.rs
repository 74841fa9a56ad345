//! `completion/complete`: the prompt or the resource template that `ref` names.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::call::{Edits, Failure, Params, ParamsFault};
use crate::catalog::PublicReference;
use crate::jsonrpc::{members, object, span_of, string, unquoted};
use crate::snapshot::View;

use crate::pipeline::input::unknown::unknown_resource;

use super::Requester;

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
pub(super) fn find(
    view: &View,
    params: &Params,
    asker: &Requester,
) -> Result<PublicReference, Failure> {
    match read_reference(params)? {
        Reference::Prompt(name) => {
            let origin = super::find_prompt(view, &name.text)?.clone();
            Ok(PublicReference { origin, bound: Arc::default() })
        }
        Reference::Resource(uri) => {
            let uris = view.catalog.uris();
            let found =
                uris.find_reference(&uri.text, &|server, native| asker.has_seen(server, native));
            let found = found.ok_or_else(|| unknown_resource(&uri.text))?;
            check_argument(params, &found)?;
            Ok(found)
        }
    }
}

/// Returns the public name of the prompt that a completion is for; `None` if it is for a resource.
pub(super) fn asked_prompt(params: &Params) -> Option<String> {
    match read_reference(params).ok()? {
        Reference::Prompt(name) => Some(name.text),
        Reference::Resource(_) => None,
    }
}

/// Returns the public URI of the resource or template that a completion is for.
pub(super) fn asked_resource(params: &Params) -> Option<String> {
    match read_reference(params).ok()? {
        Reference::Prompt(_) => None,
        Reference::Resource(uri) => Some(uri.text),
    }
}

/// Checks that the variable to be completed is not bound: the server would list the values of all
/// tenants.
fn check_argument(params: &Params, found: &PublicReference) -> Result<(), ParamsFault> {
    // Bound variables are added to the context, so duplicate members would be ambiguous.
    let [argument, _] = members(params.raw(), &["argument", "context"], usize::MAX)?;
    let Some(argument) = argument else { return Ok(()) };
    let [name] = members(argument, &["name"], usize::MAX)?;
    let name = name.and_then(unquoted);
    if found.bound.iter().any(|(bound, _)| Some(bound.as_str()) == name.as_deref()) {
        let (member, kind) = ("argument.name", "a variable of the resource template");
        return Err(ParamsFault::Kind { member, kind });
    }
    Ok(())
}

/// Returns the edits that turn the params into a completion of `native` at its server.
pub(super) fn edits(params: &Params, native: &str, bound: &[(String, String)]) -> Box<Edits> {
    // `find` has parsed it before; otherwise there is no route.
    let Ok(Reference::Prompt(public) | Reference::Resource(public)) = read_reference(params) else {
        return Box::default();
    };
    let renamed = (public.text != native).then(|| (public.span, string(native).into()));
    renamed.into_iter().chain(bind_variables(params, bound)).collect()
}

fn read_reference(params: &Params) -> Result<Reference, ParamsFault> {
    let raw = params.reference_span().and_then(|span| params.raw().get(span));
    let raw = raw.ok_or(ParamsFault::Missing { member: "ref" })?;
    let [kind, name, uri] = members(raw, &["type", "name", "uri"], usize::MAX)?;
    let string = |raw: Option<&[u8]>, member| {
        let text = raw.and_then(|raw| Some(unquoted(raw)?.into_owned()));
        text.zip(raw.and_then(|raw| span_of(params.raw(), raw)))
            .map(|(text, span)| RawName { text, span })
            .ok_or(ParamsFault::Kind { member, kind: "a string" })
    };
    match kind.and_then(unquoted).as_deref() {
        Some("ref/prompt") => string(name, "ref.name").map(Reference::Prompt),
        Some("ref/resource") => string(uri, "ref.uri").map(Reference::Resource),
        _ => Err(ParamsFault::Kind {
            member: "ref.type",
            kind: "\"ref/prompt\" or \"ref/resource\"",
        }),
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
