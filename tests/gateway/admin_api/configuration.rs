//! The running configuration, its file on disk, its versions, and texts that replace it.

use serde_json::{Value, json};
use trunkline::telemetry::metrics::ReloadOutcome;

use super::resources::{get, post};
use super::{code, send, with_roles};
use crate::support::gateway::Builder;
use crate::support::{Gateway, json_lines, until};

/// A gateway that keeps versions in its folder.
fn keeping() -> Builder {
    Gateway::alone().gateway("state_dir = \"state\"")
}

fn file_of(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.folder().join("gateway.toml")).unwrap()
}

async fn plan(gateway: &Gateway, body: Value) -> String {
    let said = post(gateway, "/configuration/plan", &body).await;
    assert_eq!(said.status, 200, "{said:?}");
    said.json()["digest"].as_str().unwrap_or_else(|| panic!("{said:?}")).to_owned()
}

#[tokio::test]
async fn the_running_configuration_and_its_file_are_compared() {
    let secret =
        "[servers.off]\nurl = \"http://127.0.0.1:1/\"\nheaders = { X-Key = \"hunter2\" }\n";
    let gateway = with_roles(keeping()).toml(secret).start_at_once().await;
    let page = get(&gateway, "/configuration").await;
    assert_eq!(page["running"]["applied_by"], json!({ "kind": "start" }));
    assert_eq!((&page["file"]["differs"], &page["refused"]), (&json!(false), &Value::Null));
    assert_eq!(page["file"]["digest"], page["running"]["digest"]);
    let text = page["running"]["text"].as_str().unwrap();
    assert!(text.contains("X-Key = \"***\"") && !text.contains("hunter2"), "{text}");
    // The text is for the role `admin` only.
    for (key, shows) in [("looks-key", false), ("acts-key", false), ("rules-key", true)] {
        let client = gateway.remote_operator().key(key);
        let page = send(&client, "GET", "/api/v1/configuration").await.json();
        assert_eq!(page["running"]["text"].is_string(), shows, "{key}");
    }
    let outcome = gateway.reload_text(&format!("{}nonsense = 1\n", file_of(&gateway))).await;
    assert_eq!(outcome, ReloadOutcome::Rejected);
    let page = get(&gateway, "/configuration").await;
    assert_eq!(page["file"]["differs"], true);
    assert_ne!(page["file"]["digest"], page["running"]["digest"]);
    for faults in [&page["file"]["faults"], &page["refused"]["faults"]] {
        assert!(faults[0].as_str().unwrap().contains("nonsense"), "{page:#}");
    }
    // A viewer does not have it evaluated.
    for (key, evaluates) in [("looks-key", false), ("acts-key", true)] {
        let client = gateway.remote_operator().key(key);
        let file = send(&client, "GET", "/api/v1/configuration").await.json()["file"].clone();
        assert_eq!(!file["faults"].as_array().unwrap().is_empty(), evaluates, "{key}");
        assert_eq!(file["differs"], true, "{key}");
    }
}

#[tokio::test]
async fn the_text_that_runs_is_noted_though_the_file_is_edited_during_the_start() {
    let edited = "[gateway]\ntitle = \"edited\"\n";
    let gateway = keeping().gateway("title = \"read\"").edited_meanwhile(edited);
    let read = gateway.text();
    let gateway = gateway.start().await;
    let page = get(&gateway, "/configuration").await;
    let text = page["running"]["text"].as_str().unwrap();
    assert!(text.contains("\"read\"") && !text.contains("\"edited\""), "{text}");
    assert_eq!(page["file"]["differs"], true);
    let version = get(&gateway, "/configuration/history/1").await;
    assert_eq!(version["text"], read.as_str(), "{version:#}");
}

#[tokio::test]
async fn a_text_is_applied_by_the_digest_of_its_plan_and_recorded_with_its_operator() {
    let audit = "[audit]\nfile = \"audit.jsonl\"\n";
    let gateway = with_roles(keeping()).toml(audit).start().await;
    let before = file_of(&gateway);
    let text = format!("# new\n{before}[profiles.few]\ntools = []\n");
    let path = "/configuration/apply";
    let digest = plan(&gateway, json!({ "text": text })).await;
    let other = json!({ "text": format!("{text}# other\n"), "digest": digest });
    assert_eq!(code(&post(&gateway, path, &other).await, 409), "plan_outdated");
    assert_eq!(file_of(&gateway), before, "nothing is written");

    let digest = plan(&gateway, json!({ "text": text })).await;
    for wrong in ["0000", ""] {
        let body = json!({ "text": text, "digest": wrong });
        assert_eq!(code(&post(&gateway, path, &body).await, 409), "plan_outdated");
    }
    let client = gateway.remote_operator().key("rules-key");
    let body = json!({ "text": text, "digest": digest }).to_string();
    let ask = client.http("POST", "/api/v1/configuration/apply").body(body);
    let said = ask.header("content-type", "application/json").send().await.said().await;
    assert_eq!((said.status, &said.json()["outcome"]), (200, &json!("applied")), "{said:?}");
    assert_eq!(file_of(&gateway), text);
    let backup = said.json()["backup"].as_str().unwrap().to_owned();
    assert_eq!(std::fs::read_to_string(backup).unwrap(), before);
    let by = json!({ "kind": "operator", "name": "client rules" });
    let page = get(&gateway, "/configuration").await;
    assert_eq!((&page["running"]["applied_by"], &page["file"]["differs"]), (&by, &json!(false)));
    let versions = get(&gateway, "/configuration/history").await["versions"].clone();
    assert_eq!(versions[0]["applied_by"], by);
    assert_eq!(versions[0]["summary"], "added profiles.few");
    let log = gateway.folder().join("audit.jsonl");
    let is_reload = |record: &Value| {
        record["operation"] == "reload" && record["actor"]["name"] == "client rules"
    };
    until(|| json_lines(&log).iter().any(is_reload)).await;
}

#[tokio::test]
async fn a_text_with_hidden_secrets_and_a_weaker_role_are_refused() {
    let gateway = with_roles(keeping()).start().await;
    let body = json!({ "text": "[servers.a]\nurl = \"***\"\n" });
    let planned = post(&gateway, "/configuration/plan", &body).await.json();
    assert_eq!(planned["digest"], Value::Null);
    assert!(planned["faults"][0].as_str().unwrap().contains("line 2"), "{planned}");
    // Reading a text runs the programs that it names.
    let client = gateway.remote_operator().key("acts-key");
    for (body, status) in [("{}", 200), (r#"{"text":""}"#, 403), (r#"{"version":1}"#, 403)] {
        let ask = client.http("POST", "/api/v1/configuration/plan").body(body.to_owned());
        let said = ask.header("content-type", "application/json").send().await.said().await;
        assert_eq!(said.status, status, "{body} {said:?}");
    }
}

#[tokio::test]
async fn a_version_is_restored_over_a_faulty_file_and_hides_its_secrets() {
    let gateway = keeping().toml(
        "[clients.a]\nkey = \"0000000000000000000000000000000000000000000000000000000000000001\"\n",
    );
    let gateway = gateway.start().await;
    let first = file_of(&gateway);
    assert_eq!(gateway.reload_text(&format!("{first}# more\n")).await, ReloadOutcome::Unchanged);
    assert_eq!(gateway.reload_text("nonsense").await, ReloadOutcome::Rejected);
    let versions = get(&gateway, "/configuration/history").await["versions"].clone();
    let by = |at: usize| versions[at]["applied_by"]["kind"].as_str().unwrap();
    assert_eq!((versions.as_array().unwrap().len(), by(0), by(1)), (2, "signal", "start"));
    let shown = get(&gateway, "/configuration/history/1").await;
    assert!(shown["text"].as_str().unwrap().contains("key = \"***\""), "{shown}");
    assert!(shown["diff"].as_str().unwrap().contains("-# more"), "{shown}");
    let digest = plan(&gateway, json!({ "version": 1 })).await;
    let path = "/configuration/rollback/1";
    let missing = post(&gateway, "/configuration/rollback/7", &json!({ "digest": digest })).await;
    assert_eq!(code(&missing, 404), "unknown_version");
    let said = post(&gateway, path, &json!({ "digest": digest, "wait": true })).await;
    assert_eq!((said.status, &said.json()["outcome"]), (200, &json!("unchanged")), "{said:?}");
    assert_eq!(file_of(&gateway), first);
    for body in [json!({}), json!({ "digest": digest, "other": 1 })] {
        assert_eq!(code(&post(&gateway, path, &body).await, 400), "invalid_request");
    }
}

#[tokio::test]
async fn a_text_that_is_rejected_after_all_is_removed_from_the_file() {
    let gateway = keeping().start().await;
    let before = file_of(&gateway);
    // A plan reads the text; only a reload opens the log.
    let text = format!("{before}[audit]\nfile = \"none/audit.jsonl\"\nrequired = true\n");
    let digest = plan(&gateway, json!({ "text": text })).await;
    let body = json!({ "text": text, "digest": digest });
    let said = post(&gateway, "/configuration/apply", &body).await.json();
    assert_eq!(said["outcome"], "rejected", "{said}");
    assert!(said["faults"][0].as_str().unwrap().contains("audit.file"), "{said}");
    assert_eq!(file_of(&gateway), before);
}

#[tokio::test]
async fn an_edit_by_hand_after_the_plan_is_not_overwritten() {
    let gateway = keeping().start().await;
    let before = file_of(&gateway);
    let text = format!("{before}[profiles.few]\ntools = []\n");
    let path = gateway.folder().join("gateway.toml");
    let digest = plan(&gateway, json!({ "text": text })).await;
    let edited = format!("{before}# by hand\n");
    std::fs::write(&path, &edited).unwrap();
    let body = json!({ "text": text, "digest": digest });
    let said = post(&gateway, "/configuration/apply", &body).await;
    assert_eq!(code(&said, 409), "plan_outdated");
    assert_eq!(file_of(&gateway), edited);
    // A plan of what is there now is applied.
    let digest = plan(&gateway, json!({ "text": text })).await;
    let body = json!({ "text": text, "digest": digest });
    let said = post(&gateway, "/configuration/apply", &body).await;
    assert_eq!((said.status, &said.json()["outcome"]), (200, &json!("applied")), "{said:?}");
    assert_eq!(file_of(&gateway), text);
}

#[tokio::test]
async fn a_rollback_restores_each_byte_and_uses_the_present_output_of_its_commands() {
    let gateway = keeping().start().await;
    let plain = file_of(&gateway);
    let secret = gateway.folder().join("secret");
    std::fs::write(&secret, "old-output").unwrap();
    let server = "[servers.off]\nurl = \"http://127.0.0.1:1/\"\nstart = \"lazy\"\n";
    let header = format!("headers = {{ X-Key = \"${{command:cat {}}}\" }}\n", secret.display());
    let windows = format!("\u{feff}{plain}{server}{header}").replace('\n', "\r\n");
    assert_eq!(gateway.reload_text(&windows).await, ReloadOutcome::Applied);
    assert_eq!(gateway.reload_text(&plain).await, ReloadOutcome::Applied);
    std::fs::write(&secret, "new-output").unwrap();
    let digest = plan(&gateway, json!({ "version": 2 })).await;
    let said = post(&gateway, "/configuration/rollback/2", &json!({ "digest": digest })).await;
    assert_eq!((said.status, &said.json()["outcome"]), (200, &json!("applied")), "{said:?}");
    assert_eq!(file_of(&gateway), windows);
    let config = gateway.running.gateway.snapshots.load().config.clone();
    let server = &config.servers[0];
    assert_eq!(server.secrets.hide_in("the new-output one"), "the *** one", "the present output");
}

#[tokio::test]
async fn a_reload_does_not_move_the_versions() {
    let gateway = keeping().start().await;
    let first = file_of(&gateway);
    for dir in ["\"off\"", "\"elsewhere\""] {
        let text = first.replace("\"state\"", dir);
        assert_ne!(text, first);
        assert_eq!(gateway.reload_text(&text).await, ReloadOutcome::Applied, "{dir}");
    }
    assert_eq!(get(&gateway, "/configuration").await["keeps_versions"], true);
    let versions = get(&gateway, "/configuration/history").await["versions"].clone();
    assert_eq!(versions.as_array().unwrap().len(), 3, "{versions}");
    assert!(!gateway.folder().join("elsewhere").exists());
}
