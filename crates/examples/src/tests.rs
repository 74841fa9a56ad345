//! The example servers over their wire protocol, as a client sees them.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf};

use super::*;

fn clock() -> Legacy<ClockTools> {
    Legacy::new(ClockTools::at(|| "2026-07-28T12:00:00Z".parse().unwrap()))
}

fn notes() -> Modern<NotesTools> {
    Modern::new(NotesTools::new(Store::open(None).unwrap()))
}

/// A client that writes lines and reads lines.
struct Client {
    to: tokio::io::WriteHalf<DuplexStream>,
    from: Lines<BufReader<ReadHalf<DuplexStream>>>,
}

impl Client {
    /// Runs `story` against `server`. The server must end when the story ends.
    fn with<S: stdio::ExampleServer + 'static>(server: S, story: impl AsyncFnOnce(&mut Self)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (near, far) = tokio::io::duplex(1 << 20);
            let (input, output) = tokio::io::split(far);
            let (from, to) = tokio::io::split(near);
            let mut client = Self { to, from: BufReader::new(from).lines() };
            let story = async {
                story(&mut client).await;
                client.to.shutdown().await.unwrap();
            };
            let (end, ()) = tokio::join!(stdio::serve(server, input, output), story);
            end.unwrap();
        });
    }

    async fn send(&mut self, message: Value) {
        self.to.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.from.next_line().await.unwrap().unwrap()).unwrap()
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.send(json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })).await;
        let response = self.next().await;
        assert_eq!((&response["jsonrpc"], &response["id"]), (&json!("2.0"), &json!(1)));
        response
    }

    async fn initialize(&mut self, version: &str) -> Value {
        self.request("initialize", json!({ "protocolVersion": version })).await["result"].take()
    }

    /// Returns the result of a tool call, after checking its structured content against the tool's
    /// schema and the text.
    async fn call(&mut self, meta: &Value, name: &str, arguments: Value) -> Value {
        let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
        let result = self.request("tools/call", params).await["result"].take();
        if result.get("isError").is_none() {
            let listed = self.request("tools/list", json!({ "_meta": meta })).await;
            let tools = listed["result"]["tools"].as_array().unwrap().clone();
            let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
            let structured = &result["structuredContent"];
            let schema = jsonschema::validator_for(&tool["outputSchema"]).unwrap();
            assert_eq!(schema.validate(structured).map_err(|e| e.to_string()), Ok(()));
            let text: Value =
                serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
            assert_eq!(&text, structured);
        }
        result
    }
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

#[test]
fn the_list_names_each_example_and_its_era() {
    let list = list();
    let words: Vec<_> = list.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(words, ["clock", "notes", "load", "proxy"]);
    assert!(list.contains("Legacy") && list.contains("Modern"));
}

#[test]
fn both_have_a_tool_named_search_and_each_tool_takes_nothing_undeclared() {
    use tool::Toolbox;
    for tools in [ClockTools::new().tools(), NotesTools::new(Store::open(None).unwrap()).tools()] {
        assert!(tools.iter().any(|tool| tool["name"] == "search"));
        for tool in tools {
            assert_eq!(tool["inputSchema"]["type"], "object");
            assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
            assert!(jsonschema::meta::is_valid(&tool["inputSchema"]));
            assert_eq!(tool["outputSchema"]["type"], "object");
            assert!(!tool.to_string().contains("$ref"), "{tool}");
        }
    }
}

#[test]
fn the_clock_negotiates_legacy_versions_and_knows_no_other_era() {
    Client::with(clock(), async |client| {
        let early = client.request("tools/list", json!({})).await;
        assert_eq!(early["error"]["code"], -32600);
        let probe = client.request("server/discover", json!({ "_meta": meta() })).await;
        assert_eq!(probe["error"]["code"], -32601);
        for (asked, answered) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-03-26", "2025-03-26"),
            ("2025-11-25", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
        ] {
            assert_eq!(client.initialize(asked).await["protocolVersion"], answered);
        }
        assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
    });
}

#[test]
fn the_clock_tells_converts_and_finds() {
    Client::with(clock(), async |client| {
        client.initialize("2025-11-25").await;
        let none = Value::Null;
        let now = client.call(&none, "now", json!({ "zone": "Asia/Kathmandu" })).await;
        assert_eq!(now["structuredContent"]["time"], "2026-07-28T17:45:00+05:45");
        assert_eq!(now["structuredContent"]["weekday"], "Tuesday");
        let found = client.call(&none, "search", json!({ "query": "new york" })).await;
        assert_eq!(found["structuredContent"]["zones"][0]["zone"], "America/New_York");
        let berlin = |time: &str| json!({ "time": time, "from": "Europe/Berlin", "to": "UTC" });
        for (time, utc, note) in [
            ("2026-01-15 12:00", "2026-01-15T11:00:00+00:00", ""),
            ("2026-07-15T12:00:00+02:00", "2026-07-15T10:00:00+00:00", ""),
            ("2026-07-15T12:00:00Z", "2026-07-15T12:00:00+00:00", ""),
            ("2026-03-29T02:30", "2026-03-29T01:30:00+00:00", "skip"),
            ("2026-10-25T02:30", "2026-10-25T00:30:00+00:00", "twice"),
        ] {
            let result = client.call(&none, "convert", berlin(time)).await;
            let converted = &result["structuredContent"];
            assert_eq!(converted["to"]["time"], utc, "{time}");
            assert!(converted["note"].as_str().unwrap_or_default().contains(note), "{time}");
        }
    });
}

#[test]
fn faults_that_a_model_can_mend_are_results_and_others_are_errors() {
    Client::with(clock(), async |client| {
        client.initialize("2025-11-25").await;
        for (name, arguments, says) in [
            ("now", json!({ "zone": "Europe/Atlantis" }), "`search`"),
            ("now", json!({ "zon": "UTC" }), "unknown field `zon`"),
            ("now", json!([1, 2]), "invalid"),
            ("convert", json!({ "time": "noon", "to": "UTC" }), "2026-03-01T09:30"),
            ("convert", json!({ "time": "2026-03-01T09:30[Asia/Tokyo]", "to": "UTC" }), "read"),
            ("countdown", json!({ "seconds": 61 }), "1 to 60"),
            ("countdown", json!({ "seconds": -1 }), "invalid"),
            ("search", json!({ "query": "x", "limit": 0 }), "1 to 100"),
        ] {
            let result = client.call(&Value::Null, name, arguments).await;
            assert_eq!(result["isError"], true);
            let text = result["content"][0]["text"].as_str().unwrap();
            assert!(text.contains(says), "{text}");
        }
        let unknown = client.request("tools/call", json!({ "name": "noon" })).await;
        assert_eq!(unknown["error"]["code"], -32602);
        client.to.write_all(b"{\"jsonrpc\":\n").await.unwrap();
        assert_eq!(client.next().await["error"]["code"], -32700);
        client.send(json!({ "id": null, "method": "ping" })).await;
        assert_eq!(client.next().await["error"]["code"], -32600);
        let long = format!("{}\n", "x".repeat(2 << 20));
        client.to.write_all(long.as_bytes()).await.unwrap();
        assert_eq!(client.next().await["error"]["code"], -32700);
    });
}

#[test]
fn a_countdown_reports_progress_blocks_no_other_call_and_can_be_cancelled() {
    Client::with(clock(), async |client| {
        client.initialize("2025-11-25").await;
        for (id, token) in [("slow", "a"), ("long", "b")] {
            let seconds = if id == "slow" { 1 } else { 60 };
            let params = json!({
                "name": "countdown",
                "arguments": { "seconds": seconds },
                "_meta": { "progressToken": token },
            });
            client.send(json!({ "id": id, "method": "tools/call", "params": params })).await;
        }
        let now = client.request("tools/call", json!({ "name": "now" })).await;
        assert_eq!(now["result"]["structuredContent"]["zone"], "UTC");
        let cancel = json!({ "requestId": "long", "reason": "enough" });
        client.send(json!({ "method": "notifications/cancelled", "params": cancel })).await;
        let progress = client.next().await;
        assert_eq!(progress["method"], "notifications/progress");
        assert_eq!(progress["params"]["progressToken"], "a");
        assert_eq!(progress["params"]["progress"], 1);
        assert_eq!(client.next().await["id"], "slow");
        // The id is free again, and no response follows for it.
        client.send(json!({ "id": "long", "method": "ping" })).await;
        assert_eq!(client.next().await, json!({ "jsonrpc": "2.0", "id": "long", "result": {} }));
    });
}

#[test]
fn the_end_of_input_ends_calls_in_progress() {
    Client::with(clock(), async |client| {
        client.initialize("2025-11-25").await;
        let params = json!({ "name": "countdown", "arguments": { "seconds": 60 } });
        client.send(json!({ "id": 7, "method": "tools/call", "params": params })).await;
        client.to.shutdown().await.unwrap();
        assert_eq!(client.next().await["result"]["isError"], true);
    });
}

#[test]
fn batches_are_taken_in_the_one_version_that_has_them() {
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "ping" },
        { "jsonrpc": "2.0", "method": "notifications/initialized" },
        { "jsonrpc": "2.0", "id": 2, "method": "nonsense" },
        7,
    ]);
    Client::with(clock(), async |client| {
        client.initialize("2025-03-26").await;
        client.send(batch.clone()).await;
        let responses = client.next().await;
        let codes: Vec<_> =
            responses.as_array().unwrap().iter().map(|r| &r["error"]["code"]).collect();
        assert_eq!(codes, [&Value::Null, &json!(-32601), &json!(-32600)]);
        client.initialize("2025-06-18").await;
        client.send(batch.clone()).await;
        assert_eq!(client.next().await["error"]["code"], -32600);
    });
}

#[test]
fn notes_are_modern_only() {
    Client::with(notes(), async |client| {
        let legacy = client.request("initialize", json!({ "protocolVersion": "2025-11-25" })).await;
        assert_eq!(legacy["error"]["code"], -32022);
        assert!(legacy["error"]["message"].as_str().unwrap().contains("2026-07-28"));
        assert_eq!(legacy["error"]["data"]["requested"], "2025-11-25");
        let modern = client.request("initialize", json!({ "protocolVersion": "2026-07-28" })).await;
        assert_eq!(modern["error"]["code"], -32601);
        assert_eq!(modern["error"]["data"]["supported"], json!(["2026-07-28"]));

        let mut old = meta();
        old["io.modelcontextprotocol/protocolVersion"] = json!("2025-11-25");
        let mut bare = meta();
        bare.as_object_mut().unwrap().remove("io.modelcontextprotocol/clientCapabilities");
        for (meta, code) in [(json!({}), -32602), (bare, -32602), (old, -32022)] {
            let answer = client.request("tools/list", json!({ "_meta": meta })).await;
            assert_eq!(answer["error"]["code"], code, "{answer}");
        }
        for method in ["server/discover", "tools/list"] {
            let answer = client.request(method, json!({ "_meta": meta() })).await;
            let result = &answer["result"];
            assert_eq!(result["resultType"], "complete");
            assert_eq!(result["cacheScope"], "public");
            assert!(result["ttlMs"].is_u64());
            let info = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
            assert_eq!(info["name"], "trunkline-notes");
        }
        let ping = client.request("ping", json!({ "_meta": meta() })).await;
        assert_eq!(ping["error"]["code"], -32601);
    });
}

#[test]
fn a_subscription_is_acknowledged_and_ends_with_a_result() {
    Client::with(notes(), async |client| {
        let params = json!({ "notifications": { "toolsListChanged": true }, "_meta": meta() });
        for id in [5, 6] {
            let method = "subscriptions/listen";
            client.send(json!({ "id": id, "method": method, "params": params })).await;
            let acknowledged = client.next().await;
            assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
            assert_eq!(acknowledged["params"]["notifications"], json!({}));
            let meta = &acknowledged["params"]["_meta"];
            assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], id);
        }
        let cancel = json!({ "requestId": 5 });
        client.send(json!({ "method": "notifications/cancelled", "params": cancel })).await;
        client.to.shutdown().await.unwrap();
        let end = client.next().await;
        assert_eq!(end["id"], 6);
        assert_eq!(end["result"]["resultType"], "complete");
        assert_eq!(end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 6);
        assert!(client.from.next_line().await.unwrap().is_none(), "5 was cancelled");
    });
}

#[test]
fn notes_are_added_found_read_and_deleted() {
    Client::with(notes(), async |client| {
        let meta = meta();
        for (title, tags) in [("Shopping", json!(["home"])), ("Release plan", json!([]))] {
            let note = json!({ "title": title, "text": "Milk and a Train", "tags": tags });
            let added = client.call(&meta, "add", note).await;
            assert_eq!(added["resultType"], "complete");
        }
        let titles = |result: &Value| {
            let notes = result["structuredContent"]["notes"].as_array().unwrap().clone();
            notes.iter().map(|note| note["title"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let all = client.call(&meta, "list", json!({})).await;
        assert_eq!(titles(&all), ["Release plan", "Shopping"]);
        let home = client.call(&meta, "list", json!({ "tag": "home" })).await;
        assert_eq!(titles(&home), ["Shopping"]);
        let found = client.call(&meta, "search", json!({ "query": "PLAN train" })).await;
        assert_eq!(titles(&found), ["Release plan"]);
        let deleted = client.call(&meta, "delete", json!({ "id": "n1" })).await;
        assert_eq!(deleted["structuredContent"]["title"], "Shopping");
        let gone = client.call(&meta, "read", json!({ "id": "n1" })).await;
        assert_eq!(gone["isError"], true);
        let kept = client.call(&meta, "read", json!({ "id": "n2" })).await;
        assert_eq!(kept["structuredContent"]["text"], "Milk and a Train");
        for wrong in [
            json!({ "title": "", "text": "" }),
            json!({ "title": "x", "text": "x".repeat(20_001) }),
            json!({ "title": "x", "text": "", "tags": vec!["x"; 11] }),
        ] {
            assert_eq!(client.call(&meta, "add", wrong).await["isError"], true);
        }
    });
}

#[test]
fn notes_in_a_file_outlive_the_process_and_a_broken_file_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.json");
    let note = |title: &str| store::Note {
        id: String::new(),
        title: title.into(),
        text: String::new(),
        tags: Vec::new(),
        created: String::new(),
    };
    let mut store = Store::open(Some(file.clone())).unwrap();
    store.add(note("one")).unwrap();
    store.remove("n1").unwrap().unwrap();
    store.add(note("two")).unwrap();
    let again = Store::open(Some(file.clone())).unwrap();
    assert_eq!(again.notes(), store.notes());
    assert_eq!(again.notes()[0].id, "n2", "ids do not come again");
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");

    std::fs::write(&file, "not notes").unwrap();
    let error = Store::open(Some(file.clone())).unwrap_err().to_string();
    assert!(error.contains("notes.json"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not notes");
}
