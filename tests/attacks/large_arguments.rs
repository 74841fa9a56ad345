//! Arguments of megabytes that break their tool's schema, and smaller ones of a tool with a costly
//! schema: each takes long to check.

use serde_json::{Value, json};

use crate::long_calls::{LongCalls, connected_bystander};
use crate::support::{Gateway, Said, Step, Upstream};
use crate::{ATTACKER, BYSTANDER, two_clients};

/// Megabytes of integers for a schema that requires texts.
fn large() -> Value {
    json!({ "list": vec![1; 500_000] })
}

/// Less than 64 KiB of integers, each admitted only by the last of many alternatives, and a text
/// that no alternative admits.
fn costly() -> Value {
    let mut list = vec![json!(1); 30_000];
    list.push(json!("x"));
    json!({ "list": list })
}

/// Starts a gateway that serves all clients on one thread.
async fn gateway() -> (Gateway, Upstream) {
    let upstream = Upstream::modern().await;
    let schema = json!({
        "type": "object",
        "properties": { "list": { "type": "array", "items": { "type": "string" } } },
    });
    upstream
        .tool(&json!({ "name": "strict", "inputSchema": schema }), |_| vec![Step::text("fine")]);
    let minima = (2..200).map(|least| json!({ "type": "integer", "minimum": least }));
    let alternatives: Vec<_> = minima.chain([json!({ "type": "integer" })]).collect();
    let items = json!({ "anyOf": alternatives });
    let schema = json!({
        "type": "object",
        "properties": { "list": { "type": "array", "items": items } },
    });
    upstream
        .tool(&json!({ "name": "costly", "inputSchema": schema }), |_| vec![Step::text("fine")]);
    let builder = Gateway::with("s", upstream.http()).gateway("threads = 1");
    let gateway = two_clients(builder).start().await;
    // Compiles the schemas.
    for tool in ["s__strict", "s__costly"] {
        gateway.modern().key(ATTACKER).call(tool, json!({ "list": [1] })).await;
    }
    (gateway, upstream)
}

fn attack(
    gateway: &Gateway,
    tool: &'static str,
    arguments: fn() -> Value,
    calls: usize,
) -> LongCalls {
    LongCalls::begin(gateway, calls, tool, arguments, |said| {
        assert!(said.is_error() && said.text().contains("fit the schema"), "{}", said.text());
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_arguments_that_break_their_schema_hold_up_no_other_client() {
    let (gateway, _upstream) = gateway().await;
    let bystander = connected_bystander(&gateway).await;
    attack(&gateway, "s__strict", large, 4).hold_up_no_other_client(&bystander).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_of_a_costly_schema_hold_up_no_other_client() {
    let (gateway, _upstream) = gateway().await;
    let bystander = connected_bystander(&gateway).await;
    attack(&gateway, "s__costly", costly, 4).hold_up_no_other_client(&bystander).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_checks_of_one_client_delay_no_other() {
    let (gateway, _upstream) = gateway().await;
    // Half a million would wait for longer than they may on a busy machine. In so few, the first
    // violation is named.
    let long = || json!({ "list": vec![1; 150_000] });
    let is_named = |said: &Said| {
        let fault =
            "the arguments do not fit the tool's input schema:\n/list/0: type: expected string";
        assert!(said.is_error() && said.text().contains(fault), "{}", said.text());
    };
    let own = async {
        let said = gateway.modern().key(BYSTANDER).call("s__strict", long()).await;
        is_named(&said);
    };
    LongCalls::begin(&gateway, 8, "s__strict", long, is_named).delay_no_long_call(own).await;
}
