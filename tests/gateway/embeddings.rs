//! Search by meaning: with a model in the process, and with a service.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::client::Client;
use crate::support::embeddings::{Answering, VectorService};
use crate::support::gateway::Builder;
use crate::support::{Gateway, Step, Upstream, until, until_async};
#[cfg(feature = "embedding-models")]
use crate::support::{client_table, embeddings::write_model};

const SEARCH: &str = "[profiles.default]\ndiscovery = \"search\"\n";
/// Words and their meanings. No definition contains the last two, and none has a similar spelling.
const WORDS: [(&str, usize); 5] =
    [("issue", 0), ("repository", 1), ("calendar", 2), ("zorblax", 1), ("quuxly", 2)];
const SECRET: &str = "Bearer header-secret";

/// Starts a gateway in front of a server with three tools.
async fn gateway(settings: &str) -> (Upstream, Builder) {
    let upstream = Upstream::modern().await;
    upstream.set_tools([""; 0]);
    for (name, description) in [
        ("create_issue", "Opens a new issue."),
        ("delete_repository", "Deletes a repository."),
        ("show_calendar", "Shows the calendar."),
    ] {
        let tool = json!({
            "name": name, "description": description, "inputSchema": { "type": "object" },
        });
        upstream.tool(&tool, |_| vec![Step::Result(json!({ "content": [] }))]);
    }
    let builder = Gateway::with("s", upstream.http()).toml(settings);
    (upstream, builder.variable("SECRET", SECRET))
}

/// Returns the names of the tools that a query finds, and the text of the answer.
async fn found(client: &Client, query: &str) -> (Vec<String>, String) {
    let said = client.call("find_tools", json!({ "query": query })).await;
    let lines = said.result()["structuredContent"]["tools"].as_array().unwrap().clone();
    let name = |line: &Value| line.as_str().unwrap().split('(').next().unwrap().to_owned();
    (lines.iter().map(name).collect(), said.text().to_owned())
}

/// Waits until all definitions have their vectors.
async fn filled(gateway: &Gateway, vectors: usize) {
    gateway
        .wait_for(|status| {
            let embeddings = &status["embeddings"];
            embeddings["vectors"] == vectors && embeddings["waiting"] == 0
        })
        .await;
}

#[cfg(feature = "embedding-models")]
#[tokio::test]
async fn a_model_finds_tools_by_meaning_and_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    write_model(&folder.path().join("model"), &WORDS);
    let rules = client_table("ann", "key-a", "")
        + &client_table("bob", "key-b", "")
        + "[policy.rules.all]\nprincipals = [\"ann\"]\n\
           [policy.rules.some]\nprincipals = [\"bob\"]\ntools = [\"*__create_issue\"]\n";
    let settings = format!("{SEARCH}[search.embeddings]\nmodel = \"model\"\n{rules}");
    let (_upstream, builder) = gateway(&settings).await;
    let gateway = builder.in_folder(folder).start().await;
    let ann = gateway.modern().key("key-a");
    let (names, text) = found(&ann, "zorblax").await;
    assert_eq!(names[0], "s__delete_repository", "{text}");
    assert!(text.contains("fits well"), "words are missing: {text}");
    assert_eq!(found(&ann, "quuxly").await.0[0], "s__show_calendar");
    assert_eq!(found(&ann, "open an issue").await.0[0], "s__create_issue");
    // A forbidden tool is not found by its meaning either.
    let (names, text) = found(&gateway.modern().key("key-b"), "zorblax").await;
    assert!(names.iter().all(|name| name == "s__create_issue"), "{text}");
    let status = gateway.status().await["embeddings"].clone();
    assert_eq!(status["source"], "model");
    assert_eq!((&status["dimensions"], &status["error"]), (&json!(8), &Value::Null));
}

#[cfg(feature = "embedding-models")]
#[tokio::test]
async fn a_folder_that_is_no_model_is_a_fault_and_the_old_configuration_stays() {
    let folder = tempfile::tempdir().unwrap();
    write_model(&folder.path().join("model"), &WORDS);
    let settings = format!("{SEARCH}[search.embeddings]\nmodel = \"model\"\n");
    let (upstream, builder) = gateway(&settings).await;
    let gateway = builder.in_folder(folder).start().await;
    assert_eq!(found(&gateway.modern(), "zorblax").await.0[0], "s__delete_repository");
    let other =
        Gateway::with("s", upstream.http()).toml(&settings.replace("\"model\"", "\"none\""));
    assert_eq!(gateway.reload(other).await, ReloadOutcome::Rejected);
    let faults = gateway.status().await["configuration"]["last_reload"]["faults"].to_string();
    assert!(faults.contains("search.embeddings.model"), "{faults}");
    assert_eq!(found(&gateway.modern(), "zorblax").await.0[0], "s__delete_repository");
    // Without the section, the search uses words again.
    let without = Gateway::with("s", upstream.http()).toml(SEARCH);
    assert_eq!(gateway.reload(without).await, ReloadOutcome::Applied);
    assert!(found(&gateway.modern(), "zorblax").await.0.is_empty());
    assert_eq!(gateway.status().await["embeddings"], Value::Null);
}

#[tokio::test]
async fn a_service_is_sent_definitions_in_batches_and_one_query_for_each_search() {
    let service = VectorService::start(&WORDS).await;
    let lines = "batch = 2\nheaders = { Authorization = \"${env:SECRET}\" }\ndimensions = 8";
    // Tools that no profile shows are not sent to the service.
    let settings = "tools = [\"*_issue\", \"*_repository\", \"*_calendar\"]\n".to_owned();
    let settings = format!("{SEARCH}{settings}{}", service.section(lines));
    let (upstream, builder) = gateway(&settings).await;
    let hidden = json!({ "name": "hidden", "inputSchema": { "type": "object" } });
    upstream.tool(&hidden, |_| vec![Step::Result(json!({ "content": [] }))]);
    let gateway = builder.start().await;
    filled(&gateway, 3).await;
    let asked = service.asked();
    assert!(asked.len() >= 2 && asked.iter().all(|asked| asked.texts().len() <= 2), "{asked:?}");
    for asked in &asked {
        assert_eq!(asked.headers["authorization"], SECRET);
        assert_eq!((&asked.body["model"], &asked.body["dimensions"]), (&json!("m-1"), &json!(8)));
    }
    let mut texts = service.texts();
    texts.sort();
    let expected = [
        "s create issue. Opens a new issue",
        "s delete repository. Deletes a repository",
        "s show calendar. Shows the calendar",
    ];
    assert_eq!(texts, expected);
    assert_eq!(found(&gateway.modern(), "zorblax").await.0[0], "s__delete_repository");
    assert_eq!(service.texts()[3..], ["zorblax"], "once, as the client wrote it");
    // Unknown names are searched by their spelling.
    gateway.modern().call("call_tool", json!({ "name": "zorblax", "arguments": {} })).await;
    assert_eq!(service.texts().len(), 4);
    found(&gateway.modern(), &"zorbläx ".repeat(50)).await;
    assert!(service.texts()[4].len() <= 400, "a query is bounded");
}

#[tokio::test]
async fn texts_follow_their_prefixes_and_a_query_is_followed_by_its_english() {
    let service = VectorService::start(&WORDS).await;
    let lines = "query_prefix = \"query:\\n\"\ndefinition_prefix = \"passage: \"";
    let (_upstream, builder) = gateway(&format!("{SEARCH}{}", service.section(lines))).await;
    let gateway = builder.start().await;
    filled(&gateway, 3).await;
    assert!(service.texts().iter().all(|text| text.starts_with("passage: s ")));
    found(&gateway.modern(), "Lösche das Repository").await;
    assert_eq!(service.texts()[3..], ["query:\nLösche das Repository (delete repository)"]);
}

#[tokio::test]
async fn vectors_outlive_changes_of_lists_and_of_other_settings() {
    let service = VectorService::start(&WORDS).await;
    let settings = format!("{SEARCH}{}", service.section(""));
    let (upstream, builder) = gateway(&settings).await;
    let gateway = builder.start().await;
    filled(&gateway, 3).await;
    let other = Gateway::with("s", upstream.http() + "timeout = \"9s\"\n").toml(&settings);
    assert_eq!(gateway.reload(other).await, ReloadOutcome::Applied);
    gateway.settled().await;
    assert_eq!(found(&gateway.modern(), "zorblax").await.0[0], "s__delete_repository");
    assert_eq!(service.texts().len(), 4, "three definitions and a query");
}

#[tokio::test]
async fn a_service_that_fails_leaves_search_to_the_words() {
    for answering in [
        Answering::Status(500),
        Answering::Status(401),
        Answering::TooFew,
        Answering::OtherLength,
        Answering::TooMuch,
        Answering::Nonsense,
    ] {
        let service = VectorService::start(&WORDS).await;
        let lines = "max_answer = \"64KiB\"\nheaders = { Authorization = \"${env:SECRET}\" }";
        let (_upstream, builder) = gateway(&format!("{SEARCH}{}", service.section(lines))).await;
        let gateway = builder.start().await;
        filled(&gateway, 3).await;
        service.answers(answering);
        let (names, text) = found(&gateway.modern(), "open a new issue").await;
        assert_eq!(names[0], "s__create_issue", "{answering:?}: {text}");
        assert!(found(&gateway.modern(), "zorblax").await.0.is_empty(), "{answering:?}");
        let status = gateway.status().await;
        let error = status["embeddings"]["error"].as_str().unwrap_or_default().to_owned();
        assert!(!error.is_empty(), "{answering:?}: {status}");
        for text in [text, status.to_string(), gateway.metrics().await] {
            assert!(!text.contains("-secret"), "{answering:?}: {text}");
        }
        // It is not asked for a while, and then asked again.
        assert_eq!(service.texts().len(), 4, "{answering:?}");
        service.answers(Answering::Rightly);
        until_async(async || !found(&gateway.modern(), "zorblax").await.0.is_empty()).await;
    }
}

#[tokio::test]
async fn a_service_that_is_slow_does_not_hold_up_searches() {
    let service = VectorService::start(&WORDS).await;
    let lines = "timeout = \"200ms\"\nbatch_timeout = \"300ms\"";
    let (_upstream, builder) = gateway(&format!("{SEARCH}{}", service.section(lines))).await;
    service.answers(Answering::Never);
    let gateway = builder.start().await;
    // An unanswered batch is sent again; meanwhile no query is sent.
    until(|| service.asked().len() > 1).await;
    assert_eq!(found(&gateway.modern(), "open a new issue").await.0[0], "s__create_issue");
    assert!(!service.texts().iter().any(|text| text == "open a new issue"));
    service.answers(Answering::Rightly);
    filled(&gateway, 3).await;
    service.answers(Answering::Never);
    let begin = Instant::now();
    for _ in 0..5 {
        assert_eq!(found(&gateway.modern(), "open a new issue").await.0[0], "s__create_issue");
    }
    // Each of them would wait for two seconds by default.
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    let error = gateway.status().await["embeddings"]["error"].to_string();
    assert!(error.contains("no answer within 200ms"), "{error}");
}

#[tokio::test]
async fn a_definition_that_the_service_refuses_is_found_by_its_words() {
    let service = VectorService::start(&WORDS).await;
    let (_upstream, builder) = gateway(&format!("{SEARCH}{}", service.section(""))).await;
    service.answers(Answering::Refusing("calendar"));
    let gateway = builder.start().await;
    filled(&gateway, 2).await;
    service.answers(Answering::Rightly);
    assert_eq!(found(&gateway.modern(), "show the calendar").await.0[0], "s__show_calendar");
    assert_eq!(found(&gateway.modern(), "zorblax").await.0[0], "s__delete_repository");
}
