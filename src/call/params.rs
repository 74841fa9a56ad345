//! A request's params: the bytes, and where the members stand that matter.

use std::ops::Range;

use bytes::Bytes;

use crate::jsonrpc::{NoObject, members, span_of, unquoted};
use crate::mcp::meta;

/// Why params do not fit.
#[derive(Debug, thiserror::Error)]
pub enum ParamsFault {
    /// Not an object, or a member that matters stands twice.
    #[error("invalid params: {0}")]
    Syntax(#[from] NoObject),
    /// A member is not of the kind it has to be.
    #[error("invalid params: `{member}` must be {kind}")]
    Kind {
        /// The member's name.
        member: &'static str,
        /// What it has to be.
        kind: &'static str,
    },
}

/// The params of a request, whole and unchanged.
#[derive(Debug, Clone)]
pub struct Params {
    raw: Bytes,
    name: Option<(String, Range<usize>)>,
    uri: Option<(String, Range<usize>)>,
    task: Option<(String, Range<usize>)>,
    cursor: Option<String>,
    level: Option<String>,
    state: Option<(String, Range<usize>)>,
    reference: Option<Range<usize>>,
    arguments: Option<Range<usize>>,
    notifications: Option<Range<usize>>,
    responses: Option<Range<usize>>,
    meta: Option<Range<usize>>,
}

impl Params {
    /// Reads params; absent ones are `{}`.
    ///
    /// # Errors
    /// [`ParamsFault`] where the params are no object, where a member that
    /// matters stands twice or is of another kind than it must be.
    pub fn parse(raw: Option<Bytes>) -> Result<Self, ParamsFault> {
        let raw = raw.unwrap_or_else(|| Bytes::from_static(b"{}"));
        let [name, uri, task, cursor, level, state, reference, responses, arguments, told, meta] =
            members(&raw, &MEMBERS, usize::MAX)?;
        let span = |part: &[u8]| span_of(&raw, part);
        let place = |member, raw: Option<&[u8]>| {
            Ok::<_, ParamsFault>(string(member, raw)?.zip(raw.and_then(span)))
        };
        let name = place("name", name)?;
        let uri = place("uri", uri)?;
        let task = place("taskId", task)?;
        let state = place("requestState", state)?;
        let cursor = string("cursor", cursor)?;
        let level = string("level", level)?;
        let reference = member_object("ref", reference)?.and_then(span);
        let responses = member_object("inputResponses", responses)?.and_then(span);
        let arguments = member_object("arguments", arguments)?.and_then(span);
        let notifications = member_object("notifications", told)?.and_then(span);
        member_object("_meta", meta)?;
        // Its place, also where it is `null`: a second one must not be added.
        let meta = meta.and_then(span);
        Ok(Self {
            raw,
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
        })
    }

    /// All of them, as they came.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// `name`, unescaped.
    pub fn name(&self) -> Option<&str> {
        self.name.as_ref().map(|(name, _)| name.as_str())
    }

    /// Where `name` stands, with its quotes.
    pub fn name_span(&self) -> Option<Range<usize>> {
        self.name.as_ref().map(|(_, span)| span.clone())
    }

    /// `uri`, unescaped.
    pub fn uri(&self) -> Option<&str> {
        self.uri.as_ref().map(|(uri, _)| uri.as_str())
    }

    /// Where `uri` stands, with its quotes.
    pub fn uri_span(&self) -> Option<Range<usize>> {
        self.uri.as_ref().map(|(_, span)| span.clone())
    }

    /// `taskId`, unescaped.
    pub fn task(&self) -> Option<&str> {
        self.task.as_ref().map(|(task, _)| task.as_str())
    }

    /// Where `taskId` stands, with its quotes.
    pub fn task_span(&self) -> Option<Range<usize>> {
        self.task.as_ref().map(|(_, span)| span.clone())
    }

    /// `level` of `logging/setLevel`, unescaped.
    pub fn level(&self) -> Option<&str> {
        self.level.as_deref()
    }

    /// `requestState`, unescaped.
    pub fn state(&self) -> Option<&str> {
        self.state.as_ref().map(|(state, _)| state.as_str())
    }

    /// Where `requestState` stands, with its quotes.
    pub fn state_span(&self) -> Option<Range<usize>> {
        self.state.as_ref().map(|(_, span)| span.clone())
    }

    /// Where the raw `ref` of `completion/complete` stands.
    pub fn reference_span(&self) -> Option<Range<usize>> {
        self.reference.clone()
    }

    /// Where the raw `inputResponses` stand.
    pub fn responses_span(&self) -> Option<Range<usize>> {
        self.responses.clone()
    }

    /// `cursor`, unescaped.
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// The raw `arguments`.
    pub fn arguments(&self) -> Option<&[u8]> {
        self.raw.get(self.arguments.clone()?)
    }

    /// The raw `notifications` filter of `subscriptions/listen`.
    pub fn notifications(&self) -> Option<&[u8]> {
        self.raw.get(self.notifications.clone()?)
    }

    /// Where `_meta` stands: an object, or `null`.
    pub fn meta_span(&self) -> Option<Range<usize>> {
        self.meta.clone()
    }

    /// What `_meta` says that the gateway reads.
    ///
    /// # Errors
    /// [`ParamsFault`] where one of its members is of another kind than it must be.
    pub fn meta(&self) -> Result<Meta, ParamsFault> {
        match self.meta.clone().map(|span| self.raw.slice(span)) {
            Some(raw) if raw != "null" => Meta::parse(&raw),
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
    fn parse(raw: &Bytes) -> Result<Self, ParamsFault> {
        let [token, version, info, capabilities, level, parent, state] =
            members(raw, &META_MEMBERS, usize::MAX)?;
        let slice = |part: &[u8]| raw.slice_ref(part);
        let token = token.filter(|token| *token != b"null");
        if token.is_some_and(|token| !is_string_or_number(token)) {
            return Err(ParamsFault::Kind {
                member: "_meta.progressToken",
                kind: "a string or an integer",
            });
        }
        Ok(Self {
            version: string("_meta protocolVersion", version)?,
            client_info: member_object("_meta clientInfo", info)?.map(slice),
            capabilities: member_object("_meta clientCapabilities", capabilities)?.map(slice),
            log_level: string("_meta logLevel", level)?,
            progress_token: token.map(slice),
            traceparent: string("_meta traceparent", parent)?,
            tracestate: string("_meta tracestate", state)?,
        })
    }
}

fn is_string_or_number(raw: &[u8]) -> bool {
    matches!(raw.first(), Some(b'"' | b'-' | b'0'..=b'9'))
}

fn string(member: &'static str, raw: Option<&[u8]>) -> Result<Option<String>, ParamsFault> {
    let Some(raw) = raw.filter(|raw| *raw != b"null") else { return Ok(None) };
    match unquoted(raw) {
        Some(text) => Ok(Some(text.into_owned())),
        None => Err(ParamsFault::Kind { member, kind: "a string" }),
    }
}

fn member_object<'a>(
    member: &'static str,
    raw: Option<&'a [u8]>,
) -> Result<Option<&'a [u8]>, ParamsFault> {
    let Some(raw) = raw.filter(|raw| *raw != b"null") else { return Ok(None) };
    if raw.starts_with(b"{") {
        Ok(Some(raw))
    } else {
        Err(ParamsFault::Kind { member, kind: "an object" })
    }
}

/// What is read of params, in this order.
const MEMBERS: [&str; 11] = [
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
/// What is read of `_meta`, in this order.
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
