//! OpenLegion: each agent has its own servers, child processes with independent faults, and a tool
//! keeps its name unless another one has it already.

use rustix::process::Signal;
use serde_json::json;

use super::{Project, fixture};
use crate::peers::file;
use crate::process::{Process, Tag, eventually};
use crate::support::{Client, Step, Upstream};

/// Returns an agent of the documentation's example, at its own endpoint.
async fn agent(gateway: &Process, name: &str) -> Client {
    let client = Client::sessionless(gateway.address, "2025-06-18");
    client.at(&format!("/mcp/{name}")).initialized().await
}

/// Starts a stand-in for `mcp-server-sqlite` with a tool that has the name of a skill of every
/// agent.
async fn database() -> Upstream {
    let database = Upstream::legacy().await;
    database.set_tools(Vec::<String>::new());
    database.does("read_query", |call| vec![Step::text(call.arguments()["query"].to_string())]);
    database.does("exec_command", |_| vec![Step::text("of the server")]);
    database.does("crash", |_| vec![Step::Break]);
    database
}

/// Returns the documentation's agents, two more with the documentation's example of a server and
/// with two servers that have the same tools, and the programs of all.
fn project(analytics: &Upstream, drafts: &Upstream, tag: &Tag) -> Project {
    let project = Project::new(
        "naming = \"first\"\nname_format = \"mcp_{server}_{tool}\"\n\
         reserved_names = [\"exec_command\"]\nlist_wait = \"20s\"",
    );
    let files = file("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    project.has_program("mcp-server-filesystem", &format!("exec node {files} \"$@\""));
    let [analytics, drafts] = [analytics, drafts].map(Upstream::program);
    let is_analytics = "[[ $2 == */analytics.db ]]";
    project.has_program(
        "mcp-server-sqlite",
        &format!("if {is_analytics}; then {analytics}; else {drafts}; fi"),
    );
    project.has_python("python");
    project.has("data/report.csv", "month,sales\nmay,7\n");
    project.has("app/tools/my_server.py", &fixture("systems/my_server.py"));
    let folder = project.path("").display().to_string();
    let more = fixture("systems/more_agents.yaml");
    let agents = (fixture("import/agents.yaml") + &more)
        .replace("ENVIRONMENT", &tag.env().replace(" = ", ": "))
        .replace("\"/data", &format!("\"{folder}data"))
        .replace("\"/app", &format!("\"{folder}app"));
    project.has("config/agents.yaml", &agents);
    project.imports("config/agents.yaml");
    project
}

const SERVERS: [&str; 5] = ["filesystem", "sqlite", "sqlite-writer", "my-tools", "archive"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_agent_has_the_tools_of_its_own_servers_by_the_names_that_openlegion_gives() {
    let (analytics, drafts) = (database().await, database().await);
    let tag = Tag::new();
    let mut gateway = project(&analytics, &drafts, &tag).serves();
    gateway.ready(&SERVERS);
    let analyst = agent(&gateway, "analyst").await;
    let names = analyst.tool_names().await;
    for name in ["read_file", "write_file", "search_files", "read_query"] {
        assert!(names.iter().any(|other| other == name), "{name} of {names:?}");
    }
    assert!(names.iter().any(|name| name == "mcp_sqlite_exec_command"), "it is a skill's name");
    assert!(!names.iter().any(|name| name == "exec_command" || name == "analyze"), "{names:?}");
    let path = gateway.folder().join("data/report.csv");
    let read = analyst.call("read_file", json!({ "path": path })).await;
    assert_eq!(read.text(), "month,sales\nmay,7\n");
    assert_eq!(analyst.call("read_query", json!({ "query": "a" })).await.text(), "\"a\"");
    let said = analyst.call("mcp_sqlite_exec_command", json!({})).await;
    assert_eq!((said.text(), drafts.calls().len()), ("of the server", 0));

    // Another agent's server of that name is a separate one.
    let writer = agent(&gateway, "writer").await;
    let said = writer.call("read_query", json!({ "query": "b" })).await;
    assert_eq!((said.text(), drafts.calls().len()), ("\"b\"", 1));

    // Of two servers of one agent the first keeps a name.
    let librarian = agent(&gateway, "librarian").await;
    let said = librarian.call("read_query", json!({ "query": "c" })).await;
    assert_eq!((said.text(), drafts.calls().len()), ("\"c\"", 1));
    let said = librarian.call("mcp_archive_read_query", json!({ "query": "d" })).await;
    assert_eq!((said.text(), drafts.calls().len()), ("\"d\"", 2));

    // One of its servers cannot be started.
    let coder = agent(&gateway, "coder").await;
    assert_eq!(coder.tool_names().await, ["analyze"]);
    let said = coder.call("analyze", json!({ "data": "1,2" })).await;
    assert_eq!(said.text(), "Analysis of 3 bytes in json format");

    assert!(!tag.processes().is_empty());
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().success());
    tag.gone();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_in_a_call_is_an_error_to_the_model_and_started_again_up_to_a_limit()
{
    let (analytics, drafts) = (database().await, database().await);
    let project = project(&analytics, &drafts, &Tag::new());
    project.adds_behind("[servers.sqlite]", "max_restarts = 1");
    let mut project = project;
    let gateway = project.serves();
    gateway.ready(&SERVERS);
    let (analyst, writer) = (agent(&gateway, "analyst").await, agent(&gateway, "writer").await);
    let names = analyst.tool_names().await;
    for starts in [1, 2] {
        assert_eq!(analytics.starts(), starts);
        let said = analyst.call("crash", json!({})).await;
        assert!(said.is_error() && said.text().contains("failed during the call"), "{said:?}");
        let read = writer.call("read_query", json!({ "query": "b" })).await;
        assert_eq!(read.text(), "\"b\"", "another's process is another");
        if starts == 1 {
            let said = analyst.call("read_query", json!({ "query": "a" })).await;
            assert_eq!(said.text(), "\"a\"", "the call waits for the restart");
        }
    }
    eventually("it is left alone", || gateway.server("sqlite")["state"] == "failed");
    let said = analyst.call("read_query", json!({ "query": "a" })).await;
    assert!(said.is_error() && said.text().contains("sqlite is not available"), "{said:?}");
    assert_eq!(analyst.tool_names().await, names, "its tools stay in the list");
    let path = gateway.folder().join("data/report.csv");
    assert!(!analyst.call("read_file", json!({ "path": path })).await.is_error());
    assert_eq!(analytics.starts(), 2);
}
