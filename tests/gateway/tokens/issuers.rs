//! Keys of issuers: fetched, rotated, unavailable; and the settings that adapt to providers.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{House, is_refused};
use crate::support::api::Page;
use crate::support::issuer::SigningKey;
use crate::support::{Gateway, Issuer, Upstream, poll_for, until, within};

#[tokio::test]
async fn a_new_key_is_fetched_when_a_token_names_it_and_an_old_one_is_dropped() {
    let house = House::new().await;
    let old = house.token(json!({}));
    assert_eq!(house.call(&old).await.text(), "{}");
    let second = SigningKey::ed25519("second");
    house.issuer.publishes(&[&second]);
    assert_eq!(house.call(&old).await.text(), "{}", "nobody has asked for the keys again");
    let new = second.sign(&house.issuer.claims(&house.resource("/mcp")));
    assert_eq!(house.call(&new).await.text(), "{}");
    assert_eq!(house.issuer.fetches(), 2);
    is_refused(&house.call(&old).await, "unknown key");
}

#[tokio::test]
async fn a_flood_of_unknown_keys_has_the_keys_fetched_once() {
    let house = House::new().await;
    house.gateway.wait_for(|status| status["issuers"][0]["keys"] == 1).await;
    let claims = house.issuer.claims(&house.resource("/mcp"));
    let tokens: Vec<_> = (0..20).map(|n| SigningKey::p256(&n.to_string()).sign(&claims)).collect();
    let calls = tokens.iter().map(|token| house.call(token));
    for said in futures_util::future::join_all(calls).await {
        is_refused(&said, "unknown key");
    }
    for token in &tokens {
        is_refused(&house.call(token).await, "unknown key");
    }
    assert_eq!(house.issuer.fetches(), 2, "at the start, and once for all of them");
    assert_eq!(house.call(&house.token(json!({}))).await.text(), "{}");
}

#[tokio::test]
async fn without_keys_a_token_is_neither_refused_nor_accepted() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::silent().await);
    let gateway = Gateway::with("s", upstream.http()).toml(&issuer.table("idp", "")).start().await;
    let house = House { upstream, issuer, gateway };
    let fault = |status: &Value| status["issuers"][0]["error"].clone();
    let status = house.gateway.wait_for(|status| fault(status).is_string()).await;
    assert!(fault(&status).as_str().unwrap().contains("/keys answered 503"), "{status}");
    let token = house.token(json!({}));
    let said = house.call(&token).await;
    assert_eq!((said.status, said.code()), (503, 50_300), "{said:?}");
    assert_eq!(said.header("retry-after"), Some("1"));
    let ready = house.gateway.admin("/readyz").await;
    assert_eq!(ready.status, 200, "another gateway would have them no sooner");
    assert!(ready.body.contains("issuer idp: no keys yet"), "{}", ready.body);
    house.issuer.publishes(&[&house.issuer.key]);
    let said = poll_for(async || Some(house.call(&token).await).filter(|it| it.status == 200));
    assert_eq!(said.await.text(), "{}");
}

#[tokio::test]
async fn a_request_waits_for_the_first_keys() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let (upstream, issuer) = (Upstream::modern().await, Issuer::silent().await);
    let table = issuer.table("idp", &format!("jwks_url = \"{url}\""));
    let gateway = Gateway::with("s", upstream.http()).toml(&table).start().await;
    let house = House { upstream, issuer, gateway };
    let (mut socket, _) = within(listener.accept()).await.unwrap();
    let token = house.token(json!({}));
    let before = house.gateway.status().await["connections"].as_u64().unwrap();
    let call = house.call(&token);
    let answer = async {
        let mut head = vec![0; 1024];
        assert!(socket.read(&mut head).await.unwrap() > 0);
        let is_open = |status: &Value| status["connections"].as_u64() > Some(before);
        house.gateway.wait_for(is_open).await;
        // The answer to a later request shows that the gateway has read the call.
        let later = house.gateway.plain().http("GET", "/mcp").send().await;
        assert_ne!(later.status(), 200);
        let body = json!({ "keys": [house.issuer.key.public()] }).to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        socket.write_all((head + &body).as_bytes()).await.unwrap();
        Instant::now()
    };
    let (said, answered) = tokio::join!(call, answer);
    assert_eq!(said.text(), "{}");
    assert!(answered.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn keys_of_another_issuers_metadata_are_not_used() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let metadata = json!({ "issuer": issuer.api.url("/"), "jwks_uri": issuer.api.url("/keys") });
    issuer.api.sets("/.well-known/oauth-authorization-server", Page::json(&metadata));
    let gateway = Gateway::with("s", upstream.http()).toml(&issuer.table("idp", "")).start().await;
    let house = House { upstream, issuer, gateway };
    let status = house.gateway.wait_for(|status| status["issuers"][0]["error"].is_string()).await;
    let fault = status["issuers"][0]["error"].as_str().unwrap();
    assert!(fault.contains("names another issuer"), "{fault}");
    assert_eq!(house.issuer.fetches(), 0);
    assert_eq!(house.call(&house.token(json!({}))).await.status, 503);
}

#[tokio::test]
async fn metadata_is_found_where_openid_connect_has_it() {
    let (upstream, api) = (Upstream::modern().await, crate::support::api::PlainApi::start().await);
    let key = SigningKey::p256("k");
    let issuer = api.url("/realms/acme");
    for place in ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"] {
        api.sets(&format!("{place}/realms/acme"), Page::new(404, "text/plain", "no"));
    }
    let metadata = json!({ "issuer": issuer, "jwks_uri": api.url("/certs") });
    api.sets("/realms/acme/.well-known/openid-configuration", Page::json(&metadata));
    api.sets("/certs", Page::json(&json!({ "keys": [key.public()] })));
    let table = format!("[issuers.idp]\nissuer = \"{issuer}\"\n");
    let gateway = Gateway::with("s", upstream.http()).toml(&table).start().await;
    let resource = format!("http://{}/mcp", gateway.running.address);
    let claims = json!({
        "iss": issuer, "aud": resource, "sub": "ann", "exp": crate::support::issuer::now() + 60,
    });
    let said = gateway.modern().key(&key.sign(&claims)).call("s__echo", json!({})).await;
    assert_eq!(said.text(), "{}");
}

#[tokio::test]
async fn settings_adapt_to_issuers_that_know_no_resources() {
    let lines = "audience = [\"api://gateway\", \"client-id\"]\nissuer_aliases = [\"other\"]\n\
                 principal_claim = \"oid\"\nprofiles = [\"default\"]\n";
    let house = House::with(lines, |builder| builder.toml("[profiles.other]\n")).await;
    let entra = json!({ "aud": "api://gateway", "iss": "other", "oid": "0-1", "sub": null });
    let token = house.token(entra);
    assert_eq!(house.call(&token).await.text(), "{}");
    let by_list = house.token(json!({ "aud": ["x", "client-id"], "oid": "0-1" }));
    assert_eq!(house.call(&by_list).await.text(), "{}");
    is_refused(&house.call(&house.token(json!({ "oid": "0-1" }))).await, "another resource");
    let elsewhere = house.client(&token).at("/mcp/other").call("s__echo", json!({})).await;
    // No issuer gives tokens for that URL, so the challenge names no metadata.
    assert_eq!((elsewhere.status, elsewhere.code()), (401, 40_100), "{elsewhere:?}");
    let sentence = elsewhere.error()["message"].as_str().unwrap();
    assert!(sentence.contains("not accepted at this URL"), "{sentence}");
    assert!(!elsewhere.header("www-authenticate").unwrap().contains("resource_metadata"));
}

#[tokio::test]
async fn keys_come_from_a_file_as_well() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::silent().await);
    let folder = tempfile::tempdir().unwrap();
    let keys = json!({ "keys": [issuer.key.public()] });
    std::fs::write(folder.path().join("keys.json"), keys.to_string()).unwrap();
    let table = issuer.table("idp", "jwks_file = \"keys.json\"");
    let gateway = Gateway::with("s", upstream.http()).toml(&table).in_folder(folder).start().await;
    let house = House { upstream, issuer, gateway };
    assert_eq!(house.call(&house.token(json!({}))).await.text(), "{}");
    assert_eq!(house.issuer.fetches(), 0);
}

#[tokio::test]
async fn keys_outlive_a_reload_and_a_failed_fetch() {
    let house = House::with("jwks_refresh = \"100ms\"", |builder| builder).await;
    house.gateway.wait_for(|status| status["issuers"][0]["keys"] == 1).await;
    house.issuer.api.sets("/keys", Page::new(500, "text/plain", "broken"));
    let before = house.issuer.fetches();
    until(|| house.issuer.fetches() > before + 1).await;
    assert_eq!(house.call(&house.token(json!({}))).await.text(), "{}");
    let status = house.gateway.wait_for(|status| status["issuers"][0]["error"].is_string()).await;
    assert_eq!(status["issuers"][0]["keys"], 1, "{status}");
    let table = house.issuer.table("idp", "jwks_refresh = \"100ms\"\nclock_skew = \"2m\"");
    house.gateway.reload(Gateway::with("s", house.upstream.http()).toml(&table)).await;
    assert_eq!(house.call(&house.token(json!({}))).await.text(), "{}");
}

#[tokio::test]
async fn keys_at_an_unsafe_place_are_not_fetched() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    for place in ["http://192.0.2.1/keys", "file:///keys", "keys"] {
        let metadata = json!({ "issuer": issuer.url(), "jwks_uri": place });
        issuer.api.sets("/.well-known/oauth-authorization-server", Page::json(&metadata));
        let table = issuer.table("idp", "");
        let gateway = Gateway::with("s", upstream.http()).toml(&table).start().await;
        let status = gateway.wait_for(|status| status["issuers"][0]["error"].is_string()).await;
        let fault = status["issuers"][0]["error"].as_str().unwrap();
        assert!(fault.contains("neither HTTPS nor on this machine"), "{fault}");
    }
}
