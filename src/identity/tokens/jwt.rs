//! The compact form of a signed JWT (RFC 7515, RFC 7519).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::call::TokenFault;
use crate::config::TokenAlgorithm;

/// A parsed token that is not verified yet.
#[derive(Debug)]
pub(super) struct ParsedToken<'a> {
    header: JoseHeader,
    pub(super) claims: Map<String, Value>,
    /// The signed bytes: the first two parts, as sent.
    pub(super) signed: &'a [u8],
    /// The signature, in Base64.
    pub(super) signature: &'a str,
}

/// The header of a token. A duplicate member is refused.
#[derive(Debug, Deserialize)]
struct JoseHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

impl<'a> ParsedToken<'a> {
    /// Parses a token.
    ///
    /// # Errors
    /// [`TokenFault::TooLong`] and [`TokenFault::Form`].
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, TokenFault> {
        if text.len() > MAX_TOKEN {
            return Err(TokenFault::TooLong { limit: MAX_TOKEN });
        }
        let text = std::str::from_utf8(text).map_err(|_| TokenFault::Form)?;
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenFault::Form)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenFault::Form)?;
        let header: JoseHeader = decode_part(header)?;
        let is_long = header.kid.as_ref().is_some_and(|kid| kid.len() > MAX_KEY_ID);
        if is_long {
            return Err(TokenFault::UnknownKey);
        }
        Ok(Self { header, claims: decode_part(claims)?, signed: signed.as_bytes(), signature })
    }

    /// Returns the algorithm, if the header is one of an access token.
    ///
    /// # Errors
    /// [`TokenFault::Algorithm`], [`TokenFault::Kind`] and [`TokenFault::Critical`].
    pub(super) fn check_header(
        &self,
        allowed: &[TokenAlgorithm],
    ) -> Result<TokenAlgorithm, TokenFault> {
        let algorithm = allowed.iter().find(|known| known.as_str() == self.header.alg);
        let algorithm = *algorithm.ok_or(TokenFault::Algorithm)?;
        if self.header.crit.is_some() {
            return Err(TokenFault::Critical);
        }
        match &self.header.typ {
            Some(kind) if !is_access_token(kind) => Err(TokenFault::Kind),
            _ => Ok(algorithm),
        }
    }

    /// Returns the token as it was sent.
    pub(super) fn text(&self) -> String {
        format!("{}.{}", String::from_utf8_lossy(self.signed), self.signature)
    }

    pub(super) fn key_id(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    pub(super) fn text_claim(&self, name: &str) -> Option<&str> {
        self.claims.get(name)?.as_str()
    }
}

/// Returns true if `typ` is that of an access token (RFC 9068, 2.1), or unspecific like `JWT`.
fn is_access_token(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    let kind = kind.strip_prefix("application/").unwrap_or(&kind);
    matches!(kind, "at+jwt" | "jwt")
}

fn decode_part<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, TokenFault> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenFault::Form)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenFault::Form)
}

/// Limit of a token's bytes.
const MAX_TOKEN: usize = 16 << 10;
/// Limit of the bytes of a key's id.
const MAX_KEY_ID: usize = 256;
