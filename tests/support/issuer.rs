//! An authorization server as the gateway sees it: metadata, keys, and tokens.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Map, Value, json};

use super::api::{Page, PlainApi};

/// A key for signing tokens.
pub struct SigningKey {
    pub id: String,
    pub algorithm: Algorithm,
    key: EncodingKey,
    public: Value,
}

impl SigningKey {
    pub fn p256(id: &str) -> Self {
        let scheme = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = EcdsaKeyPair::generate_pkcs8(scheme, &SystemRandom::new()).unwrap();
        let key = EncodingKey::from_ec_der(pair.as_ref());
        let jwk = Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap();
        let public = serde_json::to_value(jwk).unwrap();
        Self { id: id.into(), algorithm: Algorithm::ES256, key, public }
    }

    pub fn ed25519(id: &str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(document.as_ref()).unwrap();
        let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        let public = json!({ "kty": "OKP", "crv": "Ed25519", "x": x });
        let key = EncodingKey::from_ed_der(document.as_ref());
        Self { id: id.into(), algorithm: Algorithm::EdDSA, key, public }
    }

    /// Returns the public key, in an issuer's published form.
    pub fn public(&self) -> Value {
        let mut jwk = self.public.clone();
        jwk["kid"] = json!(self.id);
        jwk["use"] = json!("sig");
        jwk
    }

    pub fn header(&self) -> Header {
        let mut header = Header::new(self.algorithm);
        header.kid = Some(self.id.clone());
        header.typ = Some("at+jwt".into());
        header
    }

    /// Returns a token with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_with(&self.header(), claims)
    }

    pub fn sign_with(&self, header: &Header, claims: &Value) -> String {
        jsonwebtoken::encode(header, claims, &self.key).unwrap()
    }
}

/// Returns a token with any header and any signature.
pub fn forge(header: &Value, claims: &Value, signature: &[u8]) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{}", part(header), part(claims), URL_SAFE_NO_PAD.encode(signature))
}

/// Returns the time, in seconds since 1970.
pub fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// An authorization server.
pub struct Issuer {
    pub api: PlainApi,
    pub key: SigningKey,
}

impl Issuer {
    /// Starts with metadata and one key.
    pub async fn start() -> Self {
        let issuer = Self::silent().await;
        issuer.publishes(&[&issuer.key]);
        issuer
    }

    /// Starts with metadata, and no keys yet.
    pub async fn silent() -> Self {
        let api = PlainApi::start().await;
        let metadata = json!({ "issuer": api.url(""), "jwks_uri": api.url("/keys") });
        api.sets("/.well-known/oauth-authorization-server", Page::json(&metadata));
        api.sets("/keys", Page::new(503, "text/plain", "not yet"));
        Self { api, key: SigningKey::p256("first") }
    }

    /// Returns its name in tokens.
    pub fn url(&self) -> String {
        self.api.url("")
    }

    /// Publishes exactly these keys.
    pub fn publishes(&self, keys: &[&SigningKey]) {
        let keys: Vec<_> = keys.iter().map(|key| key.public()).collect();
        self.api.sets("/keys", Page::json(&json!({ "keys": keys })));
    }

    /// Returns the number of times that its keys were fetched.
    pub fn fetches(&self) -> usize {
        self.api.calls("/keys").len()
    }

    /// Returns `[issuers.NAME]` with more lines.
    pub fn table(&self, name: &str, more: &str) -> String {
        format!("[issuers.{name}]\nissuer = \"{}\"\n{more}\n", self.url())
    }

    /// Returns the claims of a token for a resource.
    pub fn claims(&self, resource: &str) -> Value {
        json!({ "iss": self.url(), "aud": resource, "sub": "ann", "exp": now() + 600 })
    }

    /// Returns a token for a resource, with more claims; `null` removes one.
    pub fn token(&self, resource: &str, more: Value) -> String {
        self.key.sign(&with(self.claims(resource), more))
    }
}

/// Returns claims with others added; `null` removes one.
pub fn with(mut claims: Value, more: Value) -> Value {
    let members = claims.as_object_mut().unwrap();
    for (name, value) in more.as_object().cloned().unwrap_or_else(Map::new) {
        match value {
            Value::Null => members.remove(&name),
            value => members.insert(name, value),
        };
    }
    claims
}
