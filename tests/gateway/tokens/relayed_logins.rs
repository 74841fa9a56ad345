//! Relayed logins, for authorization servers that do not support MCP.

use serde_json::{Value, json};

use crate::support::api::Page;
use crate::support::browser::{Browser, fields};
use crate::support::gateway::Builder;
use crate::support::issuer::with;
use crate::support::relay::{FIXED, FORM, QUERY, Relay};
use crate::support::{Issuer, Said};

const METADATA: &str = "/.well-known/oauth-authorization-server/login/idp";

impl Relay {
    /// Starts a relay with lines of `[issuers.idp]`, more metadata, and other changes of the
    /// configuration.
    async fn with(lines: &str, metadata: Value, change: impl FnOnce(Builder) -> Builder) -> Self {
        Self::start(lines, |issuer| extend_metadata(issuer, metadata), change).await
    }

    async fn new(lines: &str, metadata: Value) -> Self {
        Self::with(lines, metadata, |builder| builder).await
    }

    fn own(&self, path: &str) -> String {
        format!("http://{}/login/idp{path}", self.gateway.running.address)
    }

    async fn send(&self, method: &str, path: &str, (media, body): (&str, &str)) -> Said {
        let client = self.gateway.plain();
        let ask = client.http(method, path).header("content-type", media).body(body);
        ask.header("cookie", "a=b").send().await.said().await
    }

    async fn get(&self, path: &str) -> Said {
        self.gateway.plain().http("GET", path).send().await.said().await
    }

    /// Opens the page of an authorization request and consents. Returns the redirect of the
    /// browser.
    async fn agree(&self, query: &str) -> Said {
        let browser = Browser::of(&self.gateway);
        let page = browser.opens(&format!("/login/idp/authorize?{query}")).await;
        assert_eq!(page.status, 200, "{page:?}");
        let form = fields(&page.body);
        let answer = [("form_key", &*form["form_key"]), ("request", &*form["request"])];
        let answer = [answer[0], answer[1], ("answer", "accept")];
        browser.sends("/login/idp/consent", &answer).await
    }

    async fn post_form(&self, form: &str) -> Said {
        self.send("POST", "/login/idp/token", (FORM, form)).await
    }

    async fn register(&self, body: &str) -> Said {
        self.send("POST", "/login/idp/register", ("application/json", body)).await
    }
}

/// Returns an authorization server's metadata, with more members.
fn extend_metadata(issuer: &Issuer, more: Value) -> Value {
    let api = &issuer.api;
    let metadata = json!({
        "issuer": api.url(""), "jwks_uri": api.url("/keys"),
        "authorization_endpoint": api.url("/authorize?tenant=1"), "token_endpoint": api.url("/token"),
        "revocation_endpoint": api.url("/revoke"), "userinfo_endpoint": api.url("/userinfo"),
        "response_types_supported": ["code", "id_token"], "scopes_supported": ["openid"],
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
    });
    with(metadata, more)
}

#[tokio::test]
async fn clients_find_the_gateway_in_place_of_a_server_without_registration() {
    let more = json!({ "client_id_metadata_document_supported": true });
    let relay = Relay::new(FIXED, more).await;
    let resource = relay.get("/.well-known/oauth-protected-resource/mcp").await.json();
    assert_eq!(resource["authorization_servers"], json!([relay.own("")]));
    let said = relay.get(METADATA).await;
    assert_eq!((said.status, said.header("content-type")), (200, Some("application/json")));
    assert_eq!(
        said.json(),
        json!({
            "issuer": relay.own(""),
            "authorization_endpoint": relay.own("/authorize"),
            "token_endpoint": relay.own("/token"),
            "registration_endpoint": relay.own("/register"),
            "revocation_endpoint": relay.issuer.api.url("/revoke"),
            "response_types_supported": ["code"],
            "scopes_supported": ["openid"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        })
    );
    // Its PKCE methods stay unchanged, if it lists any.
    let plain = Relay::new(FIXED, json!({ "code_challenge_methods_supported": ["plain"] })).await;
    let document = plain.get(METADATA).await.json();
    assert_eq!(document["code_challenge_methods_supported"], json!(["plain"]));
}

#[tokio::test]
async fn clients_register_at_a_server_that_only_refuses_resource() {
    let register = json!({ "registration_endpoint": "https://idp.example.com/register" });
    let relay = Relay::new("drop_resource = true\n", register).await;
    let document = relay.get(METADATA).await.json();
    assert_eq!(document["registration_endpoint"], "https://idp.example.com/register");
    assert_eq!(document["token_endpoint_auth_methods_supported"], json!(["client_secret_post"]));
    assert_eq!(relay.register("{\"redirect_uris\":[\"http://127.0.0.1/\"]}").await.status, 404);
    // Their secrets are forwarded.
    let client = relay.gateway.plain();
    let ask = client.http("POST", "/login/idp/token").header("content-type", FORM);
    let ask = ask.header("authorization", "Basic YTpi").body("grant_type=client_credentials");
    assert_eq!(ask.send().await.said().await.status, 200);
    assert_eq!(relay.issuer.api.last().header("authorization"), Some("Basic YTpi"));
}

#[tokio::test]
async fn a_browser_goes_on_without_resource_and_with_all_else() {
    let relay = Relay::new(FIXED, json!({})).await;
    let kept = format!("{QUERY}&nonce=a%2Bb%26c&scope=api%3A%2F%2Fx%2Fy+z");
    let query = format!("re%73ource=https%3A%2F%2Fx&{kept}&resource=http%3A%2F%2Fgateway%2Fmcp");
    let said = relay.agree(&query).await;
    assert_eq!((said.status, said.header("cache-control")), (303, Some("no-store")));
    let expected = relay.issuer.api.url(&format!("/authorize?tenant=1&{kept}"));
    assert_eq!(said.header("location"), Some(&*expected));
    // If only the client is fixed, `resource` stays.
    let relay = Relay::new("client_id = \"fixed-1\"\n", json!({})).await;
    let said = relay.agree(&format!("resource=x&{QUERY}")).await;
    let expected = relay.issuer.api.url(&format!("/authorize?tenant=1&resource=x&{QUERY}"));
    assert_eq!(said.header("location"), Some(&*expected));
    // A client that is registered at the authorization server gives its consent only there.
    let relay = Relay::new("drop_resource = true\n", json!({})).await;
    let said = relay.get(&format!("/login/idp/authorize?{QUERY}&resource=x")).await;
    assert_eq!((said.status, said.header("cache-control")), (302, Some("no-store")));
    let expected = relay.issuer.api.url(&format!("/authorize?tenant=1&{QUERY}"));
    assert_eq!(said.header("location"), Some(&*expected));
}

#[tokio::test]
async fn token_requests_and_their_answers_pass() {
    let relay = Relay::new(FIXED, json!({})).await;
    for (status, body) in [
        (200, json!({ "access_token": "t", "token_type": "Bearer", "refresh_token": "r" })),
        (400, json!({ "error": "invalid_grant", "error_description": "it is used up" })),
    ] {
        let page = Page::new(status, "application/json;charset=utf-8", body.to_string());
        relay.issuer.api.sets("/token", page.header("set-cookie", "c=d"));
        for form in [
            "grant_type=authorization_code&code=c%2B1&client_id=fixed-1&code_verifier=v&resource=x",
            "grant_type=refresh_token&resource=x&refresh_token=r%3D&client_id=fixed-1",
        ] {
            let said = relay.post_form(form).await;
            assert_eq!((said.status, said.json()), (status, body.clone()));
            assert_eq!(said.header("content-type"), Some("application/json;charset=utf-8"));
            assert_eq!(said.header("cache-control"), Some("no-store"));
            assert_eq!(said.header("set-cookie"), None);
            let sent = relay.issuer.api.last();
            assert_eq!((&*sent.method, &*sent.target), ("POST", "/token"));
            assert_eq!(sent.body, form.replace("&resource=x", ""));
            assert_eq!((sent.header("content-type"), sent.header("cookie")), (Some(FORM), None));
            assert_eq!(sent.header("authorization"), None);
        }
    }
}

#[tokio::test]
async fn a_client_that_registers_gets_the_configured_id() {
    let relay = Relay::new(FIXED, json!({})).await;
    let uris = json!(["http://127.0.0.1:7/callback", "cursor://oauth/callback"]);
    let asked = json!({ "client_name": "a test", "redirect_uris": uris, "scope": "x", "y": [1] });
    let said = relay.register(&asked.to_string()).await;
    assert_eq!((said.status, said.header("cache-control")), (201, Some("no-store")));
    assert_eq!(
        said.json(),
        json!({
            "client_id": "fixed-1", "client_name": "a test", "redirect_uris": uris,
            "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        })
    );
    let large = format!("{{\"redirect_uris\":[\"http://a/{}\"]}}", "x".repeat(65 << 10));
    for body in [
        "",
        "{",
        "[]",
        "{}",
        "{\"redirect_uris\":[]}",
        "{\"redirect_uris\":[1]}",
        "{\"redirect_uris\":[\"no url\"]}",
        "{\"redirect_uris\":[\"javascript:alert(1)\"]}",
        "{\"redirect_uris\":[\"https://app.example.com/\",\"data:text/html,x\"]}",
        &large,
    ] {
        let said = relay.register(body).await;
        let shown = &body[..body.len().min(40)];
        assert_eq!(
            (said.status, &said.json()["error"]),
            (400, &json!("invalid_redirect_uri")),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn nothing_passes_but_the_logins_of_the_registered_client() {
    let relay = Relay::new(FIXED, json!({})).await;
    let large = format!("grant_type=refresh_token&client_id=fixed-1&x={}", "x".repeat(65 << 10));
    for (media, form, status, code) in [
        (FORM, "client_id=fixed-1", 400, "unsupported_grant_type"),
        (
            FORM,
            "grant_type=password&client_id=fixed-1&username=a&password=b",
            400,
            "unsupported_grant_type",
        ),
        (FORM, "grant_type=authorization_code&code=c", 401, "invalid_client"),
        (FORM, "grant_type=authorization_code&code=c&client_id=other", 401, "invalid_client"),
        (FORM, "grant_type=client_credentials&client_id=fixed-1", 400, "unauthorized_client"),
        (FORM, "grant_type=refresh_token&client_id=fixed-1&client_secret=a", 401, "invalid_client"),
        (FORM, "grant_type=authorization_code&code=c&client_id=fixed-1", 400, "invalid_request"),
        ("application/json", "grant_type=refresh_token&client_id=fixed-1", 400, "invalid_request"),
        (FORM, &large, 400, "invalid_request"),
    ] {
        let said = relay.send("POST", "/login/idp/token", (media, form)).await;
        let shown = &form[..form.len().min(60)];
        assert_eq!((said.status, &said.json()["error"]), (status, &json!(code)), "{shown}");
    }
    assert!(relay.issuer.api.calls("/token").is_empty());
}

#[tokio::test]
async fn there_is_nothing_where_no_login_is_passed_on() {
    let relay = Relay::with(FIXED, json!({}), |builder| {
        builder.toml(
            "[issuers.other]\nissuer = \"https://idp.example.com\"\njwks_file = \"keys.json\"\n",
        )
    })
    .await;
    for (method, path, status) in [
        ("GET", "/login/other/authorize", 404),
        ("GET", "/login/none/authorize", 404),
        ("GET", "/login/idp", 404),
        ("GET", "/login/idp/else", 404),
        ("GET", "/login/idp/authorize/", 404),
        ("GET", "/.well-known/oauth-authorization-server/login/other", 404),
        ("GET", "/.well-known/oauth-authorization-server/login/idp/token", 404),
        ("GET", "/.well-known/oauth-authorization-server", 404),
        ("POST", METADATA, 405),
        ("POST", "/login/idp/authorize", 405),
        ("GET", "/login/idp/token", 405),
        ("GET", "/login/idp/register", 405),
        ("GET", "/login/idp/consent", 405),
        ("POST", "/login/other/consent", 404),
    ] {
        let client = relay.gateway.plain();
        let said = client.http(method, path).send().await.said().await;
        assert_eq!(said.status, status, "{method} {path}: {said:?}");
    }
    let resource = relay.get("/.well-known/oauth-protected-resource/mcp").await.json();
    let servers = json!([relay.own(""), "https://idp.example.com"]);
    assert_eq!(resource["authorization_servers"], servers);
}

#[tokio::test]
async fn an_unusable_authorization_server_is_reported_and_tried_again() {
    for (more, reason) in [
        (json!({ "issuer": "https://evil.example.com" }), "names the issuer"),
        (json!({ "token_endpoint": null }), "its token_endpoint is missing"),
        (
            json!({ "authorization_endpoint": "http://idp.example.com/" }),
            "its authorization_endpoint",
        ),
        (json!({ "authorization_endpoint": "javascript:alert(1)" }), "its authorization_endpoint"),
    ] {
        let relay = Relay::new(FIXED, more).await;
        for path in [METADATA, &*format!("/login/idp/authorize?{QUERY}")] {
            let said = relay.get(path).await;
            assert_eq!(
                (said.status, &said.json()["error"]),
                (503, &json!("temporarily_unavailable"))
            );
            assert!(!said.body.contains("http"), "{said:?}");
        }
        let said = relay.post_form("grant_type=refresh_token&client_id=fixed-1").await;
        assert_eq!(said.status, 503);
        let status = relay.gateway.status().await;
        let told = status["issuers"][0]["login_error"].as_str().unwrap();
        assert!(told.contains(reason), "{reason}: {told}");
        // Unauthenticated clients cannot make the gateway repeat the request.
        let asked = relay.issuer.api.calls("/.well-known/oauth-authorization-server").len();
        relay.get(METADATA).await;
        let again = relay.issuer.api.calls("/.well-known/oauth-authorization-server").len();
        assert_eq!(asked, again);
    }
}

#[tokio::test]
async fn a_token_endpoint_elsewhere_is_asked_at_public_addresses_only() {
    let more = json!({ "token_endpoint": "https://10.1.2.3/token" });
    let relay = Relay::new(FIXED, more).await;
    let said =
        relay.post_form("grant_type=refresh_token&client_id=fixed-1&refresh_token=secret-r").await;
    assert_eq!((said.status, &said.json()["error"]), (503, &json!("temporarily_unavailable")));
    assert!(!said.body.contains("10.1.2.3"), "{said:?}");
    let status = relay.gateway.status().await;
    assert_eq!(status["issuers"][0]["login_error"], Value::Null);
}

#[tokio::test]
async fn the_public_url_is_the_issuer_that_clients_see() {
    let url = "https://mcp.example.com/team";
    let relay = Relay::with(FIXED, json!({}), |builder| {
        builder.gateway(&format!("public_url = \"{url}\""))
    })
    .await;
    // A proxy may forward the path or strip it.
    for base in ["/team", ""] {
        let place = format!("/.well-known/oauth-authorization-server{base}/login/idp");
        let document = relay.get(&place).await.json();
        assert_eq!(document["issuer"], format!("{url}/login/idp"), "{base}");
        assert_eq!(document["token_endpoint"], format!("{url}/login/idp/token"), "{base}");
        let page = relay.get(&format!("{base}/login/idp/authorize?{QUERY}")).await;
        assert!(page.body.contains("action=\"/team/login/idp/consent\""), "{base}: {page:?}");
        let cookie = page.header("set-cookie").unwrap();
        assert!(cookie.starts_with("__Host-trunkline-consents=") && cookie.contains("; Secure"));
    }
}

#[tokio::test]
async fn logins_count_towards_the_rate_of_their_address() {
    let relay =
        Relay::with(FIXED, json!({}), |builder| builder.gateway("client_rate = \"2/h\"")).await;
    for status in [200, 200, 429] {
        assert_eq!(relay.get(&format!("/login/idp/authorize?{QUERY}")).await.status, status);
    }
    let said = relay.post_form("grant_type=refresh_token&client_id=fixed-1").await;
    assert_eq!(said.status, 429);
}
