//! Checks that a client's `Mcp-Param-*` headers match the body.

use http::HeaderMap;
use serde_json::Value;

use trunkline_jsonrpc::parse_strict;
use trunkline_protocol::call::HeaderFault;
use trunkline_protocol::mcp::header::single_value;
use trunkline_protocol::mcp::{HeaderValueError, decode_value};

use super::{ParamHeader, ParamKind, header_text, value_at_path};
use crate::schema::MAX_ARGUMENT_DEPTH;

/// Checks the headers of one call against its raw arguments.
///
/// A header for a parameter that the body lacks is rejected as well: an intermediary may have acted
/// on it. A value of a kind that no header can carry is left to the argument check.
///
/// # Errors
/// [`HeaderFault`]; the client gets `-32020`.
pub fn verify_headers(
    params: &[ParamHeader],
    headers: &HeaderMap,
    arguments: Option<&[u8]>,
) -> Result<(), HeaderFault> {
    if params.is_empty() {
        return Ok(());
    }
    let arguments = parse_strict(arguments.unwrap_or(b"{}"), MAX_ARGUMENT_DEPTH)
        .map_err(HeaderFault::Arguments)?;
    params.iter().try_for_each(|param| verify_header(param, headers, &arguments))
}

fn verify_header(
    param: &ParamHeader,
    headers: &HeaderMap,
    arguments: &Value,
) -> Result<(), HeaderFault> {
    let name = || param.header.clone();
    let sent = single_value(headers, &param.header)
        .map_err(|_| HeaderFault::Duplicate { name: name() })?;
    let (value, sent) = match (value_at_path(arguments, &param.path), sent) {
        (None, None) => return Ok(()),
        (None, Some(_)) => return Err(HeaderFault::ParamUnexpected { name: name() }),
        (Some(value), None) if header_text(value).is_none() => return Ok(()),
        (Some(_), None) => return Err(HeaderFault::ParamMissing { name: name() }),
        (Some(value), Some(sent)) => (value, sent),
    };
    // Bytes outside visible ASCII are not text: they are rejected as invalid characters.
    let sent = sent.to_str().map_err(|_| HeaderValueError::Characters);
    let sent = sent
        .and_then(decode_value)
        .map_err(|fault| HeaderFault::Encoding { name: name(), fault })?;
    let text = header_text(value);
    let same = match (param.kind, value) {
        // "Servers SHOULD compare the header value and the body value numerically."
        (ParamKind::Integer, Value::Number(_)) => parse_integer(&sent)
            .is_some_and(|sent| text.as_deref().and_then(parse_integer) == Some(sent)),
        _ => text.as_deref() == Some(&*sent),
    };
    if same { Ok(()) } else { Err(HeaderFault::ParamMismatch { name: name() }) }
}

/// Parses a decimal integer, optionally with a fraction of zeros. It is exact, unlike a detour
/// through floating point, so distinct integers never compare equal.
fn parse_integer(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let zeros = !fraction.is_empty() && fraction.bytes().all(|b| b == b'0');
    let signed = whole.starts_with('+');
    if zeros && !signed { whole.parse().ok() } else { None }
}
