//! One login, from the refusal to the call that works.

use serde_json::json;

use crate::support::oauth::parameters;
use crate::support::{Browser, Gateway, OauthServer, Upstream};

use super::{agree, call, gateway, link_in, log_in, protected};

#[tokio::test]
async fn a_call_is_answered_with_a_link_and_works_after_the_login() {
    for upstream in Upstream::both().await {
        let server = OauthServer::before(upstream).await;
        let gateway = gateway(&server, "").await;
        for (era, client) in gateway.both().await {
            server.gives(era, json!({}));
            server.takes(era, &["list", "call"]);
            if era == "Modern" {
                assert_eq!(client.tool_names().await, [""; 0], "nothing is listed yet");
                log_in(&gateway, &server, &client).await;
            }
            let said = call(&client).await;
            assert_eq!(said.text(), r#"{"a":1}"#, "{era}");
            assert!(client.tool_names().await.contains(&"s__echo".to_owned()), "{era}");
        }
        let calls = server.upstream.calls();
        assert!(calls.iter().all(|call| call.header("authorization") == Some("Bearer Modern")));
    }
}

#[tokio::test]
async fn the_link_and_the_token_request_have_all_required_parameters() {
    let server = protected().await;
    let gateway = gateway(&server, "").await;
    let link = link_in(&call(&gateway.modern()).await);
    assert!(
        link.starts_with(&format!("http://{}/connect/link?", gateway.running.address)),
        "{link}"
    );
    assert!(server.api.calls("/authorize").is_empty());
    let browser = Browser::of(&gateway);
    let place = browser.agrees(&link).await;
    assert!(place.starts_with(&server.api.url("/authorize?")), "{place}");
    let asked = parameters(&place);
    let redirect = format!("http://{}/oauth/callback/s", gateway.running.address);
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", "registered"),
        ("redirect_uri", &redirect),
        ("code_challenge_method", "S256"),
        ("resource", &server.resource()),
        ("scope", "list"),
    ] {
        assert_eq!(asked[name], value, "{name}");
    }
    assert!(asked["state"].len() >= 43 && asked["code_challenge"].len() == 43);
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    assert_eq!(browser.opens(&server.agrees(&place)).await.status, 200);
    let [form] = &server.token_requests()[..] else { panic!("one request") };
    for (name, value) in [
        ("grant_type", "authorization_code"),
        ("code", "the-code-1"),
        ("redirect_uri", &redirect),
        ("resource", &server.resource()),
    ] {
        assert_eq!(form[name], value, "{name}");
    }
    assert!(form["code_verifier"].len() >= 43);
    let basic = server.api.calls("/token")[0].header("authorization").unwrap().to_owned();
    assert_eq!(basic, "Basic cmVnaXN0ZXJlZDpjbGllbnQtc2VjcmV0LTE=");
    let registration: serde_json::Value =
        serde_json::from_slice(&server.api.calls("/register")[0].body).unwrap();
    assert_eq!(registration["application_type"], "native");
    assert_eq!(registration["grant_types"], json!(["authorization_code", "refresh_token"]));
}

#[tokio::test]
async fn the_status_has_the_link_and_no_secret() {
    let server = protected().await;
    let gateway = gateway(&server, "").await;
    let status = gateway.server("s").await;
    assert_eq!(status["state"], "login");
    let link = status["login"].as_str().unwrap().to_owned();
    server.gives("token-secret-1", json!({ "refresh_token": "refresh-secret-1" }));
    server.takes("token-secret-1", &["list", "call"]);
    let page = agree(&gateway, &server, &link).await;
    assert!(page.status == 200 && page.header("content-security-policy").is_some(), "{page:?}");
    gateway.ready("s").await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    let status = gateway.status().await.to_string();
    for secret in ["token-secret-1", "refresh-secret-1", "client-secret-1", "the-code-1"] {
        assert!(!status.contains(secret) && !page.body.contains(secret), "{secret}");
    }
    assert!(gateway.server("s").await["login"].is_null());
}

#[tokio::test]
async fn a_client_that_can_open_pages_is_asked_and_its_retry_waits_for_the_login() {
    let server = protected().await;
    let gateway = gateway(&server, "").await;
    let client = gateway.modern().offering(json!({ "elicitation": { "url": {} } })).await;
    let said = call(&client).await;
    let asked = &said.result()["inputRequests"]["login"];
    assert_eq!(asked["method"], "elicitation/create", "{said:?}");
    assert_eq!(asked["params"]["mode"], "url");
    let link = asked["params"]["url"].as_str().unwrap().to_owned();
    let state = said.result()["requestState"].clone();
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    let retry = client
        .ask_call("s__echo", json!({ "a": 1 }))
        .param("inputResponses", json!({ "login": { "action": "accept" } }))
        .param("requestState", state);
    let (said, page) =
        tokio::join!(async { retry.send().await.said().await }, agree(&gateway, &server, &link),);
    assert_eq!(page.status, 200);
    assert_eq!(said.text(), r#"{"a":1}"#);
    let sent = server.upstream.calls().pop().unwrap();
    assert!(
        sent.params.get("inputResponses").is_none() && sent.params.get("requestState").is_none()
    );
}

#[tokio::test]
async fn a_call_that_needs_more_scopes_asks_for_all_of_them_at_once() {
    let server = protected().await;
    let gateway = gateway(&server, "").await;
    let client = gateway.modern();
    server.gives("small", json!({}));
    server.takes("small", &["list"]);
    log_in(&gateway, &server, &client).await;
    gateway.ready("s").await;
    let link = link_in(&call(&client).await);
    let browser = Browser::of(&gateway);
    let place = browser.agrees(&link).await;
    assert_eq!(parameters(&place)["scope"], "list call");
    server.gives("large", json!({}));
    server.takes("large", &["list", "call"]);
    assert_eq!(browser.opens(&server.agrees(&place)).await.status, 200);
    assert_eq!(call(&client).await.text(), r#"{"a":1}"#);
    assert_eq!(server.api.calls("/register").len(), 1, "it stays the same client");
}

#[tokio::test]
async fn a_user_is_not_asked_again_for_scopes_that_did_not_help() {
    let server = protected().await;
    let gateway = gateway(&server, "scopes = [\"list\", \"call\"]").await;
    let client = gateway.modern();
    server.gives("small", json!({ "scope": "list call" }));
    server.takes("small", &["list"]);
    log_in(&gateway, &server, &client).await;
    gateway.ready("s").await;
    let said = call(&client).await;
    assert!(said.is_error() && !said.text().contains("http"), "{said:?}");
}

#[tokio::test]
async fn the_gateway_logs_in_by_itself_where_it_may() {
    let server = protected().await;
    server.gives("own", json!({ "expires_in": 3600 }));
    server.takes("own", &["list", "call"]);
    server.publishes(json!({ "code_challenge_methods_supported": null }));
    let settings = "grant = \"client_credentials\"\nclient_id = \"me\"\nclient_secret = \"mine\"";
    let gateway = gateway(&server, settings).await;
    gateway.ready("s").await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    let [form] = &server.token_requests()[..] else { panic!("one request") };
    assert_eq!(
        (form["grant_type"].as_str(), form["scope"].as_str()),
        ("client_credentials", "list")
    );
    assert_eq!(form["resource"], server.resource());
}

#[tokio::test]
async fn a_server_without_the_table_is_never_logged_in_to() {
    let server = protected().await;
    let gateway = Gateway::with("s", server.upstream.http()).start().await;
    let said = call(&gateway.modern()).await;
    assert!(!said.body.contains("/connect"), "{said:?}");
    assert_eq!(gateway.server("s").await["state"], "failed");
    assert_eq!(server.api.received().len(), 0);
    let answer = gateway.plain().http("GET", "/oauth/callback?state=x&code=y").send().await;
    assert_eq!(answer.status(), 400, "no login waits for it");
}

#[tokio::test]
async fn a_login_is_no_consent_to_the_call() {
    let server = protected().await;
    let lines = format!("confirm = true\n{}", server.lines("s", ""));
    let gateway = Gateway::with("s", lines).start().await;
    let client =
        gateway.modern().offering(json!({ "elicitation": { "url": {}, "form": {} } })).await;
    let said = call(&client).await;
    let link =
        said.result()["inputRequests"]["login"]["params"]["url"].as_str().unwrap().to_owned();
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    assert_eq!(agree(&gateway, &server, &link).await.status, 200);
    let retry = client
        .ask_call("s__echo", json!({ "a": 1 }))
        .param("inputResponses", json!({ "login": { "action": "accept" } }))
        .param("requestState", said.result()["requestState"].clone());
    let said = retry.send().await.said().await;
    assert!(said.result()["inputRequests"]["confirm"].is_object(), "{said:?}");
    assert!(server.upstream.calls().is_empty());
}

#[tokio::test]
async fn a_user_who_does_not_open_the_link_ends_the_call() {
    let server = protected().await;
    let gateway = gateway(&server, "").await;
    let client = gateway.modern().offering(json!({ "elicitation": { "url": {} } })).await;
    let said = call(&client).await;
    let retry = client
        .ask_call("s__echo", json!({ "a": 1 }))
        .param("inputResponses", json!({ "login": { "action": "decline" } }))
        .param("requestState", said.result()["requestState"].clone());
    let said = retry.send().await.said().await;
    assert!(said.is_error() && said.text().contains("declined"), "{said:?}");
    assert!(server.token_requests().is_empty());
}

#[tokio::test]
async fn a_legacy_client_is_asked_or_gets_the_link() {
    let server = protected().await;
    let gateway = gateway(&server, "").await;
    // A client that cannot open pages gets one sentence with the link.
    for client in [
        gateway.legacy().await,
        gateway.legacy().await.offering(json!({ "elicitation": { "form": {} } })).await,
        gateway.legacy_of("2025-06-18").await.offering(json!({ "elicitation": {} })).await,
    ] {
        assert!(link_in(&call(&client).await).contains("/connect/link?ticket="));
    }
    let client = gateway.legacy().await.offering(json!({ "elicitation": { "url": {} } })).await;
    let mut reply = client.ask_call("s__echo", json!({ "a": 1 })).send().await;
    let asked = reply.message().await.expect("a request of the gateway");
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    assert_eq!(asked["params"]["mode"], "url", "{asked}");
    assert!(asked["params"]["elicitationId"].is_string(), "{asked}");
    let link = asked["params"]["url"].as_str().unwrap().to_owned();
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    client.respond(&asked["id"], json!({ "action": "accept" })).await;
    assert_eq!(agree(&gateway, &server, &link).await.status, 200);
    assert_eq!(reply.said().await.text(), r#"{"a":1}"#);
}
