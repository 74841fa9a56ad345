//! Tokens that must not be accepted, and places where no token may appear.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{House, is_refused};
use crate::support::issuer::{SigningKey, forge, now};
use crate::support::{Gateway, Issuer, Upstream, client_table, until};

/// Checks that every request with this token is refused, in both eras and with every HTTP method.
async fn is_refused_everywhere(house: &House, token: &str, reason: &str) {
    let client = house.client(token);
    is_refused(&client.call("s__echo", json!({})).await, reason);
    is_refused(&client.request("tools/list", json!({})).await, reason);
    let plain = house.gateway.plain().key(token);
    is_refused(&plain.initialize("2025-11-25").await.said().await, reason);
    for method in ["GET", "DELETE"] {
        let ask = plain.http(method, "/mcp").header("mcp-session-id", "x");
        is_refused(&ask.send().await.said().await, reason);
    }
    assert_eq!(house.upstream.calls().len(), 0, "{reason}");
}

#[tokio::test]
async fn a_token_with_wrong_claims_is_refused() {
    let house = House::with("", |builder| builder.toml("[profiles.other]\n")).await;
    let resource = house.resource("/mcp");
    for (claims, reason) in [
        (json!({ "exp": now() - 61 }), "has expired"),
        (json!({ "exp": null }), "has no expiry"),
        (json!({ "exp": "soon" }), "has no expiry"),
        (json!({ "nbf": now() + 120 }), "not valid yet"),
        (json!({ "nbf": "soon" }), "not valid yet"),
        (json!({ "aud": "https://elsewhere.example.com/mcp" }), "another resource"),
        (json!({ "aud": house.resource("/mcp/other") }), "another resource"),
        (json!({ "aud": format!("{resource}/") }), "another resource"),
        (json!({ "aud": resource.replace("/mcp", "/MCP") }), "another resource"),
        (json!({ "aud": resource.replace("/mcp", "") }), "another resource"),
        (json!({ "aud": format!("x {resource}") }), "another resource"),
        (json!({ "aud": null }), "another resource"),
        (json!({ "iss": "https://login.example.com" }), "accepted issuer"),
        (json!({ "iss": format!("{}/", house.issuer.url()) }), "accepted issuer"),
        (json!({ "iss": null }), "accepted issuer"),
        (json!({ "sub": null }), "name its subject"),
        (json!({ "sub": "" }), "name its subject"),
        (json!({ "sub": "a\nb" }), "name its subject"),
        (json!({ "sub": "x".repeat(256) }), "name its subject"),
        (json!({ "cnf": { "jkt": "x" } }), "bound to a key"),
        (json!({ "typ": "Refresh" }), "not an access token"),
        (json!({ "typ": "Logout" }), "not an access token"),
        (
            json!({ "events": { "http://schemas.openid.net/event/backchannel-logout": {} } }),
            "not an access token",
        ),
    ] {
        let token = house.token(claims);
        is_refused_everywhere(&house, &token, reason).await;
    }
    let capitals = json!({ "aud": resource.replacen("http", "HTTP", 1) });
    assert_eq!(house.call(&house.token(capitals)).await.text(), "{}");
    let within_skew = json!({ "exp": now() - 5, "nbf": now() + 5 });
    assert_eq!(house.call(&house.token(within_skew)).await.text(), "{}");
}

#[tokio::test]
async fn a_token_of_one_profile_is_refused_at_another() {
    let house = House::with("", |builder| builder.toml("[profiles.other]\n")).await;
    let other = house.issuer.token(&house.resource("/mcp/other"), json!({}));
    is_refused_everywhere(&house, &other, "another resource").await;
    let at_other = |token: &str| house.client(token).at("/mcp/other");
    assert_eq!(at_other(&other).call("s__echo", json!({})).await.text(), "{}");
    let plain = house.token(json!({}));
    is_refused(&at_other(&plain).call("s__echo", json!({})).await, "another resource");
    let both = json!({ "aud": [house.resource("/mcp"), house.resource("/mcp/other")] });
    let both = house.token(both);
    assert_eq!(house.call(&both).await.text(), "{}");
    assert_eq!(at_other(&both).call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn a_token_with_a_wrong_signature_is_refused() {
    let house = House::new().await;
    let claims = house.issuer.claims(&house.resource("/mcp"));
    let good = house.issuer.key.sign(&claims);
    let [header, payload, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!() };
    let public = house.issuer.key.public();
    let secret = URL_SAFE_NO_PAD.decode(public["x"].as_str().unwrap()).unwrap();
    let hs256 = json!({ "alg": "HS256", "kid": "first" });
    let unsigned = forge(&hs256, &claims, b"");
    let unsigned = unsigned.trim_end_matches('.');
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), unsigned.as_bytes());
    let with_key_as_secret = forge(&hs256, &claims, mac.as_ref());
    let swapped = SigningKey::p256("first").sign(&claims);
    let mut admin = claims.clone();
    admin["sub"] = json!("root");
    let other_claims = URL_SAFE_NO_PAD.encode(admin.to_string());
    let signed = |header: Value| forge(&header, &claims, &[7; 64]);
    let mut critical = house.issuer.key.header();
    critical.crit = Some(vec!["b64".into()]);
    let critical = house.issuer.key.sign_with(&critical, &claims);
    let mut kind = house.issuer.key.header();
    kind.typ = Some("logout+jwt".into());
    let other_kind = house.issuer.key.sign_with(&kind, &claims);
    for (token, reason) in [
        (signed(json!({ "alg": "none" })), "algorithm"),
        (forge(&json!({ "alg": "none" }), &claims, b""), "algorithm"),
        (signed(json!({ "alg": "None", "kid": "first" })), "algorithm"),
        (with_key_as_secret, "algorithm"),
        (signed(json!({ "alg": "RS256", "kid": "first" })), "algorithm"),
        (signed(json!({ "alg": "ES384", "kid": "first" })), "algorithm"),
        (swapped, "signature"),
        (signed(json!({ "alg": "ES256", "kid": "first" })), "signature"),
        (format!("{header}.{other_claims}.{signature}"), "signature"),
        (format!("{header}.{payload}."), "signature"),
        (format!("{header}.{payload}.{}", &signature[1..]), "signature"),
        (critical, "critical"),
        (other_kind, "not an access token"),
        (format!("{header}.{payload}.{signature}.x.y"), "not a signed JWT"),
        (format!("{header}.{payload}"), "not a signed JWT"),
        ("a.b.c".to_owned(), "not a signed JWT"),
        ("opaque".to_owned(), "not a signed JWT"),
        ("x".repeat(16 * 1024 + 1), "more than 16384 bytes"),
    ] {
        is_refused_everywhere(&house, &token, reason).await;
    }
    assert_eq!(house.issuer.fetches(), 1, "none of them has the keys fetched again");
}

#[tokio::test]
async fn a_member_that_is_twice_in_the_header_is_refused() {
    let house = House::new().await;
    let claims = house.issuer.claims(&house.resource("/mcp"));
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","kid":"first","alg":"none"}"#);
    let payload = URL_SAFE_NO_PAD.encode(claims.to_string());
    is_refused_everywhere(&house, &format!("{header}.{payload}.AAAA"), "not a signed JWT").await;
}

#[tokio::test]
async fn a_token_is_accepted_in_one_header_only() {
    let house = House::new().await;
    let token = house.token(json!({}));
    let client = house.gateway.modern();
    let ask = || client.ask_call("s__echo", json!({}));
    let bearer = format!("Bearer {token}");
    for (label, ask, status) in [
        ("query", ask().at(&format!("/mcp?access_token={token}")), 400),
        (
            "query and header",
            ask().at("/mcp?a=b&access_token=x").header("authorization", &bearer),
            400,
        ),
        ("other query", ask().at(&format!("/mcp?token={token}")), 401),
        ("cookie", ask().header("cookie", &format!("access_token={token}")), 401),
        ("key", ask().header("x-api-key", &token), 401),
        ("meta", ask().meta("authorization", json!(bearer)), 401),
        ("body", ask().param("access_token", json!(token)), 401),
        ("basic", ask().header("authorization", &format!("Basic {token}")), 401),
        ("two", ask().header("authorization", &bearer).again("authorization", &bearer), 400),
        ("path", ask().at(&format!("/mcp/{token}")), 401),
    ] {
        let said = ask.send().await.said().await;
        assert_eq!(said.status, status, "{label}: {said:?}");
        let challenge = said.header("www-authenticate").unwrap_or_default();
        assert_eq!(challenge.contains("invalid_request"), status == 400, "{label}: {challenge}");
        assert!(!format!("{said:?}").contains(&token[..40]), "{label}: nothing repeats it");
        assert_eq!(house.upstream.calls().len(), 0, "{label}");
    }
}

#[tokio::test]
async fn tokens_reach_neither_servers_nor_records() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let lines = upstream.http() + "forward_headers = [\"Authorization\", \"Cookie\"]";
    let gateway = Gateway::with("s", lines)
        .toml("[audit]\nfile = \"audit.jsonl\"\narguments = true\n")
        .toml(&client_table("ci", "key-of-ci", ""))
        .toml(&issuer.table("idp", ""))
        .start()
        .await;
    let house = House { upstream, issuer, gateway };
    let token = house.token(json!({}));
    assert_eq!(house.call(&token).await.text(), "{}");
    // With a key, `Authorization` may be for a server, but must not be a token of the gateway's
    // issuer.
    let client = house.gateway.modern();
    let ask = client.ask_call("s__echo", json!({})).header("x-api-key", "key-of-ci");
    let bearer = format!("Bearer {token}");
    assert_eq!(ask.header("authorization", &bearer).send().await.said().await.text(), "{}");
    is_refused(&house.call(&with_signature(&token)).await, "signature");
    let received = format!("{:?}", house.upstream.received());
    assert!(!received.contains(&token[..40]), "{received}");
    let folder = house.gateway.stop().await;
    let records = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    assert!(records.contains("\"idp:ann\"") && records.contains("token_refused"), "{records}");
    for part in token.split('.') {
        assert!(!records.contains(part), "{records}");
    }
}

/// Returns the same token with another signature.
fn with_signature(token: &str) -> String {
    let (signed, _) = token.rsplit_once('.').unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode([7; 64]))
}

#[tokio::test]
async fn tokens_that_are_guessed_count_by_address() {
    let house = House::with("", |builder| builder.gateway("client_rate = \"3/h\"")).await;
    let token = house.token(json!({}));
    for status in [401, 401, 401, 429] {
        assert_eq!(house.call("guess").await.status, status);
    }
    // A user has a rate of its own.
    for _ in 0..3 {
        assert_eq!(house.call(&token).await.text(), "{}");
    }
    assert_eq!(house.call(&token).await.status, 429);
    let bob = house.token(json!({ "sub": "bob" }));
    assert_eq!(house.call(&bob).await.text(), "{}");
}

#[tokio::test]
async fn an_algorithm_that_is_not_listed_is_refused() {
    let house = House::with("algorithms = [\"EdDSA\", \"RS256\"]", |builder| builder).await;
    is_refused_everywhere(&house, &house.token(json!({})), "algorithm").await;
}

#[tokio::test]
async fn a_token_that_was_accepted_is_refused_when_it_expires() {
    let house = House::with("clock_skew = \"0s\"", |builder| builder).await;
    let ends = now() + 2;
    let token = house.token(json!({ "exp": ends }));
    assert_eq!(house.call(&token).await.text(), "{}");
    until(|| now() >= ends).await;
    is_refused(&house.call(&token).await, "has expired");
}

#[tokio::test]
async fn a_token_for_another_program_of_the_machine_is_refused_whatever_the_host_header_says() {
    let house = House::new().await;
    let token = house.issuer.token("http://localhost:9/mcp", json!({}));
    let client = house.client(&token);
    let said = client.ask_call("s__echo", json!({})).header("host", "localhost:9").send().await;
    is_refused(&said.said().await, "another resource");
    let port = house.gateway.running.address.port();
    let own = house.client(&house.issuer.token(&format!("http://localhost:{port}/mcp"), json!({})));
    let said = own.ask_call("s__echo", json!({})).header("host", "localhost").send().await;
    assert_eq!(said.said().await.text(), "{}");
}
