//! Schemas that take long to compile: together they would take gigabytes and minutes.

use serde_json::{Value, json};

use crate::support::upstream::tool;
use crate::support::{Gateway, Upstream};

/// Returns a tool with a pattern that may take a dozen megabytes to compile.
fn costly(number: usize) -> Value {
    let pattern = format!("(?i){}", "[a]".repeat(64));
    let properties = json!({ "x": { "type": "string", "pattern": pattern } });
    let schema = json!({ "type": "object", "properties": properties });
    json!({ "name": format!("costly_{number:02}"), "inputSchema": schema })
}

#[tokio::test]
async fn patterns_of_one_list_take_no_more_than_a_budget() {
    let upstream = Upstream::modern().await;
    let all = (0..40).map(costly).chain([tool("plain")]);
    upstream.set_tools(all.map(|tool| tool.to_string()));
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let tools = gateway.modern().tool_names().await;
    let listed = tools.iter().filter(|name| name.contains("costly")).count();
    assert!((10..30).contains(&listed), "{tools:?}");
    assert!(tools.iter().any(|name| name == "s__plain"), "tools without patterns stay: {tools:?}");
    let expected: Vec<_> = (0..listed).map(|number| format!("s__costly_{number:02}")).collect();
    assert_eq!(tools[..listed], expected, "the first ones of the list stay");
    let status = gateway.server("s").await;
    assert!(status["warnings"].to_string().contains("together take more than"), "{status}");
}
