//! Lists with 200 flaws, as read by the official SDKs of both languages and both eras.

use serde_json::{Value, json};

use super::peers::Driver;
use super::support::{Gateway, Upstream};

/// The SDKs, each in the eras that it speaks.
const DRIVERS: [Driver; 6] = [
    Driver { program: "node", script: "clients/ts_v1.mjs", era: "legacy" },
    Driver { program: "node", script: "clients/ts_v2.mjs", era: "legacy" },
    Driver { program: "node", script: "clients/ts_v2.mjs", era: "modern" },
    Driver { program: ".venv-v1/bin/python", script: "clients/py_v1.py", era: "legacy" },
    Driver { program: ".venv-v2/bin/python", script: "clients/py_v2.py", era: "legacy" },
    Driver { program: ".venv-v2/bin/python", script: "clients/py_v2.py", era: "modern" },
];

/// Returns values that are wrong in most places.
fn wrong() -> Vec<Value> {
    vec![
        json!(null),
        json!("x"),
        json!(7),
        json!([null]),
        json!({ "type": null, "required": null }),
    ]
}

/// Returns the flaws of a kind: the replaced member, as a JSON pointer, and its value.
fn flaws(places: &[&'static str]) -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    for place in places {
        all.extend(wrong().into_iter().map(|value| (*place, value)));
    }
    all
}

const TOOL: [&str; 16] = [
    "/title",
    "/_meta",
    "/icons",
    "/icons/0",
    "/icons/0/sizes",
    "/icons/0/theme",
    "/annotations",
    "/annotations/title",
    "/annotations/readOnlyHint",
    "/execution",
    "/execution/taskSupport",
    "/outputSchema",
    "/outputSchema/properties/x",
    "/inputSchema/required",
    "/inputSchema/properties/a",
    "/inputSchema/properties/a/type",
];
const PROMPT: [&str; 8] = [
    "/title",
    "/_meta",
    "/icons",
    "/arguments",
    "/arguments/0",
    "/arguments/0/title",
    "/arguments/0/description",
    "/arguments/0/required",
];
const RESOURCE: [&str; 9] = [
    "/title",
    "/mimeType",
    "/size",
    "/icons",
    "/annotations",
    "/annotations/audience",
    "/annotations/audience/0",
    "/annotations/priority",
    "/annotations/lastModified",
];
const TEMPLATE: [&str; 7] = [
    "/title",
    "/mimeType",
    "/icons",
    "/annotations",
    "/annotations/audience",
    "/annotations/priority",
    "/annotations/lastModified",
];

/// Returns entries with a flaw each, and a valid one before each fifth.
fn entries(places: &[&'static str], entry: impl Fn(&str) -> Value) -> Vec<Value> {
    let mut all = Vec::new();
    for (number, (place, value)) in flaws(places).into_iter().enumerate() {
        if number % 5 == 0 {
            all.push(entry(&format!("valid{number}")));
        }
        let mut flawed = entry(&format!("flawed{number}"));
        let (outer, name) = place.rsplit_once('/').unwrap();
        match flawed.pointer_mut(outer).unwrap() {
            Value::Object(members) => drop(members.insert(name.to_owned(), value)),
            Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
            _ => panic!("{place}"),
        }
        all.push(flawed);
    }
    all
}

fn icons() -> Value {
    json!([{ "src": "https://example.com/i", "sizes": ["1x1"], "theme": "dark" }])
}

fn tool(name: &str) -> Value {
    json!({
        "name": name, "title": "T", "description": "kept", "icons": icons(), "_meta": { "a": 1 },
        "annotations": { "title": "A", "readOnlyHint": true },
        "execution": { "taskSupport": "forbidden" },
        "inputSchema": {
            "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"],
        },
        "outputSchema": { "type": "object", "properties": { "x": { "type": "string" } } },
    })
}

/// Returns schemas that are not valid 2020-12, or that only Modern clients accept.
fn tools_with_other_schemas() -> Vec<Value> {
    let inputs = [
        json!({ "minimum": 1, "exclusiveMinimum": true }),
        json!({ "required": true }),
        json!({ "items": [{ "type": "string" }] }),
        json!({ "pattern": "(?P<n>x)" }),
        json!({ "additionalProperties": null }),
        json!({ "$ref": "#/$defs/gone" }),
        json!({ "type": "any" }),
        json!(true),
    ];
    let outputs = [json!({}), json!({ "type": "array" }), json!({ "type": ["object", "null"] })];
    let inputs = inputs.into_iter().enumerate().map(|(number, schema)| {
        let mut tool = tool(&format!("input{number}"));
        tool["inputSchema"]["properties"]["a"] = schema;
        tool
    });
    let outputs = outputs.into_iter().enumerate().map(|(number, schema)| {
        let mut tool = tool(&format!("output{number}"));
        tool["outputSchema"] = schema;
        tool
    });
    inputs.chain(outputs).collect()
}

fn prompt(name: &str) -> Value {
    json!({
        "name": name, "title": "T", "description": "kept", "icons": icons(), "_meta": { "a": 1 },
        "arguments": [{ "name": "a", "title": "A", "description": "D", "required": true }],
    })
}

fn resource(key: &str, name: &str, uri: String) -> Value {
    json!({
        key: uri, "name": name, "title": "T", "description": "kept", "mimeType": "a/b",
        "icons": icons(),
        "annotations": {
            "audience": ["user"], "priority": 1, "lastModified": "2026-07-28T00:00:00Z",
        },
    })
}

#[tokio::test]
async fn the_real_sdks_read_lists_with_200_flaws_and_see_every_entry() {
    let mut tools = entries(&TOOL, tool);
    tools.extend(tools_with_other_schemas());
    let prompts = entries(&PROMPT, prompt);
    let resources = entries(&RESOURCE, |name| resource("uri", name, format!("file:///{name}")));
    let templates =
        entries(&TEMPLATE, |name| resource("uriTemplate", name, format!("file:///{name}/{{x}}")));
    let kinds = [("tools", &tools), ("prompts", &prompts), ("resources", &resources)];
    let kinds = kinds.into_iter().chain([("resourceTemplates", &templates)]);
    let kinds: Vec<_> = kinds.collect();
    let all = kinds.iter().flat_map(|(_, entries)| entries.iter());
    let is_flawed = |entry: &&Value| !entry["name"].as_str().unwrap().starts_with("valid");
    assert!(all.filter(is_flawed).count() >= 200);
    for upstream in Upstream::both().await {
        upstream.can(json!({ "tools": {}, "prompts": {}, "resources": {} }));
        upstream.set_tools(tools.iter().map(Value::to_string));
        for (member, entries) in &kinds[1..] {
            upstream.lists(member, entries.iter().cloned());
        }
        let gateway = Gateway::with("s", upstream.http()).start().await;
        gateway.ready("s").await;
        let steps = ["list", "list_prompts", "list_resources", "list_templates"];
        let steps = steps.map(|op| json!({ "op": op }));
        for driver in &DRIVERS {
            let label = format!("{} {}", driver.script, driver.era);
            let told = driver.run(&format!("http://{}/mcp", gateway.running.address), &steps).await;
            assert_eq!(told.len(), 5, "{label}: {told:?}");
            for (said, (member, entries)) in told[1..].iter().zip(&kinds) {
                let member = *member;
                assert_eq!(said["ok"], true, "{label} {member}: {}", said["error"]);
                let list = said["result"].get("tools").unwrap_or(&said["result"]["items"]);
                let list = list.as_array().unwrap();
                assert_eq!(list.len(), entries.len(), "{label} {member}");
                for (shown, sent) in list.iter().zip(*entries) {
                    let name = sent["name"].as_str().unwrap();
                    let public = shown["name"].as_str().unwrap();
                    assert!(public.ends_with(name), "{label} {member} {public} {name}");
                    assert_eq!(shown["description"], "kept", "{label} {member} {name}");
                    // A model API gets the schema unchanged.
                    let is_object = |schema: &Value| schema["type"] == "object";
                    assert!(
                        member != "tools" || is_object(&shown["inputSchema"]),
                        "{label} {shown}"
                    );
                }
            }
        }
    }
}
