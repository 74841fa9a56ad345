//! `run_code`: code of a model that calls tools, in a child process of the gateway.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::confirm::form;
use crate::input::{ann, asks, both, form as question, prompt};
use crate::support::client::Client;
use crate::support::dialogue::dialogue_about;
use crate::support::{
    Gateway, Said, Step, Upstream, client_table, every_kind, json_lines, until, within,
};

const CODE: &str = "[profiles.default]\ndiscovery = \"code\"\npin = [\"*__ping\"]\n";

/// Sets up a server with tools that return their arguments, as text or as structured content.
fn tracker(upstream: &Upstream) {
    let issue = json!({
        "name": "find_issue", "description": "Finds an issue. And so on.",
        "inputSchema": { "type": "object", "required": ["query"], "properties": {
            "query": { "type": "string" }, "state": { "enum": ["open", "closed"] },
        } },
        "outputSchema": { "type": "object", "properties": { "query": { "type": "string" } } },
    });
    upstream.tool(&issue, |received| {
        let arguments = received.params["arguments"].clone();
        let content = json!([{ "type": "text", "text": "found" }]);
        vec![Step::Result(json!({ "content": content, "structuredContent": arguments }))]
    });
    for name in ["delete-issue", "ping"] {
        upstream.tool(&json!({ "name": name, "inputSchema": { "type": "object" } }), |received| {
            vec![Step::text(received.params["arguments"].to_string())]
        });
    }
    upstream.tool(&json!({ "name": "hold", "inputSchema": { "type": "object" } }), |_| {
        vec![Step::Hold, Step::text("released")]
    });
    let broken = json!({ "name": "broken", "inputSchema": { "type": "object" } });
    upstream.tool(&broken, |_| {
        let content = json!([{ "type": "text", "text": "the tracker is down" }]);
        vec![Step::Result(json!({ "content": content, "isError": true }))]
    });
}

async fn trackers() -> [Upstream; 2] {
    let upstreams = Upstream::both().await;
    for upstream in &upstreams {
        upstream.set_tools([""; 0]);
        tracker(upstream);
    }
    upstreams
}

async fn start(settings: &str) -> ([Upstream; 2], Gateway) {
    let upstreams = trackers().await;
    let [modern, legacy] = &upstreams;
    let builder = Gateway::with("m", modern.http()).server("l", legacy.http()).toml(settings);
    let gateway = builder.start().await;
    gateway.wait_for(|status| status["catalog"]["tools"] == 10).await;
    (upstreams, gateway)
}

async fn run(client: &Client, code: &str) -> Said {
    client.call("run_code", json!({ "code": code })).await
}

/// Returns the result of the code.
async fn returned(client: &Client, code: &str) -> Value {
    let said = run(client, code).await;
    assert!(!said.is_error(), "{said:?}");
    said.result()["structuredContent"]["returned"].clone()
}

#[tokio::test]
async fn code_calls_tools_of_servers_of_both_eras_and_combines_their_results() {
    let (upstreams, gateway) = start(CODE).await;
    for (era, client) in gateway.both().await {
        let said = client.request("tools/list", json!({})).await;
        let tools = said.result()["tools"].as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["run_code", "m__ping", "l__ping"], "{era}");
        let api = tools[0]["description"].as_str().unwrap();
        for part in [
            "/** Finds an issue.",
            "m__find_issue(input: { query: string; state?: \"open\" | \"closed\" }): \
             Promise<{ query?: string }>;",
            "l__delete_issue(",
        ] {
            assert!(api.contains(part), "{era} {part}: {api}");
        }
        let code = "
            const [one, other] = await Promise.all([
                tools.m__find_issue({ query: 'a' }), tools['l__find_issue']({ query: 'b' }),
            ]);
            const text = await tools.m__delete_issue({ id: 1 });
            console.log('found', one);
            return { both: one.query + other.query, text, ping: await tools.l__ping() };";
        let said = run(&client, code).await;
        let structured = &said.result()["structuredContent"];
        assert_eq!(
            structured["returned"],
            json!({ "both": "ab", "text": { "id": 1 }, "ping": {} }),
            "{era}: {said:?}"
        );
        assert_eq!(structured["printed"], "found {\"query\":\"a\"}\n", "{era}");
        let text = said.text();
        assert!(text.starts_with("found {\"query\":\"a\"}\n{\"both\":\"ab\""), "{era}: {text}");
        assert_eq!(returned(&client, "return 'as it is';").await, "as it is", "{era}");
    }
    for upstream in &upstreams {
        let names = upstream.calls().into_iter().map(|call| call.params["name"].clone());
        assert!(names.into_iter().any(|name| name == "find_issue"));
    }
}

#[tokio::test]
async fn errors_can_be_caught_and_output_before_them_is_kept() {
    let (_upstreams, gateway) = start(CODE).await;
    for (era, client) in gateway.both().await {
        let caught = "
            const said = {};
            for (const [name, input] of [
                ['m__broken', {}], ['m__find_issue', { query: 1 }], ['l__find_issue', {}],
            ]) {
                try { await tools[name](input) } catch (error) { said[name] = error.message }
            }
            return said;";
        let said = returned(&client, caught).await;
        assert_eq!(said["m__broken"], "the tracker is down", "{era}");
        assert!(said["m__find_issue"].as_str().unwrap().contains("query"), "{era}: {said}");
        assert!(said["l__find_issue"].as_str().unwrap().contains("query"), "{era}: {said}");

        let said = run(&client, "console.log('before');\nawait tools.m__broken();").await;
        assert!(said.is_error(), "{era}: {said:?}");
        let structured = &said.result()["structuredContent"];
        assert_eq!(structured["printed"], "before\n", "{era}");
        assert!(structured["error"].as_str().unwrap().contains("the tracker is down"), "{era}");
        assert!(said.text().contains("before\nError: "), "{era}: {}", said.text());

        let said = run(&client, "return 1 +;").await;
        assert!(said.is_error() && said.text().contains("line 1"), "{era}: {}", said.text());
        assert!(said.text().contains("without types"), "{era}: {}", said.text());
        for wrong in [json!({}), json!({ "code": 1 }), json!({ "code": "1", "more": 2 })] {
            let said = client.call("run_code", wrong.clone()).await;
            assert!(said.is_error() && said.text().contains("The schema: "), "{era} {wrong}");
        }
    }
}

#[tokio::test]
async fn the_mistakes_of_models_are_understood_or_explained() {
    let upstreams = trackers().await;
    upstreams[0].tool(&json!({ "name": "draw", "inputSchema": { "type": "object" } }), |_| {
        let image = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
        let content = json!([{ "type": "text", "text": "drawn" }, image]);
        vec![Step::Result(json!({ "content": content }))]
    });
    let gateway = Gateway::with("m", upstreams[0].http()).toml(CODE).start().await;
    let client = gateway.modern();
    for (code, expected) in [
        ("```js\nreturn 1;\n```", json!(1)),
        ("async (tools) => (await tools.m__ping({ n: 2 })).n", json!(2)),
        ("return [new Map([[1, 2]]), new Set([3])];", json!([[[1, 2]], [3]])),
        (
            "return await Promise.allSettled([tools.m__broken()]);",
            json!([{ "status": "rejected", "reason": {
                "name": "Error", "message": "the tracker is down", "tool": "m__broken",
            } }]),
        ),
        ("return await tools.m__draw();", json!("drawn\n(left out: image)")),
        (
            "return (await tools.describe_tools({ names: ['m__delete_issue'] })).tools[0].name;",
            json!("m__delete-issue"),
        ),
        (
            "return (await tools.find_tools({ query: 'delete issue' })).tools[0].split('(')[0];",
            json!("m__delete_issue"),
        ),
    ] {
        assert_eq!(returned(&client, code).await, expected, "{code}");
    }
    for (code, expected) in [
        ("const one = await tools.m__ping();", "returned and printed nothing"),
        ("return `found ${tools.m__ping()}`;", "a promise is used as a value: await it"),
        ("return [1, 2].map((n) => tools.m__ping({ n }));", "a promise is used as a value"),
        ("await tools.m__find_issue({ query: 1 });", "m__find_issue: "),
        ("await tools.m__find_issue({ query: 1 });", r#""required":["query"]"#),
        ("const n: number = 1; return n;", "JavaScript is expected, without types"),
    ] {
        let said = run(&client, code).await;
        assert!(said.text().contains(expected), "{code}: {}", said.text());
        assert!(!said.text().contains("Error: Error"), "{code}: {}", said.text());
    }
}

#[tokio::test]
async fn questions_of_servers_and_the_gateway_in_inner_calls_reach_the_client() {
    let kinds = every_kind().await;
    asks(&kinds, "ask", || vec![("who", "elicitation/create", question())]);
    asks(&kinds, "model", || vec![("what", "sampling/createMessage", prompt())]);
    let mut builder = Gateway::alone().kinds(&kinds).toml(CODE);
    let extra = trackers().await;
    builder =
        builder.server("t", extra[0].http() + "[servers.t.tools.delete-issue]\nconfirm = true\n");
    let gateway = builder.start().await;
    gateway
        .wait_for(|status| {
            status["servers"].as_array().unwrap().iter().all(|it| it["state"] == "ready")
        })
        .await;
    let content = json!({ "type": "text", "text": "Ann" });
    let model = json!({ "role": "assistant", "model": "m", "content": content });
    for (era, client) in both(&gateway).await {
        let kinds = kinds.iter().map(|kind| kind.name);
        for (kind, tool) in kinds.flat_map(|kind| [(kind, "ask"), (kind, "model")]) {
            let (member, of_it, answer) = match tool {
                "ask" => ("message", json!("Who?"), ann()),
                _ => ("maxTokens", json!(7), model.clone()),
            };
            let name = kind.replace('-', "_");
            let code = format!(
                "const one = await tools['{kind}__{tool}'](); \
                 const two = await tools.t__ping({{ n: 1 }}); return [JSON.stringify(one), two];"
            );
            let params = json!({ "name": "run_code", "arguments": { "code": code } });
            let said = dialogue_about(&client, "tools/call", params, |asked| {
                assert_eq!(asked["params"][member], of_it, "{era} {name}: {asked}");
                answer.clone()
            })
            .await;
            assert!(!said.is_error(), "{era} {name} {tool}: {said:?}");
            let told = said.result()["structuredContent"]["returned"].clone();
            assert!(told[0].as_str().unwrap().contains("Ann"), "{era} {name}: {told}");
            assert_eq!(told[1], json!({ "n": 1 }), "{era} {name}");
        }
        // The gateway's own question, about the tool to be called.
        for (action, expected) in [("accept", "{\"id\":7}"), ("decline", "the user d")] {
            let code = "try { return JSON.stringify(await tools.t__delete_issue({ id: 7 })) } \
                catch (error) { return error.message }";
            let params = json!({ "name": "run_code", "arguments": { "code": code } });
            let said = dialogue_about(&client, "tools/call", params, |asked| {
                let message = asked["params"]["message"].as_str().unwrap();
                assert!(message.contains("t__delete-issue"), "{era}: {message}");
                json!({ "action": action })
            })
            .await;
            let told = said.result()["structuredContent"]["returned"].to_string();
            let told = told.replace('\\', "");
            assert!(told.contains(expected), "{era} {action}: {said:?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_fails_the_inner_call_alone() {
    let upstreams = trackers().await;
    let server = upstreams[0].http() + "[servers.t.tools.delete-issue]\nconfirm = true\n";
    let gateway = Gateway::with("t", server).toml(CODE).start().await;
    for (era, client) in gateway.both().await {
        let code = "try { await tools.t__delete_issue({}) } catch (error) { return error.message }";
        let said = returned(&client, code).await;
        assert!(said.as_str().unwrap().contains("cannot"), "{era}: {said}");
    }
    assert!(upstreams[0].calls().is_empty());
}

#[tokio::test]
async fn many_inner_calls_that_ask_at_once_are_all_answered() {
    let upstreams = trackers().await;
    let server = upstreams[0].http() + "[servers.t.tools.delete-issue]\nconfirm = true\n";
    let more = format!("{CODE}[code]\nparallel = 40\n");
    let gateway = Gateway::with("t", server).toml(&more).start().await;
    let client = gateway.legacy().await.offering(form()).await;
    let code = "const all = await Promise.all(Array.from({ length: 40 }, (_, id) => \
        tools.t__delete_issue({ id }))); return all.reduce((sum, one) => sum + one.id, 0);";
    let params = json!({ "name": "run_code", "arguments": { "code": code } });
    let said =
        dialogue_about(&client, "tools/call", params, |_| json!({ "action": "accept" })).await;
    assert_eq!(said.result()["structuredContent"]["returned"], 780, "{said:?}");
}

#[tokio::test]
async fn inner_calls_pass_policy_under_their_own_names_and_name_their_parent() {
    let clients = client_table("ann", "key-ann", "") + &client_table("bob", "key-bob", "");
    let rules = "[policy.rules.all]\nprincipals = [\"ann\"]\n\
        [policy.rules.some]\nprincipals = [\"bob\"]\ntools = [\"*__ping\"]\n\
        [audit]\nfile = \"audit.jsonl\"\n";
    let upstreams = trackers().await;
    let server = upstreams[0].http() + "[servers.m.tools.find_issue]\nrate = \"2/min\"\n";
    let settings = format!("{CODE}{clients}{rules}");
    let gateway = Gateway::with("m", server).toml(&settings).start().await;
    for (era, bob) in gateway.both_as("key-bob", "/mcp").await {
        let listed = bob.request("tools/list", json!({})).await.result().to_string();
        assert!(listed.contains("m__ping") && !listed.contains("find_issue"), "{era}: {listed}");
        let code = "
            const said = [Object.keys(tools).join()];
            for (const name of ['m__find_issue', 'never_was']) {
                try { await tools[name]({ query: 'x' }) } catch (error) { said.push(error.message) }
            }
            try { said.push(await tools.find_tools({ query: 'find an issue' })) }
            catch (error) { said.push(error.message) }
            return said;";
        let said = returned(&bob, code).await;
        let [names, hidden, never, found] = [0, 1, 2, 3].map(|at| said[at].to_string());
        assert!(!names.contains("issue") && names.contains("m__ping"), "{era}: {names}");
        let same = hidden.replace("m__find_issue", "NAME") == never.replace("never_was", "NAME");
        assert!(same, "{era}: {hidden} {never}");
        assert!(!found.contains("find_issue"), "{era}: {found}");
    }
    assert!(upstreams[0].calls().is_empty());
    let [(_, ann), _] = gateway.both_as("key-ann", "/mcp").await;
    let code = "
        let limited = 0;
        for (let n = 0; n < 4; n++) {
            try { await tools.m__find_issue({ query: 'x' }) } catch (error) { limited += 1 }
        }
        return limited;";
    assert_eq!(returned(&ann, code).await, 2, "the rate of the tool");
    let folder = gateway.stop().await;
    let records = json_lines(&folder.path().join("audit.jsonl"));
    let of = |tool: &str, who: &str| {
        let all = records.iter();
        let all = all.filter(|one| one["tool"] == tool && one["principal"] == who);
        all.cloned().collect::<Vec<_>>()
    };
    let (runs, inner) = (of("run_code", "ann"), of("m__find_issue", "ann"));
    assert_eq!((runs.len(), inner.len()), (1, 4), "{records:?}");
    assert!(inner.iter().all(|one| one["parent"] == runs[0]["id"]), "{inner:?}");
    assert!(runs[0]["parent"].is_null() && runs[0]["outcome"] == "ok", "{runs:?}");
    let refused = inner.iter().filter(|one| one["decision"] == "deny" && one["check"] == "limit");
    assert_eq!(refused.count(), 2, "{inner:?}");
}

#[tokio::test]
async fn where_the_api_is_too_long_code_finds_tools() {
    let settings = "[profiles.default]\ndiscovery = \"code\"\nbudget = 50\n";
    let (_upstreams, gateway) = start(settings).await;
    for (era, client) in gateway.both().await {
        let said = client.request("tools/list", json!({})).await;
        let api = said.result()["tools"][0]["description"].as_str().unwrap().to_owned();
        assert!(api.contains("tools.find_tools(") && api.contains("m (5), l (5)."), "{era}: {api}");
        assert!(!api.contains("find_issue(input"), "{era}: {api}");
        let code = "
            const { tools: lines } = await tools.find_tools({ query: 'find an issue' });
            const name = lines[0].split('(')[0];
            const { tools: [whole] } = await tools.describe_tools({ names: [name] });
            return [name, whole.inputSchema.required[0], (await tools[name]({ query: 'q' })).query];";
        assert_eq!(returned(&client, code).await, json!(["m__find_issue", "query", "q"]), "{era}");
    }
}

#[tokio::test]
async fn the_bounds_of_a_run_are_those_of_the_configuration() {
    let bounds = "[code]\ncalls = 3\ncpu_time = \"100ms\"\nmemory = \"16MiB\"\noutput = \"1KiB\"\nruns = 1\n";
    let (upstreams, gateway) = start(&format!("{CODE}{bounds}")).await;
    let client = gateway.modern();
    for (code, expected) in [
        ("for (;;) {}", "processor time"),
        ("const all = []; for (;;) all.push(new Array(1e5).fill(7));", "memory"),
        ("return 'x'.repeat(2000);", "1024 are allowed"),
        ("for (let n = 0; n < 9; n++) await tools.m__ping();", "3"),
    ] {
        let said = run(&client, code).await;
        assert!(said.is_error() && said.text().contains(expected), "{code}: {}", said.text());
    }
    assert_eq!(upstreams[0].calls().len(), 3);
    let said = run(&client, "console.log('y'.repeat(5000)); return 1;").await;
    let structured = &said.result()["structuredContent"];
    assert_eq!(structured["printed"].as_str().unwrap().len(), 1024, "{said:?}");
    assert!(!said.is_error() && said.text().contains("further output was dropped"), "{said:?}");

    // The only slot for a run is occupied, and free again when the run ends.
    let held = client.ask_call("run_code", json!({ "code": "await tools.m__hold();" })).send();
    let code = "return 1;";
    let mut stream = held.await;
    upstreams[0].heard("tools/call", 4).await;
    let said = run(&client, code).await;
    assert_eq!(said.status, 429, "{said:?}");
    upstreams[0].release(1);
    within(stream.message()).await.unwrap();
    assert_eq!(returned(&client, code).await, 1);
}

#[tokio::test]
async fn the_processor_time_of_a_client_is_bounded_in_each_minute() {
    let bounds = "[code]\ncpu_time_each = \"100ms\"\ncpu_time = \"10s\"\n";
    let (_upstreams, gateway) = start(&format!("{CODE}{bounds}")).await;
    let client = gateway.modern();
    let said = run(&client, "for (;;) {}").await;
    assert!(said.is_error() && said.text().contains("runs of this client"), "{}", said.text());
    let said = run(&client, "return 1;").await;
    assert_eq!(said.status, 429, "{said:?}");
    assert_eq!(said.answer()["error"]["data"]["limit"], "code_cpu_time_each", "{said:?}");
}

#[tokio::test]
async fn many_short_runs_are_charged_like_a_long_one() {
    let bounds = "[code]\ncpu_time_each = \"100ms\"\n";
    let (_upstreams, gateway) = start(&format!("{CODE}{bounds}")).await;
    let client = gateway.modern();
    let code = "for (let n = 0; n < 1e6; n++); return 1;";
    for _ in 0..500 {
        if run(&client, code).await.status == 429 {
            return;
        }
    }
    panic!("500 runs took no processor time");
}

#[tokio::test]
async fn arguments_that_code_produces_are_nested_no_deeper_than_those_of_a_client() {
    let limits = "[gateway.limits]\ndepth = 16\n";
    let (upstreams, gateway) = start(&format!("{CODE}{limits}")).await;
    let client = gateway.modern();
    let call = |depth: usize| {
        format!(
            "let it = 1; for (let n = 0; n < {depth}; n++) it = [it]; \
             return await tools.m__ping({{ it }});"
        )
    };
    let said = run(&client, &call(14)).await;
    assert!(said.is_error() && said.text().contains("nests deeper"), "{}", said.text());
    assert!(upstreams[0].calls().is_empty());
    let said = run(&client, &call(13)).await;
    assert!(!said.is_error(), "{}", said.text());
    assert_eq!(upstreams[0].calls().len(), 1);
}

#[tokio::test]
async fn a_run_that_waits_for_too_long_ends() {
    let (_upstreams, gateway) = start(&format!("{CODE}[code]\ntime = \"600ms\"\n")).await;
    let client = gateway.modern();
    let said = run(&client, "console.log('before'); await tools.m__hold();").await;
    assert!(said.is_error() && said.text().contains("did not finish within 600ms"), "{said:?}");
    assert!(said.text().starts_with("before\n"), "{said:?}");
    gateway.wait_for(|status| status["servers"][0]["in_flight"] == 0).await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_code_and_its_calls() {
    let (upstreams, gateway) = start(CODE).await;
    let client = gateway.modern();
    let code = "await Promise.all([tools.m__hold(), tools.m__hold()]);";
    let stream = client.ask_call("run_code", json!({ "code": code })).send().await;
    upstreams[0].heard("tools/call", 2).await;
    // Those of other tests are among them, and end as well.
    let children = script_processes();
    assert!(!children.is_empty());
    drop(stream);
    gateway.wait_for(|status| status["servers"][0]["in_flight"] == 0).await;
    within(until(|| script_processes().is_disjoint(&children))).await;
}

/// Returns the ids of the processes that run code for this process.
fn script_processes() -> BTreeSet<String> {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let is_child = |entry: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        parent == Some(&*own) && line.contains("run-code")
    };
    let children = processes.filter(is_child);
    children.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test]
async fn a_parked_run_belongs_to_its_client_and_request() {
    let clients = client_table("ann", "key-ann", "") + &client_table("bob", "key-bob", "");
    let upstreams = trackers().await;
    let server = upstreams[0].http() + "[servers.t.tools.delete-issue]\nconfirm = true\n";
    let gateway = Gateway::with("t", server).toml(&format!("{CODE}{clients}")).start().await;
    let [(_, ann), _] = gateway.both_as("key-ann", "/mcp").await;
    let [(_, bob), _] = gateway.both_as("key-bob", "/mcp").await;
    let (ann, bob) = (ann.offering(form()).await, bob.offering(form()).await);
    let arguments = json!({ "code": "return await tools.t__delete_issue({ id: 1 });" });
    let said = ann.call("run_code", arguments.clone()).await;
    let asked = said.result()["inputRequests"].as_object().unwrap().clone();
    let (key, _) = asked.iter().next().unwrap();
    let retry = |arguments: &Value| {
        json!({
            "name": "run_code", "arguments": arguments,
            "requestState": said.result()["requestState"],
            "inputResponses": { key: { "action": "accept" } },
        })
    };
    let stolen = bob.request("tools/call", retry(&arguments)).await;
    assert_eq!(stolen.error()["code"], -32602, "{stolen:?}");
    let changed = retry(&json!({ "code": "return 2;" }));
    let changed = ann.request("tools/call", changed).await;
    assert_eq!(changed.error()["code"], -32602, "{changed:?}");
    assert!(upstreams[0].calls().is_empty());
    let said = ann.request("tools/call", retry(&arguments)).await;
    assert_eq!(said.result()["structuredContent"]["returned"], json!({ "id": 1 }), "{said:?}");
    let again = ann.request("tools/call", retry(&arguments)).await;
    assert_eq!(again.error()["code"], -32602, "once: {again:?}");
}
