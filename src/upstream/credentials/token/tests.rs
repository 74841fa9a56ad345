use std::collections::HashMap;

use http::StatusCode;
use serde_json::json;

use super::*;

fn client(auth: ClientAuth) -> OauthClient {
    OauthClient { id: "a:b c".into(), secret: Some(Secret::new("s&cret".into())), auth }
}

fn write(request: &TokenRequest<'_>) -> (HeaderMap, HashMap<String, String>) {
    let (headers, form) = request.write(Duration::from_secs(1000)).unwrap();
    (headers, url::form_urlencoded::parse(form.as_bytes()).into_owned().collect())
}

#[test]
fn a_request_authenticates_in_one_way_only() {
    let verifier = CodeVerifier::draw().unwrap();
    for (auth, header, form_secret) in [
        (ClientAuth::Basic, Some("Basic YSUzQWIlMjBjOnMlMjZjcmV0"), None),
        (ClientAuth::Post, None, Some("s&cret")),
        (ClientAuth::None, None, None),
    ] {
        let client = client(auth);
        let request = TokenRequest {
            grant: TokenGrant::Code { code: "c", verifier: &verifier, redirect: "http://r.test/" },
            client: &client,
            key: None,
            issuer: "https://i.test",
            resource: "https://a.test/mcp",
            scopes: &ScopeSet::parse("x"),
        };
        let (headers, form) = write(&request);
        assert_eq!(headers.get(AUTHORIZATION).map(|it| it.to_str().unwrap()), header);
        assert_eq!(form.get("client_secret").map(String::as_str), form_secret);
        assert_eq!(form.contains_key("client_id"), auth != ClientAuth::Basic);
        assert_eq!(form["resource"], "https://a.test/mcp");
        assert_eq!(form["code_verifier"], verifier.expose());
        assert_eq!(form["redirect_uri"], "http://r.test/");
        assert_eq!(form["grant_type"], "authorization_code");
    }
}

#[test]
fn a_client_without_its_key_makes_no_request() {
    let client = client(ClientAuth::PrivateKeyJwt);
    let request = TokenRequest {
        grant: TokenGrant::Client,
        client: &client,
        key: None,
        issuer: "https://i.test",
        resource: "https://a.test/mcp",
        scopes: &ScopeSet::parse("x y"),
    };
    let fault = request.write(Duration::ZERO).unwrap_err();
    assert_eq!(fault, TokenRefusal::Assertion(AssertionFault::NoKey));
}

#[test]
fn only_a_bearer_token_that_fits_into_a_header_is_taken() {
    let token =
        |value: serde_json::Value| read_tokens(StatusCode::OK, value.to_string().as_bytes());
    let good = token(json!({
        "access_token": "t", "token_type": "bearer", "expires_in": 60, "refresh_token": "r", "scope": "a b"
    }));
    let good = good.unwrap();
    assert_eq!(good.authorization, "Bearer t");
    assert!(good.authorization.is_sensitive());
    assert_eq!(good.lifetime, Some(Duration::from_mins(1)));
    assert_eq!(good.refresh.unwrap().expose(), "r");
    assert_eq!(good.scopes.unwrap().to_string(), "a b");
    let dpop = TokenRefusal::TokenType { found: "DPoP".into() };
    for (answer, refusal) in [
        (json!({"access_token": "t", "token_type": "DPoP"}), dpop),
        (json!({"access_token": "t"}), TokenRefusal::Shape),
        (json!({"access_token": "", "token_type": "Bearer"}), TokenRefusal::Shape),
        (json!({"access_token": "t\r\nX: y", "token_type": "Bearer"}), TokenRefusal::Shape),
        (json!({"access_token": "a b", "token_type": "Bearer"}), TokenRefusal::Shape),
        (json!([]), TokenRefusal::Shape),
    ] {
        assert_eq!(token(answer.clone()).unwrap_err(), refusal, "{answer}");
    }
    for expires_in in [json!(-1), json!(1e300)] {
        let read =
            token(json!({"access_token": "t", "token_type": "Bearer", "expires_in": expires_in}));
        assert!(read.unwrap().lifetime.is_none_or(|it| it <= Duration::from_hours(87_600)));
    }
}

#[test]
fn a_refusal_shows_its_code_and_nothing_else() {
    for (body, code) in [
        (r#"{"error":"invalid_grant","error_description":"the token secret"}"#, "invalid_grant"),
        ("<html>secret</html>", "400 Bad Request"),
    ] {
        let refusal = read_tokens(StatusCode::BAD_REQUEST, body.as_bytes()).unwrap_err();
        assert_eq!(refusal, TokenRefusal::Refused { code: code.into() });
    }
}
