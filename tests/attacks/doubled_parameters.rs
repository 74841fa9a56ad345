//! Relayed logins in forms that the gateway and the authorization server parse differently.

use futures_util::future::join_all;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::api::Page;
use crate::support::relay::{FIXED, FORM, QUERY, Relay};
use crate::support::{Issuer, Said, within};

const REFRESH: &str = "grant_type=refresh_token&refresh_token=r&client_id=fixed-1";

impl Relay {
    async fn new(lines: &str, gateway: &str) -> Self {
        let metadata = |issuer: &Issuer| {
            let api = &issuer.api;
            json!({
                "issuer": api.url(""), "jwks_uri": api.url("/keys"),
                "authorization_endpoint": api.url("/authorize?tenant=1"),
                "token_endpoint": api.url("/token?policy=1"),
            })
        };
        Self::start(lines, metadata, |builder| builder.gateway(gateway)).await
    }

    async fn post(&self, form: &str, headers: &[(&str, &str)]) -> Said {
        let client = self.gateway.plain();
        let ask = client.http("POST", "/login/idp/token").header("content-type", FORM);
        let ask = headers.iter().fold(ask, |ask, (name, value)| ask.header(name, value));
        ask.body(form).send().await.said().await
    }

    async fn get(&self, query: &str) -> Said {
        let path = format!("/login/idp/authorize?{query}");
        self.gateway.plain().http("GET", &path).send().await.said().await
    }
}

#[tokio::test]
async fn a_form_that_can_be_read_in_two_ways_is_not_passed_on() {
    for lines in [FIXED, "drop_resource = true\n"] {
        let relay = Relay::new(lines, "").await;
        for more in [
            "grant_type=password&username=a&password=b",
            "grant%5Ftype=password",
            "Grant_Type=password",
            "grant.type=password",
            "grant_type[]=password",
            "client_id=other",
            "client%5fid=other",
            "CLIENT_ID=other",
            "refresh_token=guess",
            "policy=2",
            "%00=a",
            "a=%",
        ] {
            for form in [format!("{REFRESH}&{more}"), format!("{more}&{REFRESH}")] {
                let said = relay.post(&form, &[]).await;
                let error = said.json()["error"].clone();
                assert_eq!((said.status, error), (400, json!("invalid_request")), "{form}");
            }
        }
        assert!(relay.issuer.api.calls("/token").is_empty());
        // Some programs separate parameters at `;`: it is encoded so that none does.
        relay.post(&format!("{REFRESH}&a=1;grant_type=password"), &[]).await;
        let expected = format!("{REFRESH}&a=1%3Bgrant_type%3Dpassword");
        assert_eq!(relay.issuer.api.last().body, expected);
    }
}

#[tokio::test]
async fn credentials_of_another_client_are_not_passed_on() {
    let relay = Relay::new(FIXED, "").await;
    for basic in ["b3RoZXI6cw==", "Zml4ZWQtMTpzZWNyZXQ=", "no base64"] {
        let basic = format!("Basic {basic}");
        let said = relay.post(REFRESH, &[("authorization", &basic)]).await;
        assert_eq!(
            (said.status, &said.json()["error"]),
            (401, &json!("invalid_client")),
            "{basic}"
        );
    }
    assert!(relay.issuer.api.calls("/token").is_empty());
    // `fixed-1:`, a valid form for a client without a secret.
    let own = [("authorization", "Basic Zml4ZWQtMTo=")];
    assert_eq!(relay.post(REFRESH, &own).await.status, 200);
    assert_eq!(relay.issuer.api.last().header("authorization"), None);
}

#[tokio::test]
async fn an_authorization_request_without_a_code_and_s256_is_not_passed_on() {
    for lines in [FIXED, "drop_resource = true\n"] {
        let relay = Relay::new(lines, "").await;
        let without = |name: &str| {
            QUERY.split('&').filter(|pair| !pair.starts_with(name)).collect::<Vec<_>>().join("&")
        };
        for (query, error) in [
            (format!("{QUERY}&response_type=token"), "invalid_request"),
            (format!("{QUERY}&tenant=2"), "invalid_request"),
            (format!("{QUERY}&Redirect_Uri=https://evil.example.com"), "invalid_request"),
            (format!("{QUERY}&request=eyJhbGciOiJub25lIn0.e30."), "request_not_supported"),
            (format!("{QUERY}&request_uri=https://a.test"), "request_uri_not_supported"),
            (QUERY.replace("=code&", "=token&"), "unsupported_response_type"),
            (QUERY.replace("=code&", "=code%20id_token&"), "unsupported_response_type"),
            (QUERY.replace("S256", "plain"), "invalid_request"),
            (without("code_challenge_method"), "invalid_request"),
            (without("code_challenge="), "invalid_request"),
            (
                QUERY.replace("http%3A%2F%2F127.0.0.1%3A1%2Fcb", "javascript:alert(1)"),
                "invalid_request",
            ),
        ] {
            let said = relay.get(&query).await;
            let shown = (said.status, said.json()["error"].clone());
            assert_eq!(shown, (400, json!(error)), "{query}");
            assert_eq!(said.header("location"), None);
        }
    }
}

#[tokio::test]
async fn guesses_through_the_relay_are_failed_logins_of_their_address() {
    let wrong = Page::new(400, "application/json", r#"{"error":"invalid_grant"}"#);
    let unreadable = Page::new(400, "text/plain", "no");
    for (form, answer) in [
        ("grant_type=refresh_token&client_id=guess", &wrong),
        ("grant_type=password", &wrong),
        (REFRESH, &wrong),
        (REFRESH, &unreadable),
    ] {
        let relay = Relay::new(FIXED, "failed_logins = \"3/h\"").await;
        relay.issuer.api.sets("/token", answer.clone());
        for _ in 0..3 {
            assert!(matches!(relay.post(form, &[]).await.status, 400 | 401), "{form}");
        }
        let said = relay.post(form, &[]).await;
        assert_eq!((said.status, said.code()), (429, 42_900), "{said:?}");
        assert_eq!(said.error()["data"]["limit"], "failed_logins");
    }
    // A refusal of the authorization server for another reason is not a guess.
    let relay = Relay::new(FIXED, "failed_logins = \"3/h\"").await;
    let other = Page::new(400, "application/json", r#"{"error":"invalid_scope"}"#);
    relay.issuer.api.sets("/token", other);
    for _ in 0..5 {
        assert_eq!(relay.post(REFRESH, &[]).await.status, 400);
    }
}

#[tokio::test]
async fn logins_under_way_are_shared_by_address() {
    let relay = Relay::new(FIXED, "").await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = &relay.issuer.api;
    let metadata = json!({
        "issuer": api.url(""), "jwks_uri": api.url("/keys"),
        "authorization_endpoint": api.url("/authorize"),
        "token_endpoint": format!("http://{}/token", silent.local_addr().unwrap()),
    });
    api.sets("/.well-known/oauth-authorization-server", Page::json(&metadata));
    let asked: Vec<_> = (0..16).map(|_| Box::pin(relay.post(REFRESH, &[]))).collect();
    let mut under_way = join_all(asked);
    let arrivals = async {
        let mut open = Vec::new();
        while open.len() < 16 {
            open.push(silent.accept().await.unwrap());
        }
        open
    };
    let open = tokio::select! {
        open = within(arrivals) => open,
        ended = &mut under_way => panic!("they wait: {ended:?}"),
    };
    // The seventeenth of one address, of sixty-four in total.
    let said = relay.post(REFRESH, &[]).await;
    assert_eq!((said.status, &said.json()["error"]), (503, &json!("temporarily_unavailable")));
    assert!(said.body.contains("16"), "{said:?}");
    drop(open);
}
