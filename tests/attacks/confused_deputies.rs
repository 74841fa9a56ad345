//! Programs that share the gateway's client at an authorization server, one of which impersonates
//! the program that its user intends.

use serde_json::json;

use crate::support::api::Page;
use crate::support::browser::{Browser, fields};
use crate::support::{Gateway, Issuer, Said, Upstream};

const FIXED: &str = "client_id = \"fixed-1\"\n";

async fn relay() -> (Issuer, Gateway) {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let api = &issuer.api;
    let metadata = json!({
        "issuer": api.url(""), "jwks_uri": api.url("/keys"),
        "authorization_endpoint": api.url("/authorize"), "token_endpoint": api.url("/token"),
    });
    api.sets("/.well-known/oauth-authorization-server", Page::json(&metadata));
    let other = format!(
        "[issuers.other]\nissuer = \"https://other.example.com\"\njwks_url = \"{}\"\n\
         authorization_server = \"{}\"\n{FIXED}",
        api.url("/keys"),
        api.url(""),
    );
    let builder = Gateway::with("s", upstream.http()).toml(&issuer.table("idp", FIXED));
    let gateway = builder.toml(&other).start().await;
    (issuer, gateway)
}

/// Returns an authorization request that sends the code to this address.
fn place(issuer: &str, redirect: &str) -> String {
    let query = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("response_type", "code")
        .append_pair("client_id", "fixed-1")
        .append_pair("redirect_uri", redirect)
        .append_pair("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM")
        .append_pair("code_challenge_method", "S256")
        .append_pair("scope", "<b>read</b>")
        .finish();
    format!("/login/{issuer}/authorize?{query}")
}

async fn answer(browser: &Browser, page: &Said, said: &str) -> Said {
    let form = fields(&page.body);
    let fields = [("form_key", &*form["form_key"]), ("request", &*form["request"])];
    let fields = [fields[0], fields[1], ("answer", said)];
    browser.sends("/login/idp/consent", &fields).await
}

const OWN: &str = "http://127.0.0.1:7/callback";
const EVIL: &str = "https://evil.example.com/callback";

#[tokio::test]
async fn each_program_that_shares_a_client_id_needs_its_users_consent_once() {
    let (issuer, gateway) = relay().await;
    let browser = Browser::of(&gateway);
    let page = browser.opens(&place("idp", OWN)).await;
    assert_eq!((page.status, page.header("x-frame-options")), (200, Some("DENY")));
    let told = page.body.clone();
    let host = issuer.api.address.to_string();
    for part in [&*host, OWN, "a program on this computer", "&lt;b&gt;read&lt;/b&gt;", "fixed-1"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("form-action 'self' https: http:;"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    let led = answer(&browser, &page, "accept").await;
    assert_eq!(led.status, 303, "{led:?}");
    let authorize = issuer.api.url("/authorize?response_type=code&client_id=fixed-1");
    assert!(led.header("location").unwrap().starts_with(&authorize), "{led:?}");
    assert_eq!(browser.opens(&place("idp", OWN)).await.status, 302, "the user has agreed");
    // Another program, another address of the same one, another issuer, another browser.
    for (issuer, redirect) in [
        ("idp", EVIL),
        ("idp", "http://127.0.0.1:8/callback"),
        ("idp", "cursor://a"),
        ("other", OWN),
    ] {
        let page = browser.opens(&place(issuer, redirect)).await;
        assert_eq!((page.status, page.header("location")), (200, None), "{issuer} {redirect}");
    }
    assert_eq!(Browser::of(&gateway).opens(&place("idp", OWN)).await.status, 200);
    // More consents than the cookie holds: the gateway asks again for the oldest, and keeps the
    // newest.
    for port in 100..120 {
        let redirect = format!("http://127.0.0.1:{port}/cb");
        let page = browser.opens(&place("idp", &redirect)).await;
        assert_eq!(answer(&browser, &page, "accept").await.status, 303);
        assert_eq!(browser.opens(&place("idp", &redirect)).await.status, 302);
        assert!(browser.cookie().unwrap().len() < 4000);
    }
    assert_eq!(browser.opens(&place("idp", OWN)).await.status, 200);
}

#[tokio::test]
async fn a_consent_is_given_on_the_page_in_its_own_browser_only() {
    let (_issuer, gateway) = relay().await;
    let (browser, other) = (Browser::of(&gateway), Browser::of(&gateway));
    let page = browser.opens(&place("idp", EVIL)).await;
    let declined = answer(&browser, &page, "decline").await;
    assert_eq!((declined.status, declined.header("location")), (200, None));
    assert_eq!(browser.opens(&place("idp", EVIL)).await.status, 200, "the user has not agreed");
    let form = fields(&page.body);
    let (key, request) = (&*form["form_key"], &*form["request"]);
    let accept = |key: &'static str| [("form_key", key), ("request", ""), ("answer", "accept")];
    for key in ["", "guessed"] {
        assert_eq!(browser.sends("/login/idp/consent", &accept(key)).await.status, 403);
    }
    // The key of one request for another one, and for another issuer.
    let asked = request.replace("evil", "other");
    let fields = [("form_key", key), ("request", &*asked), ("answer", "accept")];
    assert_eq!(browser.sends("/login/idp/consent", &fields).await.status, 403);
    let fields = [("form_key", key), ("request", request), ("answer", "accept")];
    assert_eq!(browser.sends("/login/other/consent", &fields).await.status, 403);
    // Another browser, with and without a cookie of its own, and a page of another site.
    assert_eq!(other.sends("/login/idp/consent", &fields).await.status, 403);
    let _ = other.opens(&place("idp", OWN)).await;
    assert!(other.cookie().is_some());
    assert_eq!(other.sends("/login/idp/consent", &fields).await.status, 403);
    for headers in [[("origin", "http://localhost:1")], [("sec-fetch-site", "cross-site")]] {
        let said = browser.sends_with("/login/idp/consent", &fields, &headers).await;
        assert_eq!(said.status, 403, "{headers:?}");
    }
    // A forged cookie has no consents.
    browser.has(Some("trunkline-consents=a.b.c".into()));
    assert_eq!(browser.opens(&place("idp", EVIL)).await.status, 200);
    // The consent of one browser, copied to another.
    let page = browser.opens(&place("idp", EVIL)).await;
    assert_eq!(answer(&browser, &page, "accept").await.status, 303);
    // The newest consent is the first one after the browser's name.
    let sealed = browser.cookie().unwrap().split('.').nth(1).unwrap().to_owned();
    assert_eq!(browser.opens(&place("idp", EVIL)).await.status, 302, "it is the consent");
    other.has(Some(format!("trunkline-consents=other.{sealed}")));
    assert_eq!(other.opens(&place("idp", EVIL)).await.status, 200);
}
