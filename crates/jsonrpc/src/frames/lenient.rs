//! Messages of servers that break a rule of JSON-RPC without being ambiguous, read as the official
//! SDKs read them.
//!
//! A message that follows the rules is parsed as usual: only one that [`parse`](crate::parse)
//! rejects is examined again. Null counts as an absent member, the id `2.0` as `2`, and a byte
//! order mark is skipped. Integers of any size are ids. Duplicate members are rejected in any case.

use bytes::{Bytes, BytesMut};

use trunkline_core::text::{BYTE_ORDER_MARK, skip_byte_order_mark};

use super::frame::{ENVELOPE_MEMBERS, FrameFault, IdRule, MAX_BATCH, is_integer, parse, parse_by};
use crate::walk::members;
use crate::{Frame, ObjectError, split_batch};

/// The contents of one text of a server: a body, a line, or the data of an event.
#[derive(Debug)]
pub enum ServerText {
    /// One message.
    Message(Frame),
    /// Several messages in an array (2025-03-26).
    Batch(Vec<Frame>),
    /// No message, such as a keep-alive.
    Nothing,
}

impl ServerText {
    /// Returns the only message, or the first response of a batch.
    ///
    /// # Errors
    /// [`FrameFault::Shape`] if there is none.
    pub fn into_response(self) -> Result<Frame, FrameFault> {
        match self {
            Self::Message(frame) => Ok(frame),
            Self::Batch(frames) => {
                let mut frames = frames.into_iter();
                let response = frames.find(|frame| matches!(frame, Frame::Response { .. }));
                response.ok_or(FrameFault::Shape)
            }
            Self::Nothing => Err(FrameFault::Shape),
        }
    }
}

/// Parses a text of a server.
///
/// # Errors
/// [`FrameFault`] if a message in it breaks another rule than those that servers are known to break.
#[inline]
pub fn parse_from_server(source: &Bytes, max_depth: usize) -> Result<ServerText, FrameFault> {
    match parse(source, max_depth) {
        Ok(frame) => Ok(ServerText::Message(frame)),
        Err(fault) => parse_unusual(source, max_depth, fault),
    }
}

/// Parses a text of a server that is no message by the rules, for this reason.
///
/// # Errors
/// As [`parse_from_server`].
#[cold]
pub fn parse_unusual(
    source: &Bytes,
    max_depth: usize,
    fault: FrameFault,
) -> Result<ServerText, FrameFault> {
    let text = source.slice_ref(skip_byte_order_mark(source));
    if text.trim_ascii_start().starts_with(b"[")
        && let Ok(messages) = split_batch(&text, max_depth)
    {
        if messages.is_empty() || messages.len() > MAX_BATCH {
            return Err(FrameFault::Batch { found: messages.len() });
        }
        let frames = messages.iter().map(|message| parse_one(message, max_depth));
        return frames.collect::<Result<_, _>>().map(ServerText::Batch);
    }
    match mend(source, max_depth) {
        Some(mended) => mended.map(ServerText::Message),
        None if is_no_message(&text, max_depth) => Ok(ServerText::Nothing),
        None => Err(fault),
    }
}

fn parse_one(source: &Bytes, max_depth: usize) -> Result<Frame, FrameFault> {
    parse(source, max_depth).or_else(|fault| mend(source, max_depth).unwrap_or(Err(fault)))
}

/// Returns true if the text is no message at all: no object, or an object with no member of a
/// message.
fn is_no_message(text: &[u8], max_depth: usize) -> bool {
    match members(text, &ENVELOPE_MEMBERS, max_depth) {
        Ok([_, id, method, _, result, error]) => {
            [id, method, result, error].iter().all(Option::is_none)
        }
        // A broken object behind further marks is a malformed message.
        Err(ObjectError::Syntax(_) | ObjectError::Kind) => {
            let mut beginning = text.trim_ascii_start();
            while let Some(rest) = beginning.strip_prefix(BYTE_ORDER_MARK) {
                beginning = rest.trim_ascii_start();
            }
            !beginning.starts_with(b"{")
        }
        Err(ObjectError::Depth(_) | ObjectError::Duplicate(_)) => false,
    }
}

/// Parses the message again with the flaws removed; `None` if it has none of them.
fn mend(source: &Bytes, max_depth: usize) -> Option<Result<Frame, FrameFault>> {
    let text = skip_byte_order_mark(source);
    let found = members(text, &ENVELOPE_MEMBERS, max_depth).ok()?;
    let [version, id, method, params, result, error] = found;
    let is_answer = result.is_some() || error.is_some();
    let present = |value: Option<&'_ [u8]>| value.is_some_and(|value| value != b"null");
    let kept = [
        version,
        id.map(|id| whole_number(id).filter(|_| is_answer).unwrap_or(id)),
        method.filter(|_| !is_answer || present(method)),
        params,
        result.filter(|_| present(result) || !present(error)),
        error.filter(|_| present(error) || result.is_none()),
    ];
    // The id is compared and answered byte for byte: nothing here rounds it.
    let is_large = id.is_some_and(|id| is_integer(id.strip_prefix(b"-").unwrap_or(id)));
    if kept == found && text.len() == source.len() && !is_large {
        return None;
    }
    let mut mended = BytesMut::from(&b"{"[..]);
    for (name, value) in ENVELOPE_MEMBERS.iter().zip(kept) {
        let Some(value) = value else { continue };
        let comma = if mended.len() > 1 { "," } else { "" };
        mended.extend_from_slice(format!("{comma}\"{name}\":").as_bytes());
        mended.extend_from_slice(value);
    }
    mended.extend_from_slice(b"}");
    Some(parse_by(&mended.freeze(), max_depth, IdRule::Large))
}

/// Returns the digits of a number that is written with zeros behind a point; `None` for any other.
pub fn whole_number(raw: &[u8]) -> Option<&[u8]> {
    let point = raw.iter().position(|byte| *byte == b'.')?;
    let (whole, fraction) = raw.split_at_checked(point)?;
    let zeros = fraction.get(1..)?;
    (!zeros.is_empty() && zeros.iter().all(|byte| *byte == b'0')).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Response;

    fn read(text: &str) -> Result<ServerText, FrameFault> {
        parse_from_server(&Bytes::copy_from_slice(text.as_bytes()), 8)
    }

    #[test]
    fn flaws_that_leave_one_meaning_are_accepted() {
        for (text, id, result) in [
            (r#"{"jsonrpc":"2.0","id":2,"result":{"a":1},"error":null}"#, "2", true),
            (r#"{"jsonrpc":"2.0","id":2,"error":null,"result":{"a":1}}"#, "2", true),
            (r#"{"jsonrpc":"2.0","id":2,"method":null,"result":{"a":1}}"#, "2", true),
            (r#"{"jsonrpc":"2.0","id":2,"method":null,"result":{"a":1},"error":null}"#, "2", true),
            (r#"{"jsonrpc":"2.0","id":2,"params":null,"result":{"a":1},"error":null}"#, "2", true),
            (
                r#"{"jsonrpc":"2.0","id":2,"result":null,"error":{"code":1,"message":"m"}}"#,
                "2",
                false,
            ),
            (
                r#"{"jsonrpc":"2.0","id":2,"method":null,"error":{"code":1,"message":"m"}}"#,
                "2",
                false,
            ),
            (r#"{"jsonrpc":"2.0","id":2.0,"result":{"a":1}}"#, "2", true),
            (r#"{"jsonrpc":"2.0","id":2.000,"result":{"a":1},"error":null}"#, "2", true),
            (r#"{"jsonrpc":"2.0","id":"2","result":{"a":1}}"#, "\"2\"", true),
            (
                r#"{"jsonrpc":"2.0","id":9007199254740993,"result":{"a":1}}"#,
                "9007199254740993",
                true,
            ),
            ("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"a\":1}}", "2", true),
            (
                "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":2.0,\"result\":{\"a\":1},\"error\":null}",
                "2",
                true,
            ),
        ] {
            let frame = read(text);
            let Ok(ServerText::Message(Frame::Response { id: Some(found), response })) = frame
            else {
                panic!("{text}: {frame:?}")
            };
            assert_eq!(found.raw(), id.as_bytes(), "{text}");
            match response {
                Response::Result(raw) => assert!(result && &raw[..] == br#"{"a":1}"#, "{text}"),
                Response::Error(raw) => assert!(!result && raw.starts_with(b"{\"code\""), "{text}"),
            }
        }
    }

    #[test]
    fn an_id_of_a_servers_request_is_kept_byte_for_byte() {
        for id in [
            "9007199254740992",
            "9007199254740993",
            "-12345678901234567890",
            "123456789012345678901234567890123456789",
        ] {
            let frame = read(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
            let Ok(ServerText::Message(Frame::Request { id: found, .. })) = frame else {
                panic!("{frame:?}")
            };
            assert_eq!(found.raw(), id.as_bytes());
        }
        for id in ["1234567890123456789012345678901234567890", "1.5", "1e3", "null"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            assert!(read(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn ambiguous_text_is_refused_as_before() {
        for text in [
            r#"{"jsonrpc":"2.0","id":2,"result":{},"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":2,"result":{},"result":{},"error":null}"#,
            r#"{"jsonrpc":"2.0","id":2,"id":3,"result":{},"error":null}"#,
            r#"{"jsonrpc":"2.0","id":2.5,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":2.,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":2e0,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":[2],"result":{},"error":null}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":null}"#,
            r#"{"jsonrpc":"2.0","id":2.0,"method":"ping"}"#,
            r#"{"jsonrpc":"1.0","id":2,"result":{},"error":null}"#,
            r#"{"id":2,"result":{},"error":null}"#,
            "\u{feff}\u{feff}{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}",
            r#"{"jsonrpc":"2.0","id":2,"result":{},"error":null}{}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_batch_is_bounded_and_has_only_messages() {
        let one = r#"{"jsonrpc":"2.0","id":2,"result":{},"error":null}"#;
        let note = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
        for (text, count) in [
            (format!("[{note},{one}]"), 2),
            (format!("\u{feff} [{one}]"), 1),
            (format!(" [ {note} ] "), 1),
        ] {
            let Ok(ServerText::Batch(frames)) = read(&text) else { panic!("{text}") };
            assert_eq!(frames.len(), count, "{text}");
        }
        let many = format!("[{}]", [note; 1001].join(","));
        for text in
            ["[]", "[1]", "[[]]", "[{}]", &format!("[{one},{{}}]"), &format!("[{one}"), &many]
        {
            let read = read(text);
            assert!(!matches!(read, Ok(ServerText::Batch(_) | ServerText::Message(_))), "{text}");
        }
    }

    #[test]
    fn a_text_without_a_message_differs_from_a_broken_message() {
        for (text, is_none) in [
            ("ping", true),
            ("[DONE]", true),
            ("null", true),
            ("", true),
            ("\u{feff}", true),
            ("{}", true),
            (r#"{"type":"ping"}"#, true),
            (r#"{"jsonrpc":"2.0"}"#, true),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}"#, false),
            (r#"{"id":1}"#, false),
            (r#"{"jsonrpc":"1.0","method":"x"}"#, false),
            (r#"{"result":{}}"#, false),
        ] {
            assert_eq!(matches!(read(text), Ok(ServerText::Nothing)), is_none, "{text}");
        }
    }
}
