//! A tool's result as clients get it: checked, with its message, within its size.

use std::borrow::Cow;

use bytes::Bytes;

use super::clean::strip_texts;
use super::contents::change_contents;
use super::message::put_message;
use super::size::limit_size;
use crate::call::{ResultBody, ResultType, ServerName, tool_error};
use crate::catalog::ResultTransform;
use crate::config::{FormatChoice, OutputCheck, TransformSettings, WhenLarger};
use crate::jsonrpc::{Members, object_of};

/// Changes a result as the configuration says; `None` if it stays as it is, like every result that
/// does not end the call.
pub fn shape_result(
    transform: &ResultTransform,
    server: &ServerName,
    result: &ResultBody,
) -> Option<Bytes> {
    let members = Members::parse_with_duplicates(result.raw()).ok()?;
    if *result.kind() != ResultType::Complete || members.find("content").is_none() {
        return None;
    }
    let (tool, settings) = (transform.native(), &transform.settings);
    if !result.is_error()
        && let Some(violations) = find_violations(transform, &members)
    {
        tracing::warn!(%server, %tool, violations, "a result does not fit the tool's outputSchema");
        if settings.check_output == Some(OutputCheck::Enforce) {
            let text = "The server's result does not fit the output schema of its tool";
            return Some(tool_error(&format!("{text}: {violations}")).into());
        }
    }
    let mut shaped = change_members(&members, settings);
    if settings.result.makes_message() && !result.is_error() {
        let raw = shaped.as_deref().unwrap_or(result.raw());
        if let Some(made) =
            put_message(&settings.result, &Members::parse_with_duplicates(raw).ok()?)
        {
            if !made.missing.is_empty() && transform.warns_first() {
                let missing = made.missing.join(" ");
                tracing::warn!(%server, %tool, missing, "a result lacks values of its template");
            }
            shaped = Some(made.raw);
        }
    }
    if let Some(max_size) = settings.result.bounds.max_size {
        let when_larger = settings.result.bounds.when_larger.unwrap_or(WhenLarger::Truncate);
        let raw = shaped.as_deref().unwrap_or(result.raw());
        shaped = limit_size(raw, max_size, when_larger).or(shaped);
    }
    shaped.map(Bytes::from)
}

/// The result without what is stripped or not allowed, and with its texts in their format.
fn change_members(members: &Members<'_>, settings: &TransformSettings) -> Option<Vec<u8>> {
    let bounds = &settings.result.bounds;
    let strip = bounds.strip.as_deref().unwrap_or_default();
    let format = bounds.format.unwrap_or(FormatChoice::Json);
    let mut has_changed = false;
    let changed = members.0.iter().map(|(name, value)| {
        let is_content = &**name == "content";
        let mut raw = Cow::Borrowed(value.get());
        if (is_content || &**name == "structuredContent")
            && let Some(stripped) = strip_texts(&raw, strip)
        {
            raw = Cow::Owned(stripped);
        }
        if is_content
            && let Some(changed) = change_contents(&raw, format, bounds.mime_types.as_deref())
        {
            raw = Cow::Owned(changed);
        }
        has_changed |= matches!(raw, Cow::Owned(_));
        (&**name, raw)
    });
    let changed: Vec<_> = changed.collect();
    has_changed.then(|| object_of(changed))
}

/// How a result violates its tool's output schema; `None` if it fits, or is not checked.
fn find_violations(transform: &ResultTransform, members: &Members<'_>) -> Option<String> {
    if transform.settings.check_output.is_none_or(|check| check == OutputCheck::Off) {
        return None;
    }
    let schema = match transform.output_schema() {
        Ok(schema) => schema?,
        Err(error) => return Some(format!("it cannot be checked: {error}")),
    };
    let Some(structured) = members.find("structuredContent") else {
        return Some("structuredContent is missing".to_owned());
    };
    let violations = schema.check(Some(structured.get().as_bytes())).err()?;
    Some(violations.lines.join("; "))
}
