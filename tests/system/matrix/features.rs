//! The features: for each the steps that use it, and the expected results.

use serde_json::{Value, json};

use crate::peers::progress_of;

/// A server's names in a client's view: unchanged, or as renamed by the gateway.
pub struct Names {
    pub server: Option<&'static str>,
}

impl Names {
    pub fn name(&self, native: &str) -> String {
        self.server.map_or_else(|| native.into(), |server| format!("{server}__{native}"))
    }

    pub fn uri(&self, native: &str) -> String {
        self.server.map_or_else(|| native.into(), |server| format!("mcp://{server}/{native}"))
    }
}

/// A combination of client and server, which makes labels unique to a run.
pub struct Use<'a> {
    pub names: Names,
    pub client: &'a str,
    pub server: &'a str,
}

/// Results of the steps, and of the connection before them.
pub struct Told<'a> {
    pub connected: &'a Value,
    pub lines: Vec<&'a Value>,
}

pub struct Feature {
    pub name: &'static str,
    pub steps: fn(&Use<'_>) -> Vec<Value>,
    pub judge: fn(&Use<'_>, &Told<'_>) -> Result<(), String>,
}

pub const CANCEL: &str = "cancel";
pub const TASKS: &str = "tasks";

pub const FEATURES: [Feature; 24] = [
    Feature { name: "list", steps: list, judge: every_tool },
    Feature { name: "call", steps: call, judge: sum },
    Feature { name: "progress", steps: progress, judge: three_steps },
    Feature { name: CANCEL, steps: cancel, judge: cancelled },
    Feature { name: "tools changed", steps: change_tools, judge: added },
    Feature { name: "pages", steps: list, judge: several_pages },
    Feature { name: "instructions", steps: |_| vec![], judge: instructed },
    Feature { name: "prompts", steps: list_prompts, judge: every_prompt },
    Feature { name: "prompt", steps: get_prompt, judge: prompt },
    Feature { name: "prompts changed", steps: change_prompts, judge: first_ok },
    Feature { name: "resources", steps: list_resources, judge: every_resource },
    Feature { name: "read", steps: read, judge: text_and_bytes },
    Feature { name: "templates", steps: templates, judge: expanded },
    Feature { name: "updated", steps: subscribe, judge: first_ok },
    Feature { name: "resources changed", steps: change_resources, judge: first_ok },
    Feature { name: "links", steps: link, judge: linked },
    Feature { name: "completion", steps: complete, judge: completed },
    Feature { name: "log lines", steps: log, judge: logged },
    Feature { name: "sampling", steps: sampling, judge: sampled },
    Feature { name: "form", steps: form, judge: filled_in },
    Feature { name: "url", steps: url, judge: opened },
    Feature { name: "roots", steps: roots, judge: rooted },
    Feature { name: "three inputs", steps: three, judge: all_three },
    Feature { name: TASKS, steps: task, judge: task_done },
];

fn everything() -> Value {
    serde_json::from_str(include_str!("../../peers/everything.json")).unwrap()
}

/// Returns the names or URIs of one kind in `everything.json`.
fn offered(kind: &str, key: &str) -> Vec<String> {
    let everything = everything();
    let each = everything[kind].as_array().unwrap().iter();
    each.map(|one| one["listed"][key].as_str().unwrap().to_owned()).collect()
}

// --- Judging -----------------------------------------------------------------------

impl Told<'_> {
    /// Returns the result of a successful step.
    fn result(&self, step: usize) -> Result<&Value, String> {
        let line = self.lines.get(step).ok_or("the driver did not come to it")?;
        if line["ok"] == true { Ok(&line["result"]) } else { Err(format!("failed: {line}")) }
    }
}

fn check(holds: bool, what: &str, told: &Value) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{what}: {told}")) }
}

fn says(result: &Value, words: &str) -> Result<(), String> {
    let is_said = result["isError"] != true && result["content"].to_string().contains(words);
    check(is_said, &format!("does not say {words:?}"), result)
}

fn first_ok(_: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    (0..told.lines.len()).try_for_each(|step| told.result(step).map(drop))?;
    told.result(0).map(drop)
}

fn has_all(
    wanted: &[String],
    items: &Value,
    key: &str,
    of: fn(&Names, &str) -> String,
    names: &Names,
) -> Result<(), String> {
    let items = items.as_array().ok_or("no list")?;
    for one in wanted {
        let public = of(names, one);
        if !items.iter().any(|item| item[key].as_str() == Some(&public)) {
            let listed: Vec<_> = items.iter().map(|item| &item[key]).take(60).collect();
            return Err(format!("{public} is not listed in {listed:?}"));
        }
    }
    Ok(())
}

// --- Tools --------------------------------------------------------------------------

fn tool(on: &Use<'_>, name: &str, arguments: Value) -> Value {
    json!({ "op": "call", "name": on.names.name(name), "arguments": arguments })
}

fn list(_: &Use<'_>) -> Vec<Value> {
    vec![json!({ "op": "list" })]
}

fn every_tool(on: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    has_all(&offered("tools", "name"), &told.result(0)?["tools"], "name", Names::name, &on.names)
}

/// Checks that all are listed, over pages. Some SDKs iterate pages by themselves and do not report
/// their number.
fn several_pages(on: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    every_tool(on, told)?;
    let result = told.result(0)?;
    check(result["pages"].as_u64().is_none_or(|pages| pages > 1), "one page", &result["pages"])
}

fn call(on: &Use<'_>) -> Vec<Value> {
    vec![tool(on, "add", json!({ "a": 1, "b": 2 }))]
}

fn sum(_: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let result = told.result(0)?;
    check(result["structuredContent"]["sum"].as_f64() == Some(3.0), "another sum", result)
}

fn progress(on: &Use<'_>) -> Vec<Value> {
    let mut step = tool(on, "slow", json!({ "steps": 3, "delay_ms": 20 }));
    step["progress"] = json!(true);
    step["expect"] = json!(3);
    vec![step]
}

fn three_steps(_: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let result = told.result(0)?;
    check(progress_of(result) == [1.0, 2.0, 3.0], "other progress", result)?;
    says(&result["result"], "done after 3 steps")
}

/// Returns the text that the server logs when it notices the cancellation.
pub fn cancel_label(on: &Use<'_>) -> String {
    let direct = if on.names.server.is_none() { "-directly" } else { "" };
    format!("{}-by-{}{direct}", on.server, on.client)
}

fn cancel(on: &Use<'_>) -> Vec<Value> {
    let arguments = json!({ "steps": 1000, "delay_ms": 20, "label": cancel_label(on) });
    let mut step = tool(on, "slow", arguments);
    step["op"] = json!("call_cancel");
    step["after_progress"] = json!(1);
    step["settle_ms"] = json!(50);
    // The server continues to work.
    vec![step, call(on).remove(0)]
}

fn cancelled(_: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let result = told.result(0)?;
    check(result["cancelled"] == true, "not cancelled", result)?;
    told.result(1).map(drop)
}

fn change_tools(on: &Use<'_>) -> Vec<Value> {
    let added = format!("added-by-{}", on.client);
    let mut change = tool(on, "test_trigger_tool_change", json!({ "add": added }));
    change["op"] = json!("call_and_wait_list_changed");
    vec![change, tool(on, &added, json!({}))]
}

fn added(_: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    told.result(0)?;
    says(told.result(1)?, "was added while the server ran")
}

fn instructed(on: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let words = told.connected["result"]["instructions"].as_str().unwrap_or_default();
    let about = "it offers one of everything";
    let is_told = words.contains(about) && on.names.server.is_none_or(|name| words.contains(name));
    check(is_told, "other instructions", &json!(words))
}

// --- Prompts --------------------------------------------------------------------------

fn list_prompts(_: &Use<'_>) -> Vec<Value> {
    vec![json!({ "op": "list_prompts" })]
}

fn every_prompt(on: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let wanted = offered("prompts", "name");
    has_all(&wanted, &told.result(0)?["items"], "name", Names::name, &on.names)
}

fn get_prompt(on: &Use<'_>) -> Vec<Value> {
    let name = on.names.name("test_prompt_with_arguments");
    let embedding = on.names.name("test_prompt_with_embedded_resource");
    let uri = "test://static-text";
    vec![
        json!({ "op": "get_prompt", "name": name, "arguments": { "arg1": "one", "arg2": "two" } }),
        json!({ "op": "get_prompt", "name": embedding, "arguments": { "resourceUri": uri } }),
    ]
}

fn prompt(on: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let words = told.result(0)?["messages"].to_string();
    check(words.contains("arg1='one', arg2='two'"), "another prompt", &json!(words))?;
    let messages = &told.result(1)?["messages"];
    let uri = &messages[0]["content"]["resource"]["uri"];
    check(*uri == on.names.uri("test://static-text"), "another URI", messages)
}

fn trigger(on: &Use<'_>, name: &str, what: &str) -> Value {
    let mut change = tool(on, name, json!({}));
    change["op"] = json!("call_and_wait_list_changed");
    change["for"] = json!(what);
    change
}

fn change_prompts(on: &Use<'_>) -> Vec<Value> {
    vec![trigger(on, "test_trigger_prompt_change", "prompts")]
}

// --- Resources ------------------------------------------------------------------------

fn list_resources(_: &Use<'_>) -> Vec<Value> {
    vec![json!({ "op": "list_resources" })]
}

fn every_resource(on: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let wanted = offered("resources", "uri");
    has_all(&wanted, &told.result(0)?["items"], "uri", Names::uri, &on.names)
}

fn read(on: &Use<'_>) -> Vec<Value> {
    let read = |uri: &str| json!({ "op": "read", "uri": on.names.uri(uri) });
    vec![read("test://static-text"), read("test://static-binary")]
}

fn text_and_bytes(on: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let text = &told.result(0)?["contents"][0];
    let is_text = text["text"] == "This is the content of the static text resource.";
    check(is_text && text["uri"] == on.names.uri("test://static-text"), "another text", text)?;
    let bytes = &told.result(1)?["contents"][0];
    check(bytes["blob"].as_str().is_some_and(|blob| blob.starts_with("iVBOR")), "no blob", bytes)
}

const TEMPLATE: &str = "test://template/{id}/data";

fn templates(on: &Use<'_>) -> Vec<Value> {
    let expanded = on.names.uri("test://template/42/data");
    vec![json!({ "op": "list_templates" }), json!({ "op": "read", "uri": expanded })]
}

fn expanded(on: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let items = &told.result(0)?["items"];
    has_all(&[TEMPLATE.into()], items, "uriTemplate", Names::uri, &on.names)?;
    let text = &told.result(1)?["contents"][0];
    let words = text["text"].as_str().unwrap_or_default();
    check(words.contains("Data for ID: 42"), "another text", text)?;
    check(text["uri"] == on.names.uri("test://template/42/data"), "another URI", text)
}

fn subscribe(on: &Use<'_>) -> Vec<Value> {
    let uri = on.names.uri("test://watched-resource");
    let update = trigger(on, "test_trigger_resource_update", &format!("updated {uri}"));
    vec![json!({ "op": "subscribe", "uri": uri }), update]
}

fn change_resources(on: &Use<'_>) -> Vec<Value> {
    vec![trigger(on, "test_trigger_resource_change", "resources")]
}

fn link(on: &Use<'_>) -> Vec<Value> {
    let call = tool(on, "test_resource_link", json!({}));
    vec![call, json!({ "op": "read", "uri": on.names.uri("test://static-text") })]
}

fn linked(on: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let content = &told.result(0)?["content"][0];
    let leads = content["uri"] == on.names.uri("test://static-text");
    check(content["type"] == "resource_link" && leads, "another link", content)?;
    told.result(1).map(drop)
}

// --- Requests and notifications to clients -----------------------------------------------

fn complete(on: &Use<'_>) -> Vec<Value> {
    let prompt = on.names.name("test_prompt_with_arguments");
    let template = on.names.uri(TEMPLATE);
    vec![
        json!({ "op": "complete", "ref": { "type": "ref/prompt", "name": prompt },
                "argument": { "name": "arg1", "value": "par" } }),
        json!({ "op": "complete", "ref": { "type": "ref/resource", "uri": template },
                "argument": { "name": "id", "value": "12" } }),
    ]
}

fn completed(_: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let values = &told.result(0)?["completion"]["values"];
    check(*values == json!(["paris", "park", "party"]), "other words", values)?;
    let values = &told.result(1)?["completion"]["values"];
    check(*values == json!(["12", "123"]), "other ids", values)
}

fn log(on: &Use<'_>) -> Vec<Value> {
    let from = |level: &str| {
        let mut step = tool(on, "test_logging_tool", json!({}));
        step["log_level"] = json!(level);
        step["settle_ms"] = json!(100);
        step
    };
    vec![from("error"), from("info")]
}

fn logged(_: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let quiet = &told.result(0)?["logs"];
    check(*quiet == json!([]), "a line below the level", quiet)?;
    let lines = &told.result(1)?["logs"];
    let words = |line: &Value| line["data"] == "One line for those who asked";
    check(
        lines.as_array().is_some_and(|all| all.len() == 1 && words(&all[0])),
        "other lines",
        lines,
    )
}

fn asking(on: &Use<'_>, name: &str, arguments: Value) -> Vec<Value> {
    let mut step = tool(on, name, arguments);
    step["asked"] = json!(true);
    vec![step]
}

fn asked(told: &Told<'_>, wanted: &[&str], words: &str) -> Result<(), String> {
    let result = told.result(0)?;
    let mut seen: Vec<_> = result["asked"].as_array().into_iter().flatten().collect();
    seen.sort_by_key(|one| one.to_string());
    check(
        seen == wanted.iter().map(|one| json!(one)).collect::<Vec<_>>().iter().collect::<Vec<_>>(),
        "asked otherwise",
        result,
    )?;
    says(&result["result"], words)
}

fn sampling(on: &Use<'_>) -> Vec<Value> {
    asking(on, "test_sampling", json!({ "prompt": "well?" }))
}

fn sampled(_: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    asked(told, &["sampling/createMessage"], "LLM response: sampled: well?")
}

fn form(on: &Use<'_>) -> Vec<Value> {
    asking(on, "test_elicitation", json!({ "message": "Who are you?" }))
}

fn filled_in(_: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    asked(told, &["elicitation/create"], "action=accept")?;
    says(&told.result(0)?["result"], "a username")
}

fn url(on: &Use<'_>) -> Vec<Value> {
    asking(on, "test_elicitation_url", json!({}))
}

fn opened(_: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    asked(told, &["elicitation/create url"], "action=accept")
}

fn roots(on: &Use<'_>) -> Vec<Value> {
    asking(on, "test_roots", json!({}))
}

fn rooted(_: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    asked(told, &["roots/list"], "file:///a/root")
}

fn three(on: &Use<'_>) -> Vec<Value> {
    asking(on, "test_input_required_result_multiple_inputs", json!({}))
}

fn all_three(_: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let wanted = ["elicitation/create", "roots/list", "sampling/createMessage"];
    asked(told, &wanted, "sampled: Greet somebody. a name, with")
}

// --- Tasks ----------------------------------------------------------------------------------

fn task(on: &Use<'_>) -> Vec<Value> {
    let mut step = tool(on, "slow_compute", json!({ "seconds": 0.2 }));
    step["op"] = json!("call_task");
    vec![step]
}

fn task_done(_: &Use<'_>, told: &Told<'_>) -> Result<(), String> {
    let ended = &told.result(0)?["ended"];
    check(ended["status"] == "completed", "not completed", ended)?;
    says(&ended["result"], "computed")
}
