//! AVA, a voice agent: tool names that every provider of voices accepts, a list of tools for each
//! context, one field of a result to speak, and a text to speak while a call is slow.

use serde_json::{Value, json};

use super::{Project, fixture, refresh};
use crate::process::Process;
use crate::support::{Client, Said};

/// Opens AVA's session in a context, with the version of its Python SDK.
async fn open(gateway: &Process) -> Client {
    let client = Client::sessionless(gateway.address, "2025-06-18");
    client.at("/mcp/aviation_support").initialized().await
}

async fn get_atis(client: &Client, icao: &str) -> Said {
    client.call("mcp_aviation_atis_get_atis", json!({ "icao": icao })).await
}

/// Returns the project with AVA's configuration, with short times, and its server.
fn project(change: impl FnOnce(String) -> String) -> Project {
    let project = Project::new(
        "name_format = \"mcp_{server}_{tool}\"\nname_case = \"snake\"\nlist_wait = \"20s\"",
    );
    project.has("src/mcp_servers/aviation_atis_server.py", &fixture("systems/atis_server.py"));
    project.has_python("python3");
    let config = fixture("import/ava.yaml")
        .replace("timeout_ms: 10000", "timeout_ms: 1500")
        .replace("slow_response_threshold_ms: 2000", "slow_response_threshold_ms: 200");
    project.has("config/ai-agent.yaml", &change(config));
    project.imports("config/ai-agent.yaml");
    project
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_has_its_tools_by_safe_names_and_one_field_of_each_result_is_spoken() {
    let gateway = project(|config| config).serves();
    gateway.ready(&["aviation_atis"]);
    let whole = Client::legacy(gateway.address, "2025-06-18").await;
    let names = whole.tool_names().await;
    let expected = ["get_atis", "get_metar", "get_runway"];
    assert_eq!(names, expected.map(|tool| format!("mcp_aviation_atis_{tool}")));
    let is_safe = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_');
    assert!(names.iter().all(|name| name.len() <= 64 && name.chars().all(is_safe)));

    let call = open(&gateway).await;
    let tools = call.tools().await;
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mcp_aviation_atis_get_atis", "mcp_aviation_atis_get_metar"]);
    assert_eq!(tools[0]["description"], "Get current ATIS for an airport");
    // The allow-list applies to calls as well.
    let refused = call.call("mcp_aviation_atis_get_runway", json!({ "icao": "KSFO" })).await;
    assert_eq!(refused.error()["message"], "unknown tool: mcp_aviation_atis_get_runway");

    let said = get_atis(&call, "KSFO").await;
    assert_eq!(said.text(), "KSFO information Alpha, wind calm.");
    let data = &said.result()["structuredContent"];
    assert_eq!(
        (&data["icao"], &data["config"]),
        (&json!("KSFO"), &json!("/app/config/aviation_atis.yaml"))
    );
    assert!(data["agent"].as_str().unwrap().starts_with("Asterisk-AI-Voice-Agent"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_call_is_announced_a_hanging_one_ends_and_a_crash_is_followed_by_a_restart() {
    let gateway = project(|config| config).serves();
    gateway.ready(&["aviation_atis"]);
    let call = open(&gateway).await;
    let ask = call.ask_call("mcp_aviation_atis_get_atis", json!({ "icao": "SLOW" }));
    let said = ask.token(json!(1)).send().await.said().await;
    let [notice] = said.notices() else { panic!("{said:?}") };
    assert_eq!(notice["method"], "notifications/progress");
    assert_eq!(notice["params"]["message"], "Let me look that up for you, one moment...");
    assert_eq!(said.text(), "SLOW information Alpha, wind calm.");

    let said = get_atis(&call, "NEVER").await;
    assert!(said.is_error() && said.text().contains("did not respond within 1.5 s"), "{said:?}");
    let said = get_atis(&call, "DIES").await;
    assert!(said.is_error() && said.text().contains("failed during the call"), "{said:?}");
    gateway.ready(&["aviation_atis"]);
    assert!(!get_atis(&call, "KSFO").await.is_error(), "it was started again");

    // The values of AVA's metrics and of its pages for status and tests.
    let metrics = gateway.operator("/metrics");
    for line in [
        "trunkline_tool_calls_total{server=\"aviation_atis\",tool=\"get_atis\",outcome=\"ok\"} 2",
        "trunkline_server_restarts_total{server=\"aviation_atis\"} 1",
        "trunkline_server_up{server=\"aviation_atis\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert_eq!(gateway.server("aviation_atis")["state"], "ready");
    assert_eq!(refresh(&gateway, "aviation_atis", "").await.json()["changed"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_of_voices_gets_a_sentence_and_results_of_a_limited_size() {
    let mut project = project(|config| config.replace("# speech_template", "speech_template"));
    let template = "result.template = \"The current ATIS for {icao} is: {atis_text}\"";
    project.adds_behind(template, "result.structured = \"drop\"");
    project.adds("[servers.aviation_atis.result]\nmax_size = \"1KiB\"");
    let gateway = project.serves();
    gateway.ready(&["aviation_atis"]);
    let call = open(&gateway).await;
    let said = get_atis(&call, "KSFO").await;
    let sentence = "The current ATIS for KSFO is: KSFO information Alpha, wind calm.";
    let result = json!({ "content": [{ "type": "text", "text": sentence }], "isError": false });
    assert_eq!(said.result(), &result);
    let tools = call.tools().await;
    assert_eq!(tools[0].get("outputSchema"), None, "nor is it promised");

    let said = call.call("mcp_aviation_atis_get_metar", json!({ "icao": "KSFO" })).await;
    assert!(said.result().to_string().len() <= 1024, "{said:?}");
    let data = &said.result()["structuredContent"];
    let reports = data["reports"].as_array().map_or(0, Vec::len);
    assert!(data["icao"] == "KSFO" && reports > 0, "{said:?}");
    let last =
        said.result()["content"].as_array().and_then(|parts| parts.last()).map(Value::to_string);
    assert!(last.unwrap().contains("was cut"), "{said:?}");
}
