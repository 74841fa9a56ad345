//! Answers as interceptors see and change them: results, errors and questions.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::call::{ErrorBody, InterceptorFault, ResultBody};
use crate::jsonrpc::{Members, Splice, object_of, span_of, text};

use super::message::{REQUEST_STATE, SeenMessage};
use super::reply::InterceptedMessage;

impl InterceptedMessage for ResultBody {
    fn size(&self) -> usize {
        self.raw().len()
    }

    fn seen(&self) -> Result<SeenMessage, InterceptorFault> {
        SeenMessage::answer(self.raw())
    }

    fn changed(&self, payload: Vec<u8>) -> Result<Self, InterceptorFault> {
        self.with(payload.into()).map_err(|_| NOT_A_RESULT)
    }
}

/// The payload of an error has the single member `error`, which distinguishes it from a result.
impl InterceptedMessage for ErrorBody {
    fn size(&self) -> usize {
        self.raw().len()
    }

    fn seen(&self) -> Result<SeenMessage, InterceptorFault> {
        let error = String::from_utf8_lossy(self.raw());
        SeenMessage::answer(&object_of([(ERROR_MEMBER, error)]))
    }

    fn changed(&self, payload: Vec<u8>) -> Result<Self, InterceptorFault> {
        let members = Members::parse(&payload).map_err(|_| NOT_AN_ERROR)?;
        let error =
            members.find(ERROR_MEMBER).filter(|_| members.0.len() == 1).ok_or(NOT_AN_ERROR)?;
        let raw = error.get().as_bytes().to_vec();
        Self::parse(raw.into()).map_err(|_| NOT_AN_ERROR)
    }
}

/// A result that requests input. Its state is not shown: it is meant only for the gateway or the
/// server.
pub(super) struct QuestionResult(pub(super) ResultBody);

impl QuestionResult {
    /// Returns the members without the state.
    fn members(&self) -> Result<Vec<(Cow<'_, str>, &RawValue)>, InterceptorFault> {
        let all = Members::parse(self.0.raw()).map_err(|_| InterceptorFault::Ambiguous)?;
        Ok(all.0.into_iter().filter(|(key, _)| key != REQUEST_STATE).collect())
    }
}

impl InterceptedMessage for QuestionResult {
    fn size(&self) -> usize {
        self.0.raw().len()
    }

    fn seen(&self) -> Result<SeenMessage, InterceptorFault> {
        let members = self.members()?;
        let shown = members.iter().map(|(key, value)| (&**key, Cow::Borrowed(value.get())));
        SeenMessage::answer(&object_of(shown))
    }

    /// Accepts other params of questions; everything else must be equal.
    fn changed(&self, payload: Vec<u8>) -> Result<Self, InterceptorFault> {
        let before = self.members()?;
        let after = Members::parse(&payload).map_err(|_| OTHER_QUESTIONS)?;
        let (others, asked): (Vec<_>, Vec<_>) =
            before.iter().partition(|(key, _)| key != INPUT_REQUESTS);
        let is_same = |(key, value): &&(Cow<'_, str>, &RawValue)| {
            after.find(key).is_some_and(|other| is_equal(value, other))
        };
        let (Some((_, asked)), Some(changed)) = (asked.first(), after.find(INPUT_REQUESTS)) else {
            return Err(OTHER_QUESTIONS);
        };
        if after.0.len() != before.len() || !others.iter().all(is_same) {
            return Err(OTHER_QUESTIONS);
        }
        if ask_kinds(asked) != ask_kinds(changed) {
            return Err(OTHER_QUESTIONS);
        }
        let span = span_of(self.0.raw(), asked.get().as_bytes()).ok_or(OTHER_QUESTIONS)?;
        let raw = Splice::new(self.0.raw()).replace(span, changed.get().to_owned()).finish();
        self.0.with(raw).map(Self).map_err(|_| OTHER_QUESTIONS)
    }
}

/// Returns true if two raw values are equal.
fn is_equal(one: &RawValue, other: &RawValue) -> bool {
    let parse = |raw: &RawValue| serde_json::from_str::<serde_json::Value>(raw.get()).ok();
    parse(one).is_some_and(|one| Some(one) == parse(other))
}

/// Returns the key, method and mode of each question, in order; `None` if one has no method.
fn ask_kinds(questions: &RawValue) -> Option<Vec<(String, String, Option<String>)>> {
    let questions = Members::parse(questions.get().as_bytes()).ok()?;
    let kind = |(key, question): &(Cow<'_, str>, &RawValue)| {
        let question = Members::parse(question.get().as_bytes()).ok()?;
        let method = question.find("method").and_then(text)?.into_owned();
        let params = question.find("params").map(|raw| Members::parse(raw.get().as_bytes()));
        let mode = params.and_then(Result::ok).and_then(|params| params.find("mode"));
        Some((key.to_string(), method, mode.and_then(text).map(Cow::into_owned)))
    };
    let mut kinds = questions.0.iter().map(kind).collect::<Option<Vec<_>>>()?;
    kinds.sort_unstable();
    Some(kinds)
}

const ERROR_MEMBER: &str = "error";
const INPUT_REQUESTS: &str = "inputRequests";
const NOT_A_RESULT: InterceptorFault = InterceptorFault::Mutation("is not a valid result");
const NOT_AN_ERROR: InterceptorFault = InterceptorFault::Mutation("is not a valid error");
const OTHER_QUESTIONS: InterceptorFault =
    InterceptorFault::Mutation("changes more than the params of questions");
