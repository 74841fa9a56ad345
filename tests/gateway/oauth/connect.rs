//! Pages for people: the link to log in, `/connect`, and the protection that the user who logs in
//! is the user who requested it.

use serde_json::json;

use crate::support::browser::fields;
use crate::support::{Browser, Client, Gateway, OauthServer, Said, client_table};

use super::{agree, call, come_back, gateway, link_in, log_in, protected};

async fn shared_by_two(server: &OauthServer) -> (Gateway, [Client; 2]) {
    let gateway = Gateway::with("s", server.lines("s", ""))
        .toml(&client_table("ann", "key-of-ann", ""))
        .toml(&client_table("bob", "key-of-bob", ""))
        .start()
        .await;
    let link = gateway.server("s").await["login"].as_str().unwrap().to_owned();
    server.gives("of-operator", json!({}));
    server.takes("of-operator", &["list", "call"]);
    assert_eq!(agree(&gateway, server, &link).await.status, 200);
    gateway.ready("s").await;
    let clients = ["key-of-ann", "key-of-bob"].map(|key| gateway.modern().key(key));
    (gateway, clients)
}

/// Returns the link to its connections that a client gets with its key.
async fn visit_link(gateway: &Gateway, key: &str) -> String {
    visit_link_at(gateway, key, "/connect").await
}

async fn visit_link_at(gateway: &Gateway, key: &str, path: &str) -> String {
    let said = gateway.plain().key(key).http("POST", path).send().await.said().await;
    assert_eq!(said.status, 200, "{said:?}");
    said.json()["link"].as_str().unwrap().to_owned()
}

fn answer<'a>(page: &'a [(String, String)], answer: &'a str) -> Vec<(&'a str, &'a str)> {
    let fields = page.iter().map(|(name, value)| (&**name, &**value));
    fields.chain([("answer", answer)]).collect()
}

fn form_of(page: &Said) -> Vec<(String, String)> {
    fields(&page.body).into_iter().collect()
}

#[tokio::test]
async fn the_page_behind_a_link_names_its_client_and_purpose() {
    let server = protected().await;
    let (gateway, [ann, _]) = shared_by_two(&server).await;
    let link = link_in(&call(&ann).await);
    let page = Browser::of(&gateway).opens(&link).await;
    for part in ["the client <strong>ann</strong>", "<strong>s</strong>", &server.issuer(), "call"]
    {
        assert!(page.body.contains(part), "{part}: {page:?}");
    }
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"));
    assert_eq!(page.header("x-frame-options"), Some("DENY"));
    let cookie = page.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
}

#[tokio::test]
async fn nothing_is_asked_of_the_authorization_server_before_a_person_agrees() {
    let server = protected().await;
    let gateway = gateway(&server, "").await;
    let link = link_in(&call(&gateway.modern()).await);
    let browser = Browser::of(&gateway);
    let page = browser.opens(&link).await;
    assert!(!page.body.contains("/authorize?") && !page.body.contains("state="), "{page:?}");
    let form = form_of(&page);
    let said = browser.sends("/connect/link", &answer(&form, "decline")).await;
    assert!(said.status == 200 && said.body.contains("Cancelled"), "{said:?}");
    assert_eq!(browser.opens(&link).await.status, 400, "the link is used up");
}

#[tokio::test]
async fn an_answer_is_used_in_the_browser_only_in_which_its_login_was_begun() {
    let server = protected().await;
    let gateway = gateway(&server, "").await;
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    // Eve logs in herself, and makes another user's browser bring the answer.
    for other in [None, Some(Browser::of(&gateway))] {
        let link = link_in(&call(&gateway.modern()).await);
        let back = server.agrees(&Browser::of(&gateway).agrees(&link).await);
        let page = match &other {
            None => come_back(&gateway, &back).await,
            Some(other) => {
                let _ = other.opens("/connect").await;
                assert!(other.cookie().is_some());
                other.opens(&back).await
            }
        };
        assert_eq!(page.status, 403, "{page:?}");
    }
    assert!(server.token_requests().is_empty(), "the code is shown to nobody");
}

#[tokio::test]
async fn a_link_continues_in_the_first_browser_with_consent() {
    let server = protected().await;
    let gateway = gateway(&server, "").await;
    let link = link_in(&call(&gateway.modern()).await);
    let (first, second) = (Browser::of(&gateway), Browser::of(&gateway));
    let seen = form_of(&second.opens(&link).await);
    first.agrees(&link).await;
    // The same browser may begin again; a different one may not.
    first.agrees(&link).await;
    assert_eq!(second.opens(&link).await.status, 403);
    let said = second.sends("/connect/link", &answer(&seen, "accept")).await;
    assert_eq!(said.status, 403, "{said:?}");
}

#[tokio::test]
async fn a_browser_of_one_client_refuses_the_link_of_another() {
    let server = protected().await;
    let (gateway, [ann, bob]) = shared_by_two(&server).await;
    let browser = Browser::of(&gateway);
    browser.agrees(&link_in(&call(&ann).await)).await;
    let of_bob = link_in(&call(&bob).await);
    let page = browser.opens(&of_bob).await;
    assert!(page.status == 403 && page.body.contains("<strong>bob</strong>"), "{page:?}");
    // Nor by a forged form.
    let mut form = form_of(&page);
    let ticket = of_bob.split_once("ticket=").unwrap().1.to_owned();
    form.push(("ticket".into(), ticket));
    let said = browser.sends("/connect/link", &answer(&form, "accept")).await;
    assert_eq!(said.status, 403, "{said:?}");
    let left = browser.sends("/connect/leave", &answer(&form_of(&page), "")).await;
    assert_eq!(left.status, 200);
    browser.agrees(&of_bob).await;
}

#[tokio::test]
async fn a_form_of_another_site_does_nothing() {
    let server = protected().await;
    let gateway = gateway(&server, "").await;
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    log_in(&gateway, &server, &gateway.modern()).await;
    let browser = Browser::of(&gateway);
    let page = browser.opens("/connect").await;
    let key = fields(&page.body)["form_key"].clone();
    let revoke = |key: &'static str| [("server", "s"), ("form_key", key)];
    for path in ["/connect/revoke", "/connect/start", "/connect/leave", "/connect/link"] {
        for key in ["", "guessed"] {
            assert_eq!(browser.sends(path, &revoke(key)).await.status, 403, "{path} {key}");
        }
        let own = [("server", "s"), ("form_key", &*key)];
        // Another page of this machine, which may call tools.
        for headers in [
            [("origin", "http://localhost:1")],
            [("sec-fetch-site", "cross-site")],
            [("sec-fetch-site", "same-site")],
        ] {
            let said = browser.sends_with(path, &own, &headers).await;
            assert_eq!(said.status, 403, "{path} {headers:?}");
        }
        // Another browser.
        let other = Browser::of(&gateway);
        let _ = other.opens("/connect").await;
        assert_eq!(other.sends(path, &own).await.status, 403, "{path}");
        // A GET request has no effect.
        let status = browser.opens(&format!("{path}?server=s&form_key={key}")).await.status;
        assert!(matches!(status, 400 | 404 | 405), "{path} {status}");
    }
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#, "the login is still there");
}

#[tokio::test]
async fn the_page_lists_connects_and_revokes() {
    let server = protected().await;
    server.publishes(json!({ "revocation_endpoint": server.api.url("/revoke") }));
    server.api.sets("/revoke", crate::support::api::Page::new(200, "text/plain", ""));
    let (gateway, [ann, bob]) = shared_by_two(&server).await;
    let browser = Browser::of(&gateway);
    let place = browser.agrees(&visit_link(&gateway, "key-of-ann").await).await;
    assert_eq!(place, "/connect");
    let page = browser.opens("/connect").await;
    assert!(page.body.contains("<strong>ann</strong>") && page.body.contains("Connect s"));
    // Connects.
    let form = form_of(&page);
    let led = browser.sends("/connect/start", &answer(&form, "")).await;
    assert_eq!(led.status, 303, "{led:?}");
    let asked = browser.agrees(led.header("location").unwrap()).await;
    server.gives("of-ann", json!({ "refresh_token": "refresh-of-ann" }));
    server.takes("of-ann", &["list", "call"]);
    assert_eq!(browser.opens(&server.agrees(&asked)).await.status, 200);
    assert_eq!(call(&ann).await.text(), r#"{"a":1}"#);
    link_in(&call(&bob).await);
    // Revokes.
    let page = browser.opens("/connect").await;
    assert!(page.body.contains("Revoke s") && page.body.contains(&server.issuer()), "{page:?}");
    assert!(!page.body.contains("of-ann"), "no token is on a page");
    let led = browser.sends("/connect/revoke", &answer(&form_of(&page), "")).await;
    assert_eq!(led.header("location"), Some("/connect"));
    let page = browser.opens("/connect").await;
    assert!(page.body.contains("is revoked") && page.body.contains("Connect s"), "{page:?}");
    let calls = server.api.calls("/revoke");
    let tokens: Vec<_> = calls.iter().map(|call| String::from_utf8_lossy(&call.body)).collect();
    assert_eq!(
        tokens,
        [
            "token=refresh-of-ann&token_type_hint=refresh_token",
            "token=of-ann&token_type_hint=access_token"
        ]
    );
    assert!(calls[0].header("authorization").unwrap().starts_with("Basic "));
    link_in(&call(&ann).await);
}

#[tokio::test]
async fn under_rules_the_page_shows_only_permitted_servers_before_any_login() {
    let allows = [
        "servers = [\"s\"]\n",
        "tools = [\"s__e*\"]\n",
        "tools = [\"*__echo\"]\n",
        "groups = [\"crew\"]\n",
        "servers = [\"s\"]\nwhen = \"tool.native == 'echo'\"\n",
    ];
    for allowed in allows {
        let server = protected().await;
        let gateway = Gateway::with("s", server.lines("s", ""))
            .toml(&client_table("ann", "key-of-ann", "groups = [\"crew\"]\n"))
            .toml(&client_table("bob", "key-of-bob", ""))
            .toml(&format!("[policy.rules.crew]\nprincipals = [\"ann\"]\n{allowed}"))
            .toml("[policy.rules.others]\ntools = [\"s\", \"t__*\"]\n")
            .toml("[policy.rules.asks]\nwhen = \"tool.native == 'other'\"\n")
            .start()
            .await;
        gateway.in_state("s", "login").await;
        let bob = gateway.modern().key("key-of-bob");
        let said = call(&bob).await;
        assert!(said.body.contains("unknown tool") && !said.body.contains("connect"), "{said:?}");
        let pages = ["key-of-bob", "key-of-ann"].map(async |key| {
            let browser = Browser::of(&gateway);
            browser.agrees(&visit_link(&gateway, key).await).await;
            (browser.opens("/connect").await, browser)
        });
        let [of_bob, of_ann] = pages;
        let (page, _) = of_bob.await;
        assert!(!page.body.contains("Connect s"), "{allowed}: {page:?}");
        let (page, browser) = of_ann.await;
        assert!(page.body.contains("Connect s"), "{allowed}: {page:?}");
        let led = browser.sends("/connect/start", &answer(&form_of(&page), "")).await;
        let asked = browser.agrees(led.header("location").unwrap()).await;
        server.gives("of-ann", json!({}));
        server.takes("of-ann", &["list", "call"]);
        assert_eq!(browser.opens(&server.agrees(&asked)).await.status, 200);
        let ann = gateway.modern().key("key-of-ann");
        assert_eq!(call(&ann).await.text(), r#"{"a":1}"#, "{allowed}");
        assert!(call(&bob).await.body.contains("unknown tool"), "{allowed}");
    }
}

#[tokio::test]
async fn under_rules_a_call_is_answered_with_the_link_of_a_server_that_its_client_may_use() {
    let server = protected().await;
    let gateway = Gateway::with("s", server.lines("s", ""))
        .toml(&client_table("ann", "key-of-ann", ""))
        .toml(&client_table("bob", "key-of-bob", ""))
        .toml("[policy.rules.all]\nservers = [\"s\"]\n")
        .toml("[policy.rules.none]\nprincipals = [\"bob\"]\neffect = \"deny\"\n")
        .start()
        .await;
    gateway.in_state("s", "login").await;
    link_in(&call(&gateway.modern().key("key-of-ann")).await);
    let said = call(&gateway.modern().key("key-of-bob")).await;
    assert!(said.body.contains("unknown tool") && !said.body.contains("connect"), "{said:?}");
}

#[tokio::test]
async fn the_page_shows_the_servers_of_the_profile_that_is_asked_for() {
    let server = protected().await;
    let gateway = Gateway::with("s", server.lines("s", ""))
        .server("t", server.lines("t", ""))
        .toml(&client_table("ann", "key-of-ann", "profiles = [\"support\"]\n"))
        .toml("[profiles.support]\nservers = [\"s\"]\n")
        .start()
        .await;
    gateway.in_state("s", "login").await;
    let browser = Browser::of(&gateway);
    let link = visit_link_at(&gateway, "key-of-ann", "/connect?profile=support").await;
    browser.agrees(&link).await;
    let page = browser.opens("/connect").await;
    assert!(page.body.contains("Connect s") && !page.body.contains("Connect t"), "{page:?}");
    for path in
        ["/connect", "/connect?profile=other", "/connect?profile=../x", "/connect?profile=%20"]
    {
        let said = gateway.plain().key("key-of-ann").http("POST", path).send().await.said().await;
        assert!((400..500).contains(&said.status), "{path}: {said:?}");
    }
}

#[tokio::test]
async fn a_login_that_the_provider_does_not_revoke_is_deleted_all_the_same() {
    let server = protected().await;
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    let busy = crate::support::api::Page::new(503, "text/plain", "later");
    server.api.sets("/nowhere", busy);
    for (endpoint, told) in
        [(json!(null), "offers no revocation"), (json!("/nowhere"), "has not revoked")]
    {
        let endpoint = endpoint.as_str().map(|path| server.api.url(path));
        server.publishes(json!({ "revocation_endpoint": endpoint }));
        let gateway = gateway(&server, "").await;
        log_in(&gateway, &server, &gateway.modern()).await;
        let browser = Browser::of(&gateway);
        let page = browser.opens("/connect").await;
        browser.sends("/connect/revoke", &answer(&form_of(&page), "")).await;
        let page = browser.opens("/connect").await;
        assert!(page.body.contains(told), "{page:?}");
        link_in(&call(&gateway.modern()).await);
    }
}

#[tokio::test]
async fn a_browser_without_a_link_sees_nobodys_connections() {
    let server = protected().await;
    let (gateway, [ann, _]) = shared_by_two(&server).await;
    let stranger = Browser::of(&gateway);
    assert_eq!(stranger.opens("/connect").await.status, 401);
    let said = gateway.plain().key("wrong").http("POST", "/connect").send().await;
    assert_eq!(said.status(), 401);
    // A link to connections is valid once, and a planted cookie is invalid.
    let link = visit_link(&gateway, "key-of-ann").await;
    let browser = Browser::of(&gateway);
    let _ = browser.opens(&link).await;
    let planted = browser.cookie();
    browser.agrees(&link).await;
    assert_ne!(browser.cookie(), planted);
    assert_eq!(stranger.opens(&link).await.status, 400);
    assert_eq!(browser.opens("/connect").await.status, 200);
    drop(ann);
}

#[tokio::test]
async fn a_client_that_was_removed_has_no_page_any_more() {
    let server = protected().await;
    let (gateway, _) = shared_by_two(&server).await;
    let browser = Browser::of(&gateway);
    browser.agrees(&visit_link(&gateway, "key-of-ann").await).await;
    assert_eq!(browser.opens("/connect").await.status, 200);
    let text = std::fs::read_to_string(gateway.folder().join("gateway.toml")).unwrap();
    gateway.reload_text(&text.replace("[clients.ann]", "[clients.other]")).await;
    assert_eq!(browser.opens("/connect").await.status, 401);
}

#[tokio::test]
async fn a_cookie_from_before_the_consent_is_worthless_after_it() {
    let server = protected().await;
    let (gateway, _) = shared_by_two(&server).await;
    let link = visit_link(&gateway, "key-of-ann").await;
    let (browser, planted) = (Browser::of(&gateway), Browser::of(&gateway));
    let page = browser.opens(&link).await;
    let form = form_of(&page);
    planted.has(browser.cookie());
    // The page of that cookie may send its forms until a user consents.
    browser.agrees(&link).await;
    assert_ne!(browser.cookie(), planted.cookie());
    let said = planted.sends("/connect/leave", &answer(&form, "")).await;
    assert_eq!(said.status, 403, "{said:?}");
    assert_eq!(browser.opens("/connect").await.status, 200);
}
