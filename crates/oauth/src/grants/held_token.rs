//! Tokens in the configuration: JWTs of the gateway's platform, and tokens of the operator.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use trunkline_config::Secret;
use trunkline_core::codec::file::{FileReader, read_file};

use crate::fault::HeldTokenFault;

/// A token in the configuration, or its file.
#[derive(Debug, Clone)]
pub(crate) enum HeldToken {
    Value(Secret),
    /// Read for each use, because platforms write new tokens there.
    File(PathBuf),
}

impl HeldToken {
    /// Creates the token from two settings, of which at most one is set.
    pub(crate) fn new(value: Option<&Secret>, file: Option<&PathBuf>) -> Option<Self> {
        let value = value.cloned().map(Self::Value);
        value.or_else(|| file.cloned().map(Self::File))
    }

    /// Reads the token.
    pub(crate) async fn read(&self, files: &FileReader) -> Result<Secret, HeldTokenFault> {
        let text = match self {
            Self::Value(value) => value.expose().to_owned(),
            Self::File(path) => {
                let named = path.clone();
                let read = files.run(move || read_file(&named, MAX_HELD_TOKEN_BYTES)).await;
                let read = read.map_err(|error| HeldTokenFault::Read(Arc::new(error)))?;
                let fault = |error| {
                    let (path, source) = (path.clone(), Arc::new(error));
                    HeldTokenFault::File { path, source }
                };
                let bytes = read.map_err(fault)?;
                String::from_utf8(bytes).map_err(|_| HeldTokenFault::Shape)?
            }
        };
        let token = text.trim();
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        is_token.then(|| Secret::new(token.to_owned())).ok_or(HeldTokenFault::Shape)
    }
}

/// Refuses to send a JWT to an authorization server that is not its audience (RFC 7523, 3).
/// Otherwise a hostile server could name its own authorization server, and use the JWT elsewhere.
pub(crate) fn check_audience(
    jwt: &Secret,
    issuer: &str,
    token_endpoint: &str,
) -> Result<(), HeldTokenFault> {
    let plain = |text: &str| text.trim_end_matches('/').to_owned();
    let is_meant =
        |audience: &String| [issuer, token_endpoint].map(plain).contains(&plain(audience));
    if audiences(jwt.expose()).is_some_and(|all| all.iter().any(is_meant)) {
        return Ok(());
    }
    Err(HeldTokenFault::Audience { issuer: issuer.to_owned() })
}

/// Returns the `aud` of a JWT. The authorization server verifies the signature.
fn audiences(jwt: &str) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Several(Vec<String>),
    }
    #[derive(Deserialize)]
    struct JwtClaims {
        aud: Audience,
    }
    let [_, claims, _] = <[&str; 3]>::try_from(jwt.split('.').collect::<Vec<_>>()).ok()?;
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: JwtClaims = serde_json::from_slice(&claims).ok()?;
    Some(match claims.aud {
        Audience::One(one) => vec![one],
        Audience::Several(several) => several,
    })
}

/// Maximum size of a token in bytes.
const MAX_HELD_TOKEN_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn jwt(claims: &Value) -> Secret {
        Secret::new(format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string())))
    }

    #[test]
    fn a_jwt_is_for_the_authorization_server_or_its_token_endpoint() {
        let check = |jwt: &Secret| check_audience(jwt, "https://i.test", "https://i.test/token");
        for (claims, is_meant) in [
            (json!({ "aud": "https://i.test" }), true),
            (json!({ "aud": "https://i.test/" }), true),
            (json!({ "aud": ["other", "https://i.test/token"] }), true),
            (json!({ "aud": "https://evil.test" }), false),
            (json!({ "aud": "https://i.test.evil.test" }), false),
            (json!({ "aud": [] }), false),
            (json!({ "sub": "https://i.test" }), false),
        ] {
            assert_eq!(check(&jwt(&claims)).is_ok(), is_meant, "{claims}");
        }
        for text in ["", "a.b", "a.!.c", "e30.e30.e30.e30"] {
            assert!(check(&Secret::new(text.to_owned())).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_file_is_read_each_time_and_has_one_token() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let held = HeldToken::new(None, Some(&path)).unwrap();
        let files = FileReader::default();
        for (text, token) in [
            ("first\n", Some("first")),
            ("second", Some("second")),
            ("two words", None),
            ("\n", None),
            ("\u{e9}", None),
        ] {
            std::fs::write(&path, text).unwrap();
            let read = held.read(&files).await.ok();
            assert_eq!(read.as_ref().map(Secret::expose), token, "{text:?}");
        }
        std::fs::write(&path, "x".repeat(MAX_HELD_TOKEN_BYTES + 1)).unwrap();
        let fault = held.read(&files).await.unwrap_err();
        assert!(matches!(fault, HeldTokenFault::File { .. }), "{fault}");
    }
}
