//! The members of bodies, the texts in answers, and changes whose client is gone.

use serde_json::{Value, json};

use super::{code, with_roles};
use crate::pins::pinned;
use crate::support::{Client, Gateway, Said, Step, Upstream, json_lines, until, within};

async fn post(client: &Client, path: &str, body: &Value) -> Said {
    let ask = client.http("POST", &format!("/api/v1{path}")).body(body.to_string());
    ask.header("content-type", "application/json").send().await.said().await
}

/// A misspelled member must not be ignored: a reload without its `digest` applies any file.
#[tokio::test]
async fn an_unknown_member_of_a_body_is_refused() {
    let upstream = Upstream::modern().await;
    let gateway = pinned(&upstream, "pins = \"hold\"").start().await;
    let operator = gateway.operator();
    let before = gateway.status().await["configuration"].clone();
    for (path, body) in [
        ("/configuration/reload", json!({ "digset": "0000" })),
        ("/configuration/reload", json!({ "digest": "0000", "waits": true })),
        ("/configuration/plan", json!({ "day": 3 })),
        ("/servers/s/definitions/approve", json!({ "sha256": ["0"], "all": true })),
        ("/why", json!({ "client": "anonymous", "tool": "s__echo", "argument": {} })),
        ("/why", json!({ "client": "a:b", "tool": "t", "token": { "scope": ["x"] } })),
    ] {
        let said = post(&operator, path, &body).await;
        assert_eq!(code(&said, 400), "invalid_request", "{path} {body}");
        assert!(said.body.contains("unknown field"), "{path}: {said:?}");
    }
    assert_eq!(gateway.status().await["configuration"], before, "no file was read");
}

#[tokio::test]
async fn a_reload_with_the_digest_of_no_plan_reads_nothing() {
    let gateway = Gateway::alone().start().await;
    let before = gateway.status().await["configuration"].clone();
    let text = Gateway::alone().toml("[profiles.p]").text();
    std::fs::write(gateway.folder().join("gateway.toml"), text).unwrap();
    let operator = gateway.operator();
    for has_plan in [false, true] {
        if has_plan {
            post(&operator, "/configuration/plan", &json!({})).await.json();
        }
        let said = post(&operator, "/configuration/reload", &json!({ "digest": "0000" })).await;
        assert_eq!(code(&said, 409), "plan_outdated");
        assert_eq!(gateway.status().await["configuration"], before);
    }
    let plan = post(&operator, "/configuration/plan", &json!({})).await.json();
    let digest = json!({ "digest": plan["digest"], "wait": true });
    let said = post(&operator, "/configuration/reload", &digest).await;
    assert_eq!((said.status, &said.json()["outcome"]), (200, &json!("applied")), "{said:?}");
    // The plan is used up.
    assert_eq!(
        code(&post(&operator, "/configuration/reload", &digest).await, 409),
        "plan_outdated"
    );
}

/// The table of endpoints has the roles, and the document is made from it: these are named here again.
#[tokio::test]
async fn changes_of_configuration_and_definitions_are_for_admins() {
    let gateway = with_roles(Gateway::alone()).start().await;
    for path in ["/configuration/reload", "/servers/s/definitions/approve"] {
        for (key, is_refused) in [("looks-key", true), ("acts-key", true), ("rules-key", false)] {
            let client = gateway.remote_operator().key(key);
            let said = post(&client, path, &json!({})).await;
            assert_eq!(said.status == 403, is_refused, "{path} {key}: {said:?}");
        }
    }
}

#[tokio::test]
async fn an_approval_has_a_bounded_number_of_digests() {
    let upstream = Upstream::modern().await;
    let gateway = pinned(&upstream, "pins = \"hold\"").start().await;
    let path = "/servers/s/definitions/approve";
    for (count, status, expected) in [
        (10_000, 409, "not_pending"),
        (10_001, 400, "invalid_request"),
        (0, 400, "invalid_request"),
    ] {
        let body = json!({ "sha256": vec!["0"; count] });
        let said = post(&gateway.operator(), path, &body).await;
        assert_eq!(code(&said, status), expected, "{count}");
    }
}

#[tokio::test]
async fn names_and_texts_of_servers_have_their_invisible_characters_escaped() {
    let upstream = Upstream::modern().await;
    let tool = |name: &str, text: &str| {
        json!({ "name": name, "description": text, "inputSchema": { "type": "object" } })
            .to_string()
    };
    upstream.set_tools([tool("add\u{202e}", "Adds\u{200b}\u{e0041}.\u{1b}[2J")]);
    let gateway = pinned(&upstream, "pins = \"hold\"").start().await;
    let operator = gateway.operator();
    let page = async |path: &str| {
        let said = operator.http("GET", path).send().await.said().await;
        assert_eq!(said.status, 200, "{path}: {said:?}");
        // The texts themselves, not their form in JSON.
        said.json()
    };
    let pending = async || {
        let all = page("/api/v1/definitions").await["pending"].clone();
        let all = all.as_array().unwrap().clone();
        all.into_iter().find(|one| one["kind"] == "tools")
    };
    let found = within(async {
        loop {
            if let Some(found) = pending().await {
                return found;
            }
        }
    })
    .await;
    let catalog = page("/api/v1/catalog").await;
    let element = catalog["elements"].as_array().unwrap().first().unwrap().clone();
    let texts = [&found["name"], &found["diff"], &element["native"]];
    for text in texts.map(|text| text.as_str().unwrap()) {
        let is_seen = |c: char| c == '\n' || !c.is_control() && !trunkline::text::is_invisible(c);
        assert!(text.chars().all(is_seen), "{text:?}");
    }
    assert!(found["diff"].as_str().unwrap().contains("\\u{200b}"), "{found}");
    assert!(found["name"].as_str().unwrap().contains("202e"), "{found}");
}

#[tokio::test]
async fn a_change_is_completed_and_recorded_without_its_client() {
    let upstream = Upstream::modern().await;
    let gateway = with_roles(Gateway::with("s", upstream.http()))
        .toml("[audit]\nfile = \"audit.jsonl\"")
        .start()
        .await;
    let path = gateway.folder().join("audit.jsonl");
    let changes = || {
        let records = json_lines(&path).into_iter();
        records.filter(|record| record["operation"] == "change").collect::<Vec<_>>()
    };
    let lists = upstream.all("tools/list").len();
    upstream.when_asked("tools/list", |_| vec![Step::Hold, Step::Result(json!({ "tools": [] }))]);
    let operator = gateway.remote_operator().key("acts-key");
    let asking = operator.http("POST", "/api/v1/servers/s/refresh").send();
    tokio::select! {
        _ = asking => panic!("the server has not answered"),
        _ = upstream.heard("tools/list", lists + 1) => {}
    }
    // The connection is closed with the dropped request.
    assert_eq!(changes(), Vec::<Value>::new());
    upstream.release(8);
    until(|| !changes().is_empty()).await;
    let all = changes();
    assert_eq!((all.len(), &all[0]["outcome"]), (1, &json!("ok")), "{all:?}");
    assert_eq!(all[0]["actor"]["name"], "client acts");
}

#[tokio::test]
async fn a_change_that_is_refused_is_recorded_with_its_reason() {
    let upstream = Upstream::modern().await;
    let gateway = with_roles(Gateway::with("s", upstream.http()))
        .toml("[audit]\nfile = \"audit.jsonl\"")
        .start()
        .await;
    let path = gateway.folder().join("audit.jsonl");
    let changes = || {
        let records = json_lines(&path).into_iter();
        records.filter(|record| record["operation"] == "change").collect::<Vec<_>>()
    };
    let refresh = "/api/v1/servers/s/refresh";
    for (key, target, header, reason) in [
        ("looks-key", refresh, ("x-none", "x"), "role_needed"),
        ("looks-key", "/servers/s/refresh", ("x-none", "x"), "role_needed"),
        ("acts-key", "/api/v1/servers/s/refresh?x=1", ("x-none", "x"), "invalid_request"),
        ("acts-key", refresh, ("sec-fetch-site", "cross-site"), "foreign_page"),
        ("acts-key", "/servers/s/refresh", ("sec-fetch-site", "cross-site"), "foreign_page"),
    ] {
        let seen = changes().len();
        let operator = gateway.remote_operator().key(key);
        let asked = operator.http("POST", target);
        let said = asked.header(header.0, header.1).send().await.said().await;
        assert!(said.status >= 400, "{target}: {said:?}");
        until(|| changes().len() > seen).await;
        let record = changes().remove(seen);
        assert_eq!(record["outcome"], "refused", "{record}");
        assert_eq!(record["reason"], reason, "{record}");
        let name = if key == "looks-key" { "client looks" } else { "client acts" };
        assert_eq!(record["actor"]["name"], name, "{record}");
    }
    // Reading changes nothing.
    let seen = changes().len();
    let operator = gateway.remote_operator().key("looks-key");
    let asked = operator.http("GET", "/api/v1/audit?x=1");
    assert!(asked.send().await.said().await.status >= 400);
    assert_eq!(changes().len(), seen);
}
