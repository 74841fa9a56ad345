//! Checks every answer.
//!
//! Most servers give the same answer except for its id. So a correct answer is
//! kept, and the next one is compared with it byte by byte, with the number
//! replaced; only a different one is parsed.

use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;
use serde_json::Value;

use trunkline_core::text::one_line;
use trunkline_jsonrpc::{self as jsonrpc, Frame, MAX_SERVER_DEPTH, Response};

use super::answer::{AnswerError, AnswerMedia, ReceivedAnswer, excerpt, is};
use super::request::Digits;

/// A correct answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorrectAnswer {
    /// A result.
    Result,
    /// A tool result with `isError`, with the beginning of its text.
    ToolError(Arc<str>),
}

/// Checks answers of one kind.
#[derive(Default)]
pub(crate) struct AnswerChecker {
    /// The last correct answer, the positions of the number in it, and its
    /// kind.
    known: Option<(Vec<u8>, Vec<usize>, CorrectAnswer)>,
    expect: Option<Expect>,
}

/// The text that each answer must contain, split at the request's number.
#[derive(Debug, Clone)]
pub struct Expect(Vec<String>);

impl Expect {
    /// Parses a text with `{{n}}` as the placeholder for the number.
    pub fn new(text: &str) -> Self {
        Self(text.split("{{n}}").map(str::to_owned).collect())
    }

    fn holds(&self, message: &[u8], number: Digits) -> bool {
        let digits = String::from_utf8_lossy(&number.0);
        memmem::find(message, self.0.join(&*digits).as_bytes()).is_some()
    }
}

impl AnswerChecker {
    /// Creates a checker that expects a text in each answer.
    pub(crate) fn expecting(expect: Option<Expect>) -> Self {
        Self { known: None, expect }
    }

    /// Checks the answer to the request `number`.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub(crate) fn judge(
        &mut self,
        received: &ReceivedAnswer,
        number: u64,
    ) -> Result<CorrectAnswer, AnswerError> {
        let digits = Digits::of(number);
        let message = &received.message;
        if received.head.status == 200
            && let Some((known, places, right)) = &mut self.known
            && known.len() == message.len()
        {
            for place in places {
                if let Some(into) = known.get_mut(*place..*place + digits.0.len()) {
                    into.copy_from_slice(&digits.0);
                }
            }
            if known == message {
                return Ok(right.clone());
            }
        }
        let right = read(received, number)?;
        if let Some(expect) = &self.expect
            && !expect.holds(message, digits)
        {
            return Err(AnswerError::Unexpected { text: excerpt(message) });
        }
        if message.len() <= MAX_COMPARED_BYTES {
            let places = memmem::find_iter(message, &digits.0).collect();
            self.known = Some((message.to_vec(), places, right.clone()));
        }
        Ok(right)
    }
}

fn read(received: &ReceivedAnswer, number: u64) -> Result<CorrectAnswer, AnswerError> {
    let (head, message) = (&received.head, &received.message);
    if let Some(what) = &received.asked {
        return Err(AnswerError::Asks { what: what.clone() });
    }
    if !head.status.is_success() {
        let (status, body) = (head.status, excerpt(message));
        return Err(AnswerError::Status { status, body });
    }
    if let AnswerMedia::Other(media) = &received.media {
        return Err(AnswerError::Media { media: media.clone() });
    }
    let text = || excerpt(message);
    match jsonrpc::parse(message, MAX_SERVER_DEPTH) {
        Ok(Frame::Response { id, .. }) if !is(id.as_ref(), number) => {
            Err(AnswerError::WrongId { text: text() })
        }
        Ok(Frame::Response { response: Response::Result(result), .. }) => judge_result(&result),
        Ok(Frame::Response { response: Response::Error(error), .. }) => {
            let error: Value = serde_json::from_slice(&error).unwrap_or_default();
            let code = error.get("code").and_then(Value::as_i64).unwrap_or(0);
            Err(AnswerError::Error { code, text: text() })
        }
        _ => Err(AnswerError::Message { text: text() }),
    }
}

fn judge_result(result: &Bytes) -> Result<CorrectAnswer, AnswerError> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Result<'a> {
        #[serde(default)]
        is_error: bool,
        #[serde(default, borrow)]
        result_type: Option<std::borrow::Cow<'a, str>>,
    }
    let read = serde_json::from_slice::<Result<'_>>(result);
    match read {
        Ok(Result { result_type: Some(kind), .. }) if kind == "input_required" => {
            Err(AnswerError::Asks { what: "input".into() })
        }
        Ok(Result { is_error: true, .. }) => {
            Ok(CorrectAnswer::ToolError(first_text(result).into()))
        }
        Ok(_) => Ok(CorrectAnswer::Result),
        Err(_) => Err(AnswerError::Message { text: excerpt(result) }),
    }
}

/// Returns the beginning of the first text of a tool result, for people.
fn first_text(result: &[u8]) -> String {
    let result: Value = serde_json::from_slice(result).unwrap_or_default();
    let mut content = result.get("content").and_then(Value::as_array).into_iter().flatten();
    let text = content.find_map(|item| item.get("text")?.as_str());
    text.map(|text| one_line(text, MAX_ERROR_CHARACTERS)).unwrap_or_default()
}

/// Maximum characters of the text of a tool error that a report shows.
const MAX_ERROR_CHARACTERS: usize = 200;
/// Maximum bytes of an answer that is kept for comparison.
const MAX_COMPARED_BYTES: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use crate::exchange::request::FIRST_NUMBER;

    use trunkline_core::clock;

    use super::*;

    fn received(status: u16, text: &str) -> ReceivedAnswer {
        let response = http::Response::builder().status(status).body(()).unwrap();
        ReceivedAnswer {
            head: response.into_parts().0,
            media: AnswerMedia::Json,
            message: Bytes::copy_from_slice(text.as_bytes()),
            arrived: clock::real_now(),
            asked: None,
            reusable: true,
        }
    }

    fn kind(judge: &mut AnswerChecker, status: u16, text: &str) -> String {
        match judge.judge(&received(status, text), FIRST_NUMBER) {
            Ok(right) => format!("{right:?}"),
            Err(trouble) => trouble.kind(),
        }
    }

    #[test]
    fn every_answer_is_judged() {
        let judge = &mut AnswerChecker::default();
        for (status, text, expected) in [
            (200, r#"{"jsonrpc":"2.0","id":1000000000,"result":{"content":[]}}"#, "Result"),
            (
                200,
                r#"{"jsonrpc":"2.0","id":1000000000,"result":{"isError":true}}"#,
                "ToolError(\"\")",
            ),
            (200, r#"{"jsonrpc":"2.0","id":1000000001,"result":{}}"#, "wrong id"),
            (200, r#"{"jsonrpc":"2.0","id":"1000000000","result":{}}"#, "wrong id"),
            (200, r#"{"jsonrpc":"2.0","id":1000000000,"result":7}"#, "not JSON-RPC"),
            (
                200,
                r#"{"jsonrpc":"2.0","id":1000000000,"error":{"code":-32602,"message":"x"}}"#,
                "JSON-RPC -32602",
            ),
            (
                200,
                r#"{"jsonrpc":"2.0","id":1000000000,"result":{"resultType":"input_required"}}"#,
                "asks the client",
            ),
            (200, "hello", "not JSON-RPC"),
            (200, "", "not JSON-RPC"),
            (429, r#"{"jsonrpc":"2.0","id":1000000000,"result":{}}"#, "HTTP 429"),
        ] {
            assert_eq!(kind(judge, status, text), expected, "{text}");
        }
    }

    #[test]
    fn an_answer_like_the_last_is_right_and_one_with_another_id_is_not() {
        let answer = |id: u64, x: &str| {
            received(200, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":"{x}"}}}}"#))
        };
        let mut judge = AnswerChecker::default();
        for number in FIRST_NUMBER..FIRST_NUMBER + 3 {
            assert_eq!(judge.judge(&answer(number, "a"), number).unwrap(), CorrectAnswer::Result);
        }
        assert!(judge.judge(&answer(FIRST_NUMBER, "a"), FIRST_NUMBER + 3).is_err());
        assert!(judge.judge(&answer(FIRST_NUMBER + 4, "b"), FIRST_NUMBER + 4).is_ok());
        assert!(judge.judge(&answer(FIRST_NUMBER + 4, "b"), FIRST_NUMBER + 5).is_err());
    }

    #[test]
    fn the_expected_text_has_to_be_in_every_answer() {
        let mut judge = AnswerChecker::expecting(Some(Expect::new("number {{n}} ")));
        let answer = |id: u64, n: u64| {
            received(
                200,
                &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":"number {n} "}}}}"#),
            )
        };
        assert!(judge.judge(&answer(FIRST_NUMBER, FIRST_NUMBER), FIRST_NUMBER).is_ok());
        assert!(judge.judge(&answer(FIRST_NUMBER + 1, FIRST_NUMBER + 1), FIRST_NUMBER + 1).is_ok());
        let trouble =
            judge.judge(&answer(FIRST_NUMBER + 2, FIRST_NUMBER + 1), FIRST_NUMBER + 2).unwrap_err();
        assert_eq!(trouble.kind(), "not expected");
    }
}
