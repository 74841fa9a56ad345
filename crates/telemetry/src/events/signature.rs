//! Signatures of webhooks, by the scheme of Standard Webhooks (version 1, symmetric).

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Key for signing webhooks. Never printed.
#[derive(Clone)]
pub struct SigningKey(Arc<hmac::Key>);

/// Error of an invalid key: expected are `whsec_` and 24 to 64 bytes in Base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected `whsec_` and 24 to 64 bytes in Base64")]
pub struct SigningKeyError;

impl SigningKey {
    /// Parses a key.
    ///
    /// # Errors
    /// [`SigningKeyError`].
    pub fn parse(text: &str) -> Result<Self, SigningKeyError> {
        let encoded = text.strip_prefix(SECRET_PREFIX).ok_or(SigningKeyError)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| SigningKeyError)?;
        if !(24..=64).contains(&bytes.len()) {
            return Err(SigningKeyError);
        }
        Ok(Self(Arc::new(hmac::Key::new(HMAC_SHA256, &bytes))))
    }

    /// Returns the value of `webhook-signature` for a message with this id and time, in seconds
    /// since 1970.
    pub(super) fn sign(&self, id: &str, at: u64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(format!("{id}.{at}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign()))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

const SECRET_PREFIX: &str = "whsec_";

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vector of the specification's libraries.
    #[test]
    fn a_signature_is_the_one_that_receivers_expect() {
        let key = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(format!("{key:?}"), "***");
    }

    #[test]
    fn a_key_has_its_prefix_and_enough_bytes() {
        for text in ["", "whsec_", "whsec_AAAA", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!!"] {
            assert_eq!(SigningKey::parse(text).unwrap_err(), SigningKeyError, "{text}");
        }
    }
}
