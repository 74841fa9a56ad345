//! Translates the experimental tasks of 2025-11-25 into those of the extension.
//!
//! The two differ in three ways. Some members have other names; a Legacy task's
//! result or error is fetched with a request of its own, while a Modern task
//! contains it; and if its tool reported an error, a Legacy task has failed,
//! while a Modern one has completed with that result (SEP-2663, "Task Status").

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::value::RawValue;

use trunkline_jsonrpc::{Members, string, text};

use crate::call::Answer;
use crate::era::meta::rewrite;
use crate::mcp::meta::META;

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStatus {
    /// The task is running.
    Working,
    /// The task waits for input from its client.
    InputRequired,
    /// The task has a result.
    Completed,
    /// The task has an error; in the Legacy form, also a tool result that is an
    /// error.
    Failed,
    /// The task was cancelled.
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

/// A task of either form, with the members that the gateway reads.
#[derive(Debug)]
pub struct Task<'a> {
    /// The server's own id.
    pub id: String,
    /// The status of the task.
    pub status: TaskStatus,
    /// The polling interval that its server suggests.
    pub poll: Option<Duration>,
    members: Members<'a>,
}

impl<'a> Task<'a> {
    /// Reads a task; `None` if it is not one.
    pub fn parse(raw: &'a [u8]) -> Option<Self> {
        let members = Members::parse(raw).ok()?;
        let id = members.find("taskId").and_then(text)?.into_owned();
        let status = members.find("status").and_then(text)?;
        let [_, (legacy, modern)] = RENAMED_MEMBERS;
        let poll = members.find(modern).or_else(|| members.find(legacy));
        let poll = poll.and_then(|raw| serde_json::from_str::<f64>(raw.get()).ok());
        let poll = poll.and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok());
        Some(Self { id, status: TaskStatus::parse(&status)?, poll, members })
    }

    /// Reads the task in a Legacy `CreateTaskResult`.
    pub fn created(raw: &'a [u8]) -> Option<Self> {
        let task = Members::parse(raw).ok()?.find("task")?;
        Self::parse(task.get().as_bytes())
    }

    /// A member that only the form of its era has, such as `result`.
    #[inline]
    pub fn find(&self, key: &str) -> Option<&'a RawValue> {
        self.members.find(key)
    }
}

/// The part of a Modern task that depends on its status.
#[derive(Debug, Clone)]
pub enum TaskOutcome {
    /// Nothing, in this status.
    Nothing(TaskStatus),
    /// The pending input requests: a raw object of requests by key.
    Asks(Bytes),
    /// The result or error of the task.
    Ended(Answer),
}

/// A Legacy `CreateTaskResult` in the Modern form; `None` if the result is not
/// one.
pub fn lift_created(raw: &[u8]) -> Option<Bytes> {
    let result = Members::parse(raw).ok()?;
    let task = Task::created(raw)?;
    let meta = result.find(META).map(|meta| meta.get().as_bytes());
    Some(lifted(&task, "task", task.status, meta.map(|meta| (META, meta))))
}

/// A Legacy task as the result of a Modern client's `tasks/get`.
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
            || RENAMED_MEMBERS.iter().any(|(_, modern)| *modern == key)
    };
    let mut has_ttl = false;
    for (key, value) in task.members.0.iter().filter(|(key, _)| !taken(key)) {
        let renamed = RENAMED_MEMBERS.iter().find(|(legacy, _)| legacy == key);
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

/// A call's params with a request for a task, for a Legacy server.
pub fn as_task(params: &[u8]) -> Bytes {
    rewrite(Some(params), &[TASK_MEMBER], &[(TASK_MEMBER, b"{}")])
}

/// A Modern client's params without the member that a Legacy server would read
/// as a request for a task (SEP-2663, "Backward Compatibility": it has no
/// meaning in Modern).
pub fn without_task(params: &[u8]) -> Bytes {
    rewrite(Some(params), &[TASK_MEMBER], &[])
}

/// Returns true if params request a task, in the form of 2025-11-25.
pub fn asks_for_task(params: &[u8]) -> bool {
    memchr::memmem::find(params, b"\"task\"").is_some()
        && Members::parse_with_duplicates(params)
            .is_ok_and(|members| members.find(TASK_MEMBER).is_some())
}

const TASK_MEMBER: &str = "task";
/// The members that are renamed, by their Legacy and Modern names.
const RENAMED_MEMBERS: [(&str, &str); 2] = [("ttl", "ttlMs"), ("pollInterval", "pollIntervalMs")];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;
    use trunkline_jsonrpc::Response;

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
    fn a_task_has_its_outcome_and_the_matching_status() {
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
        /// A lifted task can be read back: no member is lost.
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
            for (legacy, modern) in RENAMED_MEMBERS {
                if let Some(value) = back.remove(modern) {
                    back.insert(legacy.into(), value);
                }
            }
            prop_assert_eq!(Value::Object(back), legacy);
        }
    }
}
