//! Token exchange: the recipients of each client's token.

use serde_json::{Value, json};

use crate::support::api::{ApiCall, Page};
use crate::support::{Client, Gateway, Issuer, OauthServer, Said, Upstream, client_table};

use super::{call, protected};

/// A server with an authorization server that exchanges the tokens of one issuer's users.
struct House {
    server: OauthServer,
    issuer: Issuer,
    gateway: Gateway,
}

impl House {
    /// Starts all parts. `settings` are those of the grant, and `more` further tables.
    async fn new(server: OauthServer, settings: &str, more: &str) -> Self {
        let issuer = Issuer::start().await;
        Self::of((server, issuer), settings, more).await
    }

    async fn of((server, issuer): (OauthServer, Issuer), settings: &str, more: &str) -> Self {
        server.gives("for-gateway", json!({}));
        server.takes("for-gateway", &["list", "call"]);
        let settings = format!("client_id = \"c\"\nclient_secret = \"s3cret\"\n{settings}");
        let gateway = Gateway::with("s", server.lines("s", &settings))
            .toml(&issuer.table("idp", ""))
            .toml(more)
            .start()
            .await;
        Self { server, issuer, gateway }
    }

    fn token(&self, more: Value) -> String {
        let resource = format!("http://{}/mcp", self.gateway.running.address);
        self.issuer.token(&resource, more)
    }

    async fn client(&self, token: &str, is_modern: bool) -> Client {
        let [(_, modern), (_, legacy)] = self.gateway.both_as(token, "/mcp").await;
        if is_modern { modern } else { legacy }
    }

    /// Returns the tokens of the calls. A call arrives without one first, and is refused.
    fn tokens_of_calls(&self) -> Vec<String> {
        let calls = self.server.upstream.calls();
        calls.iter().filter_map(|call| call.header("authorization").map(str::to_owned)).collect()
    }
}

fn exchange(server: &OauthServer) -> String {
    format!(
        "grant = \"token_exchange\"\nissuer = \"{}\"\nsubject_token = \"of-operator\"\n\
         actor_token = \"of-gateway\"\n",
        server.issuer()
    )
}

const URN: &str = "urn:ietf:params:oauth";

#[tokio::test]
async fn a_call_uses_the_exchanged_token_of_its_own_client() {
    for upstream in Upstream::both().await {
        let server = OauthServer::before(upstream).await;
        let settings = exchange(&server);
        let house = House::new(server, &settings, "").await;
        house.gateway.ready("s").await;
        let [ann, bob] = ["ann", "bob"].map(|name| house.token(json!({ "sub": name })));
        for is_modern in [true, false] {
            for (token, given) in [(&ann, "for-ann"), (&bob, "for-bob")] {
                house.server.gives(given, json!({}));
                house.server.takes(given, &["list", "call"]);
                let client = house.client(token, is_modern).await;
                assert_eq!(call(&client).await.text(), r#"{"a":1}"#);
            }
        }
        let expected = ["Bearer for-ann", "Bearer for-bob", "Bearer for-ann", "Bearer for-bob"];
        assert_eq!(house.tokens_of_calls(), expected);
        let requests = house.server.token_requests();
        let subjects: Vec<_> = requests.iter().map(|form| &*form["subject_token"]).collect();
        assert_eq!(subjects, ["of-operator", &ann, &bob], "each was exchanged once");
        for form in &requests {
            assert_eq!(form["grant_type"], format!("{URN}:grant-type:token-exchange"));
            assert_eq!(form["subject_token_type"], format!("{URN}:token-type:access_token"));
            assert_eq!(form["actor_token"], "of-gateway");
            assert_eq!(form["actor_token_type"], format!("{URN}:token-type:jwt"));
            assert_eq!(form["resource"], house.server.resource());
        }
        let received = format!("{:?}", house.server.upstream.received());
        assert!(!received.contains(&ann) && !received.contains(&bob), "the server sees neither");
    }
}

#[tokio::test]
async fn users_are_served_without_a_token_of_the_gateway() {
    for upstream in Upstream::both().await {
        let server = OauthServer::before(upstream).await;
        let settings = exchange(&server).replace("subject_token = \"of-operator\"\n", "");
        let house = House::new(server, &settings, "").await;
        let ann = house.token(json!({ "sub": "ann" }));
        house.server.gives("for-ann", json!({}));
        house.server.takes("for-ann", &["list", "call"]);
        for is_modern in [true, false] {
            let client = house.client(&ann, is_modern).await;
            let listed = client.tool_names().await;
            assert!(listed.contains(&"s__echo".to_owned()), "{listed:?}");
            assert_eq!(call(&client).await.text(), r#"{"a":1}"#);
        }
        assert_eq!(house.tokens_of_calls(), ["Bearer for-ann", "Bearer for-ann"]);
        let requests = house.server.token_requests();
        assert!(requests.iter().all(|form| form["subject_token"] == ann), "{requests:?}");
    }
}

#[tokio::test]
async fn a_second_token_of_a_user_is_exchanged_by_itself() {
    let server = protected().await;
    let settings = exchange(&server);
    let house = House::new(server, &settings, "").await;
    let [wide, narrow] =
        ["mcp:all", "mcp:read"].map(|scope| house.token(json!({ "scope": scope })));
    for (token, given) in [(&wide, "for-wide"), (&narrow, "for-narrow")] {
        house.server.gives(given, json!({}));
        house.server.takes(given, &["list", "call"]);
        assert_eq!(call(&house.client(token, true).await).await.text(), r#"{"a":1}"#);
    }
    // The token in exchange for the wide one may allow more.
    assert_eq!(house.tokens_of_calls(), ["Bearer for-wide", "Bearer for-narrow"]);
}

/// Checks the refusal of a call that has no token to exchange.
#[track_caller]
fn is_refused(said: &Said) {
    assert!(said.is_error(), "{said:?}");
    for secret in ["of-operator", "for-gateway", "s3cret"] {
        assert!(!said.body.contains(secret), "{said:?}");
    }
}

#[tokio::test]
async fn a_client_without_a_token_of_that_issuer_gets_no_token_of_others() {
    let server = protected().await;
    let (issuer, other) = (Issuer::start().await, Issuer::start().await);
    let more = format!(
        "{}{}[servers.t]\n{}[servers.t.oauth]\nclient_id = \"of-t\"\n{}subject_issuer = \"other\"\n",
        client_table("keyed", "key-of-keyed", ""),
        other.table("other", ""),
        server.upstream.http(),
        exchange(&server),
    );
    let settings = format!("{}subject_issuer = \"idp\"\n", exchange(&server));
    let house = House::of((server, issuer), &settings, &more).await;
    // Its token is kept for the server `t`, and is still not for the authorization server of `s`.
    let resource = format!("http://{}/mcp", house.gateway.running.address);
    let foreign = other.token(&resource, json!({}));
    for credential in [&*foreign, "key-of-keyed"] {
        is_refused(&call(&house.client(credential, true).await).await);
    }
    assert_eq!(house.tokens_of_calls(), Vec::<String>::new());
    let requests = house.server.token_requests();
    let by_s = requests.iter().filter(|form| form.get("client_id").is_none_or(|id| id != "of-t"));
    let exchanged: Vec<_> = by_s.map(|form| &*form["subject_token"]).collect();
    assert!(exchanged.iter().all(|subject| *subject == "of-operator"), "{requests:?}");
}

#[tokio::test]
async fn a_refused_exchange_is_an_error_and_no_other_grant_is_tried() {
    let server = protected().await;
    let settings = exchange(&server);
    let house = House::new(server, &settings, "").await;
    house.gateway.ready("s").await;
    house.server.gives_none("invalid_target");
    let before = house.server.token_requests().len();
    let token = house.token(json!({}));
    is_refused(&call(&house.client(&token, true).await).await);
    let requests = house.server.token_requests().split_off(before);
    assert!(!requests.is_empty());
    for form in requests {
        assert_eq!(form["grant_type"], format!("{URN}:grant-type:token-exchange"));
        assert_eq!(form["subject_token"], token);
    }
    assert_eq!(house.tokens_of_calls(), Vec::<String>::new());
}

fn id_jag(issuer: &Issuer) -> String {
    format!(
        "grant = \"id_jag\"\nsubject_token = \"of-operator\"\nscopes = [\"list\"]\n\
         idp = {{ token_endpoint = \"{}\", client_id = \"at-idp\", client_secret = \"idp-s3cret\" }}\n",
        issuer.api.url("/idp/token")
    )
}

fn jag(jwt: &str, kind: &str) -> Page {
    let kind = format!("{URN}:token-type:{kind}");
    Page::json(&json!({ "access_token": jwt, "issued_token_type": kind, "token_type": "N_A" }))
}

fn form_of(call: &ApiCall) -> std::collections::HashMap<String, String> {
    url::form_urlencoded::parse(&call.body).into_owned().collect()
}

async fn enterprise() -> House {
    let (server, issuer) = (protected().await, Issuer::start().await);
    let settings = id_jag(&issuer);
    issuer.api.sets("/idp/token", jag("jag-of-operator", "id-jag"));
    House::of((server, issuer), &settings, "").await
}

#[tokio::test]
async fn an_id_token_becomes_a_grant_at_the_idp_and_that_a_token() {
    let house = enterprise().await;
    house.gateway.ready("s").await;
    let ann = house.token(json!({}));
    house.issuer.api.sets("/idp/token", jag("jag-of-ann", "id-jag"));
    house.server.gives("for-ann", json!({}));
    house.server.takes("for-ann", &["list", "call"]);
    assert_eq!(call(&house.client(&ann, true).await).await.text(), r#"{"a":1}"#);
    assert_eq!(house.tokens_of_calls(), ["Bearer for-ann"]);
    let at_idp: Vec<_> = house.issuer.api.calls("/idp/token").iter().map(form_of).collect();
    let subjects: Vec<_> = at_idp.iter().map(|form| &*form["subject_token"]).collect();
    assert_eq!(subjects, ["of-operator", &ann]);
    for form in &at_idp {
        for (name, value) in [
            ("grant_type", format!("{URN}:grant-type:token-exchange")),
            ("subject_token_type", format!("{URN}:token-type:id_token")),
            ("requested_token_type", format!("{URN}:token-type:id-jag")),
            ("audience", house.server.issuer()),
            ("resource", house.server.resource()),
            ("client_id", "at-idp".to_owned()),
            ("client_secret", "idp-s3cret".to_owned()),
        ] {
            assert_eq!(form[name], value, "{name}");
        }
        assert!(form["scope"].starts_with("list"), "{form:?}");
    }
    let requests = house.server.token_requests();
    let grants: Vec<_> = requests.iter().map(|form| &*form["assertion"]).collect();
    assert_eq!(grants, ["jag-of-operator", "jag-of-ann"]);
    for (form, request) in requests.iter().zip(house.server.api.calls("/token")) {
        assert_eq!(form["grant_type"], format!("{URN}:grant-type:jwt-bearer"));
        let authorization = request.header("authorization").unwrap();
        assert!(authorization.starts_with("Basic "), "{authorization}");
        assert!(!form.contains_key("subject_token"), "the ID token is for the IdP only");
    }
}

#[tokio::test]
async fn tokens_other_than_id_jags_go_to_no_authorization_server() {
    let house = enterprise().await;
    let before = house.server.token_requests().len();
    let refusal = Page::new(400, "application/json", r#"{"error":"access_denied"}"#);
    for answer in [refusal, jag("t", "access_token"), Page::json(&json!({ "access_token": "t" }))] {
        house.issuer.api.sets("/idp/token", answer);
        is_refused(&call(&house.client(&house.token(json!({})), true).await).await);
    }
    assert_eq!(house.server.token_requests().len(), before);
    assert_eq!(house.tokens_of_calls(), Vec::<String>::new());
}
