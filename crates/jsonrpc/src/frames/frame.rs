//! Parses one message, at its first level only.

use std::fmt;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::payload::MAX_OUTLINE_MARKS;
use crate::outline::{MAX_OUTLINE_LEVELS, Outline};
use crate::walk::{Walk, place};
use crate::{DepthError, JsonSyntaxError, ObjectError, Payload, unquoted};

/// Reason why bytes are not a JSON-RPC 2.0 message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    /// Not valid JSON.
    #[error("not valid JSON: {0}")]
    Syntax(JsonSyntaxError),
    /// Not a JSON object, or a duplicate member of the envelope.
    #[error("not a JSON-RPC message: {0}")]
    Envelope(ObjectError),
    /// Nested deeper than allowed.
    #[error("{0}")]
    Depth(DepthError),
    /// `jsonrpc` is missing or is not `"2.0"`.
    #[error("`jsonrpc` must be \"2.0\"")]
    Version,
    /// The `id` is neither a string nor an integer, or too large.
    #[error("`id` must be a string of at most {MAX_ID_BYTES} bytes or an integer below 2^53")]
    Id,
    /// `method` is not a string.
    #[error("`method` must be a string")]
    Method,
    /// Neither a method, nor exactly one of result and error.
    #[error("neither a request, a notification nor a response")]
    Shape,
    /// `params` is not an object.
    #[error("`params` must be an object")]
    Params,
    /// A batch of a server that is empty or too long.
    #[error("a batch must have between one and {MAX_BATCH} messages, and has {found}")]
    Batch {
        /// The messages in it.
        found: usize,
    },
}

impl From<ObjectError> for FrameFault {
    fn from(fault: ObjectError) -> Self {
        match fault {
            ObjectError::Syntax(fault) => Self::Syntax(fault),
            ObjectError::Depth(fault) => Self::Depth(fault),
            other => Self::Envelope(other),
        }
    }
}

/// A request id, as received: a JSON string or number.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Id(Bytes);

impl Id {
    fn new(source: &Bytes, raw: &[u8], rule: IdRule) -> Result<Self, FrameFault> {
        let is_id = match raw {
            [b'"', ..] => raw.len() <= MAX_ID_BYTES,
            [b'-', digits @ ..] | digits => match rule {
                IdRule::Exact => is_exact_integer(digits),
                IdRule::Large => is_integer(digits),
            },
        };
        if is_id { Ok(Self(source.slice_ref(raw))) } else { Err(FrameFault::Id) }
    }

    /// An id in a message's params.
    pub fn read(source: &Bytes, raw: &RawValue) -> Option<Self> {
        Self::new(source, raw.get().as_bytes(), IdRule::Large).ok()
    }

    /// The id of a request that the gateway sends itself.
    #[inline]
    pub fn number(number: u64) -> Self {
        Self(Bytes::copy_from_slice(itoa::Buffer::new().format(number).as_bytes()))
    }

    /// The raw JSON.
    #[inline]
    pub fn raw(&self) -> &[u8] {
        &self.0
    }

    /// Copies the id out of its message, for a stream that outlives it.
    #[must_use]
    #[inline]
    pub fn detach(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// Returns true if a server that sends this id answers the request `asked`: some servers send a
    /// number as text.
    pub fn answers(&self, asked: &Self) -> bool {
        self == asked || self.unquoted_digits() == Some(asked.raw())
    }

    /// The number of the request that a server answers with this id.
    #[inline]
    pub fn answered_number(&self) -> Option<u64> {
        self.as_number().or_else(|| std::str::from_utf8(self.unquoted_digits()?).ok()?.parse().ok())
    }

    fn unquoted_digits(&self) -> Option<&[u8]> {
        let digits = self.0.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let is_number = digits == b"0" || digits.first().is_some_and(|first| *first != b'0');
        (is_number && digits.iter().all(u8::is_ascii_digit)).then_some(digits)
    }

    /// The number, if the id is a non-negative integer.
    #[inline]
    pub fn as_number(&self) -> Option<u64> {
        std::str::from_utf8(&self.0).ok()?.parse().ok()
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// A response's payload, raw.
#[derive(Debug, Clone)]
pub enum Response {
    /// The `result` member, with an outline of its first level.
    Result(Payload),
    /// The `error` member.
    Error(Payload),
}

/// A message. Its members are slices of the bytes that it was parsed from.
#[derive(Debug, Clone)]
pub enum Frame {
    /// A request, which expects a response.
    Request {
        /// The id of the request, unique for its sender.
        id: Id,
        /// The method, unescaped.
        method: String,
        /// The `params`, if there are any, with their outline.
        params: Option<Payload>,
    },
    /// A notification, which expects no response.
    Notification {
        /// The method, unescaped.
        method: String,
        /// The raw `params`, if there are any.
        params: Option<Bytes>,
    },
    /// A response to a request of this side.
    Response {
        /// The request's id; `None` if the peer could not read it.
        id: Option<Id>,
        /// The result or the error.
        response: Response,
    },
}

impl Frame {
    /// The same message in memory of its own, for one that is kept: a slice
    /// keeps the whole buffer alive that it was read from. Responses are passed
    /// on as they are.
    #[must_use]
    pub fn detach(self) -> Self {
        match self {
            Self::Request { id, method, params } => {
                Self::Request { id: id.detach(), method, params: params.map(Payload::detach) }
            }
            Self::Notification { method, params } => {
                let params = params.map(|params| Bytes::copy_from_slice(&params));
                Self::Notification { method, params }
            }
            response @ Self::Response { .. } => response,
        }
    }
}

/// Parses one message.
///
/// # Errors
/// [`FrameFault`], with the violated rule of JSON or of JSON-RPC 2.0. A duplicate member of the
/// envelope is rejected: two parsers would disagree on which one counts.
pub fn parse(source: &Bytes, max_depth: usize) -> Result<Frame, FrameFault> {
    parse_by(source, max_depth, IdRule::Exact)
}

/// The numbers that are accepted as ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdRule {
    /// Integers that every parser reads exactly.
    Exact,
    /// Integers of servers, which are compared and answered byte for byte.
    Large,
}

#[inline]
pub(crate) fn parse_by(
    source: &Bytes,
    max_depth: usize,
    rule: IdRule,
) -> Result<Frame, FrameFault> {
    let mut walk = Walk::over(source, max_depth)?;
    let mut outline = Outline::new(MAX_OUTLINE_MARKS);
    let mut found = [None; ENVELOPE_MEMBERS.len()];
    while let Some((key, value)) = walk.next_by(|cursor, key| {
        let levels = match key {
            PARAMS_KEY => MAX_OUTLINE_LEVELS,
            RESULT_KEY => 0,
            _ => return cursor.value(1),
        };
        if cursor.peek() != Some(b'{') {
            return cursor.value(1);
        }
        // A valid message contains only one of them.
        outline.note(cursor, cursor.at(), 1, levels)
    })? {
        place(&ENVELOPE_MEMBERS, &mut found, &key, value)?;
    }
    let [version, id, method, params, result, error] = found;
    if version != Some(b"\"2.0\"") && version.and_then(unquoted).as_deref() != Some("2.0") {
        return Err(FrameFault::Version);
    }
    if let Some(method) = method {
        let method = unquoted(method).ok_or(FrameFault::Method)?.into_owned();
        let params = object_of(source, params)?;
        return Ok(match id {
            Some(id) => {
                let noted = |raw: Bytes| match result {
                    None => Payload::new(raw, outline),
                    Some(_) => raw.into(),
                };
                let params = params.map(noted);
                Frame::Request { id: Id::new(source, id, rule)?, method, params }
            }
            None => Frame::Notification { method, params },
        });
    }
    let response = match (result, error) {
        (Some(result), None) if params.is_none() && result.starts_with(b"{") => {
            Response::Result(Payload::new(source.slice_ref(result), outline))
        }
        (Some(result), None) => Response::Result(source.slice_ref(result).into()),
        (None, Some(error)) => Response::Error(source.slice_ref(error).into()),
        _ => return Err(FrameFault::Shape),
    };
    let id = id.filter(|id| *id != b"null").map(|id| Id::new(source, id, rule)).transpose()?;
    Ok(Frame::Response { id, response })
}

fn object_of(source: &Bytes, params: Option<&[u8]>) -> Result<Option<Bytes>, FrameFault> {
    let Some(params) = params else { return Ok(None) };
    match params.first() {
        Some(b'{') => Ok(Some(source.slice_ref(params))),
        // Some old clients send `"params": null` instead of omitting them.
        Some(b'n') => Ok(None),
        _ => Err(FrameFault::Params),
    }
}

/// Returns true for the digits of an integer that every JSON parser reads exactly. Some parsers
/// round fractions and larger numbers, so that two ids could become one.
fn is_exact_integer(digits: &[u8]) -> bool {
    match digits.len() {
        1..=15 => digits.iter().all(u8::is_ascii_digit),
        16 => {
            std::str::from_utf8(digits).is_ok_and(|it| it.parse().is_ok_and(|n: u64| n < 1 << 53))
        }
        _ => false,
    }
}

pub(crate) fn is_integer(digits: &[u8]) -> bool {
    (1..=MAX_ID_DIGITS).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
}

/// The most digits of a number as an id of a server.
const MAX_ID_DIGITS: usize = 39;
/// The most messages in a batch of a server.
pub(crate) const MAX_BATCH: usize = 1000;
/// The most bytes of a string as an id, with its quotes.
const MAX_ID_BYTES: usize = 512;
const PARAMS_KEY: &[u8] = b"params";
const RESULT_KEY: &[u8] = b"result";
/// The members of an envelope.
pub(crate) const ENVELOPE_MEMBERS: [&str; 6] =
    ["jsonrpc", "id", "method", "params", "result", "error"];

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &'static str) -> Result<Frame, FrameFault> {
        parse(&Bytes::from_static(text.as_bytes()), 8)
    }

    #[test]
    fn a_request_keeps_its_id_and_params_byte_for_byte() {
        let frame =
            parsed(r#"{"jsonrpc":"2.0","id": "a\"b" ,"method":"x\/y","params": {"a": 1 }}"#);
        let Ok(Frame::Request { id, method, params }) = frame else { panic!("{frame:?}") };
        assert_eq!(id.raw(), br#""a\"b""#);
        assert_eq!(method, "x/y");
        assert_eq!(params.unwrap().raw(), br#"{"a": 1 }"#.as_slice());
    }

    #[test]
    fn frames_that_break_a_rule_are_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1.0,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1e3,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":9007199254740992,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":-12345678901234567890,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x","method":"y"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x","m\u0065thod":"y"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[[[[[[[[1]]]]]]]]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x"} {}"#,
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_server_may_answer_a_number_as_text_and_nothing_else() {
        let asked = Id::number(42);
        for (sent, answers) in [
            ("42", true),
            ("\"42\"", true),
            ("43", false),
            ("\"43\"", false),
            ("\"042\"", false),
            ("\" 42\"", false),
            ("\"42.0\"", false),
            ("\"\"", false),
            ("-42", false),
        ] {
            let bytes = Bytes::from_static(sent.as_bytes());
            let sent = Id::new(&bytes, &bytes, IdRule::Exact).unwrap();
            assert_eq!(sent.answers(&asked), answers, "{sent:?}");
            assert_eq!(sent.answered_number() == Some(42), answers, "{sent:?}");
        }
    }

    #[test]
    fn noted_members_belong_to_the_returned_frame() {
        let in_params = r#""params": {"a":1,"b":{"c":[2]}}"#;
        let in_result = r#""result" : {"b":3,"a":{"b":4}}"#;
        for text in [
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m",{in_params},{in_result}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":1,{in_result},"method":"m",{in_params}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m",{in_params}}}"#),
        ] {
            let Ok(Frame::Request { params: Some(params), .. }) = parse(&text.into(), 8) else {
                panic!()
            };
            let [a, b, c] = params.members(&["a", "b", "c"]).unwrap();
            assert_eq!(params.raw_at(a.unwrap()), b"1");
            assert!(c.is_none());
            let [c] = params.members_at(b.unwrap(), &["c"]).unwrap();
            assert_eq!(params.raw_at(c.unwrap()), b"[2]");
        }
        for text in [
            format!(r#"{{"jsonrpc":"2.0","id":1,{in_params},{in_result}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":1,{in_result},{in_params}}}"#),
            format!(r#" {{"jsonrpc":"2.0","id":1,{in_result}}}"#),
        ] {
            let Ok(Frame::Response { response: Response::Result(result), .. }) =
                parse(&text.into(), 8)
            else {
                panic!()
            };
            let [a, b] = result.members(&["a", "b"]).unwrap();
            assert_eq!(result.raw_at(b.unwrap()), b"3");
            let [b] = result.members_at(a.unwrap(), &["b"]).unwrap();
            assert_eq!(result.raw_at(b.unwrap()), b"4");
        }
    }

    #[test]
    fn a_response_with_a_null_result_is_one() {
        let frame = parsed(r#"{"jsonrpc":"2.0","id":7,"result":null}"#);
        let Ok(Frame::Response { id, response: Response::Result(raw) }) = frame else {
            panic!("{frame:?}")
        };
        assert_eq!(id.and_then(|id| id.as_number()), Some(7));
        assert_eq!(&raw[..], b"null");
    }
}
