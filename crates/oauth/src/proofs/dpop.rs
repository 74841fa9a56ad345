//! Proofs of possession (DPoP, RFC 9449): tokens that only the holder of a key can use.
//!
//! Each grant has its own key, which is stored only in the vault, with the grant. A proof is made
//! for one request: it names the method, the URL, the token and, for MCP servers, the digest of the
//! body.

use std::fmt;
use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jsonwebtoken::jwk::{
    AlgorithmParameters, CommonParameters, EllipticCurve, EllipticCurveKeyParameters,
    EllipticCurveKeyType, Jwk, ThumbprintHash,
};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use parking_lot::Mutex;
use serde_json::{Map, Value};

use trunkline_config::DpopChoice;
use trunkline_core::crypto::sha256;

use super::pkce::{RandomnessError, draw_text};
use crate::metadata::token_use::TokenUse;

/// The header of a proof (RFC 9449, 4.1).
pub const DPOP_HEADER: HeaderName = HeaderName::from_static("dpop");
/// The header of a nonce (RFC 9449, 8 and 9).
const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");

/// Error while making a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DpopFault {
    /// There is no key, or it cannot sign.
    #[error("the key of a DPoP proof cannot be made or used")]
    Key,
    /// There are no random bytes.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
    /// The authorization server supports only other algorithms.
    #[error("tokens have to be bound to a key, and the authorization server does not list ES256")]
    Algorithm,
}

/// The key to which the tokens of one grant are bound, and the nonces for its proofs.
pub(crate) struct DpopKey {
    /// The key pair as PKCS #8.
    pair: EncodingKey,
    /// The header of its proofs, with the public key as a JWK.
    header: Header,
    /// The JWK's thumbprint (RFC 7638).
    pub(crate) thumbprint: String,
    /// The last nonce of the authorization server.
    issuer_nonce: Mutex<Option<String>>,
    /// The last nonce of the server.
    server_nonce: Mutex<Option<String>>,
}

/// Recipient of a proof. Each one has its own nonces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProofAudience {
    /// A token endpoint.
    Issuer,
    /// The server that receives the token.
    Server,
}

/// The request that a proof is for.
pub(crate) struct ProvenRequest<'a> {
    pub(crate) audience: ProofAudience,
    pub(crate) method: &'a Method,
    /// The URL, without query and fragment.
    pub(crate) url: &'a str,
    /// SHA-256 of the token in base64url, and the body, if a token is used.
    pub(crate) used: Option<(&'a str, &'a [u8])>,
}

impl DpopKey {
    /// Generates a key for ES256.
    pub(crate) fn generate() -> Result<Self, DpopFault> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        Self::of_pair(&pair.map_err(|_| DpopFault::Key)?)
    }

    /// Restores a key that [`DpopKey::to_stored`] wrote.
    pub(crate) fn from_stored(stored: &str) -> Result<Self, DpopFault> {
        let raw = STANDARD.decode(stored).map_err(|_| DpopFault::Key)?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &raw);
        Self::of_pair(&pair.map_err(|_| DpopFault::Key)?)
    }

    /// Returns the key pair as PKCS #8 in base64. The result is a secret.
    pub(crate) fn to_stored(&self) -> String {
        STANDARD.encode(self.pair.as_bytes())
    }

    fn of_pair(pair: &EcdsaKeyPair) -> Result<Self, DpopFault> {
        // An uncompressed point: a byte for this form, and two coordinates.
        let point = pair.public_key().as_ref();
        let coordinates = point.get(1..33).zip(point.get(33..65));
        let (x, y) = coordinates.ok_or(DpopFault::Key)?;
        let [x, y] = [x, y].map(|part| URL_SAFE_NO_PAD.encode(part));
        let (key_type, curve) = (EllipticCurveKeyType::EC, EllipticCurve::P256);
        let point = EllipticCurveKeyParameters { key_type, curve, x, y };
        let algorithm = AlgorithmParameters::EllipticCurve(point);
        let jwk = Jwk { common: CommonParameters::default(), algorithm };
        let thumbprint = jwk.thumbprint(ThumbprintHash::SHA256).map_err(|_| DpopFault::Key)?;
        let typ = Some("dpop+jwt".to_owned());
        let header = Header { typ, jwk: Some(jwk), ..Header::new(Algorithm::ES256) };
        let pair =
            EncodingKey::from_ec_der(pair.to_pkcs8v1().map_err(|_| DpopFault::Key)?.as_ref());
        let (issuer_nonce, server_nonce) = (Mutex::default(), Mutex::default());
        Ok(Self { pair, header, thumbprint, issuer_nonce, server_nonce })
    }

    /// Creates the proof for one request at this time.
    pub(crate) fn prove(
        &self,
        request: &ProvenRequest<'_>,
        now: Duration,
    ) -> Result<HeaderValue, DpopFault> {
        let mut claims = Map::new();
        let mut add = |name: &str, value: Value| claims.insert(name.to_owned(), value);
        add("jti", draw_text()?.into());
        add("htm", request.method.as_str().into());
        add("htu", request.url.into());
        add("iat", now.as_secs().into());
        if let Some((token_hash, body)) = request.used {
            add("ath", token_hash.into());
            // The MCP profile of DPoP binds the proof to this body, in the syntax of RFC 9530.
            let digest = STANDARD.encode(sha256(body));
            add("content_digest", format!("sha-256=:{digest}:").into());
        }
        if let Some(nonce) = self.nonce(request.audience) {
            add("nonce", nonce.into());
        }
        let proof = jsonwebtoken::encode(&self.header, &claims, &self.pair);
        HeaderValue::try_from(proof.map_err(|_| DpopFault::Key)?).map_err(|_| DpopFault::Key)
    }

    /// Returns the nonce for proofs to one audience.
    pub(crate) fn nonce(&self, audience: ProofAudience) -> Option<String> {
        self.nonce_of(audience).lock().clone()
    }

    /// Keeps the nonce of a response for the next proof. Returns false if the response has none, or
    /// repeats the last one.
    pub(crate) fn keep_nonce(&self, audience: ProofAudience, response: &HeaderMap) -> bool {
        let Some(nonce) = read_nonce(response) else { return false };
        let mut kept = self.nonce_of(audience).lock();
        let is_new = kept.as_deref() != Some(nonce);
        *kept = Some(nonce.to_owned());
        is_new
    }

    fn nonce_of(&self, audience: ProofAudience) -> &Mutex<Option<String>> {
        match audience {
            ProofAudience::Issuer => &self.issuer_nonce,
            ProofAudience::Server => &self.server_nonce,
        }
    }
}

impl fmt::Debug for DpopKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DpopKey").finish_non_exhaustive()
    }
}

/// Returns the single nonce of a response (RFC 9449, 8.1: visible ASCII without `"` and `\`).
fn read_nonce(response: &HeaderMap) -> Option<&str> {
    let mut values = response.get_all(DPOP_NONCE).iter();
    let nonce = values.next()?.to_str().ok()?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    let is_valid = (1..=MAX_NONCE_BYTES).contains(&nonce.len()) && nonce.bytes().all(is_plain);
    (is_valid && values.next().is_none()).then_some(nonce)
}

/// Chooses the type of tokens: bound to a key if this is required, or if the server requests it and
/// its authorization server supports it.
pub(crate) fn choose_use(
    choice: DpopChoice,
    wanted: TokenUse,
    algorithms: Option<&[String]>,
) -> Result<TokenUse, DpopFault> {
    let is_listed = algorithms.map(|all| all.iter().any(|name| name == "ES256"));
    let is_bound = match choice {
        DpopChoice::Off => false,
        DpopChoice::Auto => wanted == TokenUse::Dpop && is_listed == Some(true),
        DpopChoice::Required if is_listed == Some(false) => return Err(DpopFault::Algorithm),
        // If the authorization server's metadata is silent, its token type decides later.
        DpopChoice::Required => true,
    };
    Ok(if is_bound { TokenUse::Dpop } else { TokenUse::Bearer })
}

/// Returns the SHA-256 of a token in the form used by proofs (`ath`).
pub(crate) fn hash_token(token: &str) -> String {
    URL_SAFE_NO_PAD.encode(sha256(token.as_bytes()))
}

/// Maximum length of a nonce in bytes.
const MAX_NONCE_BYTES: usize = 1024;

#[cfg(test)]
mod tests;
