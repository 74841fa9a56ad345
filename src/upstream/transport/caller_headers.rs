//! Headers of a call that come from its client: forwarded ones, and those that the configuration
//! maps.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::call::{Call, Context, Failure, find_claim};
use crate::config::{CallText, CallTextPart, ServerConfig, ServerSecrets};
use crate::mcp::header;

/// Selects the headers of a server's calls that come from the client.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallerHeaders {
    forwarded: Vec<HeaderName>,
    mapped: Vec<(HeaderName, CallText)>,
    /// Records the sent values, because clients' credentials may be among them.
    secrets: ServerSecrets,
}

impl CallerHeaders {
    /// Returns the caller headers of a server.
    pub(crate) fn of(config: &ServerConfig) -> Self {
        let (forwarded, mapped) = (config.forward_headers.clone(), config.call_headers.clone());
        Self { forwarded, mapped, secrets: config.secrets.clone() }
    }

    /// Adds the client's trace context and the headers that come from the client.
    pub(super) fn add_to(&self, headers: &mut HeaderMap, call: &Call) {
        add_trace(headers, call);
        for name in &self.forwarded {
            if let Some(value) = call.context.headers.get(name) {
                self.secrets.note_header(value);
                headers.insert(name.clone(), value.clone());
            }
        }
        for (name, text) in &self.mapped {
            if let Ok(Some(value)) = header_value(text, &call.context) {
                self.secrets.note_header(&value);
                headers.insert(name.clone(), value);
            }
        }
    }
}

/// Checks that a call has the claims that the server's headers require.
///
/// # Errors
/// [`Failure::ClaimNeeded`] names the first claim that is missing or not allowed in a header.
pub(crate) fn check_claims(
    mapped: &[(HeaderName, CallText)],
    context: &Context,
) -> Result<(), Failure> {
    for (_, CallText(parts)) in mapped {
        for part in parts {
            match part {
                CallTextPart::Claim(path) => drop(claim_text(path, context)?),
                // A mapped header is left out if the request lacks a header that it refers to.
                CallTextPart::Header(name) if !context.headers.contains_key(name) => break,
                CallTextPart::Header(_) | CallTextPart::Fixed(_) => {}
            }
        }
    }
    Ok(())
}

/// Returns the value of a mapped header, or `None` if the request lacks a header that it refers to.
fn header_value(
    CallText(parts): &CallText,
    context: &Context,
) -> Result<Option<HeaderValue>, Failure> {
    let mut bytes = Vec::new();
    for part in parts {
        match part {
            CallTextPart::Fixed(text) => bytes.extend_from_slice(text.expose().as_bytes()),
            CallTextPart::Header(name) => match context.headers.get(name) {
                Some(value) => bytes.extend_from_slice(value.as_bytes()),
                None => return Ok(None),
            },
            CallTextPart::Claim(path) => {
                bytes.extend_from_slice(claim_text(path, context)?.as_bytes());
            }
        }
    }
    // Each part is valid in a header, so the whole is too.
    let value = HeaderValue::try_from(bytes).ok();
    Ok(value.map(|mut value| {
        value.set_sensitive(true);
        value
    }))
}

/// Returns a claim as a header value: a text without control characters, a number or a boolean.
///
/// # Errors
/// [`Failure::ClaimNeeded`].
fn claim_text<'a>(path: &str, context: &'a Context) -> Result<Cow<'a, str>, Failure> {
    let claims = context.grants.as_ref().map(|grants| &grants.claims);
    match claims.and_then(|claims| find_claim(claims, path)) {
        Some(Value::String(text)) if is_header_text(text) => Ok(Cow::Borrowed(text)),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(Cow::Owned(value.to_string())),
        _ => Err(Failure::ClaimNeeded { claim: path.into() }),
    }
}

/// Returns true if a claim can be a header: a value that `HeaderValue::from_str` accepts, of
/// limited length and without surrounding blanks.
fn is_header_text(text: &str) -> bool {
    let is_control = |byte: u8| byte.is_ascii_control() && byte != b'\t';
    // Servers drop blanks around a value, so the claim of one user would become that of another.
    let is_trimmed = text.trim().len() == text.len();
    !text.is_empty() && is_trimmed && text.len() <= MAX_CLAIM_BYTES && !text.bytes().any(is_control)
}

/// Adds the client's trace context.
fn add_trace(headers: &mut HeaderMap, call: &Call) {
    let trace = &call.context.trace;
    let (parent, state) = match &trace.sent {
        Some((parent, state)) => (Some(parent), state.as_ref()),
        None => (trace.parent.as_ref(), trace.state.as_ref()),
    };
    let state = state.filter(|state| state.len() <= MAX_TRACESTATE_BYTES);
    for (name, value) in [(header::TRACEPARENT, parent), (header::TRACESTATE, state)] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
}

/// Maximum number of bytes of a client's `tracestate` in a header (W3C Trace Context, "tracestate
/// Limits"). Servers reject requests with large headers.
const MAX_TRACESTATE_BYTES: usize = 512;
/// Maximum number of bytes of a claim in a header.
const MAX_CLAIM_BYTES: usize = 4096;
