//! Tokens bound to a key of the gateway, and the proofs of possession.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::{Jwk, ThumbprintHash};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Value, json};
use trunkline::crypto::sha256;

use crate::support::api::Page;
use crate::support::oauth::parameters;
use crate::support::upstream::Received;
use crate::support::{Browser, Gateway, OauthServer, Upstream, client_table};

use super::{agree, call, gateway, link_in, log_in, protected};

async fn binding() -> OauthServer {
    let server = protected().await;
    server.binds();
    server
}

fn gives_bound(server: &OauthServer, token: &str, more: Value) {
    server.gives(token, crate::support::issuer::with(json!({ "token_type": "DPoP" }), more));
    server.takes(token, &["list", "call"]);
}

/// Returns the claims of a proof with a valid signature, and the thumbprint of its key.
fn verify(proof: &str) -> (Value, String) {
    let header = decode_header(proof).unwrap();
    assert_eq!(header.typ.as_deref(), Some("dpop+jwt"));
    let jwk: Jwk = header.jwk.unwrap();
    let mut validation = Validation::new(Algorithm::ES256);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    let key = DecodingKey::from_jwk(&jwk).unwrap();
    let claims = decode::<Value>(proof, &key, &validation).unwrap().claims;
    (claims, jwk.thumbprint(ThumbprintHash::SHA256).unwrap())
}

/// Checks the proof of a request to the server; returns its claims and the thumbprint of its key.
fn verify_use(server: &OauthServer, received: &Received) -> (Value, String) {
    let (claims, thumbprint) = verify(received.header("dpop").unwrap());
    let token = received.header("authorization").unwrap().strip_prefix("DPoP ").unwrap();
    let hash = |bytes: &[u8]| sha256(bytes);
    assert_eq!(claims["ath"], URL_SAFE_NO_PAD.encode(hash(token.as_bytes())));
    assert_eq!(claims["htm"], "POST");
    assert_eq!(claims["htu"], server.resource());
    let digest = STANDARD.encode(hash(received.text.as_bytes()));
    assert_eq!(claims["content_digest"], format!("sha-256=:{digest}:"));
    (claims, thumbprint)
}

/// Returns the requests with a token.
fn authorized(server: &OauthServer) -> Vec<Received> {
    let all = server.upstream.received();
    all.into_iter().filter(|it| it.header("authorization").is_some()).collect()
}

#[tokio::test]
async fn each_request_has_a_proof_of_its_own() {
    for upstream in Upstream::both().await {
        let server = OauthServer::before(upstream).await;
        server.binds();
        let gateway = gateway(&server, "").await;
        let client = gateway.modern();
        gives_bound(&server, "t", json!({}));
        let browser = Browser::of(&gateway);
        let link = browser.agrees(&link_in(&call(&client).await)).await;
        assert_eq!(browser.opens(&server.agrees(&link)).await.status, 200);
        gateway.ready("s").await;
        for _ in 0..3 {
            assert_eq!(call(&client).await.text(), r#"{"a":1}"#);
        }
        let used: Vec<_> = authorized(&server)
            .iter()
            .filter(|it| !matches!(&*it.method, "GET" | "DELETE" | "closed"))
            .map(|it| verify_use(&server, it))
            .collect();
        assert!(used.len() >= 4, "{used:?}");
        let proofs: BTreeSet<_> =
            used.iter().map(|(claims, _)| claims["jti"].to_string()).collect();
        assert_eq!(proofs.len(), used.len(), "no proof is used twice");
        let asked = &server.api.calls("/token")[0];
        let (claims, thumbprint) = verify(asked.header("dpop").unwrap());
        assert_eq!(claims["htu"], server.api.url("/token"));
        assert!(claims.get("ath").is_none() && claims.get("content_digest").is_none());
        assert!(used.iter().all(|(_, own)| *own == thumbprint), "the token is bound to that key");
        assert_eq!(parameters(&link)["dpop_jkt"], thumbprint);
    }
}

#[tokio::test]
async fn no_two_owners_have_the_same_key() {
    let server = binding().await;
    let gateway = Gateway::with("s", server.lines("s", ""))
        .toml(&client_table("ann", "key-of-ann", ""))
        .toml(&client_table("bob", "key-of-bob", ""))
        .start()
        .await;
    gives_bound(&server, "of-operator", json!({}));
    let link = gateway.server("s").await["login"].as_str().unwrap().to_owned();
    assert_eq!(agree(&gateway, &server, &link).await.status, 200);
    gateway.ready("s").await;
    for name in ["ann", "bob"] {
        let client = gateway.modern().key(&format!("key-of-{name}"));
        let link = link_in(&call(&client).await);
        gives_bound(&server, &format!("of-{name}"), json!({}));
        assert_eq!(agree(&gateway, &server, &link).await.status, 200);
        assert_eq!(call(&client).await.text(), r#"{"a":1}"#);
    }
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for received in authorized(&server) {
        let token = received.header("authorization").unwrap().to_owned();
        keys.entry(token).or_default().insert(verify_use(&server, &received).1);
    }
    assert_eq!(keys.len(), 3, "{keys:?}");
    let distinct: BTreeSet<_> = keys.values().flatten().collect();
    assert_eq!(distinct.len(), 3, "{keys:?}");
}

#[tokio::test]
async fn a_bound_login_outlives_the_gateway_with_its_key() {
    let server = binding().await;
    let start = async |folder, settings: &str| {
        let vault = "[vault]\nkeys = [\"a vault key with more than 32 bytes\"]\n";
        let builder = Gateway::with("s", server.lines("s", settings)).toml(vault);
        builder.in_folder(folder).start().await
    };
    let gateway = start(tempfile::tempdir().unwrap(), "").await;
    gives_bound(&server, "t", json!({ "refresh_token": "refresh-1" }));
    log_in(&gateway, &server, &gateway.modern()).await;
    gateway.ready("s").await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    let folder = gateway.stop().await;
    let before = authorized(&server).len();

    let gateway = start(folder, "dpop = \"required\"").await;
    gateway.ready("s").await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    let used = authorized(&server);
    let keys: BTreeSet<_> = used
        .iter()
        .filter(|it| !matches!(&*it.method, "GET" | "DELETE" | "closed"))
        .map(|it| verify_use(&server, it).1)
        .collect();
    assert!(used.len() > before && keys.len() == 1, "{keys:?}");
    // It is renewed with the same key, to which the refresh token may be bound, too.
    server.refuses("t");
    gives_bound(&server, "t2", json!({}));
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    let asked = server.api.calls("/token");
    let thumbprint = verify(asked.last().unwrap().header("dpop").unwrap()).1;
    assert!(keys.contains(&thumbprint));
    // Without bound tokens, the user is asked to log in.
    let gateway = start(gateway.stop().await, "dpop = \"off\"").await;
    link_in(&call(&gateway.modern()).await);
}

/// Returns an authorization server's request for a nonce in the proof (RFC 9449, 8).
fn nonce_refusal(nonce: &str) -> Page {
    let refusal = Page::new(400, "application/json", r#"{"error":"use_dpop_nonce"}"#);
    refusal.header("dpop-nonce", nonce)
}

#[tokio::test]
async fn the_nonces_of_both_endpoints_are_used_and_renewed() {
    let server = binding().await;
    let gateway = gateway(&server, "").await;
    let client = gateway.modern();
    gives_bound(&server, "t", json!({}));
    server.api.sets_once("/token", nonce_refusal("of-issuer"));
    server.wants_nonce("first");
    log_in(&gateway, &server, &client).await;
    gateway.ready("s").await;
    assert_eq!(call(&client).await.text(), r#"{"a":1}"#);
    server.wants_nonce("second");
    assert_eq!(call(&client).await.text(), r#"{"a":1}"#);
    let asked = server.api.calls("/token");
    let nonces: Vec<_> =
        asked.iter().map(|it| verify(it.header("dpop").unwrap()).0["nonce"].clone()).collect();
    assert_eq!(nonces, [Value::Null, json!("of-issuer")]);
    let calls = server.upstream.calls();
    let nonces: Vec<_> =
        calls.iter().map(|it| verify_use(&server, it).0["nonce"].clone()).collect();
    assert_eq!(nonces, ["first", "first", "second"], "one more try for a new nonce");
    assert_eq!(asked.len(), 2, "no token was renewed for it");
}

#[tokio::test]
async fn a_nonce_that_is_refused_again_and_again_ends_the_request() {
    let server = binding().await;
    let gateway = gateway(&server, "").await;
    let client = gateway.modern();
    gives_bound(&server, "t", json!({}));
    server.api.sets("/token", nonce_refusal("always-the-same"));
    let link = link_in(&call(&client).await);
    let page = agree(&gateway, &server, &link).await;
    assert!(page.status == 400 && page.body.contains("use_dpop_nonce"), "{page:?}");
    assert_eq!(server.api.calls("/token").len(), 2);
    // A server that requires another nonce each time does not cause an endless loop either.
    gives_bound(&server, "t", json!({}));
    log_in(&gateway, &server, &client).await;
    gateway.ready("s").await;
    server.wants_nonce("new-*");
    let before = server.upstream.calls().len();
    assert!(call(&client).await.is_error());
    assert!(server.upstream.calls().len() <= before + 6, "{}", server.upstream.calls().len());
}

#[tokio::test]
async fn a_renewed_token_is_bound_to_the_same_key() {
    let server = binding().await;
    let gateway = gateway(&server, "").await;
    let client = gateway.modern();
    gives_bound(&server, "first", json!({ "expires_in": 3600, "refresh_token": "r1" }));
    log_in(&gateway, &server, &client).await;
    gateway.ready("s").await;
    server.refuses("first");
    gives_bound(&server, "second", json!({}));
    assert_eq!(call(&client).await.text(), r#"{"a":1}"#);
    let asked = server.api.calls("/token");
    let keys: BTreeSet<_> = asked.iter().map(|it| verify(it.header("dpop").unwrap()).1).collect();
    assert_eq!((asked.len(), keys.len()), (2, 1));
}

#[tokio::test]
async fn a_token_of_the_other_kind_is_an_error_that_says_so() {
    let client = "grant = \"client_credentials\"\nclient_id = \"c\"\nclient_secret = \"s3cret\"\n";
    for (settings, given, told) in [
        ("dpop = \"required\"", "Bearer", r#"the type "Bearer" instead of "DPoP""#),
        ("dpop = \"off\"", "DPoP", r#"the type "DPoP" instead of "Bearer""#),
    ] {
        let server = protected().await;
        server.gives("t", json!({ "token_type": given }));
        server.takes("t", &["list", "call"]);
        let gateway = gateway(&server, &format!("{client}{settings}")).await;
        let status = gateway.server("s").await;
        let fault = status["last_error"]["message"].as_str().unwrap();
        assert!(fault.contains(told), "{fault}");
        assert!(authorized(&server).is_empty(), "it is not used");
    }
    let server = protected().await;
    server.publishes(json!({ "dpop_signing_alg_values_supported": ["RS256"] }));
    let gateway = gateway(&server, &format!("{client}dpop = \"required\"")).await;
    let status = gateway.server("s").await;
    let fault = status["last_error"]["message"].as_str().unwrap();
    assert!(fault.contains("ES256"), "{fault}");
    assert_eq!(server.token_requests().len(), 0);
}
