//! Arguments for a server, made from those of a client.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue};

use crate::call::{ArgumentsError, OtherViolations};
use crate::catalog::ToolTransform;
use crate::config::{ArgumentEdit, ArgumentValue, TextPart};
use crate::jsonrpc::{Members, object_of, string};
use crate::mcp::header::single_value;
use crate::text::escape_pointer_step;

/// Makes the server's arguments from the client's: under the server's names, with fixed and default
/// values, and without those that clients cannot set. The client's own values stay as they came.
///
/// # Errors
/// [`ArgumentsError`] if the request lacks a header that a required argument is taken from.
pub(crate) fn complete_arguments(
    transform: &ToolTransform,
    client: Option<&[u8]>,
    headers: &HeaderMap,
) -> Result<Vec<u8>, ArgumentsError> {
    let edits = &transform.settings.arguments.edits;
    let sent = Members::parse(client.unwrap_or(b"{}"));
    let sent = sent.map_err(|error| violation(format!("(root): json: {error}")))?;
    let mut complete: Vec<(&str, Cow<'_, str>)> = Vec::with_capacity(sent.0.len() + edits.len());
    for (name, value) in &sent.0 {
        if let Some(native) = native_name(edits, name) {
            complete.push((native, value.get().into()));
        }
    }
    for (name, edit) in edits.iter() {
        let default =
            edit.default.as_ref().filter(|_| !complete.iter().any(|(sent, _)| sent == name));
        if let Some(value) = edit.value.as_ref().or(default)
            && let Some(value) =
                configured_value(value, headers, || transform.required.contains(&**name))?
        {
            let coerced = transform.coerce_configured(name, &value);
            complete.push((name, coerced.map_or(value, Cow::Owned)));
        }
    }
    for (name, edit) in edits.iter() {
        let source = edit.from.as_ref();
        let copied = source.and_then(|source| complete.iter().find(|(other, _)| other == source));
        if let Some((_, value)) = copied.cloned() {
            complete.push((name, value));
        }
    }
    Ok(object_of(complete))
}

/// Translates violations of the server's own schema by completed arguments for the client: into the
/// names that it knows, without those of arguments that it does not see.
pub(crate) fn explain_to_client(
    transform: &ToolTransform,
    violations: ArgumentsError,
) -> ArgumentsError {
    let edits = &transform.settings.arguments.edits;
    let lines = violations.lines.into_iter().filter_map(|line| {
        let (path, rule) = line.split_once(": ")?;
        let first = path.strip_prefix('/')?.split('/').next()?;
        match edits.iter().find(|(name, _)| escape_pointer_step(name) == first) {
            Some((_, edit)) if edit.is_hidden() => None,
            Some((name, ArgumentEdit { rename: Some(public), .. })) => {
                let rest = path.get(1 + escape_pointer_step(name).len()..).unwrap_or_default();
                Some(format!("/{}{rest}: {rule}", escape_pointer_step(public)))
            }
            _ => Some(line),
        }
    });
    let lines: Vec<_> = lines.collect();
    if lines.is_empty() {
        return violation(UNEXPLAINED_VIOLATION.to_owned());
    }
    ArgumentsError { lines, others: violations.others }
}

/// Returns the server's name of an argument that a client sent; `None` for one that clients cannot
/// set.
fn native_name<'a>(edits: &'a [(String, ArgumentEdit)], sent: &'a str) -> Option<&'a str> {
    let shown = edits.iter().filter(|(_, edit)| !edit.is_hidden());
    let mut renamed = shown.filter(|(_, edit)| edit.rename.as_deref() == Some(sent));
    if let Some((native, _)) = renamed.next() {
        return Some(native);
    }
    let own = edits.iter().find(|(native, _)| native == sent);
    let is_known = own.is_none_or(|(_, edit)| !edit.is_hidden() && edit.rename.is_none());
    is_known.then_some(sent)
}

/// Returns the JSON of a configured value; `None` if the request has no such header and the
/// argument is optional.
fn configured_value<'a>(
    value: &'a ArgumentValue,
    headers: &HeaderMap,
    is_required: impl Fn() -> bool,
) -> Result<Option<Cow<'a, str>>, ArgumentsError> {
    let parts = match value {
        ArgumentValue::Literal(value) => return Ok(Some(value.to_string().into())),
        ArgumentValue::Substituted(secret) => return Ok(Some(secret.expose().into())),
        ArgumentValue::Text(parts) => parts,
    };
    let mut text = String::new();
    for part in parts {
        let name = match part {
            TextPart::Fixed(fixed) => {
                text.push_str(fixed.expose());
                continue;
            }
            TextPart::Header(name) => name,
        };
        let fault = match single_value(headers, name).map(|value| value.map(HeaderValue::to_str)) {
            Ok(Some(Ok(value))) => {
                text.push_str(value);
                continue;
            }
            Ok(None) if !is_required() => return Ok(None),
            Ok(None) => format!("the request has no header {name}"),
            Ok(Some(Err(_))) => {
                format!("the request's {name} has characters other than visible ASCII")
            }
            Err(_) => format!("the request has {name} twice"),
        };
        return Err(violation(format!("(root): header: {fault}")));
    }
    Ok(Some(string(&text).into()))
}

fn violation(line: String) -> ArgumentsError {
    ArgumentsError { lines: vec![line], others: OtherViolations::None }
}

/// Text if every violation concerns arguments that clients do not see.
const UNEXPLAINED_VIOLATION: &str = "(root): the arguments, with those that the gateway is configured to \
                           add, do not fit the expectations of the server";

#[cfg(test)]
mod tests;
