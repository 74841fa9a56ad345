//! What the experimental tasks of 2025-11-25 say, in the words of the extension.
//!
//! The two differ in three ways. Members have other names; a Legacy task's
//! result, or its error, is fetched by a request of its own, and stands within
//! a Modern task; and a Legacy task whose tool reported an error has failed,
//! where a Modern one has completed with such a result (SEP-2663, "Task
//! Status").

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::value::RawValue;

use crate::call::Answer;
use crate::era::meta::rewrite;
use crate::jsonrpc::{Members, string, text};
use crate::mcp::meta::META;

/// How a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStatus {
    /// It goes on.
    Working,
    /// It waits for its client.
    InputRequired,
    /// There is a result.
    Completed,
    /// There is an error; in the Legacy form, or a tool's result that says so.
    Failed,
    /// It was ended before its time.
    Cancelled,
}

impl TaskStatus {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "working" => Self::Working,
            "input_required" => Self::InputRequired,
            "completed" => Self::Completed,
            "failed" => Self::Failed,
            "cancelled" => Self::Cancelled,
            _ => return None,
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A task of either form, as far as the gateway looks at it.
#[derive(Debug)]
pub struct Task<'a> {
    /// The server's own id.
    pub id: String,
    /// How it is.
    pub status: TaskStatus,
    /// How often its server wants to be asked.
    pub poll: Option<Duration>,
    members: Members<'a>,
}

impl<'a> Task<'a> {
    /// Reads a task; `None` where it is none.
    pub fn parse(raw: &'a [u8]) -> Option<Self> {
        let members = Members::parse(raw).ok()?;
        let id = members.find("taskId").and_then(text)?.into_owned();
        let status = members.find("status").and_then(text)?;
        let [_, (legacy, modern)] = RENAMED;
        let poll = members.find(modern).or_else(|| members.find(legacy));
        let poll = poll.and_then(|raw| serde_json::from_str::<f64>(raw.get()).ok());
        let poll = poll.and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok());
        Some(Self { id, status: TaskStatus::parse(&status)?, poll, members })
    }

    /// Reads the task that a Legacy `CreateTaskResult` tells of.
    pub fn created(raw: &'a [u8]) -> Option<Self> {
        let task = Members::parse(raw).ok()?.find("task")?;
        Self::parse(task.get().as_bytes())
    }

    /// A member that only the form of its era has, such as `result`.
    pub fn find(&self, key: &str) -> Option<&'a RawValue> {
        self.members.find(key)
    }
}

/// What a Modern task has beside its state.
#[derive(Debug, Clone)]
pub enum TaskOutcome {
    /// Nothing, in this state.
    Nothing(TaskStatus),
    /// What it wants to know: a raw object of requests by their keys.
    Asks(Bytes),
    /// What came of it.
    Ended(Answer),
}

/// A Legacy `CreateTaskResult` as a Modern client knows it; `None` where the
/// result is none.
pub fn lift_created(raw: &[u8]) -> Option<Bytes> {
    let result = Members::parse(raw).ok()?;
    let task = Task::created(raw)?;
    let meta = result.find(META).map(|meta| meta.get().as_bytes());
    Some(lifted(&task, "task", task.status, meta.map(|meta| (META, meta))))
}

/// A Legacy task as the result of a Modern client's `tasks/get`. `meta` is that
/// of the Legacy result.
pub fn lift(task: &Task<'_>, outcome: &TaskOutcome) -> Bytes {
    let (status, more): (_, Option<(&str, &[u8])>) = match outcome {
        TaskOutcome::Nothing(status) => (*status, None),
        TaskOutcome::Asks(requests) => {
            (TaskStatus::InputRequired, Some(("inputRequests", requests)))
        }
        TaskOutcome::Ended(Answer::Result(result)) => {
            (TaskStatus::Completed, Some(("result", result.raw())))
        }
        TaskOutcome::Ended(Answer::Error(error)) => {
            (TaskStatus::Failed, Some(("error", error.raw())))
        }
    };
    lifted(task, "complete", status, more)
}

/// An empty acknowledgement.
pub fn acknowledged() -> Bytes {
    Bytes::from_static(b"{\"resultType\":\"complete\"}")
}

fn lifted(task: &Task<'_>, kind: &str, status: TaskStatus, more: Option<(&str, &[u8])>) -> Bytes {
    let mut out = BytesMut::new();
    out.put_slice(format!("{{\"resultType\":\"{kind}\"").as_bytes());
    let mut member = |key: &str, value: &[u8]| {
        out.put_u8(b',');
        out.put_slice(string(key).as_bytes());
        out.put_u8(b':');
        out.put_slice(value);
    };
    let taken = |key: &str| {
        key == "resultType"
            || more.is_some_and(|(more, _)| more == key)
            || RENAMED.iter().any(|(_, modern)| *modern == key)
    };
    let mut has_ttl = false;
    for (key, value) in task.members.0.iter().filter(|(key, _)| !taken(key)) {
        let renamed = RENAMED.iter().find(|(legacy, _)| legacy == key);
        has_ttl |= key == "ttl";
        match renamed {
            _ if key == "status" => member(key, string(status.as_str()).as_bytes()),
            Some((_, modern)) => member(modern, value.get().as_bytes()),
            None => member(key, value.get().as_bytes()),
        }
    }
    if !has_ttl {
        member("ttlMs", b"null");
    }
    if let Some((key, value)) = more {
        member(key, value);
    }
    out.put_u8(b'}');
    out.freeze()
}

/// A call's params that ask a Legacy server for a task.
pub fn as_task(params: &[u8]) -> Bytes {
    rewrite(Some(params), &[TASK], &[(TASK, b"{}")])
}

/// A Modern client's params without what a Legacy server would take for the
/// wish for a task (SEP-2663, "Backward Compatibility": it means nothing).
pub fn without_task(params: &[u8]) -> Bytes {
    rewrite(Some(params), &[TASK], &[])
}

/// Whether params ask for a task, in the form of 2025-11-25.
pub fn asks_for_task(params: &[u8]) -> bool {
    memchr::memmem::find(params, b"\"task\"").is_some()
        && Members::parse(params).is_ok_and(|members| members.find(TASK).is_some())
}

const TASK: &str = "task";
/// Members by their Legacy and their Modern names.
const RENAMED: [(&str, &str); 2] = [("ttl", "ttlMs"), ("pollInterval", "pollIntervalMs")];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::jsonrpc::Response;

    fn task(raw: &str) -> Task<'_> {
        Task::parse(raw.as_bytes()).unwrap()
    }

    fn answer(response: Response) -> TaskOutcome {
        TaskOutcome::Ended(Answer::parse(response).unwrap())
    }

    #[test]
    fn a_created_task_is_flat_and_has_the_names_of_the_extension() {
        let raw = r#"{"task":{"taskId":"1","status":"working","ttl": 60000,"pollInterval":5e2,"x":[ 1]},"_meta":{"a":1}}"#;
        assert_eq!(
            lift_created(raw.as_bytes()).unwrap(),
            r#"{"resultType":"task","taskId":"1","status":"working","ttlMs":60000,"pollIntervalMs":5e2,"x":[ 1],"_meta":{"a":1}}"#
        );
        assert_eq!(Task::created(raw.as_bytes()).unwrap().poll, Some(Duration::from_millis(500)));
        for raw in ["{}", r#"{"task":{}}"#, r#"{"content":[],"task":1}"#, "[]"] {
            assert_eq!(lift_created(raw.as_bytes()), None, "{raw}");
        }
    }

    #[test]
    fn a_task_has_what_came_of_it_and_the_status_that_goes_with_it() {
        let failed = task(r#"{"taskId":"1","status":"failed","ttl":null}"#);
        let result = Response::Result(r#"{"content":[],"isError":true}"#.into());
        let error = Response::Error(r#"{"code":-1,"message":"no"}"#.into());
        for (outcome, expected) in [
            (
                answer(result),
                r#"{"resultType":"complete","taskId":"1","status":"completed","ttlMs":null,"result":{"content":[],"isError":true}}"#,
            ),
            (
                answer(error),
                r#"{"resultType":"complete","taskId":"1","status":"failed","ttlMs":null,"error":{"code":-1,"message":"no"}}"#,
            ),
            (
                TaskOutcome::Asks(Bytes::from_static(br#"{"a":{}}"#)),
                r#"{"resultType":"complete","taskId":"1","status":"input_required","ttlMs":null,"inputRequests":{"a":{}}}"#,
            ),
            (
                TaskOutcome::Nothing(TaskStatus::Cancelled),
                r#"{"resultType":"complete","taskId":"1","status":"cancelled","ttlMs":null}"#,
            ),
        ] {
            assert_eq!(lift(&failed, &outcome), expected);
        }
        let bare = task(r#"{"taskId":"1","status":"working"}"#);
        let lifted = lift(&bare, &TaskOutcome::Nothing(TaskStatus::Working));
        assert_eq!(
            lifted,
            r#"{"resultType":"complete","taskId":"1","status":"working","ttlMs":null}"#
        );
    }

    #[test]
    fn the_wish_for_a_task_is_put_in_and_taken_out() {
        assert_eq!(as_task(br#"{"name":"a","task":7}"#), r#"{"name":"a","task":{}}"#);
        assert_eq!(without_task(br#"{"task":{},"name":"a"}"#), r#"{"name":"a"}"#);
        assert!(!asks_for_task(br#"{"name":"task","arguments":{"task":1}}"#));
    }

    proptest! {
        /// What is lifted can be read back: nothing of a task is lost.
        #[test]
        fn lifting_loses_nothing(
            ttl in proptest::option::of(any::<u32>()),
            poll in proptest::option::of(any::<u32>()),
            status in proptest::sample::select(&["working", "input_required", "completed", "failed", "cancelled"][..]),
            more in proptest::collection::btree_map("[a-z]{1,5}X", any::<i32>(), 0..4),
        ) {
            let mut legacy = json!({ "taskId": "1", "status": status, "createdAt": "c", "ttl": ttl });
            if let Some(poll) = poll {
                legacy["pollInterval"] = json!(poll);
            }
            for (key, value) in &more {
                legacy[key] = json!(value);
            }
            let raw = legacy.to_string();
            let task = Task::parse(raw.as_bytes()).unwrap();
            let lifted = lift(&task, &TaskOutcome::Nothing(task.status));
            let mut back: Map<String, Value> = serde_json::from_slice(&lifted).unwrap();
            prop_assert_eq!(back.remove("resultType"), Some(json!("complete")));
            for (legacy, modern) in RENAMED {
                if let Some(value) = back.remove(modern) {
                    back.insert(legacy.into(), value);
                }
            }
            prop_assert_eq!(Value::Object(back), legacy);
        }
    }
}
