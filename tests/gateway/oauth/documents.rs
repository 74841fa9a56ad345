//! OAuth documents in the forms that authorization servers use and SDKs accept.

use serde_json::json;

use crate::support::api::{Page, PlainApi};
use crate::support::oauth::parameters;
use crate::support::{Browser, Gateway};

use super::{agree, call, gateway, link_in, log_in, protected};

const METADATA: &str = "/.well-known/oauth-authorization-server";

#[tokio::test]
async fn documents_in_every_known_form_lead_to_a_login() {
    for (place, members) in [
        ("/prm", json!({ "scopes_supported": null, "dpop_bound_access_tokens_required": null })),
        ("/prm", json!({ "scopes_supported": "list call", "bearer_methods_supported": null })),
        (METADATA, json!({ "scopes_supported": null, "revocation_endpoint": null })),
        (METADATA, json!({ "scopes_supported": "list call", "grant_types_supported": null })),
        (METADATA, json!({ "token_endpoint_auth_methods_supported": null })),
        (METADATA, json!({ "authorization_response_iss_parameter_supported": "true" })),
        (METADATA, json!({ "authorization_response_iss_parameter_supported": null })),
        (METADATA, json!({ "client_id_metadata_document_supported": null })),
        ("/register", json!({ "token_endpoint_auth_method": "" })),
        ("/register", json!({ "token_endpoint_auth_method": null, "scope": null })),
        ("/register", json!({ "client_secret": "", "token_endpoint_auth_method": "" })),
        ("/token", json!({ "expires_in": "3600" })),
        ("/token", json!({ "expires_in": null, "scope": null, "refresh_token": null })),
        ("/token", json!({ "scope": ["list", "call"] })),
        ("/token", json!({ "token_type": null })),
        ("/token", json!({ "token_type": "" })),
    ] {
        let server = protected().await;
        server.gives("t", json!({}));
        server.takes("t", &["list", "call"]);
        server.api.alters(place, &members);
        let gateway = gateway(&server, "").await;
        let client = gateway.modern();
        log_in(&gateway, &server, &client).await;
        let said = call(&client).await;
        assert!(!said.is_error(), "{place} {members}: {said:?}");
    }
}

#[tokio::test]
async fn a_page_where_metadata_could_be_is_skipped() {
    let api = PlainApi::start().await;
    let html = Page::new(200, "text/html", "<!doctype html><title>app</title>");
    api.sets("/mcp", Page::new(401, "text/plain", "no"));
    api.sets("/.well-known/oauth-protected-resource/mcp", html.clone());
    let resource = json!({ "resource": api.url("/mcp"), "authorization_servers": [api.url("")] });
    api.sets("/.well-known/oauth-protected-resource", Page::json(&resource));
    let metadata = json!({
        "issuer": api.url(""), "authorization_endpoint": api.url("/authorize"),
        "token_endpoint": api.url("/token"), "registration_endpoint": api.url("/register"),
        "code_challenge_methods_supported": ["S256"],
    });
    api.sets("/.well-known/openid-configuration", Page::json(&metadata));
    api.sets("/register", Page::json(&json!({ "client_id": "c" })));
    for page in [
        html,
        Page::new(200, "application/json", "<html></html>"),
        Page::new(200, "application/json", ""),
        Page::new(200, "application/json", "null"),
        Page::new(200, "text/plain", "not found"),
    ] {
        api.sets(METADATA, page);
        let lines = format!("url = \"{}\"\n[servers.s.oauth]\n", api.url("/mcp"));
        let gateway = Gateway::with("s", lines).start().await;
        gateway.wait_for(|status| status["servers"][0]["login"].is_string()).await;
    }
    // A JSON object is a document, and a wrong one is an error.
    api.sets(METADATA, Page::json(&json!({ "issuer": "https://evil.example" })));
    let lines = format!("url = \"{}\"\n[servers.s.oauth]\n", api.url("/mcp"));
    let gateway = Gateway::with("s", lines).start().await;
    gateway
        .wait_for(|status| {
            let error = status["servers"][0]["last_error"]["message"].as_str();
            error.is_some_and(|error| error.contains("evil.example"))
        })
        .await;
}

#[tokio::test]
async fn the_slash_of_an_issuer_may_differ_and_iss_is_compared_unchanged() {
    for (named, written) in [("/", ""), ("", "/")] {
        let server = protected().await;
        let (named, written) = (server.api.url(named), server.api.url(written));
        server.api.alters("/prm", &json!({ "authorization_servers": [named] }));
        server.publishes(json!({ "issuer": written }));
        server.gives("t", json!({}));
        server.takes("t", &["list", "call"]);
        let gateway = gateway(&server, "").await;
        let client = gateway.modern();
        for (iss, status) in [(&named, 400), (&written, 200)] {
            let link = link_in(&call(&client).await);
            let browser = Browser::of(&gateway);
            let asked = browser.agrees(&link).await;
            let back = server.answers(&asked, &[("code", "c"), ("iss", iss)]);
            let page = browser.opens(&back).await;
            assert_eq!(page.status, status, "{iss} for {written}: {page:?}");
        }
        assert!(!call(&client).await.is_error());
    }
}

#[tokio::test]
async fn a_configured_issuer_is_compared_with_its_metadata_byte_for_byte() {
    let server = protected().await;
    let slash = format!("{}/", server.issuer());
    server.publishes(json!({ "issuer": slash }));
    let settings = format!("issuer = \"{}\"\n", server.issuer());
    let gateway = gateway(&server, &settings).await;
    gateway
        .wait_for(|status| {
            let error = status["servers"][0]["last_error"]["message"].as_str();
            error.is_some_and(|error| error.contains(&slash))
        })
        .await;
    assert!(gateway.server("s").await["login"].is_null());
}

#[tokio::test]
async fn no_request_has_the_resource_where_the_provider_refuses_it() {
    for (settings, expected) in [("drop_resource = true\n", false), ("", true)] {
        let server = protected().await;
        server.gives("first", json!({ "refresh_token": "r", "expires_in": 0 }));
        server.takes("first", &["list", "call"]);
        let gateway = gateway(&server, settings).await;
        let client = gateway.modern();
        let link = link_in(&call(&client).await);
        let browser = Browser::of(&gateway);
        let asked = browser.agrees(&link).await;
        assert_eq!(parameters(&asked).contains_key("resource"), expected, "{asked}");
        assert_eq!(browser.opens(&server.agrees(&asked)).await.status, 200);
        assert!(!call(&client).await.is_error());
        let requests = server.token_requests();
        let grants = ["authorization_code", "refresh_token"];
        for grant in grants {
            let request = requests.iter().find(|form| form["grant_type"] == grant).unwrap();
            assert_eq!(request.contains_key("resource"), expected, "{request:?}");
        }
    }
}

#[tokio::test]
async fn messages_have_the_description_of_the_provider() {
    let described =
        |description: &str| json!({ "error": "invalid_grant", "error_description": description });
    for (description, shown, hidden) in [
        ("The code has expired.", "invalid_grant (The code has expired.)", "nothing-of-this"),
        ("a\u{1b}[2J\nb<script>", "(a[2J b&lt;script&gt;)", "<script>"),
        ("the code the-code-1 is used", "the code *** is used", "the-code-1"),
    ] {
        let server = protected().await;
        let gateway = gateway(&server, "").await;
        let link = link_in(&call(&gateway.modern()).await);
        let body = described(description).to_string();
        server.api.sets("/token", Page::new(400, "application/json", body));
        let page = agree(&gateway, &server, &link).await;
        assert_eq!(page.status, 400, "{page:?}");
        assert!(page.body.contains(shown) && !page.body.contains(hidden), "{page:?}");
    }
    // At the registration: the client gets the error in its call.
    let server = protected().await;
    let body = described("Nobody registers here.").to_string();
    server.api.sets("/register", Page::new(403, "application/json", body));
    let gateway = gateway(&server, "").await;
    let status =
        gateway.wait_for(|status| status["servers"][0]["last_error"]["message"].is_string()).await;
    let message = &status["servers"][0]["last_error"]["message"];
    assert!(message.as_str().unwrap().contains("Nobody registers here."), "{message}");
    // It is not tried again before an operator acts, or minutes later.
    let status = gateway.wait_for(|status| status["servers"][0]["state"] == "failed").await;
    let cure = status["servers"][0]["cure"].as_str().unwrap();
    assert!(cure.starts_with("set `client_id` and reload"), "{cure}");
    assert_eq!(server.api.calls("/register").len(), 1);
}

#[tokio::test]
async fn the_answer_of_a_browser_has_its_description_shown_only_if_it_is_of_the_issuer() {
    let server = protected().await;
    let (iss, evil) = (server.issuer(), "https://evil.example".to_owned());
    for (iss, shown) in [(Some(&iss), true), (Some(&evil), false), (None, false)] {
        let gateway = gateway(&server, "").await;
        let link = link_in(&call(&gateway.modern()).await);
        let browser = Browser::of(&gateway);
        let asked = browser.agrees(&link).await;
        let mut answer =
            vec![("error", "access_denied"), ("error_description", "Ask at the reception")];
        answer.extend(iss.map(|iss| ("iss", iss.as_str())));
        let page = browser.opens(&server.answers(&asked, &answer)).await;
        assert_eq!(page.status, 400, "{page:?}");
        assert_eq!(page.body.contains("reception"), shown, "{iss:?}: {page:?}");
    }
}

#[tokio::test]
async fn a_call_to_a_server_without_a_possible_login_returns_the_reason() {
    let server = protected().await;
    server.publishes(json!({ "registration_endpoint": null }));
    let gateway = gateway(&server, "").await;
    for (era, client) in gateway.both().await {
        let said = call(&client).await;
        assert!(said.is_error(), "{era}: {said:?}");
        let is_told =
            said.body.contains("cannot log in") && said.body.contains("registers no clients");
        assert!(is_told, "{era}: {said:?}");
        // An unknown name stays unknown.
        let said = client.call("other__echo", json!({})).await;
        assert!(!said.body.contains("log in"), "{era}: {said:?}");
    }
}

#[tokio::test]
async fn a_second_login_of_a_call_is_asked_for_like_the_first() {
    let server = protected().await;
    let gateway = gateway(&server, "").await;
    let client = gateway.modern().offering(json!({ "elicitation": { "url": {} } })).await;
    let mut said = call(&client).await;
    for (token, scopes) in [("small", &["list"][..]), ("large", &["list", "call"])] {
        let asked = said.result()["inputRequests"]["login"].clone();
        assert_eq!(asked["params"]["mode"], "url", "{token}: {said:?}");
        let link = asked["params"]["url"].as_str().unwrap().to_owned();
        let state = said.result()["requestState"].clone();
        server.gives(token, json!({}));
        server.takes(token, scopes);
        let retry = client
            .ask_call("s__echo", json!({ "a": 1 }))
            .param("inputResponses", json!({ "login": { "action": "accept" } }))
            .param("requestState", state);
        let (next, page) = tokio::join!(
            async { retry.send().await.said().await },
            agree(&gateway, &server, &link)
        );
        assert_eq!(page.status, 200, "{token}: {page:?}");
        said = next;
    }
    assert_eq!(said.text(), r#"{"a":1}"#, "{said:?}");
}

#[tokio::test]
async fn every_request_to_an_authorization_server_names_the_gateway() {
    let server = protected().await;
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    let gateway = gateway(&server, "").await;
    let client = gateway.modern();
    log_in(&gateway, &server, &client).await;
    let received = server.api.received();
    assert!(received.len() >= 4, "{received:?}");
    let own = format!("trunkline/{}", env!("CARGO_PKG_VERSION"));
    for call in received {
        assert_eq!(call.header("user-agent"), Some(&*own), "{call:?}");
        assert_eq!(call.header("accept-encoding"), Some("identity"), "{call:?}");
    }
}
