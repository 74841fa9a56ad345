use std::collections::HashMap;

use http::StatusCode;
use serde_json::json;

use super::*;

fn client(auth: ClientAuth) -> OauthClient {
    OauthClient {
        id: "a:b c".into(),
        secret: Some(Secret::new("s&cret".into())),
        auth,
        secret_ends: None,
    }
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
            resource: Some("https://a.test/mcp"),
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
        resource: Some("https://a.test/mcp"),
        scopes: &ScopeSet::parse("x y"),
    };
    let fault = request.write(Duration::ZERO).unwrap_err();
    assert_eq!(fault, TokenEndpointError::Assertion(AssertionFault::NoKey));
}

#[test]
fn only_a_bearer_token_that_fits_into_a_header_is_taken() {
    let token = |value: serde_json::Value| {
        read_tokens(StatusCode::OK, value.to_string().as_bytes(), TokenUse::Bearer)
    };
    let good = token(json!({
        "access_token": "t", "token_type": "bearer", "expires_in": 60, "refresh_token": "r", "scope": "a b"
    }));
    let good = good.unwrap();
    assert_eq!(good.authorization, "Bearer t");
    assert!(good.authorization.is_sensitive());
    assert_eq!(good.lifetime, Some(Duration::from_mins(1)));
    assert_eq!(good.refresh.unwrap().expose(), "r");
    assert_eq!(good.scopes.unwrap().to_string(), "a b");
    let dpop = TokenEndpointError::TokenType { found: "DPoP".into(), expected: "Bearer" };
    for (answer, refusal) in [
        (json!({"access_token": "t", "token_type": "DPoP"}), dpop),
        (json!({"access_token": "", "token_type": "Bearer"}), TokenEndpointError::Shape),
        (json!({"access_token": "t\r\nX: y", "token_type": "Bearer"}), TokenEndpointError::Shape),
        (json!({"access_token": "a b", "token_type": "Bearer"}), TokenEndpointError::Shape),
        (json!([]), TokenEndpointError::Shape),
    ] {
        assert_eq!(token(answer.clone()).unwrap_err(), refusal, "{answer}");
    }
    for expires_in in [json!(-1), json!(1e300), json!("-1"), json!("1e300"), json!("inf")] {
        let read =
            token(json!({"access_token": "t", "token_type": "Bearer", "expires_in": expires_in}));
        assert!(read.unwrap().lifetime.is_none_or(|it| it <= Duration::from_hours(87_600)));
    }
}

#[test]
fn members_are_read_in_every_form_that_sdks_accept() {
    let read = |more: serde_json::Value| {
        let mut answer = json!({ "access_token": "t", "token_type": "Bearer" });
        for (name, value) in more.as_object().unwrap() {
            answer[name] = value.clone();
        }
        read_tokens(StatusCode::OK, answer.to_string().as_bytes(), TokenUse::Bearer).unwrap()
    };
    for (expires_in, seconds) in [
        (json!("3600"), Some(3600)),
        (json!(" 3600 "), Some(3600)),
        (json!("3600.0"), Some(3600)),
        (json!(3600.0), Some(3600)),
        (json!(0), Some(0)),
        (json!(null), None),
        (json!(""), None),
        (json!("never"), None),
        (json!("NaN"), None),
        (json!(true), None),
        (json!([3600]), None),
        (json!({}), None),
    ] {
        let tokens = read(json!({ "expires_in": expires_in }));
        assert_eq!(tokens.lifetime.map(|it| it.as_secs()), seconds, "{expires_in}");
    }
    for (more, seconds) in [
        (json!({ "refresh_token_expires_in": 60 }), Some(60)),
        (json!({ "refresh_expires_in": "60" }), Some(60)),
        (json!({ "refresh_expires_in": 0 }), None),
        (json!({}), None),
    ] {
        let found = read(more.clone()).refresh_lifetime.map(|it| it.as_secs());
        assert_eq!(found, seconds, "{more}");
    }
    for (scope, scopes) in [
        (json!("a b"), Some("a b")),
        (json!(["a", "b"]), Some("a b")),
        (json!([]), Some("")),
        (json!(""), Some("")),
        (json!(null), None),
    ] {
        let tokens = read(json!({ "scope": scope }));
        let found = tokens.scopes.map(|scopes| scopes.to_string());
        assert_eq!(found.as_deref(), scopes, "{scope}");
    }
    for kind in [json!(null), json!(""), json!("bearer"), json!("BEARER")] {
        assert_eq!(read(json!({ "token_type": kind })).authorization, "Bearer t", "{kind}");
    }
    assert!(read(json!({ "refresh_token": null })).refresh.is_none());
    let bare = read_tokens(StatusCode::OK, br#"{"access_token":"t"}"#, TokenUse::Bearer).unwrap();
    assert_eq!(bare.authorization, "Bearer t");
}

#[test]
fn a_token_without_a_type_is_not_bound_to_a_key() {
    for body in [r#"{"access_token":"t"}"#, r#"{"access_token":"t","token_type":null}"#] {
        let fault = read_tokens(StatusCode::OK, body.as_bytes(), TokenUse::Dpop).unwrap_err();
        assert_eq!(
            fault,
            TokenEndpointError::TokenType { found: "Bearer".into(), expected: "DPoP" }
        );
    }
}

#[test]
fn a_request_has_no_resource_where_the_provider_refuses_it() {
    let client = client(ClientAuth::None);
    let request = TokenRequest {
        grant: TokenGrant::Client,
        client: &client,
        key: None,
        issuer: "https://i.test",
        resource: None,
        scopes: &ScopeSet::default(),
    };
    let (_, form) = write(&request);
    assert!(!form.contains_key("resource"), "{form:?}");
}

#[test]
fn a_token_that_is_not_bound_to_the_key_is_an_error_that_says_so() {
    let answer = |kind: &str| json!({ "access_token": "t", "token_type": kind }).to_string();
    let read = |kind: &str| read_tokens(StatusCode::OK, answer(kind).as_bytes(), TokenUse::Dpop);
    assert_eq!(read("dpop").unwrap().authorization, "DPoP t");
    let fault = read("Bearer").unwrap_err();
    assert_eq!(fault, TokenEndpointError::TokenType { found: "Bearer".into(), expected: "DPoP" });
    assert_eq!(fault.to_string(), r#"the token has the type "Bearer" instead of "DPoP""#);
}

#[test]
fn only_an_id_jag_is_taken_for_an_id_token() {
    let read = |value: serde_json::Value| read_id_jag(StatusCode::OK, value.to_string().as_bytes());
    let good = json!({ "access_token": "j", "issued_token_type": ID_JAG, "token_type": "N_A" });
    assert_eq!(read(good).unwrap().expose(), "j");
    let other = "urn:ietf:params:oauth:token-type:access_token";
    for (answer, refusal) in [
        (
            json!({ "access_token": "j", "issued_token_type": other }),
            TokenEndpointError::IssuedType { found: other.into() },
        ),
        (json!({ "access_token": "j" }), TokenEndpointError::Shape),
        (json!({ "access_token": "a b", "issued_token_type": ID_JAG }), TokenEndpointError::Shape),
        (json!({ "access_token": "", "issued_token_type": ID_JAG }), TokenEndpointError::Shape),
    ] {
        assert_eq!(read(answer.clone()).unwrap_err(), refusal, "{answer}");
    }
}

#[test]
fn each_grant_has_its_own_members_and_no_others() {
    let token = |text: &str| Secret::new(text.to_owned());
    let (subject, actor, jwt) = (token("of-user"), token("of-gateway"), token("of-pod"));
    let exchange = |wanted, actor, audience| {
        let subject = (&subject, ExchangedType::IdToken);
        TokenGrant::Exchange(TokenExchange { subject, actor, wanted, audience })
    };
    let acting = Some((&actor, ExchangedType::Jwt));
    let urn = "urn:ietf:params:oauth";
    for (grant, members) in [
        (
            exchange(WantedToken::AccessToken, acting, None),
            vec![
                ("actor_token", "of-gateway".to_owned()),
                ("actor_token_type", format!("{urn}:token-type:jwt")),
                ("client_id", "a:b c".to_owned()),
                ("grant_type", format!("{urn}:grant-type:token-exchange")),
                ("requested_token_type", format!("{urn}:token-type:access_token")),
                ("resource", "https://a.test/mcp".to_owned()),
                ("scope", "x".to_owned()),
                ("subject_token", "of-user".to_owned()),
                ("subject_token_type", format!("{urn}:token-type:id_token")),
            ],
        ),
        (
            exchange(WantedToken::IdJag, None, Some("https://i.test")),
            vec![
                ("audience", "https://i.test".to_owned()),
                ("client_id", "a:b c".to_owned()),
                ("grant_type", format!("{urn}:grant-type:token-exchange")),
                ("requested_token_type", format!("{urn}:token-type:id-jag")),
                ("resource", "https://a.test/mcp".to_owned()),
                ("scope", "x".to_owned()),
                ("subject_token", "of-user".to_owned()),
                ("subject_token_type", format!("{urn}:token-type:id_token")),
            ],
        ),
        (
            TokenGrant::Assertion { jwt: &jwt },
            vec![
                ("assertion", "of-pod".to_owned()),
                ("client_id", "a:b c".to_owned()),
                ("grant_type", format!("{urn}:grant-type:jwt-bearer")),
                ("resource", "https://a.test/mcp".to_owned()),
                ("scope", "x".to_owned()),
            ],
        ),
    ] {
        let request = TokenRequest {
            grant,
            client: &client(ClientAuth::None),
            key: None,
            issuer: "https://i.test",
            resource: Some("https://a.test/mcp"),
            scopes: &ScopeSet::parse("x"),
        };
        let (_, form) = request.write(Duration::ZERO).unwrap();
        let mut found: Vec<_> = url::form_urlencoded::parse(form.as_bytes()).into_owned().collect();
        found.sort();
        let expected: Vec<_> =
            members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(found, expected);
    }
    let unregistered = OauthClient::unregistered();
    let request = TokenRequest {
        grant: TokenGrant::Assertion { jwt: &jwt },
        client: &unregistered,
        key: None,
        issuer: "https://i.test",
        resource: Some("https://a.test/mcp"),
        scopes: &ScopeSet::default(),
    };
    let (headers, form) = write(&request);
    assert!(!form.contains_key("client_id") && !headers.contains_key(AUTHORIZATION), "{form:?}");
}
