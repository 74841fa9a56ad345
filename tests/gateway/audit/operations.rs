//! Records of operations: links, logins, revocations, relayed logins, reloads and changes by operators.

use std::path::PathBuf;

use serde_json::{Value, json};
use trunkline::telemetry::metrics::ReloadOutcome;

use super::{AUDIT, KEY, auditing, chain_faults};
use crate::support::browser::fields;
use crate::support::relay::{FIXED, QUERY, Relay};
use crate::support::{
    Browser, Gateway, Issuer, OauthServer, Upstream, client_table, json_lines, until,
};

fn log_of(gateway: &Gateway) -> PathBuf {
    gateway.folder().join("audit.jsonl")
}

/// Waits for this number of operations of a kind, and returns them.
async fn operations(gateway: &Gateway, kind: &str, count: usize) -> Vec<Value> {
    let path = log_of(gateway);
    let all = || -> Vec<Value> {
        json_lines(&path).into_iter().filter(|record| record["operation"] == kind).collect()
    };
    until(|| all().len() >= count).await;
    let found = all();
    assert_eq!(found.len(), count, "{found:#?}");
    found
}

/// Returns the metadata of an authorization server with relayed logins.
pub(super) fn relay_metadata(issuer: &Issuer) -> Value {
    let api = &issuer.api;
    json!({
        "issuer": api.url(""), "jwks_uri": api.url("/keys"),
        "authorization_endpoint": api.url("/authorize"), "token_endpoint": api.url("/token"),
        "response_types_supported": ["code"],
    })
}

fn summary(record: &Value) -> [&str; 5] {
    let kind = record["actor"]["kind"].as_str().unwrap();
    [
        kind,
        record["principal"].as_str().unwrap_or("-"),
        record["server"].as_str().unwrap_or("-"),
        record["outcome"].as_str().unwrap(),
        record["reason"].as_str().unwrap_or("-"),
    ]
}

#[tokio::test]
async fn links_logins_failed_callbacks_and_revocations_are_recorded_without_codes() {
    let server = OauthServer::before(Upstream::modern().await).await;
    server.publishes(json!({ "revocation_endpoint": server.api.url("/revoke") }));
    server.api.sets("/revoke", crate::support::api::Page::new(200, "text/plain", ""));
    let gateway = Gateway::with("s", server.lines("s", ""))
        .toml(&client_table("ann", KEY, ""))
        .toml(AUDIT)
        .start()
        .await;
    // The gateway's own link, for the operator.
    let own = gateway.wait_for(|status| status["servers"][0]["login"].is_string()).await;
    let own = own["servers"][0]["login"].as_str().unwrap().to_owned();
    server.gives("token-of-operator", json!({}));
    server.takes("token-of-operator", &["list", "call"]);
    let operator = Browser::of(&gateway);
    let asked = operator.agrees(&own).await;
    // An answer of no login, one of another issuer, and the right one.
    let guessed = "/oauth/callback/s?code=secret-code&state=guessed";
    assert_eq!(operator.opens(guessed).await.status, 400);
    let foreign = [("code", "secret-code"), ("iss", "https://evil.example")];
    assert_eq!(operator.opens(&server.answers(&asked, &foreign)).await.status, 400);
    let again = gateway
        .wait_for(|status| status["servers"][0]["login"].as_str().is_some_and(|link| link != own));
    let again = again.await["servers"][0]["login"].as_str().unwrap().to_owned();
    let back = server.agrees(&operator.agrees(&again).await);
    assert_eq!(operator.opens(&back).await.status, 200);
    gateway.ready("s").await;
    // A client's visit, its login, and its revocation.
    let visit = gateway.plain().key(KEY).http("POST", "/connect").send().await.said().await;
    let visit = visit.json()["link"].as_str().unwrap().to_owned();
    let person = Browser::of(&gateway);
    person.agrees(&visit).await;
    let form = |page: &str| -> Vec<(String, String)> { fields(page).into_iter().collect() };
    let send = async |path: &str| {
        let page = person.opens("/connect").await;
        let form = form(&page.body);
        let form: Vec<_> = form.iter().map(|(name, value)| (&**name, &**value)).collect();
        person.sends(path, &form).await
    };
    let led = send("/connect/start").await;
    let link = led.header("location").unwrap().to_owned();
    server.gives("token-of-ann", json!({}));
    server.takes("token-of-ann", &["list", "call"]);
    let back = server.agrees(&person.agrees(&link).await);
    assert_eq!(person.opens(&back).await.status, 200);
    assert_eq!(send("/connect/revoke").await.status, 303);

    let logins = operations(&gateway, "login", 4).await;
    let expected = [
        ["visitor", "-", "-", "refused", "unknown_state"],
        ["visitor", "-", "s", "refused", "other_issuer"],
        ["visitor", "-", "s", "ok", "-"],
        ["visitor", "ann", "s", "ok", "-"],
    ];
    assert_eq!(logins.iter().map(summary).collect::<Vec<_>>(), expected);
    let links = operations(&gateway, "login_link", 4).await;
    let links: Vec<_> = links.iter().map(summary).collect();
    let of_gateway = ["gateway", "-", "s", "ok", "-"];
    let (visit, login) = (["client", "ann", "-", "ok", "-"], ["client", "ann", "s", "ok", "-"]);
    assert_eq!(links, [of_gateway, of_gateway, visit, login]);
    let revoked = operations(&gateway, "revocation", 1).await;
    assert_eq!(summary(&revoked[0]), ["visitor", "ann", "s", "ok", "-"]);
    assert_eq!(revoked[0]["address"], "127.0.0.1");
    let text = std::fs::read_to_string(log_of(&gateway)).unwrap();
    for secret in ["secret-code", "guessed", "token-of", "ticket", "state=", &link, KEY] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    assert_eq!(chain_faults(&log_of(&gateway)), "");
}

#[tokio::test]
async fn requests_of_relayed_logins_are_recorded_without_codes_and_secrets() {
    let relay = Relay::start(FIXED, relay_metadata, |builder| builder.toml(AUDIT)).await;
    let gateway = &relay.gateway;
    let browser = Browser::of(gateway);
    let page = browser.opens(&format!("/login/idp/authorize?{QUERY}")).await;
    let form = fields(&page.body);
    let answer = |key| [("form_key", key), ("request", &*form["request"]), ("answer", "accept")];
    assert_eq!(browser.sends("/login/idp/consent", &answer("forged")).await.status, 403);
    assert!(browser.sends("/login/idp/consent", &answer(&form["form_key"])).await.status < 400);
    assert_eq!(browser.opens("/login/idp/authorize?response_type=token").await.status, 400);
    relay
        .issuer
        .api
        .sets("/token", crate::support::api::Page::json(&json!({ "access_token": "t" })));
    let code = [
        ("grant_type", "authorization_code"),
        ("code", "secret-code"),
        ("client_id", "fixed-1"),
        ("code_verifier", "secret-verifier-of-at-least-43-characters-xxxxx"),
        ("redirect_uri", "http://127.0.0.1:1/cb"),
    ];
    let exchanged = browser.sends("/login/idp/token", &code).await;
    let other = [("grant_type", "password"), ("client_id", "other"), ("client_secret", "hunter2")];
    assert_eq!(browser.sends("/login/idp/token", &other).await.status, 400);

    let relayed = operations(gateway, "relay", 6).await;
    let told: Vec<_> = relayed
        .iter()
        .map(|it| {
            assert_eq!((&it["issuer"], &it["actor"]["kind"]), (&json!("idp"), &json!("visitor")));
            ["endpoint", "client_id", "outcome", "reason"]
                .map(|key| it[key].as_str().unwrap_or("-"))
        })
        .collect();
    let token = if exchanged.status < 400 { ["ok", "-"] } else { panic!("{exchanged:?}") };
    let expected = [
        ["authorize", "fixed-1", "ok", "-"],
        ["consent", "fixed-1", "refused", "refused"],
        ["consent", "fixed-1", "ok", "-"],
        ["authorize", "-", "refused", "unsupported_response_type"],
        ["token", "fixed-1", token[0], token[1]],
        ["token", "other", "refused", "unsupported_grant_type"],
    ];
    assert_eq!(told, expected);
    let text = std::fs::read_to_string(log_of(gateway)).unwrap();
    for secret in ["secret-code", "hunter2", "secret-verifier", "code_challenge"] {
        assert!(!text.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn reloads_are_recorded_with_both_digests_and_their_outcome() {
    let upstream = Upstream::modern().await;
    let gateway = auditing(&upstream, AUDIT).start().await;
    let first = gateway.status().await["configuration"]["digest"].clone();
    let changed = auditing(&upstream, AUDIT).toml("[profiles.p]\n");
    assert_eq!(gateway.reload(changed).await, ReloadOutcome::Applied);
    let second = gateway.status().await["configuration"]["digest"].clone();
    let same = auditing(&upstream, AUDIT).toml("[profiles.p]\n");
    assert_eq!(gateway.reload(same).await, ReloadOutcome::Unchanged);
    assert_eq!(
        gateway.reload_text("[nonsense]\nsecret = \"hunter2\"\n").await,
        ReloadOutcome::Rejected
    );
    // A log that ends says why.
    assert_eq!(gateway.reload(auditing(&upstream, "")).await, ReloadOutcome::Applied);
    let reloads = operations(&gateway, "reload", 4).await;
    let told: Vec<_> = reloads
        .iter()
        .map(|it| (it["outcome"].as_str().unwrap(), it["reason"].as_str().unwrap_or("-")))
        .collect();
    assert_eq!(told, [("ok", "-"), ("ok", "unchanged"), ("failed", "faults"), ("ok", "-")]);
    assert_eq!((&reloads[0]["digest_before"], &reloads[0]["digest_after"]), (&first, &second));
    assert_eq!((&reloads[1]["digest_before"], &reloads[1]["digest_after"]), (&second, &second));
    assert_eq!(reloads[2]["digest_before"], second);
    assert!(reloads[2]["digest_after"].is_string() && reloads[2]["digest_after"] != second);
    assert_eq!(reloads[3]["losses"], 1, "the audit log is removed");
    assert!(reloads.iter().all(|it| it["actor"] == json!({ "kind": "operator", "name": null })));
    let text = std::fs::read_to_string(log_of(&gateway)).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("nonsense"), "{text}");
}

#[tokio::test]
async fn changes_by_an_operator_are_recorded_with_its_name() {
    let upstream = Upstream::modern().await;
    let ops = client_table("ops", "ops-key", "role = \"operator\"");
    let gateway = auditing(&upstream, AUDIT).toml(&ops).start().await;
    gateway.ready("s").await;
    let operator = gateway.operator();
    for (path, status) in [
        ("/servers/s/refresh", 200),
        ("/servers/s/refresh?client=ann", 200),
        ("/servers/s/refresh?client=eve", 404),
        ("/servers/none/refresh", 404),
        ("/api/v1/servers/s/refresh?client=ann", 200),
        ("/api/v1/servers/none/refresh", 404),
    ] {
        assert_eq!(operator.http("POST", path).send().await.said().await.status, status, "{path}");
    }
    let remote = gateway.remote_operator().key("ops-key");
    let refreshed = remote.http("POST", "/api/v1/servers/s/refresh").send().await.said().await;
    assert_eq!(refreshed.status, 200, "{refreshed:?}");
    let mut changes = operations(&gateway, "change", 7).await;
    let over_tcp = changes.pop().unwrap();
    assert_eq!(
        (&over_tcp["actor"]["name"], &over_tcp["address"]),
        (&json!("client ops"), &json!("127.0.0.1"))
    );
    let told: Vec<_> = changes
        .iter()
        .map(|it| ["path", "outcome", "reason"].map(|key| it[key].as_str().unwrap_or("-")))
        .collect();
    let expected = [
        ["/servers/s/refresh", "ok", "-"],
        ["/servers/s/refresh?client=ann", "ok", "-"],
        ["/servers/s/refresh?client=eve", "refused", "unknown_server_or_client"],
        ["/servers/none/refresh", "refused", "unknown_server_or_client"],
        ["/servers/s/refresh?client=ann", "ok", "-"],
        ["/servers/none/refresh", "refused", "unknown_server"],
    ];
    assert_eq!(told, expected);
    for change in &changes {
        assert_eq!(change["method"], "POST");
        assert_eq!(change["actor"]["kind"], "operator");
        assert!(change["actor"]["name"].as_str().unwrap().starts_with("uid "), "{change}");
    }
}
