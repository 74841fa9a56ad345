//! Tokens and keys, sent in all places that clients use, at the most verbose level of the log. No
//! part of one is in the log, a span, a metric, the status, an error or the audit log. This is a
//! test crate of its own, because a process has one log.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::pedantic,
    reason = "a test that cannot go on fails"
)]

#[path = "support/mod.rs"]
mod support;

use std::sync::{Arc, Mutex, OnceLock};

use serde_json::json;
use tempfile::NamedTempFile;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use support::api::Page;
use support::client::{Ask, Client};
use support::collector::Collector;
use support::embeddings::{Answering, VectorService};
use support::gateway::key_digest;
use support::issuer::{SigningKey, forge, now};
use support::{Browser, Gateway, Issuer, OauthServer, Step, Upstream, client_table};

const KEY: &str = "key-of-ci-4f1c9a77d2";
const ENDED_KEY: &str = "key-of-old-0b8e5d31c6";

/// Captures the log of this process at any level, of any crate, from now on.
fn capture_log() -> &'static NamedTempFile {
    static LOG: OnceLock<NamedTempFile> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = NamedTempFile::new().unwrap();
        let writer = Arc::new(log.reopen().unwrap());
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
        tracing_subscriber::registry().with(layer.with_filter(LevelFilter::TRACE)).init();
        log
    })
}

/// Returns credentials of every kind: accepted ones, and refused ones for each reason.
fn credentials(issuer: &Issuer, resource: &str) -> Vec<(&'static str, String)> {
    let token = |more| issuer.token(resource, more);
    let claims = issuer.claims(resource);
    let none = json!({ "alg": "none" });
    vec![
        ("good", token(json!({}))),
        ("expired", token(json!({ "exp": now() - 1000 }))),
        ("wrong audience", token(json!({ "aud": "https://elsewhere.example.com" }))),
        ("wrong issuer", token(json!({ "iss": "https://elsewhere.example.com" }))),
        ("too few scopes", token(json!({ "jti": "few", "sub": "bob" }))),
        ("unknown key", SigningKey::p256("unknown").sign(&claims)),
        ("wrong signature", SigningKey::p256("first").sign(&claims)),
        ("unsigned", forge(&none, &claims, &[91; 40])),
        ("malformed", format!("{}.only-two-parts-8c6d2e", "x".repeat(40))),
        ("opaque", "opaque-7d1f0be3a9c5-token".to_owned()),
        ("key", KEY.to_owned()),
        ("expired key", ENDED_KEY.to_owned()),
        ("wrong key", "key-of-nobody-93ab17ce".to_owned()),
    ]
}

/// Returns the same call with a credential in each place that clients are known to use.
fn in_every_place<'a>(client: &'a Client, secret: &str) -> Vec<(&'static str, Ask<'a>)> {
    let ask = || client.ask_call("s__echo", json!({}));
    let bearer = format!("Bearer {secret}");
    vec![
        ("bearer", ask().header("authorization", &bearer)),
        ("other scheme", ask().header("authorization", &format!("Token {secret}"))),
        ("no scheme", ask().header("authorization", secret)),
        ("key", ask().header("x-api-key", secret)),
        ("both", ask().header("x-api-key", KEY).header("authorization", &bearer)),
        ("twice", ask().header("authorization", &bearer).again("authorization", &bearer)),
        ("cookie", ask().header("cookie", &format!("access_token={secret}"))),
        ("query", ask().at(&format!("/mcp?access_token={secret}"))),
        ("other query", ask().at(&format!("/mcp?token={secret}")).header("x-api-key", KEY)),
        ("param", ask().param("access_token", json!(secret)).header("x-api-key", KEY)),
        ("meta", ask().meta("authorization", json!(bearer)).header("x-api-key", KEY)),
        ("body", ask().body(format!("access_token={secret}")).header("x-api-key", KEY)),
        ("body of a stranger", ask().body(format!("access_token={secret}"))),
    ]
}

/// Returns the parts of a credential that must not be visible: all of it, the parts of a token, and
/// every piece of its signature.
fn pieces(secret: &str) -> Vec<&str> {
    let parts = secret.split('.').filter(|part| part.len() >= 16);
    let signature = secret.rsplit('.').next().unwrap_or_default();
    let windows = signature.len().saturating_sub(PIECE) + 1;
    let windows = (0..windows).filter_map(|at| signature.get(at..at + PIECE));
    [secret].into_iter().chain(parts).chain(windows).collect()
}

const PIECE: usize = 16;

#[tokio::test]
async fn no_part_of_a_key_or_token_is_logged_traced_recorded_or_answered() {
    let log = capture_log();
    let collector = Collector::start().await;
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let lines = upstream.http() + "forward_headers = [\"Authorization\", \"Cookie\"]\n";
    let hash = key_digest(ENDED_KEY);
    let old = format!("[clients.old]\nkeys = [{{ hash = \"{hash}\", expires = 2020-01-01 }}]\n");
    let gateway = Gateway::with("s", lines)
        .toml(&client_table("ci", KEY, ""))
        .toml(&old)
        .toml(&issuer.table("idp", ""))
        .toml("[audit]\nfile = \"audit.jsonl\"\narguments = true\n")
        .toml(&format!(
            "[telemetry]\nendpoint = {:?}\nsample = 1.0\nheaders = {{ x-key = \"secret\" }}\n",
            collector.url
        ))
        .start()
        .await;
    let secrets = credentials(&issuer, &format!("http://{}/mcp", gateway.running.address));
    let mut shown = Vec::new();
    for client in [gateway.modern(), gateway.modern().h2()] {
        for (_, secret) in &secrets {
            for (place, ask) in in_every_place(&client, secret) {
                let reply = ask.send().await;
                let head = format!("{:?}", reply.headers());
                shown.push((place, format!("{head}\n{}", reply.said().await.body)));
            }
        }
    }
    // Legacy sessions and streams, with the accepted credentials.
    for secret in [&secrets[0].1, &secrets[10].1] {
        for (era, client) in gateway.both_as(secret, "/mcp").await {
            client.listen().await;
            shown.push((era, client.call("s__echo", json!({})).await.body));
        }
    }
    shown.push(("status", gateway.status().await.to_string()));
    shown.push(("readyz", gateway.admin("/readyz").await.body));
    shown.push(("metrics", gateway.metrics().await));
    let folder = gateway.stop().await;
    let records = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    let (spans, metrics) = collector.rest().await;
    assert!(!spans.is_empty());
    shown.push(("spans", format!("{spans:?} {metrics:?}")));
    let log = std::fs::read_to_string(log.path()).unwrap();
    // All events were logged.
    for word in ["TRACE", "token_refused", "key_unknown", "idp:ann", "unverified_sha256"] {
        assert!(log.contains(word), "{word}");
    }
    for word in ["idp:ann", "\"ci\"", "token_refused", "key_unknown", "key_expired"] {
        assert!(records.contains(word), "{word}");
    }
    shown.extend([("audit", records), ("log", log)]);
    for (kind, secret) in &secrets {
        for (place, text) in &shown {
            let leak = pieces(secret).into_iter().find_map(|piece| text.find(piece));
            if let Some(at) = leak {
                let near = text.get(at.saturating_sub(300)..text.len().min(at + 80));
                panic!("{kind} is in {place}: {near:?}");
            }
        }
    }
}

/// Secrets sent to an OAuth server and its authorization server, which repeat them.
const TOKEN: &str = "live-token-5d0c1a9be2f7";
const REFRESH: &str = "refresh-token-77ab03cd91";
const CLIENT_SECRET: &str = "client-secret-4e21f09a";
const CODE: &str = "the-code-1";

/// Status, headers and body.
type RepeatedAnswer = (u16, Vec<(String, String)>, String);

/// Returns a server's answers to calls with the token, and its authorization server's answers.
fn repeated(issuer: &str) -> Vec<RepeatedAnswer> {
    let header = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let challenge = format!(
        "Bearer error=\"invalid_token\", error_description=\"{TOKEN} is no good\", \
         resource_metadata=\"{issuer}/prm\""
    );
    vec![
        (200, header("content-type", &format!("text/{TOKEN}")), String::new()),
        (
            302,
            header("location", &format!("https://elsewhere.example/?key={TOKEN}")),
            String::new(),
        ),
        (403, header("www-authenticate", &challenge), format!("no {TOKEN}")),
        (500, header("x-token", TOKEN), format!("no {TOKEN}")),
        (401, header("www-authenticate", &challenge), format!("no {TOKEN}")),
    ]
}

#[tokio::test]
async fn no_live_token_that_a_server_repeats_is_logged_traced_recorded_or_answered() {
    let log = capture_log();
    let collector = Collector::start().await;
    let mut shown = Vec::new();
    let server = OauthServer::before(Upstream::modern().await).await;
    let client = json!({ "client_id": "registered", "client_secret": CLIENT_SECRET });
    server.api.sets("/register", Page::new(201, "application/json", client.to_string()));
    server.publishes(json!({ "revocation_endpoint": server.api.url("/revoke") }));
    let gateway = Gateway::with("s", server.lines("s", ""))
        .toml("[audit]\nfile = \"audit.jsonl\"\narguments = true\n")
        .toml("[events]\nfile = \"events.jsonl\"\ntypes = [\"*\"]\n")
        .toml(&format!(
            "[telemetry]\nendpoint = {:?}\nsample = 1.0\nheaders = {{ x-key = \"secret\" }}\n",
            collector.url
        ))
        .start()
        .await;
    let browser = Browser::of(&gateway);
    let link = gateway.server("s").await["login"].as_str().unwrap().to_owned();
    // A token endpoint that repeats the code and the client's secret, as a text and as the error
    // code.
    let refusal = |error: &str| {
        let text = json!({ "error": error, "error_description": format!("no {error}") });
        Page::new(400, "application/json", text.to_string())
    };
    server.api.sets("/token", refusal(&format!("{CODE}.{CLIENT_SECRET}")));
    let page = browser.opens(&server.agrees(&browser.agrees(&link).await)).await;
    assert_eq!(page.status, 400, "{page:?}");
    shown.push(("page of a refused login", page.body));
    let link = gateway
        .wait_for(|status| status["servers"][0]["login"].as_str().is_some_and(|it| it != link))
        .await["servers"][0]["login"]
        .as_str()
        .unwrap()
        .to_owned();
    server.gives(TOKEN, json!({ "refresh_token": REFRESH, "expires_in": 3600 }));
    server.takes(TOKEN, &["list", "call"]);
    let page = browser.opens(&server.agrees(&browser.agrees(&link).await)).await;
    assert_eq!(page.status, 200, "{page:?}");
    gateway.ready("s").await;
    // A JSON-RPC error is the server's own answer, and passes unchanged.
    let client = gateway.modern();
    server.upstream.does("echo", |call| {
        let sent = call.header("authorization").unwrap_or_default();
        vec![Step::Error(json!({ "code": -32000, "message": format!("no {sent}") }))]
    });
    let said = client.call("s__echo", json!({})).await;
    assert!(said.body.contains(TOKEN), "{said:?}");
    // A redirect of the token endpoint, and then an error.
    let elsewhere = format!("https://elsewhere.example/?t={REFRESH}&{CLIENT_SECRET}");
    server.api.sets("/token", refusal(&format!("{REFRESH}-{CLIENT_SECRET}")));
    server.api.sets_once("/token", Page::new(302, "text/plain", "").header("location", &elsewhere));
    let answers = repeated(&server.issuer());
    let next = Arc::new(Mutex::new(None));
    let guard = Arc::clone(&next);
    server.upstream.guards(move |received| {
        let is_call = received.method == "tools/call";
        guard.lock().unwrap().clone().filter(|_| is_call)
    });
    for answer in answers.iter().chain(answers.last()) {
        *next.lock().unwrap() = Some(answer.clone());
        let said = client.call("s__echo", json!({})).await;
        assert!(said.is_error(), "{answer:?}: {said:?}");
        shown.push(("answer of the gateway", said.body));
        shown.push(("status", gateway.status().await.to_string()));
    }
    // The refresh token was refused; now a login with a refused revocation.
    *next.lock().unwrap() = None;
    server.gives(TOKEN, json!({ "refresh_token": REFRESH }));
    let link = gateway.server("s").await["login"].as_str().unwrap().to_owned();
    let page = browser.opens(&server.agrees(&browser.agrees(&link).await)).await;
    assert_eq!(page.status, 200, "{page:?}");
    server.api.sets("/revoke", refusal(REFRESH));
    let form = support::browser::fields(&browser.opens("/connect").await.body);
    let form = [("form_key", &*form["form_key"]), ("server", "s")];
    browser.sends("/connect/revoke", &form).await;
    let page = browser.opens("/connect").await;
    assert!(page.body.contains("has not revoked"), "{page:?}");
    shown.push(("page of a revocation", page.body));
    shown.push(("metrics", gateway.metrics().await));
    let folder = gateway.stop().await;
    for file in ["audit.jsonl", "events.jsonl"] {
        shown.push((file, std::fs::read_to_string(folder.path().join(file)).unwrap()));
    }
    let (spans, metrics) = collector.rest().await;
    assert!(!spans.is_empty());
    shown.push(("spans", format!("{spans:?} {metrics:?}")));
    let log = std::fs::read_to_string(log.path()).unwrap();
    for line in ["text/***", "elsewhere.example/?key=***", "elsewhere.example/?t=***"] {
        assert!(log.contains(line), "{line} is not in the log");
    }
    shown.push(("log", log));
    for secret in [TOKEN, REFRESH, CLIENT_SECRET, CODE] {
        for (place, text) in &shown {
            if let Some(at) = text.find(secret) {
                let near = text.get(at.saturating_sub(300)..text.len().min(at + 80));
                panic!("{secret} is in {place}: {near:?}");
            }
        }
    }
}

#[tokio::test]
async fn requests_to_an_embedding_service_are_in_no_log() {
    let log = capture_log();
    let upstream = Upstream::modern().await;
    upstream.set_tools([r#"{"name":"echo","inputSchema":{"type":"object"}}"#]);
    let service = VectorService::start(&[("echo", 0)]).await;
    let lines = "headers = { Authorization = \"Bearer header-secret-7c1e\" }";
    let search = format!("[profiles.default]\ndiscovery = \"search\"\n{}", service.section(lines));
    let gateway = Gateway::with("s", upstream.http()).toml(&search).start().await;
    gateway.wait_for(|status| status["embeddings"]["vectors"] == 1).await;
    let client = gateway.modern();
    // The service repeats the request in a refusal.
    for answering in [Answering::Rightly, Answering::Status(500)] {
        service.answers(answering);
        client.call("find_tools", json!({ "query": "query-secret-5d90" })).await;
    }
    assert_eq!(service.asked().len(), 3);
    let shown = [gateway.status().await.to_string(), gateway.metrics().await];
    let folder = gateway.stop().await;
    drop((folder, service));
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert!(log.contains("search uses keywords only"));
    for text in shown.iter().chain([&log]) {
        for secret in ["header-secret-7c1e", "url-secret", "query-secret-5d90"] {
            assert!(!text.contains(secret), "{secret} is in {:?}", text.find(secret));
        }
    }
}
