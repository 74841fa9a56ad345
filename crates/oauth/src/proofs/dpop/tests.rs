use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};

use super::*;

fn names(object: &Value) -> Vec<&str> {
    let mut names: Vec<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// Returns the claims of a proof after a check of its signature against the key in its header.
fn read(proof: &HeaderValue) -> Value {
    let text = proof.to_str().unwrap();
    let header = decode_header(text).unwrap();
    assert_eq!(header.typ.as_deref(), Some("dpop+jwt"));
    let jwk: Jwk = header.jwk.unwrap();
    let raw = text.split('.').next().unwrap();
    let raw: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(raw).unwrap()).unwrap();
    assert_eq!(names(&raw), ["alg", "jwk", "typ"]);
    assert_eq!(names(&raw["jwk"]), ["crv", "kty", "x", "y"], "the private key stays here");
    let mut validation = Validation::new(Algorithm::ES256);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    decode::<Value>(text, &DecodingKey::from_jwk(&jwk).unwrap(), &validation).unwrap().claims
}

fn request<'a>(audience: ProofAudience, used: Option<(&'a str, &'a [u8])>) -> ProvenRequest<'a> {
    ProvenRequest { audience, method: &Method::POST, url: "https://a.test/mcp", used }
}

#[test]
fn a_proof_names_the_request_the_token_and_the_body() {
    let key = DpopKey::generate().unwrap();
    // Test vectors of RFC 9449, 7.1 and the MCP profile.
    let hash = hash_token("Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU");
    assert_eq!(hash, "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo");
    let body = br#"{"hello": "world"}"#;
    let used = request(ProofAudience::Server, Some((&hash, body)));
    let now = Duration::from_secs(1_700_000_000);
    let claims = read(&key.prove(&used, now).unwrap());
    assert_eq!(claims["htm"], "POST");
    assert_eq!(claims["htu"], "https://a.test/mcp");
    assert_eq!(claims["iat"], 1_700_000_000);
    assert_eq!(claims["ath"], hash);
    // RFC 9530, B.1.
    let digest = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:";
    assert_eq!(claims["content_digest"], digest);
    let again = read(&key.prove(&used, now).unwrap());
    assert_ne!(claims["jti"], again["jti"], "each proof is another one");
    let of_tokens = read(&key.prove(&request(ProofAudience::Issuer, None), now).unwrap());
    for absent in ["ath", "content_digest", "nonce"] {
        assert!(of_tokens.get(absent).is_none(), "{absent}");
    }
}

#[test]
fn the_thumbprint_is_that_of_the_rfc_and_keys_differ() {
    let (one, other) = (DpopKey::generate().unwrap(), DpopKey::generate().unwrap());
    assert_ne!(one.thumbprint, other.thumbprint);
    let jwk = serde_json::to_value(&one.header.jwk).unwrap();
    let [x, y] = ["x", "y"].map(|name| jwk[name].as_str().unwrap());
    // RFC 7638, 3: the required members in this order, without spaces.
    let hashed = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    assert_eq!(one.thumbprint, URL_SAFE_NO_PAD.encode(sha256(hashed.as_bytes())));
}

#[test]
fn each_audience_has_its_own_nonce_and_a_bad_one_is_not_kept() {
    let key = DpopKey::generate().unwrap();
    let response = |nonces: &[&str]| {
        let pairs = nonces.iter().map(|nonce| (DPOP_NONCE, nonce.parse().unwrap()));
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        headers
    };
    assert!(key.keep_nonce(ProofAudience::Issuer, &response(&["n-1"])));
    assert!(!key.keep_nonce(ProofAudience::Issuer, &response(&["n-1"])), "it was used");
    assert!(key.keep_nonce(ProofAudience::Server, &response(&["n-2"])));
    let long = "x".repeat(MAX_NONCE_BYTES + 1);
    for bad in [&[][..], &[""], &["a b"], &["\"q\""], &["a", "b"], &[&long]] {
        assert!(!key.keep_nonce(ProofAudience::Server, &response(bad)), "{bad:?}");
    }
    for (audience, nonce) in [(ProofAudience::Issuer, "n-1"), (ProofAudience::Server, "n-2")] {
        let proof = key.prove(&request(audience, None), Duration::ZERO).unwrap();
        assert_eq!(read(&proof)["nonce"], nonce);
    }
}

#[test]
fn tokens_are_bound_as_configured_and_as_both_sides_can() {
    use DpopChoice::{Auto, Off, Required};
    use TokenUse::{Bearer, Dpop};
    let (es256, others) = (["RS256".to_owned(), "ES256".to_owned()], ["RS256".to_owned()]);
    let (good, bad) = (Some(&es256[..]), Some(&others[..]));
    for (choice, wanted, algorithms, chosen) in [
        (Auto, Bearer, good, Ok(Bearer)),
        (Auto, Dpop, good, Ok(Dpop)),
        (Auto, Dpop, bad, Ok(Bearer)),
        (Auto, Dpop, None, Ok(Bearer)),
        (Off, Dpop, good, Ok(Bearer)),
        (Required, Bearer, good, Ok(Dpop)),
        (Required, Bearer, None, Ok(Dpop)),
        (Required, Dpop, bad, Err(DpopFault::Algorithm)),
    ] {
        let found = choose_use(choice, wanted, algorithms);
        assert_eq!(found, chosen, "{choice:?} {wanted:?} {algorithms:?}");
    }
}

#[test]
fn a_key_that_has_rested_is_the_same_key() {
    let key = DpopKey::generate().unwrap();
    let revived = DpopKey::from_stored(&key.to_stored()).unwrap();
    assert_eq!(revived.thumbprint, key.thumbprint);
    let used = request(ProofAudience::Issuer, None);
    read(&revived.prove(&used, Duration::from_secs(1)).unwrap());
    for broken in ["", "?", "AAAA"] {
        assert!(matches!(DpopKey::from_stored(broken), Err(DpopFault::Key)), "{broken:?}");
    }
}
