//! Refusals of a server's input requests that the client could not answer.

use crate::call::{Abilities, MAX_QUESTIONS, Question};
use crate::jsonrpc::{self, Response};
use crate::mcp::code;

/// Returns the reason to refuse an input request for a client with these abilities while `open`
/// others are pending; `None` if it can be sent.
pub(crate) fn refusal_reason(
    question: &Question,
    abilities: &Abilities,
    open: usize,
) -> Option<String> {
    if !question.is_known() {
        Some(format!("clients of this gateway do not support {}", question.method))
    } else if question.is_ambiguous() {
        Some(format!("the params of {} have a duplicate key", question.method))
    } else if let Some(missing) = question.missing_capability(abilities) {
        Some(question.not_offered(missing))
    } else if open >= MAX_QUESTIONS {
        Some(format!("more than {MAX_QUESTIONS} requests of this call are open"))
    } else {
        None
    }
}

/// Builds the error response that refuses a server's input request.
pub(crate) fn refusal_response(text: &str) -> Response {
    Response::Error(jsonrpc::error_object(code::METHOD_NOT_FOUND, text).into())
}
