//! A tool's result as clients get it: checked, with its message, within its size.
//!
//! The order matters: the server's own bytes are checked, then texts are made from them, and the
//! output is stripped and cut. So a text that is made from others cannot bring back stripped
//! characters.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::call::{ResultBody, ResultType, ServerName, text_content, tool_error};
use crate::catalog::ResultTransform;
use crate::config::{FormatChoice, OutputCheck, ResultBounds, WhenLarger};
use crate::jsonrpc::{MAX_SERVER_DEPTH, Members, Splice, object_of, parse_strict};
use crate::telemetry::log::SharedFaultLog;

use super::clean::strip_texts;
use super::contents::change_contents;
use super::message::put_message;
use super::size::{KeepWhole, SizeLimit, limit_size};

/// Changes a result as configured; `None` if it stays as it is, like every result that does not end
/// the call.
pub fn shape_result(
    transform: &ResultTransform,
    server: &ServerName,
    result: &ResultBody,
    keep: &KeepWhole<'_>,
) -> Option<Bytes> {
    if *result.kind() != ResultType::Complete {
        return None;
    }
    // With a duplicate key, the gateway could check one value and the client use another one.
    if let Err(error) = parse_strict(result.raw(), MAX_SERVER_DEPTH) {
        let text = format!("The server's result cannot be used: {error}");
        return Some(tool_error(&text).into());
    }
    let members = Members::parse(result.raw()).ok()?;
    if is_created_task(&members) {
        return None;
    }
    if !result.is_error()
        && let Some(refusal) = check_output(transform, server, &members)
    {
        return Some(refusal.into());
    }
    let mut shaped = Cow::Borrowed(&result.raw()[..]);
    let settings = &transform.settings.result;
    if settings.makes_message() && !result.is_error() {
        let made = put_message(settings, &members, transform.has_output_schema());
        if !made.missing.is_empty() && transform.warns_first() {
            let (tool, missing) = (transform.native(), made.missing.join(" "));
            tracing::warn!(%server, %tool, missing, "a result lacks values for its message template");
        }
        replace(&mut shaped, made.raw);
    }
    if transform.settings.drops_structured() {
        let dropped = drop_structured(&shaped);
        replace(&mut shaped, dropped);
    }
    let changed = change_members(&shaped, |name, value| match name {
        "_meta" => None,
        name => change_member(name, value, &settings.bounds),
    });
    replace(&mut shaped, changed);
    if let Some(max_size) = settings.bounds.max_size {
        let when_larger = settings.bounds.when_larger.unwrap_or(WhenLarger::Truncate);
        let fits = |structured: &str| fits_output_schema(transform, structured);
        let limited = limit_size(&shaped, &SizeLimit { max_size, when_larger, fits: &fits, keep });
        replace(&mut shaped, limited);
    }
    match shaped {
        Cow::Owned(shaped) => Some(shaped.into()),
        Cow::Borrowed(_) => None,
    }
}

/// Changes the result within a task of the extension; `None` if there is none, or it stays as it
/// is.
pub fn shape_task(
    transform: &ResultTransform,
    server: &ServerName,
    task: &[u8],
    keep: &KeepWhole<'_>,
) -> Option<Bytes> {
    let members = Members::parse_with_duplicates(task).ok()?;
    let mut splice = Splice::new(task);
    // A client may read any of them.
    for inner in members.find_all("result") {
        let raw = inner.get().as_bytes();
        let body = ResultBody::parse(Bytes::copy_from_slice(raw)).ok();
        if let Some(shaped) = body.and_then(|body| shape_result(transform, server, &body, keep)) {
            splice.replace_part(raw, shaped);
        }
    }
    splice.finish_edited()
}

fn replace(shaped: &mut Cow<'_, [u8]>, changed: Option<Vec<u8>>) {
    if let Some(changed) = changed {
        *shaped = Cow::Owned(changed);
    }
}

/// Returns true if a Legacy server has made a task of the call. Its result comes later.
fn is_created_task(members: &Members<'_>) -> bool {
    let is_absent = |name| members.find(name).is_none();
    !is_absent("task") && is_absent("content") && is_absent(STRUCTURED_CONTENT)
}

/// Returns the result with other members: an empty replacement drops the member. `None` if no
/// member changes.
fn change_members(
    raw: &[u8],
    change: impl Fn(&str, &RawValue) -> Option<String>,
) -> Option<Vec<u8>> {
    let members = Members::parse(raw).ok()?;
    let mut has_changed = false;
    let changed = members.0.iter().filter_map(|(name, value)| {
        let changed = change(name, value);
        has_changed |= changed.is_some();
        let value = changed.map_or(Cow::Borrowed(value.get()), Cow::Owned);
        (!value.is_empty()).then_some((&**name, value))
    });
    let changed: Vec<_> = changed.collect();
    has_changed.then(|| object_of(changed))
}

/// Drops the structured content of a result. It becomes the text if the result has no other
/// content.
fn drop_structured(raw: &[u8]) -> Option<Vec<u8>> {
    let members = Members::parse(raw).ok()?;
    let structured = members.find(STRUCTURED_CONTENT)?;
    let content = members.find(CONTENT_MEMBER).map(RawValue::get);
    let items = content.and_then(|items| serde_json::from_str::<Vec<&RawValue>>(items).ok());
    let text = items.is_none_or(|items| items.is_empty()).then(|| text_content(structured.get()));
    let kept = members.0.iter().filter(|(name, _)| name != STRUCTURED_CONTENT);
    let kept = kept.filter(|(name, _)| name != CONTENT_MEMBER || text.is_none());
    let kept = kept.map(|(name, value)| (&**name, Cow::Borrowed(value.get())));
    let text = text.as_ref().map(|text| (CONTENT_MEMBER, Cow::Borrowed(text.as_str())));
    Some(object_of(kept.chain(text).collect::<Vec<_>>()))
}

/// Changes a member: strips characters, drops types that are not allowed, and formats its texts.
fn change_member(name: &str, value: &RawValue, bounds: &ResultBounds) -> Option<String> {
    let format = bounds.format.unwrap_or(FormatChoice::Json);
    let allowed = bounds.mime_types.as_deref();
    let changed =
        (name == CONTENT_MEMBER).then(|| change_contents(value.get(), format, allowed)).flatten();
    let strip = bounds.strip.as_deref().unwrap_or_default();
    strip_texts(changed.as_deref().unwrap_or(value.get()), strip).or(changed)
}

/// Returns the replacement of a result that violates its tool's output schema, where that is
/// enforced.
fn check_output(
    transform: &ResultTransform,
    server: &ServerName,
    members: &Members<'_>,
) -> Option<Vec<u8>> {
    let choice = transform.settings.check_output.unwrap_or(OutputCheck::Off);
    if choice == OutputCheck::Off {
        return None;
    }
    let violations = find_violations(transform, server, members)?;
    let tool = transform.native();
    if let Some(violations) = OUTPUT_FAULTS.note_about(&format!("{server} {tool}"), &violations) {
        tracing::warn!(%server, %tool, violations, "a result does not fit the tool's outputSchema");
    }
    let text = "The server's result does not fit the output schema of its tool";
    (choice == OutputCheck::Enforce).then(|| tool_error(&format!("{text}: {violations}")))
}

/// Describes the violations of the tool's output schema; `None` if the result fits, or there is no
/// usable schema.
fn find_violations(
    transform: &ResultTransform,
    server: &ServerName,
    members: &Members<'_>,
) -> Option<String> {
    let schema = match transform.output_schema() {
        Ok(schema) => schema?,
        Err(error) => {
            if transform.warns_first() {
                let tool = transform.native();
                tracing::warn!(%server, %tool, "results are not checked: outputSchema {error}");
            }
            return None;
        }
    };
    let Some(structured) = members.find(STRUCTURED_CONTENT) else {
        return Some("structuredContent is missing".to_owned());
    };
    let violations = schema.check(Some(structured.get().as_bytes())).err()?;
    Some(violations.lines.join("; "))
}

/// Returns true if structured content that was cut still fits the schema that clients see.
fn fits_output_schema(transform: &ResultTransform, structured: &str) -> bool {
    match transform.output_schema() {
        Ok(Some(schema)) => schema.check(Some(structured.as_bytes())).is_ok(),
        Ok(None) | Err(_) => true,
    }
}

pub(super) const CONTENT_MEMBER: &str = "content";
pub(super) const STRUCTURED_CONTENT: &str = "structuredContent";

/// Results that do not fit their tools' schemas.
static OUTPUT_FAULTS: SharedFaultLog = SharedFaultLog::holding(MAX_FAULTY_TOOLS);
/// Maximum number of tools whose faults are counted.
const MAX_FAULTY_TOOLS: usize = 64;

#[cfg(test)]
mod tests;
