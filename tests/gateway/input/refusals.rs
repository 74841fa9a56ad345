//! Questions that cannot be asked, and clients with unexpected answers.

use serde_json::{Value, json};

use crate::support::{Gateway, Said, Step, Upstream, every_kind, until_async};

use super::{
    ann, ask, asking, asks, both, dialogue, everything, form, json_of, prompt, question, required,
    retry,
};

fn url() -> Value {
    json!({ "mode": "url", "message": "Open it", "url": "https://example.com/x", "elicitationId": "e-1" })
}

/// Returns a client's capabilities, a question beyond them, the exceeding part, and the required
/// capabilities.
fn beyond() -> Vec<(Value, [&'static str; 2], Value, Value)> {
    let tools = json!({ "messages": [], "maxTokens": 1, "tools": [{ "name": "t" }] });
    let form_needed = json!({ "elicitation": { "form": {} } });
    let elicitation = "elicitation/create";
    vec![
        (json!({}), [elicitation, " with a form"], form(), form_needed.clone()),
        (
            json!({ "elicitation": { "url": {} } }),
            [elicitation, " with a form"],
            form(),
            form_needed,
        ),
        (
            json!({ "elicitation": {} }),
            [elicitation, " with a URL"],
            url(),
            json!({ "elicitation": { "url": {} } }),
        ),
        (json!({}), [elicitation, " with a URL"], url(), json!({ "elicitation": { "url": {} } })),
        (
            json!({ "roots": {} }),
            ["sampling/createMessage", ""],
            prompt(),
            json!({ "sampling": {} }),
        ),
        (
            json!({ "sampling": {} }),
            ["sampling/createMessage", " with tools"],
            tools,
            json!({ "sampling": { "tools": {} } }),
        ),
        (json!({ "sampling": {} }), ["roots/list", ""], json!({}), json!({ "roots": {} })),
    ]
}

#[tokio::test]
async fn a_client_is_never_asked_for_undeclared_capabilities() {
    for (capabilities, [method, part], params, needed) in beyond() {
        let kinds = every_kind().await;
        asks(&kinds, "ask", move || vec![("q", method, params.clone())]);
        let gateway = Gateway::alone().kinds(&kinds).start().await;
        for (era, client) in gateway.both().await {
            let client = client.offering(capabilities.clone()).await;
            for kind in &kinds {
                let said = client.call(&format!("{}__ask", kind.name), json!({})).await;
                let which = format!("{era} {} {method} {capabilities}", kind.name);
                assert_not_offered(&said, &which, (&format!("{method}{part}"), &needed));
            }
        }
    }
}

/// Checks that a question was refused. `which` are the client's era and the kind of the server;
/// `asked` is the question's method, with the part that the client lacks.
fn assert_not_offered(said: &Said, which: &str, (asked, needed): (&str, &Value)) {
    if which.contains(" legacy-") {
        let told = &json_of(said)["q"];
        assert_eq!(told["code"], -32601, "{which}: {said:?}");
        let text = told["message"].as_str().unwrap();
        assert!(text.contains(&format!("offer {asked}: ")), "{which}: {text}");
        assert!(text.ends_with(&format!("capability {needed}")), "{which}: {text}");
    } else if which.starts_with("Modern") {
        assert_eq!((said.status, said.code()), (400, -32021), "{which}");
        assert_eq!(said.error()["data"]["requiredCapabilities"], *needed, "{which}");
    } else {
        assert!(said.is_error(), "{which}: {said:?}");
    }
}

#[tokio::test]
async fn a_server_that_capabilities_are_hidden_from_asks_as_if_clients_had_none() {
    let kinds = every_kind().await;
    let needed = json!({ "elicitation": { "form": {} } });
    asks(&kinds, "ask", || vec![("q", "elicitation/create", form())]);
    for isolation in ["shared", "client"] {
        let more = format!("client_capabilities = \"hide\"\nisolation = \"{isolation}\"\n");
        let servers = kinds.iter().fold(Gateway::alone(), |servers, kind| {
            servers.server(kind.name, kind.lines.clone() + &more)
        });
        let gateway = servers.start().await;
        for (era, client) in both(&gateway).await {
            for kind in &kinds {
                let said = client.call(&format!("{}__ask", kind.name), json!({})).await;
                let which = format!("{era} {} {isolation}", kind.name);
                assert_not_offered(&said, &which, ("elicitation/create with a form", &needed));
            }
        }
    }
}

#[tokio::test]
async fn a_client_with_hidden_capabilities_is_asked_nothing_outside_of_calls() {
    let upstream = Upstream::legacy().await;
    upstream.does("late", |_| vec![Step::text("done"), Step::Ask("q", "roots/list", json!({}))]);
    let lines = upstream.stdio() + "client_capabilities = \"hide\"\nisolation = \"client\"\n";
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.legacy().await.offering(everything()).await;
    let _listening = client.listen().await;
    assert_eq!(client.call("s__late", json!({})).await.text(), "done");
    let refusal = upstream.heard("", 1).await.text;
    assert!(refusal.contains("-32601"), "{refusal}");
}

#[tokio::test]
async fn a_modern_server_gets_the_capabilities_of_a_legacy_client() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let capabilities = json!({ "elicitation": {}, "roots": { "listChanged": true } });
    let client = gateway.legacy().await.offering(capabilities).await;
    client.call("s__echo", json!({})).await;
    let told = upstream.calls().pop().unwrap();
    let told = told.meta("io.modelcontextprotocol/clientCapabilities");
    assert_eq!(told, &json!({ "elicitation": { "form": {} }, "roots": {} }));
}

#[tokio::test]
async fn a_legacy_clients_refusal_reaches_a_legacy_server_and_ends_a_modern_ones_call() {
    let kinds = every_kind().await;
    asks(&kinds, "ask", || vec![("q", "elicitation/create", form())]);
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let client = gateway.legacy().await.offering(everything()).await;
    let refusal = json!({ "code": -1, "message": "the user said no", "data": { "x": 1 } });
    for kind in &kinds {
        let tool = format!("{}__ask", kind.name);
        let mut reply = client.ask_call(&tool, json!({})).send().await;
        let asked = question(&mut reply).await;
        client.refuse(&asked["id"], refusal.clone()).await;
        let said = reply.said().await;
        if kind.name.starts_with("legacy") {
            assert_eq!(json_of(&said)["q"], refusal, "{tool}");
        } else {
            assert!(said.is_error() && said.text().contains("the user said no"), "{said:?}");
        }
    }
}

#[tokio::test]
async fn a_client_without_a_stream_cannot_be_asked_and_the_server_hears_why() {
    let kinds = every_kind().await;
    asks(&kinds, "ask", || vec![("q", "elicitation/create", form())]);
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let client = gateway.legacy_of("2025-03-26").await.offering(json!({ "roots": {} })).await;
    asks(&kinds, "roots", || vec![("q", "roots/list", json!({}))]);
    for kind in &kinds {
        kind.upstream.announce().await;
        let tool = format!("{}__roots", kind.name);
        until_async(async || client.tool_names().await.contains(&tool)).await;
        let alone = client.ask_call(&tool, json!({})).accept("application/json").send().await;
        let call = client.ask_call(&tool, json!({})).message().clone();
        let batch = client.ask("x", json!({})).body(json!([call]).to_string()).send().await;
        let batch = batch.said().await;
        let batch: Value = serde_json::from_str(&batch.body).unwrap();
        let texts = [
            alone.said().await.text().to_owned(),
            batch[0]["result"]["content"][0]["text"].as_str().unwrap().to_owned(),
        ];
        for text in texts {
            assert!(text.contains("event stream"), "{tool}: {text}");
        }
    }
}

#[tokio::test]
async fn a_client_of_an_older_version_gets_questions_of_its_version() {
    let kinds = every_kind().await;
    asks(&kinds, "form", || vec![("q", "elicitation/create", form())]);
    asks(&kinds, "url", || vec![("q", "elicitation/create", url())]);
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (version, knows_forms, knows_modes) in
        [("2025-03-26", false, false), ("2025-06-18", true, false), ("2025-11-25", true, true)]
    {
        let client = gateway.legacy_of(version).await.offering(everything()).await;
        for kind in &kinds {
            let asked = std::cell::Cell::new(false);
            let tool = format!("{}__form", kind.name);
            let said = dialogue(&client, &tool, |question| {
                asked.set(true);
                let mut wanted = form();
                if !knows_modes {
                    wanted.as_object_mut().unwrap().remove("mode");
                }
                assert_eq!(question["params"], wanted, "{version}");
                ann()
            });
            let said = said.await;
            assert_eq!(asked.get(), knows_forms, "{version} {}: {said:?}", kind.name);
            let asked = std::cell::Cell::new(false);
            let tool = format!("{}__url", kind.name);
            let said = dialogue(&client, &tool, |question| {
                asked.set(true);
                assert_eq!(question["params"], url());
                json!({ "action": "accept" })
            });
            let said = said.await;
            assert_eq!(asked.get(), knows_modes, "{version} {}: {said:?}", kind.name);
        }
    }
}

#[tokio::test]
async fn on_a_shared_child_ambiguous_questions_reach_no_client() {
    let upstream = Upstream::legacy().await;
    upstream.does("ask", |_| {
        let mut steps = vec![Step::Hold];
        steps.extend(asking(vec![("q", "elicitation/create", form())]));
        steps
    });
    upstream.does("never", |_| vec![Step::Never]);
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let one = gateway.legacy().await.offering(everything()).await;
    let two = gateway.legacy().await.offering(everything()).await;
    // Two calls of one client: it is asked in one of them.
    let asked = async {
        upstream.heard("tools/call", 2).await;
        upstream.release(1);
        upstream.heard("", 1).await;
    };
    let (said, ()) = tokio::select! {
        _ = dialogue(&one, "s__never", |_| ann()) => panic!("no answer was to come"),
        done = async { tokio::join!(dialogue(&one, "s__ask", |_| ann()), asked) } => done,
    };
    assert_eq!(json_of(&said), json!({ "q": ann() }));
    // Calls of two clients are in flight: the request cannot be assigned to one.
    let asked = async {
        upstream.heard("tools/call", 3).await;
        upstream.release(1);
    };
    let (said, ()) = tokio::join!(dialogue(&two, "s__ask", |_| panic!("asked")), asked);
    let told = &json_of(&said)["q"];
    assert_eq!(told["code"], -32601, "{told}");
    assert!(told["message"].as_str().unwrap().contains("more than one client"), "{told}");
}

#[tokio::test]
async fn server_requests_outside_of_calls_are_refused_with_a_reason() {
    let upstream = Upstream::legacy().await;
    upstream.does("late", |_| {
        vec![
            Step::text("done"),
            Step::Ask("q", "roots/list", json!({})),
            Step::Ask("ping", "ping", Value::Null),
            Step::Ask("other", "tasks/list", json!({})),
        ]
    });
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.legacy().await.offering(everything()).await;
    assert_eq!(client.call("s__late", json!({})).await.text(), "done");
    upstream.heard("", 3).await;
    let told: Vec<Value> =
        upstream.all("").iter().map(|it| serde_json::from_str(&it.text).unwrap()).collect();
    let of = |key: &str| {
        let own = |it: &&Value| it["id"].as_str().unwrap().ends_with(&format!("/{key}"));
        told.iter().find(own).unwrap()
    };
    assert_eq!(of("q")["error"]["code"], -32601);
    assert_eq!(of("other")["error"]["code"], -32601);
    assert_eq!(of("ping")["result"], json!({}));
}

#[tokio::test]
async fn answers_that_are_no_results_are_refused_and_the_call_waits_on() {
    let upstream = Upstream::legacy().await;
    upstream.does("ask", |_| asking(vec![("q", "elicitation/create", form())]));
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern().offering(everything()).await;
    let asked = ask(&client, "s__ask").await;
    for wrong in [json!(7), Value::Null, json!("x"), json!([])] {
        let said = retry(&client, "s__ask", asked.all(&wrong), asked.state()).await;
        assert_eq!(said.code(), -32602, "{wrong}");
    }
    let said = retry(&client, "s__ask", asked.all(&ann()), asked.state()).await;
    assert_eq!(json_of(&said), json!({ "q": ann() }));
}

#[tokio::test]
async fn missing_answers_are_requested_again() {
    let upstream = Upstream::legacy().await;
    upstream.does("ask", |_| {
        asking(vec![("a", "elicitation/create", form()), ("b", "roots/list", json!({}))])
    });
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern().offering(everything()).await;
    let asked = ask(&client, "s__ask").await;
    let form_key = |asked: &super::Asked| {
        let of = |(_, it): &(&String, &Value)| it["method"] == "elicitation/create";
        asked.requests().iter().find(of).unwrap().0.clone()
    };
    let some = json!({ form_key(&asked): ann(), "unknown": { "x": 1 } });
    let said = retry(&client, "s__ask", some, asked.state()).await;
    let rest = super::Asked { said };
    let methods: Vec<_> = rest.requests().values().map(|it| &it["method"]).collect();
    assert_eq!(methods, ["roots/list"]);
    let said = retry(&client, "s__ask", rest.all(&json!({ "roots": [] })), rest.state()).await;
    assert_eq!(json_of(&said), json!({ "a": ann(), "b": { "roots": [] } }));
}

#[tokio::test]
async fn a_server_that_asks_without_end_is_given_up() {
    let upstream = Upstream::modern().await;
    upstream.does("ask", |_| vec![required(&[("q", "elicitation/create", form())], Some("x"))]);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.legacy().await.offering(everything()).await;
    let said = dialogue(&client, "s__ask", |_| ann()).await;
    assert!(said.is_error() && said.text().contains("times in one call"), "{said:?}");
    for (_, client) in both(&gateway).await {
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
    }
}
