//! Metadata that makes a user consent on the page of one authorization server, and sends the code
//! to another (RFC 9700, 4.4).

use serde_json::{Value, json};

use crate::support::oauth::parameters;
use crate::support::{Browser, Gateway, OauthServer, Said, Upstream};

async fn protected() -> OauthServer {
    OauthServer::before(Upstream::modern().await).await
}

/// Starts a gateway in front of an honest server and of one with metadata that names the honest
/// authorization endpoint.
async fn mixed_up(honest: &OauthServer, evil: &OauthServer, settings: [&str; 2]) -> Gateway {
    let endpoint = honest.api.url("/authorize");
    evil.publishes(json!({
        "authorization_endpoint": endpoint,
        "authorization_response_iss_parameter_supported": null,
    }));
    Gateway::with("honest", honest.lines("honest", settings[0]))
        .server("evil", evil.lines("evil", settings[1]))
        .start()
        .await
}

async fn call(gateway: &Gateway, server: &str) -> Said {
    gateway.modern().call(&format!("{server}__echo"), json!({})).await
}

/// Returns the link that a server waits for.
async fn link_of(gateway: &Gateway, server: usize) -> String {
    let status = gateway.wait_for(|status| status["servers"][server]["login"].is_string()).await;
    status["servers"][server]["login"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_page_of_one_issuer_is_not_used_for_another() {
    let (honest, evil) = (protected().await, protected().await);
    let gateway = mixed_up(&honest, &evil, ["", ""]).await;
    // The owner of the endpoint gets it, independent of the order of discovery.
    link_of(&gateway, 0).await;
    let status = gateway
        .wait_for(|status| {
            let error = status["servers"][1]["last_error"]["message"].as_str();
            error.is_some_and(|error| error.contains(&honest.issuer()))
                || status["servers"][1]["login"].is_string()
        })
        .await;
    if let Some(link) = status["servers"][1]["login"].as_str() {
        // The hostile server was first, and its link is invalid by now.
        let browser = Browser::of(&gateway);
        let page = browser.opens(link).await;
        let form = crate::support::browser::fields(&page.body);
        let answer = [("form_key", &*form["form_key"]), ("ticket", &*form["ticket"])];
        let answer = [answer[0], answer[1], ("answer", "accept")];
        let said = browser.sends("/connect/link", &answer).await;
        assert_eq!((said.status, said.header("location")), (400, None), "{said:?}");
    }
    let said = call(&gateway, "evil").await;
    assert!(!said.body.contains("/authorize"), "{said:?}");
    assert!(evil.token_requests().is_empty());
}

#[tokio::test]
async fn a_login_at_the_page_of_another_issuer_ends_when_its_owner_comes() {
    for has_agreed in [false, true] {
        let (honest, evil) = (protected().await, protected().await);
        evil.publishes(json!({
            "authorization_endpoint": honest.api.url("/authorize"),
            "authorization_response_iss_parameter_supported": null,
        }));
        // The hostile server is the first that needs a login.
        let lazy = format!("start = \"lazy\"\n{}", honest.lines("honest", ""));
        let builder = Gateway::with("honest", lazy).server("evil", evil.lines("evil", ""));
        let gateway = builder.start().await;
        let (browser, link) = (Browser::of(&gateway), link_of(&gateway, 1).await);
        let page = browser.opens(&link).await;
        let asked = if has_agreed { Some(browser.agrees(&link).await) } else { None };
        let said = call(&gateway, "honest").await;
        assert!(said.body.contains("/connect/link"), "{said:?}");
        let said = if let Some(asked) = asked {
            browser.opens(&evil.answers(&asked, &[("code", "c")])).await
        } else {
            let form = crate::support::browser::fields(&page.body);
            let answer = [("form_key", &*form["form_key"]), ("ticket", &*form["ticket"])];
            browser.sends("/connect/link", &[answer[0], answer[1], ("answer", "accept")]).await
        };
        assert_eq!((said.status, said.header("location")), (400, None), "{said:?}");
        assert!(evil.token_requests().is_empty());
    }
}

#[tokio::test]
async fn the_answer_of_one_login_is_not_used_at_the_callback_of_another() {
    let honest = protected().await;
    let gateway = Gateway::with("honest", honest.lines("honest", ""))
        .server("other", protected().await.lines("other", ""))
        .start()
        .await;
    let browser = Browser::of(&gateway);
    for (from, to) in [
        ("/oauth/callback/honest", "/oauth/callback/other"),
        ("/oauth/callback/honest", "/oauth/callback"),
        ("/oauth/callback/honest", "/oauth/callback/Honest"),
        ("/oauth/callback/honest", "/oauth/callback/unknown"),
    ] {
        let asked = browser.agrees(&link_of(&gateway, 0).await).await;
        let back = honest.agrees(&asked);
        assert!(back.starts_with(&format!("{from}?")), "{back}");
        let said = browser.opens(&back.replace(from, to)).await;
        assert_eq!(said.status, 400, "{to}: {said:?}");
        assert!(honest.token_requests().is_empty());
        call(&gateway, "honest").await;
    }
}

#[tokio::test]
async fn an_issuer_that_has_to_name_itself_is_not_believed_without() {
    let settings = ["client_id = \"c\"\nrequire_iss = true\n", ""];
    let honest = protected().await;
    honest.publishes(json!({ "authorization_response_iss_parameter_supported": null }));
    let gateway = Gateway::with("honest", honest.lines("honest", settings[0])).start().await;
    let browser = Browser::of(&gateway);
    let asked = browser.agrees(&link_of(&gateway, 0).await).await;
    // The configured client keeps the callback of all servers.
    let redirect = parameters(&asked)["redirect_uri"].clone();
    assert_eq!(redirect, format!("http://{}/oauth/callback", gateway.running.address));
    let said = browser.opens(&honest.answers(&asked, &[("code", "c")])).await;
    assert!(said.status == 400 && said.body.contains("require_iss"), "{said:?}");
    assert!(honest.token_requests().is_empty());
    // Its own callback, where it is registered.
    let lines = honest.lines("honest", "client_id = \"c\"\ncallback = \"server\"\n");
    let gateway = Gateway::with("honest", lines).start().await;
    let browser = Browser::of(&gateway);
    let asked = browser.agrees(&link_of(&gateway, 0).await).await;
    let redirect = parameters(&asked)["redirect_uri"].clone();
    assert_eq!(redirect, format!("http://{}/oauth/callback/honest", gateway.running.address));
    honest.gives("t", json!({}));
    honest.takes("t", &["list", "call"]);
    let said = browser.opens(&honest.answers(&asked, &[("code", "c")])).await;
    assert_eq!(said.status, 200, "{said:?}");
}

#[tokio::test]
async fn the_page_names_the_host_that_the_browser_visits() {
    let honest = protected().await;
    let endpoint = "https://login.elsewhere.example:8443/authorize";
    for (endpoint, warned) in [(Value::from(endpoint), true), (honest.api.url("/a").into(), false)]
    {
        honest.publishes(json!({ "authorization_endpoint": endpoint }));
        let gateway = Gateway::with("honest", honest.lines("honest", "")).start().await;
        let page = Browser::of(&gateway).opens(&link_of(&gateway, 0).await).await;
        let place = endpoint.as_str().unwrap().split('/').nth(2).unwrap();
        assert!(page.body.contains(&format!("goes to <strong>{place}</strong> next")), "{page:?}");
        assert_eq!(page.body.contains("another host"), warned, "{endpoint}");
    }
}
