//! Requests of a server to the client in the middle of a call, and the
//! responses: sampling, elicitation, roots.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde_json::value::RawValue;

use trunkline_jsonrpc::{self as jsonrpc, JsonError, Members, Response, text};

use crate::mcp::question::{ELICITATION, ROOTS, SAMPLING};

use crate::call::{Abilities, AnswerFault, NeededCapability, ResultBody, ResultType};

/// Faults of an `InputRequiredResult`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuestionsFault {
    /// A value that must be an object is not.
    #[error("`{member}` must be an object")]
    NotAnObject {
        /// The member that holds the value.
        member: &'static str,
    },
    /// An object has a duplicate key, so its readers could differ.
    #[error("`{member}` has a duplicate key")]
    DuplicateKey {
        /// The member that holds the object.
        member: &'static str,
    },
    /// An input request without a method.
    #[error("an input request has no `method`")]
    NoMethod,
    /// The state is not a string.
    #[error("`requestState` must be a string")]
    State,
    /// Neither input requests nor a state.
    #[error("neither `inputRequests` nor `requestState` is present")]
    Empty,
    /// Too many input requests.
    #[error("{found} input requests, the limit is {limit}")]
    TooMany {
        /// The number found.
        found: usize,
        /// The maximum.
        limit: usize,
    },
}

/// One request of a server for input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The method, such as `elicitation/create`.
    pub method: String,
    /// Its raw params, if there are any.
    pub params: Option<Bytes>,
}

impl Question {
    /// Returns the bytes of its method and params.
    #[inline]
    pub fn size(&self) -> usize {
        self.method.len() + self.params.as_ref().map_or(0, Bytes::len)
    }

    /// Copies it out of the message that it came in.
    #[must_use]
    pub fn detach(mut self) -> Self {
        self.params = self.params.map(|params| Bytes::copy_from_slice(&params));
        self
    }

    /// Parses a member of `inputRequests`; `source` contains it.
    ///
    /// # Errors
    /// [`QuestionsFault`] if it is not an object, or has no method.
    pub fn read(source: &Bytes, request: &RawValue) -> Result<Self, QuestionsFault> {
        let request = read_members(request.get().as_bytes(), "inputRequests[…]")?;
        let method = request.find("method").and_then(text).ok_or(QuestionsFault::NoMethod)?;
        let params = request.find("params").filter(|params| params.get() != "null");
        let params = params.map(|params| source.slice_ref(params.get().as_bytes()));
        let question = Self { method: method.into_owned(), params };
        if question.is_ambiguous() {
            return Err(QuestionsFault::DuplicateKey { member: "inputRequests[…].params" });
        }
        Ok(question)
    }

    /// Returns true if the params have a duplicate key: the client could read another form of the
    /// request than the one that [`Self::missing_capability`] judges.
    pub fn is_ambiguous(&self) -> bool {
        let members = self.params.as_deref().map(Members::parse);
        matches!(members, Some(Err(JsonError::DuplicateKey { .. })))
    }

    /// Returns true if Legacy clients support requests of this method.
    pub fn is_known(&self) -> bool {
        matches!(self.method.as_str(), SAMPLING | ELICITATION | ROOTS)
    }

    /// Returns the capability that a client with these abilities lacks to answer this; `None` if it
    /// lacks none, or the method is unknown.
    pub fn missing_capability(&self, abilities: &Abilities) -> Option<NeededCapability> {
        let member =
            |key| self.params.as_deref().and_then(|raw| Members::parse(raw).ok()?.find(key));
        match self.method.as_str() {
            SAMPLING if member("tools").is_some() => {
                (!abilities.sampling_tools).then_some(NeededCapability::SamplingTools)
            }
            SAMPLING => (!abilities.sampling).then_some(NeededCapability::Sampling),
            ROOTS => (!abilities.roots).then_some(NeededCapability::Roots),
            ELICITATION if member("mode").and_then(text).as_deref() == Some("url") => {
                (!abilities.url).then_some(NeededCapability::ElicitationUrl)
            }
            ELICITATION => (!abilities.form).then_some(NeededCapability::ElicitationForm),
            _ => None,
        }
    }

    /// Returns the error text for a server if its client lacks this capability.
    pub fn not_offered(&self, missing: NeededCapability) -> String {
        let (method, part) = (&self.method, missing.part());
        format!(
            "the client that made this call does not offer {method}{part}: it did not declare the \
             capability {missing}"
        )
    }
}

/// The content of an `InputRequiredResult`.
#[derive(Debug)]
pub struct Asked {
    /// The input requests by their keys, in order.
    pub questions: Vec<(String, Question)>,
    /// The state that the retry has to carry, and its span.
    pub state: Option<(String, Range<usize>)>,
}

impl ResultBody {
    /// Parses the input requests, if the result has any.
    ///
    /// # Errors
    /// [`AnswerFault::Questions`] if it is not a valid `InputRequiredResult`.
    pub fn asked(&self) -> Result<Option<Asked>, AnswerFault> {
        if *self.kind() != ResultType::InputRequired {
            return Ok(None);
        }
        Ok(Some(Asked::parse(self.raw())?))
    }
}

impl Asked {
    fn parse(raw: &Bytes) -> Result<Self, QuestionsFault> {
        let result = read_members(raw, "result")?;
        let mut questions = Vec::new();
        if let Some(requests) = result.find("inputRequests") {
            for (key, request) in read_members(requests.get().as_bytes(), "inputRequests")?.0 {
                questions.push((key.into_owned(), Question::read(raw, request)?));
            }
        }
        let state = match result.find("requestState") {
            Some(state) => {
                let span = jsonrpc::span_of(raw, state.get().as_bytes());
                let text = text(state).ok_or(QuestionsFault::State)?;
                span.map(|span| (text.into_owned(), span))
            }
            None => None,
        };
        if questions.is_empty() && state.is_none() {
            return Err(QuestionsFault::Empty);
        }
        if questions.len() > MAX_QUESTIONS {
            return Err(QuestionsFault::TooMany { found: questions.len(), limit: MAX_QUESTIONS });
        }
        Ok(Self { questions, state })
    }
}

fn read_members<'a>(raw: &'a [u8], member: &'static str) -> Result<Members<'a>, QuestionsFault> {
    Members::parse(raw).map_err(|error| match error {
        JsonError::DuplicateKey { .. } => QuestionsFault::DuplicateKey { member },
        JsonError::Syntax | JsonError::TooDeep { .. } => QuestionsFault::NotAnObject { member },
    })
}

/// A client's responses to input requests, by key.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// The state that came with the requests, as the client received it.
    pub state: Option<String>,
    /// Results, or the client's errors.
    pub responses: Vec<(String, Response)>,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.method)
    }
}

/// Limit of the pending input requests of one call.
pub const MAX_QUESTIONS: usize = 32;
