//! Workload identity: the JWT of the platform, its audience, and the number of its uses.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::support::{Gateway, OauthServer};

use super::{call, protected};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Returns a JWT of the platform, which only the authorization server could verify.
fn jwt(claims: &Value) -> String {
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// Starts a gateway with this JWT in a file.
async fn workload(server: &OauthServer, jwt: &str, more: &str) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("jwt"), format!("{jwt}\n")).unwrap();
    let file = folder.path().join("jwt");
    let settings = format!("grant = \"jwt_bearer\"\nassertion_file = {file:?}\n{more}");
    Gateway::with("s", server.lines("s", &settings)).in_folder(folder).start().await
}

async fn fault_of(gateway: &Gateway) -> String {
    let status = gateway.server("s").await;
    status["last_error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_jwt_is_presented_without_a_client_and_read_anew() {
    let server = protected().await;
    server.gives("t", json!({ "expires_in": 3600, "refresh_token": "r" }));
    server.takes("t", &["list", "call"]);
    let first = jwt(&json!({ "aud": server.issuer(), "jti": "1" }));
    let gateway = workload(&server, &first, "").await;
    gateway.ready("s").await;
    let second = jwt(&json!({ "aud": [server.api.url("/token")], "jti": "2" }));
    std::fs::write(gateway.folder().join("jwt"), &second).unwrap();
    // A token that the server refuses is replaced in the same way.
    server.refuses("t");
    server.gives("u", json!({}));
    server.takes("u", &["list", "call"]);
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    let requests = server.token_requests();
    assert_eq!(requests[0]["assertion"], first);
    assert_eq!(requests.last().unwrap()["assertion"], second);
    for form in &requests {
        assert_eq!(form["grant_type"], GRANT, "a refresh token is another grant");
        assert_eq!(form["resource"], server.resource());
        assert!(!form.contains_key("client_id"), "{form:?}");
    }
    assert!(server.api.calls("/token").iter().all(|it| it.header("authorization").is_none()));
    assert_eq!(server.api.calls("/register").len(), 0);
}

#[tokio::test]
async fn a_refused_jwt_is_not_sent_again_until_there_is_another() {
    let server = protected().await;
    // It lists without a token.
    server.takes("", &["list"]);
    server.gives_none("invalid_grant");
    let gateway = workload(&server, &jwt(&json!({ "aud": server.issuer() })), "").await;
    gateway.ready("s").await;
    for _ in 0..3 {
        assert!(call(&gateway.modern()).await.is_error());
    }
    assert_eq!(server.token_requests().len(), 1, "it is judged once");
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    let second = jwt(&json!({ "aud": server.issuer(), "jti": "2" }));
    std::fs::write(gateway.folder().join("jwt"), &second).unwrap();
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    let requests = server.token_requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|form| form["grant_type"] == GRANT), "{requests:?}");
}

#[tokio::test]
async fn a_jwt_with_another_audience_is_sent_only_where_the_operator_allows_it() {
    let server = protected().await;
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    for claims in [json!({ "aud": "https://victim.example" }), json!({ "sub": "me" })] {
        let gateway = workload(&server, &jwt(&claims), "").await;
        let fault = fault_of(&gateway).await;
        assert!(fault.contains("is not for the authorization server"), "{fault}");
    }
    assert_eq!(server.token_requests().len(), 0);
    let issuer = format!("issuer = \"{}\"\n", server.issuer());
    let gateway = workload(&server, &jwt(&json!({ "aud": "api://exchange" })), &issuer).await;
    gateway.ready("s").await;
    assert_eq!(server.token_requests().len(), 1);
}
