//! The tools of the tasks extension for the official suite's scenarios. A call of one becomes a
//! task if the client declared the extension, and is otherwise refused or answered at once.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock,
    CreateTaskResult, InputRequest, InputRequests, InputRequiredResult,
};
use rmcp::service::RequestContext;
use rmcp::task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use super::offered::typed;

/// A tool, its description, its arguments, and true if it has to be a task.
type Listed = (&'static str, &'static str, &'static [(&'static str, &'static str)], bool);

const TOOLS: [Listed; 7] = [
    ("greet", "Greets at once, never as a task.", &[("name", "string")], false),
    ("slow_compute", "Takes its time.", &[("seconds", "number"), ("label", "string")], false),
    ("failing_job", "Ends in a tool's error.", &[], true),
    ("protocol_error_job", "Ends in a protocol's error.", &[], false),
    ("confirm_delete", "Asks one thing on the way.", &[("filename", "string")], true),
    ("multi_input", "Asks two things on the way.", &[], true),
    ("test_tool_with_task", "Asks before it becomes a task.", &[], true),
];

pub fn has(tool: &str) -> bool {
    TOOLS.iter().any(|(name, ..)| *name == tool)
}

/// Returns the listed tools.
pub fn tools() -> Vec<Value> {
    let listed = TOOLS.iter().map(|(name, description, arguments, _)| {
        let properties: serde_json::Map<_, _> = arguments
            .iter()
            .map(|(name, kind)| ((*name).into(), json!({ "type": kind })))
            .collect();
        let schema = json!({ "type": "object", "properties": properties });
        json!({ "listed": { "name": name, "description": description, "inputSchema": schema } })
    });
    listed.collect()
}

pub async fn call(
    tasks: &TaskManager,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let (tool, .., needs_task) = TOOLS.iter().find(|(name, ..)| *name == request.name).unwrap();
    let may_be_task = context.client_capabilities().is_some_and(|c| c.supports_tasks());
    if *needs_task && !may_be_task {
        let needed = ClientCapabilities::builder().enable_tasks().build();
        return Err(ErrorData::missing_required_client_capability(needed));
    }
    let arguments = json!(request.arguments.clone().unwrap_or_default());
    let mut name = Value::Null;
    if *tool == "test_tool_with_task" {
        name = request
            .input_responses
            .iter()
            .flatten()
            .find(|(key, _)| *key == "user_name")
            .map(|(_, answer)| answer["content"]["name"].clone())
            .unwrap_or_default();
        if name.is_null() {
            let question = form("What is your name?", "name", "string")?;
            let asked = InputRequests::from([("user_name".to_owned(), question)]);
            return Ok(InputRequiredResult::from_input_requests(asked).into());
        }
    }
    if *tool == "greet" || !may_be_task {
        return at_once(tool, &arguments).await.map(Into::into);
    }
    let task = tasks.spawn(TaskOptions::default(), move |task| {
        Box::pin(async move { work(tool, &arguments, &name, &task).await })
    });
    Ok(CreateTaskResult::new(task).into())
}

async fn at_once(tool: &str, arguments: &Value) -> Result<CallToolResult, ErrorData> {
    match tool {
        "greet" => said(format!("Hello, {}!", arguments["name"].as_str().unwrap_or("you"))),
        "slow_compute" => {
            tokio::time::sleep(seconds(arguments)).await;
            said("computed")
        }
        _ => Err(ErrorData::internal_error("this job always fails", None)),
    }
}

async fn work(
    tool: &str,
    arguments: &Value,
    name: &Value,
    task: &TaskContext,
) -> Result<CallToolResult, TaskExit> {
    let pause = Duration::from_millis(200);
    let done = match tool {
        "slow_compute" => tokio::select! {
            () = task.cancelled() => return Err(TaskExit::Cancelled),
            () = tokio::time::sleep(seconds(arguments)) => said("computed"),
        },
        "failing_job" => {
            tokio::time::sleep(pause * 4).await;
            Ok(CallToolResult::error(vec![ContentBlock::text("this job always fails")]))
        }
        "protocol_error_job" => {
            tokio::time::sleep(pause).await;
            at_once(tool, arguments).await
        }
        "confirm_delete" => {
            let words = format!("Delete {}?", arguments["filename"]);
            let question = form(&words, "confirm", "boolean").map_err(TaskExit::Error)?;
            let answer = task.request_input("confirm", question).await?;
            said(format!("confirmed: {}", answer["content"]["confirm"]))
        }
        "multi_input" => {
            let first = form("The first?", "first", "string").map_err(TaskExit::Error)?;
            let second = form("The second?", "second", "string").map_err(TaskExit::Error)?;
            let (first, second) = futures_util::future::try_join(
                task.request_input("first", first),
                task.request_input("second", second),
            )
            .await?;
            said(format!("{} and {}", first["content"], second["content"]))
        }
        _ => {
            tokio::time::sleep(pause).await;
            said(format!("Hello, {}!", name.as_str().unwrap_or("you")))
        }
    };
    done.map_err(TaskExit::Error)
}

fn said(words: impl Into<String>) -> Result<CallToolResult, ErrorData> {
    Ok(CallToolResult::success(vec![ContentBlock::text(words.into())]))
}

fn seconds(arguments: &Value) -> Duration {
    Duration::from_secs_f64(arguments["seconds"].as_f64().unwrap_or(1.0).clamp(0.0, 60.0))
}

fn form(message: &str, field: &str, kind: &str) -> Result<InputRequest, ErrorData> {
    let schema = json!({
        "type": "object", "properties": { field: { "type": kind } }, "required": [field],
    });
    let params = json!({ "message": message, "requestedSchema": schema });
    typed(json!({ "method": "elicitation/create", "params": params }))
}
