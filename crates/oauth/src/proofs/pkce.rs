//! Proof Key for Code Exchange (RFC 7636) with S256, and the random values of a login.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use trunkline_config::Secret;
use trunkline_core::crypto::{random_bytes, sha256};

/// The system has no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no random bytes are available")]
pub struct RandomnessError;

/// The secret of one authorization request, shown only to the token endpoint.
pub(crate) struct CodeVerifier(Secret);

impl CodeVerifier {
    /// Draws a new verifier.
    pub(crate) fn draw() -> Result<Self, RandomnessError> {
        draw_text().map(|text| Self(Secret::new(text)))
    }

    /// Restores a verifier that was drawn at another replica.
    pub(crate) fn restore(text: String) -> Self {
        Self(Secret::new(text))
    }

    /// Returns the challenge for the authorization request.
    pub(crate) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(sha256(self.0.expose().as_bytes()))
    }

    pub(crate) fn expose(&self) -> &str {
        self.0.expose()
    }
}

/// Returns 256 random bits as text.
pub(crate) fn draw_text() -> Result<String, RandomnessError> {
    let bytes = random_bytes::<32>().map_err(|_| RandomnessError)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_that_of_the_rfc() {
        // RFC 7636, appendix B.
        let verifier =
            CodeVerifier(Secret::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into()));
        assert_eq!(verifier.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn verifiers_differ_and_are_long_enough() {
        let (one, other) = (CodeVerifier::draw().unwrap(), CodeVerifier::draw().unwrap());
        assert_ne!(one.expose(), other.expose());
        assert!((43..=128).contains(&one.expose().len()));
    }
}
