//! Signed assertions, by which a client proves its identity with a private key (RFC 7523, 2.2 and
//! 3).

use std::time::Duration;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
};
use jsonwebtoken::{Algorithm, AlgorithmFamily, EncodingKey, Header};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;
use x509_parser::asn1_rs::{Any, FromDer};

use trunkline_config::{Secret, TokenAlgorithm};

use super::pkce::{RandomnessError, draw_text};

/// A key for signing the client's assertions.
#[derive(Clone)]
pub(crate) struct AssertionKey {
    pub(crate) pem: Secret,
    pub(crate) algorithm: TokenAlgorithm,
}

/// Error while signing an assertion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssertionFault {
    /// There is no private key.
    #[error("the client authenticates with a `private_key`, and there is none")]
    NoKey,
    /// The key does not fit the algorithm.
    #[error("`private_key` is not a PEM file with a key for {algorithm}")]
    Key {
        /// The algorithm.
        algorithm: &'static str,
    },
    /// There are no random bytes.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
}

impl AssertionKey {
    /// Signs an assertion of the client's identity for this audience.
    pub(crate) fn sign(
        &self,
        client: &str,
        audience: &str,
        now: Duration,
    ) -> Result<String, AssertionFault> {
        let issued = now.as_secs();
        let claims = json!({
            "iss": client,
            "sub": client,
            "aud": audience,
            "jti": draw_text()?,
            "iat": issued,
            "exp": issued + ASSERTION_TIME,
        });
        let algorithm = jwt_algorithm(self.algorithm);
        let signed = read_key(&self.pem, algorithm)
            .and_then(|key| jsonwebtoken::encode(&Header::new(algorithm), &claims, &key).ok());
        signed.ok_or(AssertionFault::Key { algorithm: self.algorithm.as_str() })
    }
}

const fn jwt_algorithm(algorithm: TokenAlgorithm) -> Algorithm {
    match algorithm {
        TokenAlgorithm::Rs256 => Algorithm::RS256,
        TokenAlgorithm::Rs384 => Algorithm::RS384,
        TokenAlgorithm::Rs512 => Algorithm::RS512,
        TokenAlgorithm::Ps256 => Algorithm::PS256,
        TokenAlgorithm::Ps384 => Algorithm::PS384,
        TokenAlgorithm::Ps512 => Algorithm::PS512,
        TokenAlgorithm::Es256 => Algorithm::ES256,
        TokenAlgorithm::Es384 => Algorithm::ES384,
        TokenAlgorithm::EdDsa => Algorithm::EdDSA,
    }
}

/// Converts a key to the form that `jsonwebtoken` signs with: PKCS #1 for RSA, PKCS #8 for others.
fn read_key(pem: &Secret, algorithm: Algorithm) -> Option<EncodingKey> {
    let key = PrivateKeyDer::from_pem_slice(pem.expose().as_bytes()).ok()?;
    match (algorithm.family(), &key) {
        (AlgorithmFamily::Rsa, PrivateKeyDer::Pkcs1(key)) => {
            Some(EncodingKey::from_rsa_der(key.secret_pkcs1_der()))
        }
        (AlgorithmFamily::Rsa, key) => {
            Some(EncodingKey::from_rsa_der(inner_key(key.secret_der())?))
        }
        (AlgorithmFamily::Ec, PrivateKeyDer::Sec1(key)) => {
            let signing = match algorithm {
                Algorithm::ES256 => &ECDSA_P256_SHA256_FIXED_SIGNING,
                _ => &ECDSA_P384_SHA384_FIXED_SIGNING,
            };
            let pair = EcdsaKeyPair::from_private_key_der(signing, key.secret_sec1_der()).ok()?;
            Some(EncodingKey::from_ec_der(pair.to_pkcs8v1().ok()?.as_ref()))
        }
        (AlgorithmFamily::Ec, key) => Some(EncodingKey::from_ec_der(key.secret_der())),
        (_, key) => Some(EncodingKey::from_ed_der(key.secret_der())),
    }
}

/// Returns the key inside of PKCS #8 (RFC 5208, 5: a sequence of version, algorithm and key).
fn inner_key(pkcs8: &[u8]) -> Option<&[u8]> {
    let (_, sequence) = Any::from_der(pkcs8).ok()?;
    let (rest, _version) = Any::from_der(sequence.data).ok()?;
    let (rest, _algorithm) = Any::from_der(rest).ok()?;
    let (_, key) = Any::from_der(rest).ok()?;
    Some(key.data)
}

/// Lifetime of an assertion, in seconds.
const ASSERTION_TIME: u64 = 60;

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use jsonwebtoken::{DecodingKey, Validation};
    use rcgen::KeyPair;

    use super::*;

    const AUDIENCE: &str = "https://i.test";

    /// Returns the claims of an assertion after a check of its signature.
    fn verify(assertion: &str, key: &DecodingKey, algorithm: Algorithm) -> serde_json::Value {
        let mut validation = Validation::new(algorithm);
        validation.set_audience(&[AUDIENCE]);
        validation.set_issuer(&["a client"]);
        jsonwebtoken::decode(assertion, key, &validation).unwrap().claims
    }

    fn sign(pem: &str, algorithm: TokenAlgorithm) -> Result<String, AssertionFault> {
        let key = AssertionKey { pem: Secret::new(pem.to_owned()), algorithm };
        key.sign("a client", AUDIENCE, trunkline_core::clock::unix_now())
    }

    /// Writes a key in another form than PKCS #8.
    fn write_pem(label: &str, der: &[u8]) -> String {
        let text = STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    }

    /// The public key of an ECDSA pair: its point, without the byte for the point's form.
    fn ecdsa_key(pair: &KeyPair) -> DecodingKey {
        let point = &pair.public_key_raw()[1..];
        let (x, y) = point.split_at(point.len() / 2);
        let [x, y] = [x, y].map(|part| URL_SAFE_NO_PAD.encode(part));
        DecodingKey::from_ec_components(&x, &y).unwrap()
    }

    #[test]
    fn an_assertion_names_the_client_and_the_issuer_and_ends_soon() {
        let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let pem = pair.serialize_pem();
        let assertion = sign(&pem, TokenAlgorithm::Es256).unwrap();
        let claims = verify(&assertion, &ecdsa_key(&pair), Algorithm::ES256);
        assert_eq!(claims["sub"], "a client");
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 60);
        let header = jsonwebtoken::decode_header(&assertion).unwrap();
        assert_eq!(header, Header::new(Algorithm::ES256), "no further members");
        for algorithm in [TokenAlgorithm::Rs256, TokenAlgorithm::Es384, TokenAlgorithm::EdDsa] {
            let fault = sign(&pem, algorithm).unwrap_err();
            assert_eq!(fault, AssertionFault::Key { algorithm: algorithm.as_str() });
        }
        for broken in ["", "-----BEGIN PRIVATE KEY-----", &write_pem("PRIVATE KEY", b"0")] {
            assert!(sign(broken, TokenAlgorithm::Rs256).is_err(), "{broken}");
        }
    }

    #[test]
    fn every_form_of_an_elliptic_key_signs() {
        use TokenAlgorithm::{EdDsa, Es256, Es384};
        for (algorithm, jwt, generate) in [
            (Es256, Algorithm::ES256, &rcgen::PKCS_ECDSA_P256_SHA256),
            (Es384, Algorithm::ES384, &rcgen::PKCS_ECDSA_P384_SHA384),
        ] {
            let pair = KeyPair::generate_for(generate).unwrap();
            let der = pair.serialize_der();
            // PKCS #8 contains the SEC 1 form.
            let sec1 = write_pem("EC PRIVATE KEY", inner_key(&der).unwrap());
            for pem in [pair.serialize_pem(), sec1] {
                let assertion = sign(&pem, algorithm).unwrap();
                verify(&assertion, &ecdsa_key(&pair), jwt);
            }
        }
        let pair = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let assertion = sign(&pair.serialize_pem(), EdDsa).unwrap();
        verify(&assertion, &DecodingKey::from_ed_der(pair.public_key_raw()), Algorithm::EdDSA);
    }

    #[test]
    fn both_forms_of_an_rsa_key_sign_with_every_algorithm() {
        use TokenAlgorithm::{Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        let pair = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
        let der = pair.serialize_der();
        let pkcs1 = write_pem("RSA PRIVATE KEY", inner_key(&der).unwrap());
        let public = DecodingKey::from_rsa_der(pair.public_key_raw());
        for algorithm in [Rs256, Rs384, Rs512, Ps256, Ps384, Ps512] {
            for pem in [&pair.serialize_pem(), &pkcs1] {
                let assertion = sign(pem, algorithm).unwrap();
                verify(&assertion, &public, jwt_algorithm(algorithm));
            }
        }
    }
}
