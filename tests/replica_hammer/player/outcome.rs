//! The end of a call, from its answer.

use serde_json::Value;

use crate::history::CallEnd;
use crate::support::Said;

/// Returns the end of a call with this answer.
pub fn end_of(answer: &Value) -> CallEnd {
    if answer["error"].is_object() {
        return of_error(200, &answer["error"]);
    }
    let result = &answer["result"];
    if result["isError"] == true {
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        return CallEnd::ToolError(text.to_owned());
    }
    CallEnd::Answer
}

/// Returns the end of a call with a response that is no answer.
pub fn refusal(said: &Said) -> CallEnd {
    let error = said.messages.last().map_or(&Value::Null, |answer| &answer["error"]);
    if error.is_object() {
        return of_error(said.status, error);
    }
    CallEnd::Error(format!("{}{BALANCER}", said.status))
}

fn of_error(status: u16, error: &Value) -> CallEnd {
    let message = error["message"].as_str().unwrap_or_default();
    let text = format!("{status} {} {message}", error["code"]);
    if message.contains("try again") { CallEnd::Retryable(text) } else { CallEnd::Error(text) }
}

/// Returns true if the session of a call is unknown to all replicas.
pub fn is_lost_session(end: &CallEnd) -> bool {
    matches!(end, CallEnd::Error(text) if text.contains("unknown or expired session"))
}

/// Returns true for an error that the balancer made because it got no response.
pub fn is_of_balancer(end: &CallEnd) -> bool {
    matches!(end, CallEnd::Error(text) if text.ends_with(BALANCER))
}

const BALANCER: &str = " of the balancer";
