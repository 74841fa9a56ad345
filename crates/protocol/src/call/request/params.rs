//! A request's params: the bytes, and the spans of the relevant members.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use trunkline_jsonrpc::{OutlineParts, Payload, Splice, Spot};

use crate::mcp::meta;

use crate::call::ParamsFault;

/// The params of a request, whole and unchanged. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Params(Arc<ParsedParams>);

/// Behind an `Arc`, because params are moved many times, and kept for calls that may have to be
/// made again.
#[derive(Debug, Clone)]
struct ParsedParams {
    payload: Payload,
    name: Option<(String, Spot)>,
    uri: Option<(String, Spot)>,
    task: Option<(String, Spot)>,
    cursor: Option<String>,
    level: Option<String>,
    state: Option<(String, Spot)>,
    reference: Option<Spot>,
    arguments: Option<Spot>,
    notifications: Option<Spot>,
    responses: Option<Spot>,
    meta: Option<Spot>,
}

impl Params {
    /// Parses params; absent ones are `{}`.
    ///
    /// # Errors
    /// [`ParamsFault`] if the params are not an object, or a member that the gateway reads is a
    /// duplicate or has the wrong type.
    pub fn parse(raw: Option<Bytes>) -> Result<Self, ParamsFault> {
        Self::read(raw.map(Payload::from))
    }

    /// Parses the params in a message.
    ///
    /// # Errors
    /// As for [`Params::parse`].
    pub fn read(payload: Option<Payload>) -> Result<Self, ParamsFault> {
        let payload = payload.unwrap_or_else(|| Bytes::from_static(b"{}").into()).read()?;
        let [name, uri, task, cursor, level, state, reference, responses, arguments, told, meta] =
            payload.members(&PARAM_MEMBERS)?;
        let place = |member, spot: Option<Spot>| {
            Ok::<_, ParamsFault>(string(member, &payload, spot)?.zip(spot))
        };
        let name = place("name", name)?;
        let uri = place("uri", uri)?;
        let task = place("taskId", task)?;
        let state = place("requestState", state)?;
        let cursor = string("cursor", &payload, cursor)?;
        let level = string("level", &payload, level)?;
        let reference = object("ref", &payload, reference)?;
        let responses = object("inputResponses", &payload, responses)?;
        let arguments = object("arguments", &payload, arguments)?;
        let notifications = object("notifications", &payload, told)?;
        // The span is kept even if the value is `null`: a second `_meta` must
        // not be added.
        object("_meta", &payload, meta)?;
        Ok(Self(Arc::new(ParsedParams {
            payload,
            name,
            uri,
            task,
            cursor,
            level,
            state,
            reference,
            arguments,
            notifications,
            responses,
            meta,
        })))
    }

    /// Returns the params, as received.
    #[inline]
    pub fn raw(&self) -> &Bytes {
        self.0.payload.raw()
    }

    /// Returns `name`, unescaped.
    #[inline]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_ref().map(|(name, _)| name.as_str())
    }

    /// Returns the span of `name`, with its quotes.
    #[inline]
    pub fn name_span(&self) -> Option<Range<usize>> {
        self.0.name.as_ref().map(|(_, spot)| spot.span())
    }

    /// Returns `uri`, unescaped.
    #[inline]
    pub fn uri(&self) -> Option<&str> {
        self.0.uri.as_ref().map(|(uri, _)| uri.as_str())
    }

    /// Returns the span of `uri`, with its quotes.
    #[inline]
    pub fn uri_span(&self) -> Option<Range<usize>> {
        self.0.uri.as_ref().map(|(_, spot)| spot.span())
    }

    /// Returns `taskId`, unescaped.
    #[inline]
    pub fn task(&self) -> Option<&str> {
        self.0.task.as_ref().map(|(task, _)| task.as_str())
    }

    /// Returns the span of `taskId`, with its quotes.
    #[inline]
    pub fn task_span(&self) -> Option<Range<usize>> {
        self.0.task.as_ref().map(|(_, spot)| spot.span())
    }

    /// Returns `level` of `logging/setLevel`, unescaped.
    #[inline]
    pub fn level(&self) -> Option<&str> {
        self.0.level.as_deref()
    }

    /// Returns `requestState`, unescaped.
    #[inline]
    pub fn state(&self) -> Option<&str> {
        self.0.state.as_ref().map(|(state, _)| state.as_str())
    }

    /// Returns the span of `requestState`, with its quotes.
    #[inline]
    pub fn state_span(&self) -> Option<Range<usize>> {
        self.0.state.as_ref().map(|(_, spot)| spot.span())
    }

    /// Returns the span of the raw `ref` of `completion/complete`.
    #[inline]
    pub fn reference_span(&self) -> Option<Range<usize>> {
        self.0.reference.map(Spot::span)
    }

    /// Returns the span of the raw `inputResponses`.
    #[inline]
    pub fn responses_span(&self) -> Option<Range<usize>> {
        self.0.responses.map(Spot::span)
    }

    /// Returns `cursor`, unescaped.
    #[inline]
    pub fn cursor(&self) -> Option<&str> {
        self.0.cursor.as_deref()
    }

    /// Returns the raw `arguments`.
    #[inline]
    pub fn arguments(&self) -> Option<&[u8]> {
        self.raw().get(self.0.arguments?.span())
    }

    /// Returns the span of the raw `arguments`.
    #[inline]
    pub fn arguments_span(&self) -> Option<Range<usize>> {
        self.0.arguments.map(Spot::span)
    }

    /// Returns the params with other arguments, the span that was replaced, and the length of the
    /// replacement.
    ///
    /// # Errors
    /// [`ParamsFault`] if the new arguments are not an object.
    pub fn with_arguments(
        &self,
        arguments: &[u8],
    ) -> Result<(Self, Range<usize>, usize), ParamsFault> {
        // Arguments that are `null` count as absent, and have a span.
        let [present] = self.0.payload.members(&["arguments"])?;
        let (span, member) = match present.map(Spot::span) {
            Some(span) => (span, arguments.to_vec()),
            None => self.new_member("arguments", arguments),
        };
        let length = member.len();
        let params = Splice::new(self.raw()).replace(span.clone(), member).finish();
        Ok((Self::parse(Some(params))?, span, length))
    }

    /// Returns the position of a new first member, and its text.
    fn new_member(&self, name: &str, value: &[u8]) -> (Range<usize>, Vec<u8>) {
        let open = self.raw().iter().position(|byte| *byte == b'{').unwrap_or_default();
        let rest = self.raw().get(open + 1..).unwrap_or_default().trim_ascii_start();
        let comma: &[u8] = if rest.starts_with(b"}") { b"" } else { b"," };
        (open + 1..open + 1, [b"\"", name.as_bytes(), b"\":", value, comma].concat())
    }

    /// Returns the outline of `arguments`, if it was recorded when the message was parsed.
    #[inline]
    pub fn arguments_parts(&self) -> Option<OutlineParts<'_>> {
        self.0.payload.parts_at(self.0.arguments?)
    }

    /// Returns the raw `notifications` filter of `subscriptions/listen`.
    #[inline]
    pub fn notifications(&self) -> Option<&[u8]> {
        self.raw().get(self.0.notifications?.span())
    }

    /// Returns the span of `_meta`: an object, or `null`.
    #[inline]
    pub fn meta_span(&self) -> Option<Range<usize>> {
        self.0.meta.map(Spot::span)
    }

    /// Parses the members of `_meta` that the gateway reads.
    ///
    /// # Errors
    /// [`ParamsFault`] if one of its members has the wrong type.
    pub fn meta(&self) -> Result<Meta, ParamsFault> {
        match self.0.meta {
            Some(spot) if self.0.payload.raw_at(spot) != b"null" => {
                Meta::read(&self.0.payload, spot)
            }
            _ => Ok(Meta::default()),
        }
    }
}

/// The members of a request's `_meta` that the gateway reads.
#[derive(Debug, Clone, Default)]
pub struct Meta {
    /// `io.modelcontextprotocol/protocolVersion`.
    pub version: Option<String>,
    /// `io.modelcontextprotocol/clientInfo`: a raw object.
    pub client_info: Option<Bytes>,
    /// `io.modelcontextprotocol/clientCapabilities`: a raw object.
    pub capabilities: Option<Bytes>,
    /// `io.modelcontextprotocol/logLevel`.
    pub log_level: Option<String>,
    /// `progressToken`: a raw string or integer.
    pub progress_token: Option<Bytes>,
    /// `traceparent`.
    pub traceparent: Option<String>,
    /// `tracestate`.
    pub tracestate: Option<String>,
}

impl Meta {
    fn read(payload: &Payload, spot: Spot) -> Result<Self, ParamsFault> {
        let [token, version, info, capabilities, level, parent, state] =
            payload.members_at(spot, &META_MEMBERS)?;
        let raw = |spot: Spot| payload.raw().slice(spot.span());
        let declaration = |member, spot| {
            let spot = object(member, payload, spot)?;
            match spot.filter(|spot| spot.span().len() > MAX_DECLARATION) {
                Some(_) => Err(ParamsFault::TooLarge { member, limit: MAX_DECLARATION }),
                None => Ok(spot.map(raw)),
            }
        };
        let token = token.filter(|token| payload.raw_at(*token) != b"null");
        if token.is_some_and(|token| !is_string_or_number(payload.raw_at(token))) {
            return Err(ParamsFault::Kind {
                member: "_meta.progressToken",
                kind: "a string or an integer",
            });
        }
        Ok(Self {
            version: string("_meta protocolVersion", payload, version)?,
            client_info: declaration("_meta clientInfo", info)?,
            capabilities: declaration("_meta clientCapabilities", capabilities)?,
            log_level: string("_meta logLevel", payload, level)?,
            progress_token: token.map(raw),
            traceparent: string("_meta traceparent", payload, parent)?,
            tracestate: string("_meta tracestate", payload, state)?,
        })
    }
}

fn is_string_or_number(raw: &[u8]) -> bool {
    matches!(raw.first(), Some(b'"' | b'-' | b'0'..=b'9'))
}

#[inline]
fn string(
    member: &'static str,
    payload: &Payload,
    spot: Option<Spot>,
) -> Result<Option<String>, ParamsFault> {
    let Some(spot) = spot.filter(|spot| payload.raw_at(*spot) != b"null") else { return Ok(None) };
    match payload.text_at(spot) {
        Some(text) => Ok(Some(text.into_owned())),
        None => Err(ParamsFault::Kind { member, kind: "a string" }),
    }
}

#[inline]
fn object(
    member: &'static str,
    payload: &Payload,
    spot: Option<Spot>,
) -> Result<Option<Spot>, ParamsFault> {
    let Some(spot) = spot.filter(|spot| payload.raw_at(*spot) != b"null") else { return Ok(None) };
    if payload.raw_at(spot).starts_with(b"{") {
        Ok(Some(spot))
    } else {
        Err(ParamsFault::Kind { member, kind: "an object" })
    }
}

/// Limit of the bytes of a client's capabilities, and of its `clientInfo`: enough for icons. They
/// are kept with sessions and streams, and sent to servers.
pub const MAX_DECLARATION: usize = 16 * 1024;
/// Members that are read from params, in this order.
const PARAM_MEMBERS: [&str; 11] = [
    "name",
    "uri",
    "taskId",
    "cursor",
    "level",
    "requestState",
    "ref",
    "inputResponses",
    "arguments",
    "notifications",
    "_meta",
];
/// Members that are read from `_meta`, in this order.
const META_MEMBERS: [&str; 7] = [
    meta::PROGRESS_TOKEN,
    meta::PROTOCOL_VERSION,
    meta::CLIENT_INFO,
    meta::CLIENT_CAPABILITIES,
    meta::LOG_LEVEL,
    meta::TRACEPARENT,
    meta::TRACESTATE,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &'static str) -> Result<Params, ParamsFault> {
        Params::parse(Some(Bytes::from_static(text.as_bytes())))
    }

    #[test]
    fn members_are_found_where_they_stand() {
        let params =
            parsed(r#"{"x":0,"name":"a\u0062","arguments":{"n": 1},"_meta":{"progressToken":7}}"#)
                .unwrap();
        assert_eq!(params.name(), Some("ab"));
        assert_eq!(&params.raw()[params.name_span().unwrap()], br#""a\u0062""#);
        assert_eq!(params.arguments(), Some(br#"{"n": 1}"#.as_slice()));
        assert_eq!(params.meta().unwrap().progress_token.as_deref(), Some(b"7".as_slice()));
    }

    #[test]
    fn a_meta_that_is_null_says_nothing_and_has_its_place() {
        let params = parsed(r#"{"name":"a","_meta":null}"#).unwrap();
        assert_eq!(&params.raw()[params.meta_span().unwrap()], b"null");
        assert!(params.meta().unwrap().version.is_none());
    }

    #[test]
    fn members_of_another_kind_or_twice_are_refused() {
        for text in [
            r#"{"name":1}"#,
            r#"{"arguments":[]}"#,
            r#"{"_meta":"x"}"#,
            r#"{"name":"a","name":"b"}"#,
            r#"{"arguments":{},"arguments":{}}"#,
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
        let twice = parsed(r#"{"_meta":{"progressToken":1,"progressToken":2}}"#).unwrap();
        assert!(twice.meta().is_err());
        assert!(parsed(r#"{"_meta":{"progressToken":{}}}"#).unwrap().meta().is_err());
    }
}
