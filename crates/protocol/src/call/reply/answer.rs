//! A server's answer: the raw bytes and the few facts read from them.

use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;

use trunkline_jsonrpc::{ObjectError, Payload, Response, Spot, object, string};

use crate::call::QuestionsFault;

/// Faults of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFault {
    /// The result is not an object, or has a duplicate of a member that the
    /// gateway reads.
    #[error("the result is not a valid object: {0}")]
    Result(ObjectError),
    /// The error has no integer `code`, or a `message` that is not a string.
    #[error("the error is not an object with an integer `code` and a string `message`")]
    Error,
    /// The result is not a valid `InputRequiredResult`.
    #[error("the input requests are not valid: {0}")]
    Questions(QuestionsFault),
}

impl From<ObjectError> for AnswerFault {
    #[inline]
    fn from(fault: ObjectError) -> Self {
        Self::Result(fault)
    }
}

impl From<QuestionsFault> for AnswerFault {
    #[inline]
    fn from(fault: QuestionsFault) -> Self {
        Self::Questions(fault)
    }
}

/// A server's answer.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A result: the request succeeded, or the result describes the error.
    Result(ResultBody),
    /// A JSON-RPC error, which is forwarded to the client unchanged.
    Error(ErrorBody),
}

impl Answer {
    /// Parses the payload of a response.
    ///
    /// # Errors
    /// [`AnswerFault`] if the payload is malformed.
    pub fn parse(response: Response) -> Result<Self, AnswerFault> {
        match response {
            Response::Result(raw) => ResultBody::read(raw).map(Self::Result),
            Response::Error(raw) => ErrorBody::parse(raw.into()).map(Self::Error),
        }
    }

    /// Returns its raw bytes.
    #[inline]
    pub fn raw(&self) -> &Bytes {
        match self {
            Self::Result(result) => &result.raw,
            Self::Error(error) => &error.raw,
        }
    }

    /// Replaces the answer's bytes by the ones that `keep` returns for them.
    #[must_use]
    pub fn map_raw(mut self, keep: impl FnOnce(Bytes) -> Bytes) -> Self {
        let raw = match &mut self {
            Self::Result(result) => &mut result.raw,
            Self::Error(error) => &mut error.raw,
        };
        *raw = keep(std::mem::take(raw));
        self
    }

    /// Sets the sender: the server's raw `serverInfo`.
    #[must_use]
    #[inline]
    pub fn sent_by(mut self, info: &Bytes) -> Self {
        if let Self::Result(result) = &mut self {
            result.sender = Some(info.clone());
        }
        self
    }
}

/// Builds the raw `content` of a tool's result that is one text.
pub fn text_content(text: &str) -> String {
    format!("[{{\"type\":\"text\",\"text\":{}}}]", string(text))
}

/// The kind of a result (2026-07-28, Base Protocol, "ResultType").
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultType {
    /// The request is complete. Legacy results, which have no type, are always
    /// complete.
    Complete,
    /// The server needs input before it can continue.
    InputRequired,
    /// The request has become a task (extension
    /// `io.modelcontextprotocol/tasks`).
    Task,
    /// A type of another extension.
    Other(String),
}

impl ResultType {
    fn read(said: Option<&str>) -> Self {
        match said {
            None | Some("complete") => Self::Complete,
            Some("input_required") => Self::InputRequired,
            Some("task") => Self::Task,
            Some(other) => Self::Other(other.to_owned()),
        }
    }
}

/// A result object, whole and unchanged.
#[derive(Debug, Clone)]
pub struct ResultBody {
    raw: Bytes,
    kind: ResultType,
    kind_span: Option<Range<usize>>,
    meta: Option<Range<usize>>,
    is_error: bool,
    is_transient: bool,
    sender: Option<Bytes>,
}

impl ResultBody {
    /// Parses a result.
    ///
    /// # Errors
    /// [`AnswerFault::Result`] if it is not an object.
    pub fn parse(raw: Bytes) -> Result<Self, AnswerFault> {
        Self::read(raw.into())
    }

    /// Parses the result in a message.
    ///
    /// # Errors
    /// As for [`ResultBody::parse`].
    pub fn read(payload: Payload) -> Result<Self, AnswerFault> {
        let [kind, meta, is_error] = payload.members(&RESULT_MEMBERS)?;
        // A value that is not a string counts as absent, and is overwritten.
        let kind_span = kind.map(Spot::span);
        let kind = match kind {
            Some(spot) if payload.raw_at(spot) == b"\"complete\"" => ResultType::Complete,
            kind => ResultType::read(kind.and_then(|spot| payload.text_at(spot)).as_deref()),
        };
        let meta = meta.map(Spot::span);
        let is_error = is_error.is_some_and(|spot| payload.raw_at(spot) == b"true");
        let (is_transient, sender) = (false, None);
        Ok(Self { kind, kind_span, meta, is_error, is_transient, sender, raw: payload.into() })
    }

    /// Marks a result as transient: the server may answer otherwise soon. For servers that do not
    /// speak MCP: their statuses become results.
    #[must_use]
    #[inline]
    pub fn marked_transient(self) -> Self {
        Self { is_transient: true, ..self }
    }

    /// Returns true if another call soon may have another result.
    #[inline]
    pub fn is_transient(&self) -> bool {
        self.is_transient
    }

    /// Replaces the content of the result; its sender stays.
    ///
    /// # Errors
    /// [`AnswerFault::Result`] if it is not an object.
    pub fn with(&self, raw: Bytes) -> Result<Self, AnswerFault> {
        Ok(Self { sender: self.sender.clone(), ..Self::parse(raw)? })
    }

    /// Returns the whole object.
    #[inline]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Returns the kind of result.
    #[inline]
    pub fn kind(&self) -> &ResultType {
        &self.kind
    }

    /// Returns the span of the value of `resultType`, if present.
    #[inline]
    pub fn kind_span(&self) -> Option<Range<usize>> {
        self.kind_span.clone()
    }

    /// Returns the span of `_meta`, if present: an object, if the server conforms to the
    /// specification.
    #[inline]
    pub fn meta_span(&self) -> Option<Range<usize>> {
        self.meta.clone()
    }

    /// Returns the raw `serverInfo` of the server that sent the result, if a server did.
    #[inline]
    pub fn sender(&self) -> Option<&Bytes> {
        self.sender.as_ref()
    }

    /// Returns true for a tool result that reports an error.
    #[inline]
    pub fn is_error(&self) -> bool {
        self.is_error
    }
}

/// A JSON-RPC error object, whole and unchanged.
#[derive(Debug, Clone)]
pub struct ErrorBody {
    raw: Bytes,
    code: i64,
    message: String,
}

#[derive(Deserialize)]
struct WireError {
    code: i64,
    #[serde(default)]
    message: String,
}

impl ErrorBody {
    /// Parses an error.
    ///
    /// # Errors
    /// [`AnswerFault::Error`] if it has no integer `code`.
    pub fn parse(raw: Bytes) -> Result<Self, AnswerFault> {
        let wire: WireError = object(&raw).map_err(|_| AnswerFault::Error)?;
        Ok(Self { code: wire.code, message: wire.message, raw })
    }

    /// Returns the whole object.
    #[inline]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Returns the error's code.
    #[inline]
    pub fn code(&self) -> i64 {
        self.code
    }

    /// Returns the error's message.
    #[inline]
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Members that are read from a result, in this order.
const RESULT_MEMBERS: [&str; 3] = ["resultType", "_meta", "isError"];

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &'static str) -> ResultBody {
        ResultBody::parse(Bytes::from_static(text.as_bytes())).unwrap()
    }

    #[test]
    fn a_result_without_a_type_is_complete() {
        assert_eq!(body("{}").kind(), &ResultType::Complete);
        assert_eq!(body(r#"{"resultType":"input_required"}"#).kind(), &ResultType::InputRequired);
        assert!(body(r#"{"content":[],"isError":true}"#).is_error());
    }

    #[test]
    fn non_objects_are_not_results() {
        for text in ["null", "[]", "1", "\"x\""] {
            let raw = Bytes::from_static(text.as_bytes());
            assert!(Answer::parse(Response::Result(raw.clone().into())).is_err(), "{text}");
            assert!(Answer::parse(Response::Error(raw.into())).is_err(), "{text}");
        }
    }
}
