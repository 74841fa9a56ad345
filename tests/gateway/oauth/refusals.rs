//! Answers and documents that must be refused.

use serde_json::{Value, json};

use crate::support::api::{Page, PlainApi};
use crate::support::{Browser, Gateway, OauthServer};

use super::{agree, call, come_back, gateway, link_in, protected};

/// Returns a gateway that waits for a login, and its link.
async fn waiting(server: &OauthServer) -> (Gateway, String) {
    let gateway = gateway(server, "").await;
    let link = link_in(&call(&gateway.modern()).await);
    (gateway, link)
}

#[tokio::test]
async fn an_answer_of_another_issuer_or_without_a_login_is_not_exchanged() {
    let server = protected().await;
    server.gives("t", json!({}));
    let iss = server.issuer();
    let slash = format!("{iss}/");
    for parameters in [
        &[("code", "secret-code"), ("iss", "https://evil.example")][..],
        &[("code", "secret-code"), ("iss", &slash)],
        &[("code", "secret-code")],
        &[("error", "<b>secret-code"), ("iss", "https://evil.example")],
        &[("iss", &iss)],
        &[("code", "secret-code"), ("code", "other"), ("iss", &iss)],
    ] {
        let (gateway, link) = waiting(&server).await;
        let browser = Browser::of(&gateway);
        let asked = browser.agrees(&link).await;
        let page = browser.opens(&server.answers(&asked, parameters)).await;
        assert_eq!(page.status, 400, "{parameters:?}");
        assert!(!page.body.contains("secret-code") && !page.body.contains("evil"), "{page:?}");
    }
    let (gateway, _) = waiting(&server).await;
    let other = "/oauth/callback?code=c&state=guessed";
    assert_eq!(come_back(&gateway, other).await.status, 400);
    assert_eq!(server.api.calls("/token").len(), 0, "no code was shown to anybody");
}

#[tokio::test]
async fn an_answer_is_good_once() {
    let server = protected().await;
    let (gateway, link) = waiting(&server).await;
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    let browser = Browser::of(&gateway);
    let back = server.agrees(&browser.agrees(&link).await);
    assert_eq!(browser.opens(&back).await.status, 200);
    assert_eq!(browser.opens(&back).await.status, 400);
    assert_eq!(browser.opens(&link).await.status, 400);
    assert_eq!(server.api.calls("/token").len(), 1);
}

#[tokio::test]
async fn a_link_is_good_for_a_while_and_then_there_is_another() {
    let server = protected().await;
    let gateway = gateway(&server, "login_time = \"200ms\"").await;
    let first = link_in(&call(&gateway.modern()).await);
    gateway
        .wait_for(|status| status["servers"][0]["login"].as_str().is_some_and(|link| link != first))
        .await;
    assert_eq!(Browser::of(&gateway).opens(&first).await.status, 400);
    assert_eq!(server.api.calls("/register").len(), 1, "the gateway registers once");
}

/// Returns the fault that prevents a gateway's login.
async fn fault_of(server: &OauthServer, settings: &str) -> String {
    let gateway = gateway(server, settings).await;
    let said = call(&gateway.modern()).await;
    assert!(!said.body.contains("/connect"), "{said:?}");
    let status = gateway.server("s").await;
    assert!(status["login"].is_null(), "{status}");
    status["last_error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn documents_that_must_not_be_used_end_the_login_with_the_reason() {
    let prm = |server: &OauthServer, resource: &str, issuer: &str| {
        let document = json!({ "resource": resource, "authorization_servers": [issuer] });
        server.api.sets("/prm", Page::json(&document));
    };
    let server = protected().await;
    prm(&server, "https://other.example/mcp", &server.issuer());
    assert!(fault_of(&server, "").await.contains("other.example"));
    prm(&server, &server.resource(), "http://192.0.2.1/");
    assert!(fault_of(&server, "").await.contains("no authorization server"));
    for (more, reason) in [
        (json!({ "issuer": "https://evil.example" }), "issuer"),
        (json!({ "code_challenge_methods_supported": null }), "S256"),
        (json!({ "code_challenge_methods_supported": ["plain"] }), "S256"),
        (json!({ "token_endpoint": "http://192.0.2.1/token" }), "token_endpoint"),
        (json!({ "authorization_endpoint": "javascript:alert(1)" }), "authorization_endpoint"),
        (json!({ "registration_endpoint": null }), "client_id"),
    ] {
        let server = protected().await;
        server.publishes(more);
        let fault = fault_of(&server, "").await;
        assert!(fault.contains(reason), "{reason}: {fault}");
        assert_eq!(server.api.calls("/register").len(), 0, "{reason}");
    }
    let server = protected().await;
    let settings = "client_id = \"c\"\nclient_secret = \"s3cret\"\nissuer = \"https://i.example\"";
    let fault = fault_of(&server, settings).await;
    assert!(fault.contains("https://i.example") && !fault.contains("s3cret"), "{fault}");
}

#[tokio::test]
async fn no_secret_is_sent_to_a_guessed_endpoint() {
    let api = PlainApi::start().await;
    api.sets("/mcp", Page::new(401, "text/plain", "no"));
    for place in
        ["oauth-protected-resource/mcp", "oauth-protected-resource", "oauth-authorization-server"]
    {
        api.sets(&format!("/.well-known/{place}"), Page::new(404, "text/plain", "no"));
    }
    for settings in [
        "grant = \"client_credentials\"\nclient_id = \"me\"\nclient_secret = \"mine\"",
        "grant = \"jwt_bearer\"\nassertion = \"a.b.c\"",
    ] {
        let lines = format!("url = \"{}\"\n[servers.s.oauth]\n{settings}\n", api.url("/mcp"));
        let gateway = Gateway::with("s", lines).start().await;
        let status = gateway
            .wait_for(|status| {
                let error = status["servers"][0]["last_error"]["message"].as_str();
                error.is_some_and(|error| error.contains("metadata"))
            })
            .await;
        assert!(status["servers"][0]["login"].is_null(), "{status}");
        assert!(api.calls("/token").is_empty(), "{settings}");
    }
}

#[tokio::test]
async fn metadata_at_private_addresses_is_not_asked_unless_that_is_allowed() {
    for (issuer, kind) in [
        ("https://10.9.8.7:1/", "private address 10.9.8.7"),
        ("https://169.254.169.254/latest/meta-data", "link-local address 169.254.169.254"),
        ("https://[::ffff:192.168.0.1]:1/", "private address ::ffff:192.168.0.1"),
        ("https://[64:ff9b::a00:1]:1/", "private address 64:ff9b::a00:1"),
    ] {
        let server = protected().await;
        let document = json!({ "resource": server.resource(), "authorization_servers": [issuer] });
        server.api.sets("/prm", Page::json(&document));
        let fault = fault_of(&server, "").await;
        assert!(fault.contains(kind) && fault.contains("allow_addresses"), "{issuer}: {fault}");
    }
    // No server answers there, but the gateway connects.
    let server = protected().await;
    let issuer = "https://127.0.0.2:1/";
    let document = json!({ "resource": server.resource(), "authorization_servers": [issuer] });
    server.api.sets("/prm", Page::json(&document));
    let fault = fault_of(&server, "allow_addresses = [\"127.0.0.2\", \"10.0.0.0/8\"]").await;
    assert!(fault.contains("cannot reach https://127.0.0.2:1/"), "{fault}");
}

#[tokio::test]
async fn a_redirect_to_another_host_is_not_followed() {
    let server = protected().await;
    let other = protected().await;
    let to = other.api.url("/prm");
    server.api.sets("/prm", Page::new(302, "text/plain", "").header("location", &to));
    let fault = fault_of(&server, "").await;
    assert!(fault.contains("redirects"), "{fault}");
    assert_eq!(other.api.received().len(), 0);
}

#[tokio::test]
async fn an_endless_answer_is_cut() {
    let server = protected().await;
    server.api.sets("/prm", Page::new(200, "application/json", "x".repeat(1 << 20)));
    let fault = fault_of(&server, "").await;
    assert!(fault.contains("larger than"), "{fault}");
}

#[tokio::test]
async fn a_code_that_is_refused_leaves_no_grant() {
    let server = protected().await;
    let (gateway, link) = waiting(&server).await;
    server.gives_none("invalid_grant");
    let page = agree(&gateway, &server, &link).await;
    assert!(page.status == 400 && page.body.contains("invalid_grant"), "{page:?}");
    let another = link_in(&call(&gateway.modern()).await);
    assert_ne!(another, link);
    assert_eq!(gateway.server("s").await["state"], Value::from("login"));
}

#[tokio::test]
async fn the_callback_accepts_only_answers_of_an_authorization_server() {
    let server = protected().await;
    let (gateway, link) = waiting(&server).await;
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    let browser = Browser::of(&gateway);
    let back = server.agrees(&browser.agrees(&link).await);
    // No form, and no other method.
    let said = browser.sends(&back, &[("code", "the-code-1")]).await;
    assert_eq!(said.status, 404, "{said:?}");
    let said = gateway.plain().http("DELETE", &back).send().await;
    assert_eq!(said.status(), 405);
    for more in ["code=other", "state=other", "iss=https://other.example"] {
        let said = browser.opens(&format!("{back}&{more}")).await;
        assert_eq!(said.status, 400, "{more}: {said:?}");
    }
    // No part of the request is repeated or kept, at any size.
    for size in [4 << 10, 32 << 10, 60 << 10] {
        let long = format!("/oauth/callback?code={}&state=unknown", "x".repeat(size));
        let said = browser.opens(&long).await;
        assert!((400..500).contains(&said.status), "{size}: {}", said.status);
        assert!(!said.body.contains("xxxx"), "{size}");
    }
    assert_eq!(server.api.calls("/token").len(), 0);
}

#[tokio::test]
async fn one_user_has_one_open_login_for_each_server() {
    let server = protected().await;
    let (gateway, link) = waiting(&server).await;
    let client = gateway.modern();
    for _ in 0..20 {
        assert_eq!(link_in(&call(&client).await), link, "the link that is out");
    }
    // A repeated consent replaces the earlier login.
    let browser = Browser::of(&gateway);
    let (first, second) = (browser.agrees(&link).await, browser.agrees(&link).await);
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    assert_eq!(browser.opens(&server.agrees(&first)).await.status, 400);
    assert_eq!(browser.opens(&server.agrees(&second)).await.status, 200);
    assert_eq!(server.api.calls("/token").len(), 1);
}

#[tokio::test]
async fn a_server_that_asks_for_other_scopes_without_end_is_asked_no_more() {
    let server = protected().await;
    server.gives("own", json!({ "expires_in": 3600 }));
    server.takes("own", &["list", "call"]);
    let settings = "grant = \"client_credentials\"\nclient_id = \"me\"\nclient_secret = \"mine\"";
    let gateway = gateway(&server, settings).await;
    gateway.ready("s").await;
    let before = server.token_requests().len();
    let metadata = server.api.url("/prm");
    server.upstream.guards(move |received| {
        let challenge = format!(
            "Bearer error=\"insufficient_scope\", scope=\"more-{}\", \
             resource_metadata=\"{metadata}\"",
            received.number
        );
        let headers = vec![("WWW-Authenticate".to_owned(), challenge)];
        (received.method == "tools/call").then(|| (403, headers, String::new()))
    });
    let client = gateway.modern();
    for call_number in 1..=20 {
        let sent = server.upstream.calls().len();
        let said = call(&client).await;
        assert!(said.is_error(), "{said:?}");
        let sent = server.upstream.calls().len() - sent;
        assert!(sent <= 2, "call {call_number} was sent {sent} times");
    }
    assert_eq!(server.token_requests().len() - before, 10, "and no more");
    let counted = "trunkline_server_step_ups_total{server=\"s\"} 10";
    assert!(gateway.metrics().await.contains(counted));
}
