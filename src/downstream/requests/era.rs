//! Era detection.

use http::HeaderMap;

use crate::call::{Failure, HeaderFault, Params};
use crate::jsonrpc::Frame;
use crate::mcp::header::{self, MessageHeaders};
use crate::mcp::{Era, Method, ProtocolVersion};

/// Detects the era from the client's opening request (2026-07-28, Versioning, "Backward
/// Compatibility"): `_meta` with a version, or a version header that is not Legacy, is Modern;
/// `initialize`, a session or no sign at all is Legacy. `Mcp-Method` does not count: some Legacy
/// clients send it, too.
///
/// # Errors
/// [`Failure::InvalidParams`] if the params cannot be read, [`Failure::HeaderMismatch`] if a header
/// that decides is a duplicate.
pub(crate) fn of(
    headers: &HeaderMap,
    of_message: &MessageHeaders<'_>,
    frame: &Frame,
) -> Result<Era, Failure> {
    refuse_duplicates(headers)?;
    let said = of_message.version.text();
    let version = said.and_then(ProtocolVersion::parse);
    if version.is_some_and(|version| version.era() == Era::Modern) {
        return Ok(Era::Modern);
    }
    let Frame::Request { method, params, .. } = frame else {
        return Ok(Era::Legacy);
    };
    let method = Method::parse(method);
    if method.is_modern_only() {
        return Ok(Era::Modern);
    }
    if version.is_some() && headers.contains_key(header::SESSION_ID) {
        return Ok(Era::Legacy);
    }
    let in_meta = Params::read(params.clone()).and_then(|params| params.meta())?.version.is_some();
    let unknown = said.is_some() && version.is_none() && method != Method::Initialize;
    Ok(if in_meta || unknown { Era::Modern } else { Era::Legacy })
}

/// Refuses duplicates of the headers that select the session, the events and the version of a
/// request: an intermediary may have acted on another value.
///
/// # Errors
/// [`Failure::HeaderMismatch`].
pub(crate) fn refuse_duplicates(headers: &HeaderMap) -> Result<(), Failure> {
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    for name in [header::PROTOCOL_VERSION, header::SESSION_ID, header::LAST_EVENT_ID] {
        if header::single_value(headers, &name).is_err() {
            return Err(HeaderFault::Duplicate { name }.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_opening_tells_the_era() {
        let modern = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
        for (version, session, method, params, era) in [
            (None, false, "initialize", "{}", Era::Legacy),
            (None, false, "tools/list", "{}", Era::Legacy),
            (None, true, "tools/list", "{}", Era::Legacy),
            (Some("2025-11-25"), true, "tools/list", "{}", Era::Legacy),
            (Some("2025-11-25"), false, "tools/list", modern, Era::Modern),
            (Some("2026-07-28"), false, "initialize", "{}", Era::Modern),
            (Some("2026-07-28"), true, "tools/list", "{}", Era::Modern),
            (Some("v999"), false, "tools/list", "{}", Era::Modern),
            (Some("v999"), false, "initialize", "{}", Era::Legacy),
            (None, false, "tools/list", modern, Era::Modern),
            (None, false, "server/discover", "{}", Era::Modern),
        ] {
            let mut headers = http::HeaderMap::new();
            if let Some(version) = version {
                headers.insert(header::PROTOCOL_VERSION, version.parse().unwrap());
            }
            if session {
                headers.insert(header::SESSION_ID, "x".parse().unwrap());
            }
            let frame = Frame::Request {
                id: crate::jsonrpc::Id::number(1),
                method: method.into(),
                params: Some(params.into()),
            };
            let said = MessageHeaders::read(&headers);
            assert_eq!(of(&headers, &said, &frame).unwrap(), era, "{version:?} {session} {method}");
        }
    }
}
