//! Tasks of a scripted server, in the form of its era.
//!
//! It has the tools `may` and `must`, with calls that may or have to be tasks. The arguments
//! determine a task: `{"asks": true}` asks for input first, `{"ends": "result" | "error" | "link" |
//! "fault"}` ends at once, any other task runs until a test ends it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::script::{Received, Step, text};
use super::{Era, Inner, Upstream, tool};

pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// The tasks of one server.
#[derive(Clone)]
pub struct Tasks {
    inner: Arc<Inner>,
    all: Arc<Mutex<BTreeMap<String, State>>>,
}

#[derive(Debug, Clone)]
pub enum State {
    Working,
    Asks,
    Result(Value),
    Error(Value),
    Cancelled,
}

impl Upstream {
    /// Enables tasks.
    pub fn has_tasks(&self) -> Tasks {
        let tasks = Tasks { inner: Arc::clone(&self.inner), all: Arc::default() };
        self.can(match self.inner.era {
            Era::Legacy => json!({
                "tools": {}, "tasks": { "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } },
            }),
            Era::Modern => json!({ "tools": {}, "extensions": { EXTENSION: {} } }),
        });
        for (name, support) in [("may", "optional"), ("must", "required")] {
            let mut listed = tool(name);
            if self.inner.era == Era::Legacy {
                listed["execution"] = json!({ "taskSupport": support });
            }
            let own = tasks.clone();
            self.tool(&listed, move |call| vec![own.call(name, call)]);
        }
        for (method, answer) in [
            ("tasks/get", Tasks::get as fn(&Tasks, &Received) -> Vec<Step>),
            ("tasks/cancel", Tasks::cancel),
            ("tasks/update", Tasks::update),
            ("tasks/result", Tasks::result),
        ] {
            let own = tasks.clone();
            self.when_asked(method, move |asked| answer(&own, asked));
        }
        tasks
    }
}

impl Tasks {
    /// Ends a task in this state.
    pub fn end(&self, id: &str, state: State) {
        self.all.lock().unwrap().insert(id.to_owned(), state);
    }

    pub fn state(&self, id: &str) -> State {
        self.all.lock().unwrap()[id].clone()
    }

    pub fn is_cancelled(&self, id: &str) -> bool {
        matches!(self.all.lock().unwrap().get(id), Some(State::Cancelled))
    }

    pub fn count(&self) -> usize {
        self.all.lock().unwrap().len()
    }

    /// Forgets all tasks, as after their expiry.
    pub fn forget(&self) {
        self.all.lock().unwrap().clear();
    }

    fn is_legacy(&self) -> bool {
        self.inner.era == Era::Legacy
    }

    fn call(&self, name: &str, call: &Received) -> Step {
        let wanted = if self.is_legacy() {
            call.params.get("task").is_some()
        } else {
            let said = call.meta("io.modelcontextprotocol/clientCapabilities");
            said["extensions"].get(EXTENSION).is_some()
        };
        match (wanted, name) {
            (true, _) => {}
            (false, "may") => return Step::text("at once"),
            (false, _) if self.is_legacy() => {
                return Step::Error(json!({ "code": -32601, "message": "only as a task" }));
            }
            (false, _) => {
                let needed = json!({ "extensions": { EXTENSION: {} } });
                return Step::Error(json!({
                    "code": -32021, "message": "tasks needed",
                    "data": { "requiredCapabilities": needed },
                }));
            }
        }
        let arguments = call.arguments();
        let state = match arguments["ends"].as_str() {
            _ if arguments["asks"] == true => State::Asks,
            Some("result") => State::Result(text("done")),
            Some("fault") => {
                State::Result(json!({ "content": [], "isError": true, "structuredContent": {} }))
            }
            Some("link") => State::Result(json!({
                "content": [{ "type": "resource_link", "uri": "a:1", "name": "a" }],
            })),
            Some(_) => State::Error(json!({ "code": -7, "message": "no luck" })),
            None => State::Working,
        };
        let mut all = self.all.lock().unwrap();
        let id = format!("task-{}", all.len() + 1);
        all.insert(id.clone(), state);
        let working = self.told(&id, "working");
        drop(all);
        Step::Result(if self.is_legacy() {
            json!({ "task": working })
        } else {
            let mut created = working;
            created["resultType"] = json!("task");
            created
        })
    }

    fn told(&self, id: &str, status: &str) -> Value {
        let mut task = json!({
            "taskId": id, "status": status, "statusMessage": "m",
            "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z",
        });
        let names =
            if self.is_legacy() { ["ttl", "pollInterval"] } else { ["ttlMs", "pollIntervalMs"] };
        task[names[0]] = json!(60_000);
        task[names[1]] = json!(20);
        task
    }

    fn find(&self, asked: &Received) -> Result<(String, State), Vec<Step>> {
        let id = asked.params["taskId"].as_str().unwrap_or_default().to_owned();
        let state = self.all.lock().unwrap().get(&id).cloned();
        let unknown = || vec![Step::Error(json!({ "code": -32602, "message": "no such task" }))];
        Ok((id, state.ok_or_else(unknown)?))
    }

    fn get(&self, asked: &Received) -> Vec<Step> {
        let (id, mut state) = match self.find(asked) {
            Ok(found) => found,
            Err(unknown) => return unknown,
        };
        if let (State::Asks, Some(said)) = (&state, self.answered()) {
            state = State::Result(text(said.to_string()));
            self.end(&id, state.clone());
        }
        let status = match &state {
            State::Working => "working",
            State::Asks => "input_required",
            State::Result(result) if self.is_legacy() && result["isError"] == true => "failed",
            State::Result(_) => "completed",
            State::Error(_) => "failed",
            State::Cancelled => "cancelled",
        };
        let mut task = self.told(&id, status);
        if !self.is_legacy() {
            match state {
                State::Asks => {
                    task["inputRequests"] =
                        json!({ "q": { "method": "elicitation/create", "params": form() } });
                }
                State::Result(result) => task["result"] = result,
                State::Error(error) => task["error"] = error,
                State::Working | State::Cancelled => {}
            }
        }
        vec![Step::Result(task)]
    }

    /// Returns the client's answer to a Legacy server.
    fn answered(&self) -> Option<Value> {
        let received = self.inner.received.lock().unwrap();
        let is_answer = |r: &&Received| r.method.is_empty() && r.text.contains("/q\"");
        let answer = received.iter().rfind(is_answer)?;
        serde_json::from_str::<Value>(&answer.text).unwrap().get("result").cloned()
    }

    fn cancel(&self, asked: &Received) -> Vec<Step> {
        let (id, state) = match self.find(asked) {
            Ok(found) => found,
            Err(unknown) => return unknown,
        };
        let over = !matches!(state, State::Working | State::Asks);
        if over && self.is_legacy() {
            return vec![Step::Error(json!({ "code": -32602, "message": "it is over" }))];
        }
        if !over {
            self.end(&id, State::Cancelled);
        }
        let acknowledged = json!({ "resultType": "complete" });
        vec![Step::Result(if self.is_legacy() {
            self.told(&id, "cancelled")
        } else {
            acknowledged
        })]
    }

    fn update(&self, asked: &Received) -> Vec<Step> {
        match self.find(asked) {
            Ok((id, State::Asks)) => {
                let said = &asked.params["inputResponses"]["q"];
                self.end(&id, State::Result(text(said.to_string())));
                vec![Step::Result(json!({ "resultType": "complete" }))]
            }
            Ok(_) => vec![Step::Result(json!({ "resultType": "complete" }))],
            Err(unknown) => unknown,
        }
    }

    fn result(&self, asked: &Received) -> Vec<Step> {
        let (id, state) = match self.find(asked) {
            Ok(found) => found,
            Err(unknown) => return unknown,
        };
        let related = json!({ RELATED: { "taskId": id } });
        match state {
            State::Working => vec![Step::Hold, Step::Result(text("held"))],
            State::Asks => {
                let mut form = form();
                form["_meta"] = related;
                vec![Step::Ask("q", "elicitation/create", form), Step::Await("q"), Step::Answers]
            }
            State::Result(mut result) => {
                result["_meta"] = related;
                vec![Step::Result(result)]
            }
            State::Error(error) => vec![Step::Error(error)],
            State::Cancelled => {
                vec![Step::Error(json!({ "code": -32603, "message": "it was cancelled" }))]
            }
        }
    }
}

fn form() -> Value {
    json!({
        "mode": "form", "message": "Who?",
        "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } } },
    })
}
