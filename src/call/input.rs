//! Requests of a server to the client in the middle of a call, and the
//! responses: sampling, elicitation, roots.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::jsonrpc::{self, Members, Response, text};
use crate::mcp::question::{ELICITATION, ROOTS, SAMPLING};

use super::{Abilities, AnswerFault, ResultBody, ResultType};

/// One request of a server for input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The method, such as `elicitation/create`.
    pub method: String,
    /// Its raw params, if there are any.
    pub params: Option<Bytes>,
}

impl Question {
    /// Whether Legacy clients can be sent requests of this method.
    pub fn is_known(&self) -> bool {
        matches!(self.method.as_str(), SAMPLING | ELICITATION | ROOTS)
    }

    /// The capabilities that a client with these abilities lacks to answer
    /// this; `None` if it lacks none, or the method is unknown.
    pub fn missing_capabilities(&self, abilities: &Abilities) -> Option<Value> {
        let member =
            |key| self.params.as_deref().and_then(|raw| Members::parse(raw).ok()?.find(key));
        match self.method.as_str() {
            SAMPLING if member("tools").is_some() => {
                (!abilities.sampling_tools).then(|| json!({ "sampling": { "tools": {} } }))
            }
            SAMPLING => (!abilities.sampling).then(|| json!({ "sampling": {} })),
            ROOTS => (!abilities.roots).then(|| json!({ "roots": {} })),
            ELICITATION if member("mode").and_then(text).as_deref() == Some("url") => {
                (!abilities.url).then(|| json!({ "elicitation": { "url": {} } }))
            }
            ELICITATION => (!abilities.form).then(|| json!({ "elicitation": { "form": {} } })),
            _ => None,
        }
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
    /// Reads the input requests, if the result has any.
    ///
    /// # Errors
    /// [`AnswerFault::Result`] if it is not a valid `InputRequiredResult`.
    pub fn asked(&self) -> Result<Option<Asked>, AnswerFault> {
        if *self.kind() != ResultType::InputRequired {
            return Ok(None);
        }
        Asked::parse(self.raw()).map(Some).map_err(AnswerFault::Result)
    }
}

impl Asked {
    fn parse(raw: &Bytes) -> Result<Self, serde_json::Error> {
        use serde::de::Error as _;
        let wrong = |what: &str| serde_json::Error::custom(what);
        let result = Members::parse(raw)?;
        let mut questions = Vec::new();
        if let Some(requests) = result.find("inputRequests") {
            for (key, request) in Members::parse(requests.get().as_bytes())?.0 {
                let request = Members::parse(request.get().as_bytes())?;
                let method = request.find("method").and_then(text);
                let method = method.ok_or_else(|| wrong("an input request without a method"))?;
                let params = request.find("params").filter(|params| params.get() != "null");
                let params = params.map(|params| raw.slice_ref(params.get().as_bytes()));
                let question = Question { method: method.into_owned(), params };
                questions.push((key.into_owned(), question));
            }
        }
        let state = match result.find("requestState") {
            Some(state) => {
                let span = jsonrpc::span_of(raw, state.get().as_bytes());
                let text = text(state).ok_or_else(|| wrong("a requestState that is no string"))?;
                span.map(|span| (text.into_owned(), span))
            }
            None => None,
        };
        if questions.is_empty() && state.is_none() {
            return Err(wrong("neither inputRequests nor a requestState"));
        }
        if questions.len() > MOST_QUESTIONS {
            return Err(wrong("too many input requests"));
        }
        Ok(Self { questions, state })
    }
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

/// The most pending input requests of one call.
pub const MOST_QUESTIONS: usize = 32;
