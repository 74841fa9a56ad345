//! The public keys of an issuer (JWKS, RFC 7517).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use serde::Deserialize;
use serde_json::Value;
use x509_parser::parse_x509_certificate;

use crate::call::TokenFault;
use crate::config::TokenAlgorithm;
use crate::crypto::sha256;

use super::jwt::ParsedToken;

/// The keys of an issuer at one time.
pub struct KeySet {
    keys: Vec<PublicKey>,
    /// The SHA-256 of the document.
    digest: [u8; 32],
}

/// One key.
struct PublicKey {
    id: Option<String>,
    /// Its only algorithm, if the document has one.
    algorithm: Option<Algorithm>,
    family: KeyFamily,
    key: DecodingKey,
    /// The end of its certificate (`x5c`), if it has one, in seconds since 1970.
    certificate_end: Option<i64>,
}

/// Families of keys by their signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyFamily {
    Rsa,
    P256,
    P384,
    Ed25519,
}

/// Reasons for a document to have no keys for verification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySetFault {
    /// Not a JSON object with `keys`.
    #[error("not a JSON Web Key Set")]
    Form,
    /// More keys than any issuer needs.
    #[error("{found} keys, at most {limit} are allowed")]
    TooManyKeys {
        /// The number of keys.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// None of the keys is of a usable kind.
    #[error("none of its {found} keys is an RSA, P-256, P-384 or Ed25519 key for signatures")]
    NoUsableKey {
        /// The number of keys.
        found: usize,
    },
}

#[derive(Deserialize)]
struct KeyDocument {
    keys: Vec<Value>,
}

impl KeySet {
    /// Parses a document. Keys of other kinds are ignored: the issuer may use them for other
    /// purposes.
    ///
    /// # Errors
    /// [`KeySetFault`].
    pub fn parse(bytes: &[u8]) -> Result<Self, KeySetFault> {
        let document: KeyDocument = serde_json::from_slice(bytes).map_err(|_| KeySetFault::Form)?;
        let found = document.keys.len();
        if found > MAX_ISSUER_KEYS {
            return Err(KeySetFault::TooManyKeys { found, limit: MAX_ISSUER_KEYS });
        }
        let keys: Vec<_> = document.keys.into_iter().filter_map(PublicKey::read).collect();
        if keys.is_empty() {
            return Err(KeySetFault::NoUsableKey { found });
        }
        Ok(Self { keys, digest: sha256(bytes) })
    }

    /// Returns the number of keys.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Returns the ends of the keys' certificates, in seconds since 1970. They do not matter for
    /// the verification of tokens.
    pub fn certificate_ends(&self) -> impl Iterator<Item = i64> {
        self.keys.iter().filter_map(|key| key.certificate_end)
    }

    /// Returns true if both were parsed from the same bytes.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    /// Verifies the signature of a token with the key that it names. If it names none, with the
    /// first few keys that fit.
    ///
    /// # Errors
    /// [`TokenFault::UnknownKey`], [`TokenFault::Algorithm`] and [`TokenFault::Signature`].
    pub(super) fn verify(
        &self,
        token: &ParsedToken<'_>,
        algorithm: TokenAlgorithm,
    ) -> Result<(), TokenFault> {
        let (algorithm, family) = of_crate(algorithm);
        let id = token.key_id();
        let named = self.keys.iter().filter(|key| id.is_none() || key.id.as_deref() == id);
        let mut named = named.peekable();
        if named.peek().is_none() {
            return Err(TokenFault::UnknownKey);
        }
        let mut fitting = named.filter(|key| key.fits(algorithm, family)).peekable();
        if fitting.peek().is_none() {
            return Err(TokenFault::Algorithm);
        }
        let is_signed = |key: &PublicKey| {
            crypto::verify(token.signature, token.signed, &key.key, algorithm).unwrap_or(false)
        };
        let is_valid = fitting.take(MAX_TRIED_KEYS).any(is_signed);
        if is_valid { Ok(()) } else { Err(TokenFault::Signature) }
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySet({})", self.keys.len())
    }
}

impl PublicKey {
    fn read(key: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(key).ok()?;
        let common = &jwk.common;
        let signs = common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
        let operations = common.key_operations.as_ref();
        let verifies = operations.is_none_or(|all| all.contains(&KeyOperations::Verify));
        if !signs || !verifies {
            return None;
        }
        let family = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => KeyFamily::Rsa,
            AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
                EllipticCurve::P256 => KeyFamily::P256,
                EllipticCurve::P384 => KeyFamily::P384,
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
                KeyFamily::Ed25519
            }
            // Above all, this excludes shared secrets.
            _ => return None,
        };
        let algorithm = match common.key_algorithm {
            Some(algorithm) => Some(algorithm.to_string().parse().ok()?),
            None => None,
        };
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let chain = common.x509_chain.as_deref().unwrap_or_default();
        let certificate_end = chain.first().and_then(|certificate| end_of(certificate));
        Some(Self { id: common.key_id.clone(), algorithm, family, key, certificate_end })
    }

    fn fits(&self, algorithm: Algorithm, family: KeyFamily) -> bool {
        self.family == family && self.algorithm.is_none_or(|own| own == algorithm)
    }
}

/// Returns the end of a certificate in base64 (RFC 7517, 4.7), in seconds since 1970.
fn end_of(certificate: &str) -> Option<i64> {
    let der = STANDARD.decode(certificate).ok()?;
    let (_, certificate) = parse_x509_certificate(&der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// Returns the library's algorithm, and the family of its keys.
fn of_crate(algorithm: TokenAlgorithm) -> (Algorithm, KeyFamily) {
    match algorithm {
        TokenAlgorithm::Rs256 => (Algorithm::RS256, KeyFamily::Rsa),
        TokenAlgorithm::Rs384 => (Algorithm::RS384, KeyFamily::Rsa),
        TokenAlgorithm::Rs512 => (Algorithm::RS512, KeyFamily::Rsa),
        TokenAlgorithm::Ps256 => (Algorithm::PS256, KeyFamily::Rsa),
        TokenAlgorithm::Ps384 => (Algorithm::PS384, KeyFamily::Rsa),
        TokenAlgorithm::Ps512 => (Algorithm::PS512, KeyFamily::Rsa),
        TokenAlgorithm::Es256 => (Algorithm::ES256, KeyFamily::P256),
        TokenAlgorithm::Es384 => (Algorithm::ES384, KeyFamily::P384),
        TokenAlgorithm::EdDsa => (Algorithm::EdDSA, KeyFamily::Ed25519),
    }
}

/// Limit of an issuer's keys: the largest providers publish about ten.
const MAX_ISSUER_KEYS: usize = 100;
/// Limit of the keys that are tried for a token that names none.
const MAX_TRIED_KEYS: usize = 4;
