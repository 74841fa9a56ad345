//! Signed assertions, by which a client proves its identity with a private key (RFC 7523, 2.2 and
//! 3).

use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
    RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;

use crate::config::{Secret, TokenAlgorithm};

use super::pkce::{RandomnessError, draw_text};

/// A key for signing the client's assertions.
#[derive(Clone)]
pub(super) struct AssertionKey {
    pub(super) pem: Secret,
    pub(super) algorithm: TokenAlgorithm,
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
    pub(super) fn sign(
        &self,
        client: &str,
        audience: &str,
        now: Duration,
    ) -> Result<String, AssertionFault> {
        let issued = now.as_secs();
        let header = json!({ "alg": self.algorithm.as_str(), "typ": "JWT" });
        let claims = json!({
            "iss": client,
            "sub": client,
            "aud": audience,
            "jti": draw_text()?,
            "iat": issued,
            "exp": issued + ASSERTION_TIME,
        });
        let encode = |part: serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = self.sign_bytes(signed.as_bytes());
        let signature =
            signature.ok_or(AssertionFault::Key { algorithm: self.algorithm.as_str() })?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    fn sign_bytes(&self, message: &[u8]) -> Option<Vec<u8>> {
        use TokenAlgorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        let key = PrivateKeyDer::from_pem_slice(self.pem.expose().as_bytes()).ok()?;
        match self.algorithm {
            Rs256 => sign_rsa(&key, &RSA_PKCS1_SHA256, message),
            Rs384 => sign_rsa(&key, &RSA_PKCS1_SHA384, message),
            Rs512 => sign_rsa(&key, &RSA_PKCS1_SHA512, message),
            Ps256 => sign_rsa(&key, &RSA_PSS_SHA256, message),
            Ps384 => sign_rsa(&key, &RSA_PSS_SHA384, message),
            Ps512 => sign_rsa(&key, &RSA_PSS_SHA512, message),
            Es256 => sign_ecdsa(&key, &ECDSA_P256_SHA256_FIXED_SIGNING, message),
            Es384 => sign_ecdsa(&key, &ECDSA_P384_SHA384_FIXED_SIGNING, message),
            EdDsa => {
                let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_der()).ok()?;
                Some(pair.sign(message).as_ref().to_vec())
            }
        }
    }
}

fn sign_rsa(
    key: &PrivateKeyDer<'_>,
    encoding: &'static dyn RsaEncoding,
    message: &[u8],
) -> Option<Vec<u8>> {
    let pair = match key {
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
        key => RsaKeyPair::from_pkcs8(key.secret_der()),
    };
    let pair = pair.ok()?;
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(encoding, &SystemRandom::new(), message, &mut signature).ok()?;
    Some(signature)
}

fn sign_ecdsa(
    key: &PrivateKeyDer<'_>,
    algorithm: &'static EcdsaSigningAlgorithm,
    message: &[u8],
) -> Option<Vec<u8>> {
    let pair = match key {
        PrivateKeyDer::Sec1(key) => {
            EcdsaKeyPair::from_private_key_der(algorithm, key.secret_sec1_der())
        }
        key => EcdsaKeyPair::from_pkcs8(algorithm, key.secret_der()),
    };
    let signature = pair.ok()?.sign(&SystemRandom::new(), message).ok()?;
    Some(signature.as_ref().to_vec())
}

/// Lifetime of an assertion, in seconds.
const ASSERTION_TIME: u64 = 60;

#[cfg(test)]
mod tests {
    use jsonwebtoken::{Algorithm, DecodingKey, Validation};

    use super::*;

    #[test]
    fn an_assertion_names_the_client_and_the_issuer_and_ends_soon() {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let pem = Secret::new(pair.serialize_pem());
        let key = AssertionKey { pem: pem.clone(), algorithm: TokenAlgorithm::Es256 };
        let now = crate::clock::unix_now();
        let assertion = key.sign("a client", "https://i.test", now).unwrap();
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_audience(&["https://i.test"]);
        validation.set_issuer(&["a client"]);
        // The public key as it is: the last 65 bytes, without the byte for the point's form.
        let point = pair.public_key_raw();
        let encode = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        let public = DecodingKey::from_ec_components(&encode(&point[1..33]), &encode(&point[33..]));
        let token =
            jsonwebtoken::decode::<serde_json::Value>(&assertion, &public.unwrap(), &validation);
        let claims = token.unwrap().claims;
        assert_eq!(claims["sub"], "a client");
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 60);
        for algorithm in [TokenAlgorithm::Rs256, TokenAlgorithm::Es384, TokenAlgorithm::EdDsa] {
            let other = AssertionKey { pem: pem.clone(), algorithm };
            let fault = other.sign("c", "https://i.test", now).unwrap_err();
            assert_eq!(fault, AssertionFault::Key { algorithm: algorithm.as_str() });
        }
    }
}
