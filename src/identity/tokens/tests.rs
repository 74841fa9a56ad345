//! Verification without a network: keys, claims, scopes and the cache of verified tokens.

use std::cell::Cell;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::verified::{CheckedToken, MAX_VERIFIED_BYTES};
use super::*;
use crate::config::{ConfigSource, SystemEnvironment};
use crate::identity::{Identity, Proof, Unidentified};

const NOW: Duration = Duration::from_hours(500_000);

fn config(text: &str) -> Config {
    let bytes = text.as_bytes().to_vec();
    let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
    Config::read(&source, &SystemEnvironment).unwrap()
}

/// The example of RFC 7515, A.3: ES256, with `iss` joe.
const SIGNED: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";

fn example_key(more: &Value) -> Value {
    let mut key = json!({
        "kty": "EC", "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    });
    let members = more.as_object().cloned().unwrap_or_default();
    key.as_object_mut().unwrap().extend(members);
    key
}

fn key_set(keys: &[Value]) -> Result<KeySet, KeySetFault> {
    KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
}

#[test]
fn the_example_of_the_standard_verifies_and_nothing_else_does() {
    let token = ParsedToken::parse(SIGNED.as_bytes()).unwrap();
    let verify = |keys: &[Value], algorithm| key_set(keys).unwrap().verify(&token, algorithm);
    let es256 = TokenAlgorithm::Es256;
    assert_eq!(verify(&[example_key(&json!({}))], es256), Ok(()));
    assert_eq!(verify(&[example_key(&json!({ "alg": "ES256", "use": "sig" }))], es256), Ok(()));
    assert_eq!(verify(&[example_key(&json!({ "kid": "a" }))], es256), Ok(()), "it names no key");
    let other = example_key(&json!({ "alg": "ES384" }));
    assert_eq!(verify(&[other], es256), Err(TokenFault::Algorithm));
    for algorithm in [TokenAlgorithm::Es384, TokenAlgorithm::Rs256, TokenAlgorithm::EdDsa] {
        let found = verify(&[example_key(&json!({}))], algorithm);
        assert_eq!(found, Err(TokenFault::Algorithm), "{algorithm:?}");
    }
    let (signed, _) = SIGNED.rsplit_once('.').unwrap();
    for signature in ["", "AAAA", "!", &"A".repeat(86)] {
        let forged = format!("{signed}.{signature}");
        let token = ParsedToken::parse(forged.as_bytes()).unwrap();
        let keys = key_set(&[example_key(&json!({}))]).unwrap();
        assert_eq!(keys.verify(&token, es256), Err(TokenFault::Signature), "{signature}");
    }
}

#[test]
fn keys_that_cannot_verify_are_left_out() {
    let usable = example_key(&json!({ "kid": "good" }));
    let useless = [
        json!({ "kty": "oct", "k": "c2VjcmV0", "kid": "secret" }),
        example_key(&json!({ "use": "enc" })),
        example_key(&json!({ "key_ops": ["sign"] })),
        example_key(&json!({ "alg": "HS256" })),
        example_key(&json!({ "crv": "P-521" })),
        example_key(&json!({ "crv": "secp256k1" })),
        example_key(&json!({ "x": 7 })),
        json!({ "kty": "XYZ" }),
        json!("key"),
    ];
    for key in &useless[..3] {
        let found = key_set(std::slice::from_ref(key)).err();
        assert_eq!(found, Some(KeySetFault::NoUsableKey { found: 1 }), "{key}");
    }
    let mixed: Vec<_> = useless.into_iter().chain([usable.clone()]).collect();
    let keys = key_set(&mixed).unwrap();
    assert!((1..=2).contains(&keys.key_count()), "{keys:?}");
    assert_eq!(key_set(&vec![usable.clone(); 100]).unwrap().key_count(), 100);
    let many = key_set(&vec![usable; 101]).err();
    assert_eq!(many, Some(KeySetFault::TooManyKeys { found: 101, limit: 100 }));
    for text in ["", "[]", "{}", "{\"keys\":{}}", "<html>"] {
        assert_eq!(KeySet::parse(text.as_bytes()).err(), Some(KeySetFault::Form), "{text}");
    }
}

#[test]
fn an_unknown_key_has_keys_fetched_at_most_once_a_minute() {
    let place = KeyPlace::File("keys.json".into());
    let (issuers, refresh) = (Vec::new(), Duration::from_mins(15));
    let keys = IssuerKeys::new(KeySource { place, issuers, ca: None, refresh });
    assert!(keys.pending().is_some() && keys.ask_again(NOW).is_some(), "the first is under way");
    let found = || Ok(key_set(&[example_key(&json!({}))]).unwrap());
    keys.fetch_ended(found(), NOW);
    assert!(keys.pending().is_none());
    for (after, asks) in [(0, true), (1, false), (59, false), (60, true), (61, false)] {
        let wait = keys.ask_again(NOW + Duration::from_secs(after));
        assert_eq!(wait.is_some(), asks, "{after}");
        keys.fetch_ended(Err("no".into()), NOW);
    }
    assert!(keys.current().is_some(), "the last keys stay");
    let before = keys.current().unwrap();
    keys.fetch_ended(found(), NOW);
    assert!(Arc::ptr_eq(&before, &keys.current().unwrap()), "the same keys are the same set");
    assert!(keys.begin_following() && !keys.begin_following());
}

fn issuer_config(lines: &str) -> IssuerConfig {
    let text = format!("[issuers.idp]\nissuer = \"https://a.test\"\n{lines}");
    config(&text).issuers.remove(0)
}

#[test]
fn groups_and_scopes_are_read_where_providers_have_them() {
    let claims = json!({
        "groups": ["a", 7, "b"], "roles": "c d", "realm_access": { "roles": ["e"] },
        "https://acme.test/groups": ["f"], "scope": "s1 s2", "scp": ["s3"], "deep": { "a": { "b": "g" } },
    });
    let claims = claims.as_object().unwrap();
    for (claim, expected) in [
        ("groups", &["a", "b"][..]),
        ("roles", &["c", "d"]),
        ("realm_access.roles", &["e"]),
        ("https://acme.test/groups", &["f"]),
        ("deep.a.b", &["g"]),
        ("deep.x", &[]),
        ("none", &[]),
    ] {
        let config = issuer_config(&format!("groups_claim = {claim:?}"));
        let found = claims::groups(&config, claims);
        assert_eq!(found.iter().map(|it| &**it).collect::<Vec<_>>(), expected, "{claim}");
    }
    assert!(claims::groups(&issuer_config(""), claims).is_empty());
    assert_eq!(claims::scopes(&issuer_config(""), claims), ["s1", "s2", "s3"]);
}

#[test]
fn implied_scopes_are_found_through_others_and_in_circles() {
    let ranks = "[gateway]\nscopes = { a = [\"b\"], b = [\"c\", \"a\"], x = [\"y\"] }";
    let ranks = ScopeRanks::new(&config(ranks).gateway);
    let all = ranks.expand(["a".into()]);
    assert_eq!(all.iter().map(|it| &**it).collect::<Vec<_>>(), ["a", "b", "c"]);
}

/// An identity with one issuer with known keys, and a verified token.
fn verified(lines: &str) -> (Identity, Arc<VerifiedToken>) {
    let issuers = format!("[issuers.idp]\nissuer = \"joe\"\n{lines}");
    let text = issuers.replace("\"joe\"", "\"https://a.test\"\nissuer_aliases = [\"joe\"]");
    let identity = Identity::new(&config(&text), &Identity::default());
    let issuer = &identity.issuers()[0];
    let keys = Arc::new(key_set(&[example_key(&json!({}))]).unwrap());
    issuer.keys.fetch_ended(Ok(key_set(&[example_key(&json!({}))]).unwrap()), NOW);
    let token = ParsedToken::parse(SIGNED.as_bytes()).unwrap();
    let ends = NOW + Duration::from_mins(1);
    let checked = claims::CheckedClaims { subject: "joe".into(), audiences: vec![], ends };
    let checked = CheckedToken { token: &token, digest: &[1; 32], claims: checked };
    let token = VerifiedToken::new(issuer, checked, keys);
    (identity, token)
}

#[test]
fn verified_tokens_have_a_bound() {
    let (_, token) = verified("");
    let all = VerifiedTokens::new();
    let mut text = vec![0; 16 << 10];
    for number in 0..5_000_u32 {
        text[..4].copy_from_slice(&number.to_le_bytes());
        all.insert(&text, Arc::clone(&token), NOW);
        assert!(all.find(&text).is_some(), "the newest is there");
    }
    assert!(all.len() * (16 << 10) <= MAX_VERIFIED_BYTES, "{}", all.len());
    assert!(all.len() > 100);
    all.insert(b"a", Arc::clone(&token), NOW);
    all.insert(b"a", token, NOW);
    assert!(all.find(b"a").is_some());
    for other in [&b""[..], b"A", b"a\0", b"aa"] {
        assert!(all.find(other).is_none(), "{other:?}");
    }
}

#[test]
fn fingerprints_have_a_key_of_their_own_in_each_configuration() {
    let of = |all: &VerifiedTokens| all.fingerprint(b"a token").unwrap();
    let (one, other) = (VerifiedTokens::new(), VerifiedTokens::new());
    assert_eq!(of(&one), of(&one));
    assert_ne!(of(&one), of(&other));
}

#[test]
fn a_token_is_known_as_long_as_its_issuer_stays_as_it_is() {
    let (identity, token) = verified("");
    let credential = crate::identity::Credential {
        principal: token.principal.clone(),
        grants: None,
        proof: Proof::Token(Arc::clone(&token)),
    };
    assert_eq!(credential.principal.as_str(), "idp:joe");
    assert_eq!(credential.describe(), ("token", Some("idp:01010101".into())));
    assert_eq!(identity.expiry(&credential), Some(token.ends));
    assert!(identity.knows(&credential, NOW) && identity.has(&credential));
    assert!(!identity.knows(&credential, token.ends), "it has expired");
    assert!(identity.has(&credential), "the user has not");
    assert!(identity.allows(&credential.principal, "any"));
    for (lines, knows, has) in [
        ("[issuers.idp]\nissuer = \"https://a.test\"\nissuer_aliases = [\"joe\"]", true, true),
        ("[issuers.idp]\nissuer = \"https://a.test\"", false, true),
        ("[issuers.idp]\nissuer = \"https://b.test\"\nissuer_aliases = [\"joe\"]", false, false),
        ("[issuers.other]\nissuer = \"https://a.test\"\nissuer_aliases = [\"joe\"]", false, false),
        (
            "[gateway]\npublic_url = \"https://mcp.test\"\n[issuers.idp]\nissuer = \"https://a.test\"\nissuer_aliases = [\"joe\"]",
            false,
            true,
        ),
        (
            "[issuers.idp]\nissuer = \"https://a.test\"\nissuer_aliases = [\"joe\"]\nprincipal_claim = \"oid\"",
            false,
            false,
        ),
        ("", false, false),
    ] {
        let next = Identity::new(&config(lines), &identity);
        assert_eq!(next.knows(&credential, NOW), knows, "{lines}");
        assert_eq!(next.has(&credential), has, "{lines}");
    }
}

#[test]
fn keys_of_an_issuer_outlive_a_reload_that_leaves_their_source() {
    let (identity, _) = verified("");
    let keys = |identity: &Identity| Arc::clone(&identity.issuers()[0].keys);
    for (lines, same) in [("clock_skew = \"2m\"", true), ("jwks_file = \"keys.json\"", false)] {
        let text = format!(
            "[issuers.idp]\nissuer = \"https://a.test\"\nissuer_aliases = [\"joe\"]\n{lines}"
        );
        let next = Identity::new(&config(&text), &identity);
        assert_eq!(Arc::ptr_eq(&keys(&identity), &keys(&next)), same, "{lines}");
    }
}

#[test]
fn a_token_without_a_resource_is_not_looked_at() {
    let (identity, _) = verified("");
    let mut headers = http::HeaderMap::new();
    headers.insert("authorization", format!("Bearer {SIGNED}").parse().unwrap());
    let refused = identity.identify(&mut headers, None, || NOW, || Ok(()));
    assert!(
        matches!(refused, Err(Unidentified::WrongCredential(Failure::KeyUnknown))),
        "{refused:?}"
    );
}

/// A key, and a token that it has signed.
fn sign(claims: &Value) -> (Value, String) {
    let scheme = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let pair = EcdsaKeyPair::generate_pkcs8(scheme, &SystemRandom::new()).unwrap();
    let key = EncodingKey::from_ec_der(pair.as_ref());
    let public = Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap();
    let token = jsonwebtoken::encode(&Header::new(Algorithm::ES256), claims, &key).unwrap();
    (serde_json::to_value(public).unwrap(), token)
}

#[test]
fn a_token_is_verified_once_and_known_from_then_on() {
    let text = "[gateway]\npublic_url = \"https://mcp.test\"\n\
                [issuers.idp]\nissuer = \"https://a.test\"\n";
    let identity = Identity::new(&config(text), &Identity::default());
    let exp = NOW.as_secs() + 60;
    let claims =
        json!({ "iss": "https://a.test", "aud": "https://mcp.test/mcp", "sub": "ann", "exp": exp });
    let (public, token) = sign(&claims);
    let keys = &identity.issuers()[0].keys;
    let fetched = |keys: &[Value]| Ok(key_set(keys).unwrap());
    keys.fetch_ended(fetched(std::slice::from_ref(&public)), NOW);
    let resource = identity.resource("default", || None).unwrap();
    let asked = Cell::new(0);
    let verify = |now| {
        let mut headers = http::HeaderMap::new();
        headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        let admit = || {
            asked.set(asked.get() + 1);
            Ok(())
        };
        let identified = identity.identify(&mut headers, Some(&resource), || now, admit);
        identified.map(|credential| match credential.proof {
            Proof::Token(token) => token,
            other => panic!("{other:?}"),
        })
    };
    let first = verify(NOW).unwrap();
    assert!(Arc::ptr_eq(&first, &verify(NOW).unwrap()), "no signature is verified again");
    assert_eq!(asked.get(), 1, "nor does it count as an attempt");
    // Other keys: the token is verified again, and still does not count as an unknown sender's
    // attempt.
    let (other, _) = sign(&claims);
    keys.fetch_ended(fetched(&[public, other]), NOW);
    let again = verify(NOW).unwrap();
    assert!(!Arc::ptr_eq(&first, &again), "the keys are others");
    assert!(Arc::ptr_eq(&again, &verify(NOW).unwrap()));
    let expired = verify(first.ends);
    let is_expired = |it: &_| matches!(it, Failure::TokenRefused(TokenFault::Expired));
    assert!(matches!(&expired, Err(Unidentified::Refused(it)) if is_expired(it)), "{expired:?}");
    assert_eq!(asked.get(), 1);
}
