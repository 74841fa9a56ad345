//! The usual providers: metadata, keys and tokens in their published form, with the settings in
//! `docs/authentication.md` for each.

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::is_refused;
use crate::support::api::{Page, PlainApi};
use crate::support::browser::{Browser, fields};
use crate::support::issuer::{now, with};
use crate::support::{Gateway, Upstream};

/// One provider, on loopback.
struct Provider {
    name: &'static str,
    /// The rest of `iss` after the origin.
    issuer: &'static str,
    /// Path of its metadata.
    metadata_path: &'static str,
    keys_path: &'static str,
    /// Further members of its metadata.
    metadata: Value,
    /// Further members of its keys.
    key: Value,
    /// Other keys that it publishes.
    other_keys: Vec<Value>,
    /// The claims of its access tokens, with `AUD` for the resource.
    claims: Value,
    /// `[issuers.NAME]`, as in the docs.
    lines: &'static str,
    user: &'static str,
}

fn providers() -> Vec<Provider> {
    let encryption = json!({
        "kid": "enc", "kty": "RSA", "alg": "RSA-OAEP", "use": "enc", "n": "AQAB", "e": "AQAB",
    });
    vec![
        Provider {
            name: "Keycloak",
            issuer: "/realms/acme",
            metadata_path: "/realms/acme/.well-known/openid-configuration",
            keys_path: "/realms/acme/protocol/openid-connect/certs",
            metadata: json!({ "code_challenge_methods_supported": ["plain", "S256"] }),
            key: json!({ "alg": "RS256", "use": "sig", "x5c": ["MIIClzCCAX8CBgGL"], "x5t": "q3_8" }),
            other_keys: vec![encryption],
            claims: json!({
                "typ": "Bearer", "azp": "mcp-client", "sub": "3f1c", "sid": "s", "acr": "1",
                "aud": ["AUD", "account"], "scope": "openid mcp:read email",
                "realm_access": { "roles": ["staff", "offline_access"] },
                "resource_access": { "account": { "roles": ["view-profile"] } },
            }),
            lines: "groups_claim = \"realm_access.roles\"\n",
            user: "idp:3f1c",
        },
        Provider {
            name: "Entra",
            issuer: "/72f988bf/v2.0",
            metadata_path: "/72f988bf/v2.0/.well-known/openid-configuration",
            keys_path: "/72f988bf/discovery/v2.0/keys",
            metadata: json!({ "tenant_region_scope": "WW", "cloud_instance_name": "x" }),
            // No `alg`.
            key: json!({ "use": "sig", "x5t": "T8tI", "x5c": ["MIIC"], "issuer": "x" }),
            other_keys: vec![],
            claims: json!({
                "ver": "2.0", "aud": "6e74172b", "azp": "04b07795", "azpacr": "0", "oid": "1f2e",
                "sub": "pairwise", "tid": "72f988bf", "scp": "Tools.Read User.Read",
                "roles": ["Operators"], "uti": "a", "rh": "b", "nbf": now() - 10, "iat": now() - 10,
            }),
            lines: "audience = [\"6e74172b\"]\nprincipal_claim = \"oid\"\ngroups_claim = \"roles\"\n\
                    scope_map = { \"Tools.Read\" = [\"mcp:read\"] }\n\
                    scope_requests = { \"mcp:read\" = \"api://6e74172b/Tools.Read\" }\n",
            user: "idp:1f2e",
        },
        Provider {
            name: "Okta",
            issuer: "/oauth2/aus1",
            metadata_path: "/.well-known/oauth-authorization-server/oauth2/aus1",
            keys_path: "/oauth2/aus1/v1/keys",
            metadata: json!({ "registration_endpoint": "x", "dpop_signing_alg_values_supported": [] }),
            key: json!({ "alg": "RS256", "use": "sig" }),
            other_keys: vec![],
            claims: json!({
                "ver": 1, "jti": "AT.x", "aud": "api://mcp", "cid": "0oa1", "uid": "00u1",
                "sub": "ann@acme.test", "scp": ["mcp:read", "openid"], "groups": ["Everyone", "dev"],
                "iat": now(), "auth_time": now() - 100,
            }),
            lines: "audience = [\"api://mcp\"]\nprincipal_claim = \"uid\"\ngroups_claim = \"groups\"\n",
            user: "idp:00u1",
        },
        Provider {
            name: "Auth0",
            // With a slash at its end.
            issuer: "/",
            metadata_path: "/.well-known/openid-configuration",
            keys_path: "/.well-known/jwks.json",
            metadata: json!({ "device_authorization_endpoint": "x" }),
            key: json!({ "alg": "RS256", "use": "sig", "x5t": "NjVB", "x5c": ["MIID"] }),
            other_keys: vec![],
            claims: json!({
                "sub": "auth0|5f7c8ec7", "aud": ["AUD", "https://acme.auth0.test/userinfo"],
                "azp": "my_client_id", "scope": "openid profile mcp:read", "iat": now(),
                "permissions": ["mcp:read"], "https://acme.test/groups": ["dev"],
            }),
            lines: "groups_claim = \"https://acme.test/groups\"\n",
            user: "idp:auth0|5f7c8ec7",
        },
        Provider {
            name: "Google",
            issuer: "",
            metadata_path: "/.well-known/openid-configuration",
            keys_path: "/oauth2/v3/certs",
            metadata: json!({ "revocation_endpoint": "x" }),
            key: json!({ "alg": "RS256", "use": "sig" }),
            other_keys: vec![],
            claims: json!({
                "iss": "accounts.google.com", "azp": "32555940559.apps", "sub": "113774",
                "aud": "32555940559.apps.googleusercontent.com", "email": "ci@acme.test",
                "email_verified": true, "hd": "acme.test", "at_hash": "x", "iat": now(),
                "scope": "mcp:read",
            }),
            lines: "issuer_aliases = [\"accounts.google.com\"]\n\
                    audience = [\"32555940559.apps.googleusercontent.com\"]\n",
            user: "idp:113774",
        },
    ]
}

#[tokio::test]
async fn tokens_of_the_usual_providers_are_accepted_with_the_documented_settings() {
    let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let pkcs8: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let pkcs8 = pkcs8.as_ref();
    // The key itself is the end of the PKCS #8 document: after 26 bytes for this size.
    let key = EncodingKey::from_rsa_der(&pkcs8[26..]);
    for provider in providers() {
        accepts(&provider, &key).await;
    }
}

#[tokio::test]
async fn logins_are_passed_on_to_the_usual_providers() {
    for provider in providers() {
        let (api, upstream) = (PlainApi::start().await, Upstream::modern().await);
        let (issuer, name) = (publish(&api, &provider), provider.name);
        let lines = format!("{}client_id = \"fixed\"\ndrop_resource = true\n", provider.lines);
        let table = format!("[issuers.idp]\nissuer = \"{issuer}\"\n{lines}");
        let gateway = Gateway::with("s", upstream.http()).toml(&table).start().await;
        let get = async |path: &str| gateway.plain().http("GET", path).send().await.said().await;
        let own = format!("http://{}/login/idp", gateway.running.address);
        let metadata = get("/.well-known/oauth-authorization-server/login/idp").await.json();
        assert_eq!(metadata["issuer"], own, "{name}");
        assert_eq!(metadata["registration_endpoint"], format!("{own}/register"), "{name}");
        let methods = metadata["code_challenge_methods_supported"].to_string();
        assert!(methods.contains("\"S256\""), "{name}: {methods}");
        let query = "response_type=code&client_id=fixed&state=s&code_challenge_method=S256\
                     &code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM\
                     &redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2Fcb";
        let browser = Browser::of(&gateway);
        let page = browser.opens(&format!("/login/idp/authorize?{query}&resource=x")).await;
        let asked = fields(&page.body);
        let answer = [("form_key", &*asked["form_key"]), ("request", &*asked["request"])];
        let answer = [answer[0], answer[1], ("answer", "accept")];
        let said = browser.sends("/login/idp/consent", &answer).await;
        let expected = api.url(&format!("/authorize?{query}"));
        assert_eq!((said.status, said.header("location")), (303, Some(&*expected)), "{name}");
        let form =
            "grant_type=authorization_code&code=c&client_id=fixed&code_verifier=v&resource=x";
        let client = gateway.plain();
        let ask = client.http("POST", "/login/idp/token").body(form);
        let ask = ask.header("content-type", "application/x-www-form-urlencoded");
        assert_eq!(ask.send().await.said().await.status, 200, "{name}");
        assert_eq!(api.last().target, "/token", "{name}");
        assert_eq!(api.last().body, form.replace("&resource=x", ""), "{name}");
    }
}

/// Publishes a provider's metadata, and returns its issuer.
fn publish(api: &PlainApi, provider: &Provider) -> String {
    let issuer = api.url(provider.issuer);
    for place in ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"] {
        api.sets(&format!("{place}{}", provider.issuer), Page::new(404, "text/html", "<html>"));
        api.sets(place, Page::new(404, "text/html", "<html>"));
    }
    let metadata = json!({
        "issuer": issuer, "jwks_uri": api.url(provider.keys_path),
        "authorization_endpoint": api.url("/authorize"), "token_endpoint": api.url("/token"),
        "response_types_supported": ["code"], "scopes_supported": ["openid", "offline_access"],
    });
    let metadata = with(metadata, provider.metadata.clone());
    api.sets(provider.metadata_path, Page::json(&metadata));
    issuer
}

async fn accepts(provider: &Provider, key: &EncodingKey) {
    let (api, upstream, name) = (PlainApi::start().await, Upstream::modern().await, provider.name);
    let issuer = publish(&api, provider);
    let jwk = serde_json::to_value(Jwk::from_encoding_key(key, Algorithm::RS256).unwrap()).unwrap();
    let jwk = with(jwk, json!({ "kid": "k1", "alg": null, "key_ops": null }));
    let mut keys = provider.other_keys.clone();
    keys.push(with(jwk, provider.key.clone()));
    api.sets(provider.keys_path, Page::json(&json!({ "keys": keys })));
    let table = format!("[issuers.idp]\nissuer = \"{issuer}\"\n{}", provider.lines);
    let lines = upstream.http() + "scopes = [\"mcp:read\"]\n";
    let gateway = Gateway::with("s", lines)
        .toml("[audit]\nfile = \"audit.jsonl\"\n")
        .toml(&table)
        .start()
        .await;
    let resource = format!("http://{}/mcp", gateway.running.address);
    let claims = with(json!({ "iss": issuer, "exp": now() + 600 }), provider.claims.clone());
    let claims: Value =
        serde_json::from_str(&claims.to_string().replace("\"AUD\"", &format!("{resource:?}")))
            .unwrap();
    let mut header = Header::new(Algorithm::RS256);
    header.kid = Some("k1".into());
    let token = jsonwebtoken::encode(&header, &claims, key).unwrap();
    let said = gateway.modern().key(&token).call("s__echo", json!({})).await;
    assert_eq!(said.status, 200, "{name}: {said:?}");
    assert_eq!(said.text(), "{}", "{name}");
    // An ID token, or one for another program of the same provider, is refused.
    let other = with(claims, json!({ "aud": "another-program" }));
    let other = jsonwebtoken::encode(&header, &other, key).unwrap();
    is_refused(&gateway.modern().key(&other).call("s__echo", json!({})).await, "another resource");
    let folder = gateway.stop().await;
    let records = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    assert!(records.contains(&format!("{:?}", provider.user)), "{name}: {records}");
}
