//! Replaces task ids in messages of servers with public ids. All other bytes
//! are unchanged.

use std::borrow::Cow;

use bytes::Bytes;
use memchr::memmem;
use serde_json::value::RawValue;

use trunkline_jsonrpc::{Members, Splice, string, text};

use crate::mcp::meta::{META, RELATED_TASK};

/// The positions of task ids in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskIdPlace {
    /// In a task: its own id, and those within its result and its input
    /// requests.
    Task,
    /// In the member `task` of a Legacy `CreateTaskResult`.
    Created,
    /// In `_meta` only: the task that the message belongs to.
    Meta,
}

/// The id of the task that a message belongs to.
pub fn related(raw: &[u8]) -> Option<String> {
    memmem::find(raw, RELATED_TASK.as_bytes())?;
    let related = inner(&inner(&Members::parse(raw).ok()?, META)?, RELATED_TASK)?;
    related.find("taskId").and_then(text).map(Cow::into_owned)
}

/// The message with its task ids replaced by `public`; `None` if it has none.
pub fn rename(raw: &[u8], place: TaskIdPlace, public: impl Fn(&str) -> String) -> Option<Bytes> {
    // A message without a task id lacks this key, which may be written with escapes.
    memmem::find(raw, b"\"taskId\"").or_else(|| memmem::find(raw, br"\u"))?;
    let mut finder = Finder { public, splice: Splice::new(raw) };
    let message = Members::parse_with_duplicates(raw).ok()?;
    finder.meta(&message);
    match place {
        TaskIdPlace::Task => finder.task(&message),
        TaskIdPlace::Created => {
            inners(&message, "task").for_each(|task| finder.id(&task));
        }
        TaskIdPlace::Meta => {}
    }
    finder.splice.finish_edited()
}

fn inner<'a>(members: &Members<'a>, key: &str) -> Option<Members<'a>> {
    Members::parse(members.find(key)?.get().as_bytes()).ok()
}

/// The objects of all members with this name: a client may use any of them.
fn inners<'a>(members: &Members<'a>, key: &str) -> impl Iterator<Item = Members<'a>> {
    let parse = |raw: &'a RawValue| Members::parse_with_duplicates(raw.get().as_bytes()).ok();
    members.find_all(key).filter_map(parse)
}

struct Finder<'a, F> {
    public: F,
    splice: Splice<'a>,
}

impl<'a, F: Fn(&str) -> String> Finder<'a, F> {
    fn task(&mut self, task: &Members<'a>) {
        self.id(task);
        inners(task, "result").for_each(|result| self.meta(&result));
        for (_, request) in inners(task, "inputRequests").flat_map(|requests| requests.0) {
            let Ok(request) = Members::parse_with_duplicates(request.get().as_bytes()) else {
                continue;
            };
            inners(&request, "params").for_each(|params| self.meta(&params));
        }
    }

    fn meta(&mut self, message: &Members<'a>) {
        for meta in inners(message, META) {
            inners(&meta, RELATED_TASK).for_each(|related| self.id(&related));
        }
    }

    fn id(&mut self, task: &Members<'a>) {
        task.find_all("taskId").for_each(|raw| self.put(raw));
    }

    fn put(&mut self, raw: &'a RawValue) {
        if let Some(native) = text(raw) {
            self.splice.replace_part(raw.get().as_bytes(), string(&(self.public)(&native)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(raw: &str, place: TaskIdPlace) -> Option<String> {
        let out = rename(raw.as_bytes(), place, |native| format!("s.{native}"));
        out.map(|out| String::from_utf8(out.to_vec()).unwrap())
    }

    #[test]
    fn every_id_of_a_place_is_found_and_nothing_else_is_touched() {
        for (place, raw, expected) in [
            (
                TaskIdPlace::Task,
                r#"{"taskId": "1","status":"completed","result":{"taskId":"x","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"\u0031"}}}}"#,
                r#"{"taskId": "s.1","status":"completed","result":{"taskId":"x","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"s.1"}}}}"#,
            ),
            (
                TaskIdPlace::Task,
                r#"{"taskId":"1","inputRequests":{"a":{"method":"m","params":{"taskId":"x","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"}}}},"b":7}}"#,
                r#"{"taskId":"s.1","inputRequests":{"a":{"method":"m","params":{"taskId":"x","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"s.1"}}}},"b":7}}"#,
            ),
            (
                TaskIdPlace::Task,
                r#"{"task\u0049d":"1","taskId":"2","result":{},"result":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"3"}}}}"#,
                r#"{"task\u0049d":"s.1","taskId":"s.2","result":{},"result":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"s.3"}}}}"#,
            ),
            (
                TaskIdPlace::Created,
                r#"{"task":{"ttl":1.50,"taskId":"1"},"taskId":"x"}"#,
                r#"{"task":{"ttl":1.50,"taskId":"s.1"},"taskId":"x"}"#,
            ),
            (
                TaskIdPlace::Meta,
                r#"{"taskId":"x","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"}}}"#,
                r#"{"taskId":"x","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"s.1"}}}"#,
            ),
        ] {
            assert_eq!(renamed(raw, place).as_deref(), Some(expected));
        }
        for raw in ["", "[]", "{}", r#"{"taskId":7}"#, r#"{"content":"\"taskId\""}"#] {
            assert_eq!(renamed(raw, TaskIdPlace::Task), None, "{raw}");
        }
        assert_eq!(renamed(r#"{"taskId":"1"}"#, TaskIdPlace::Meta), None);
    }
}
