//! Token requests and their answers (RFC 6749, 4.1.3, 4.4, 5 and 6; RFC 8707, 2.2).

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use url::form_urlencoded::Serializer;

use crate::config::Secret;
use crate::mcp::MediaType;

use super::assertion::{AssertionFault, AssertionKey};
use super::authorization::shown_code;
use super::pkce::CodeVerifier;
use super::registration::{ClientAuth, OauthClient};
use super::scopes::ScopeSet;

/// What is given for a token.
pub(super) enum TokenGrant<'a> {
    /// A code, which the user's browser has brought.
    Code { code: &'a str, verifier: &'a CodeVerifier, redirect: &'a str },
    /// A refresh token.
    Refresh { token: &'a Secret },
    /// The client itself.
    Client,
}

/// A token request.
pub(super) struct TokenRequest<'a> {
    pub(super) grant: TokenGrant<'a>,
    pub(super) client: &'a OauthClient,
    pub(super) key: Option<&'a AssertionKey>,
    /// The audience of assertions.
    pub(super) issuer: &'a str,
    pub(super) resource: &'a str,
    /// Empty: those that were asked for before.
    pub(super) scopes: &'a ScopeSet,
}

/// Why a token request cannot be made, or has no token for an answer. The texts never hold one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// The authorization server refused.
    #[error("the authorization server refused to give a token: {code}")]
    Refused {
        /// Its error code, or the HTTP status.
        code: String,
    },
    /// The answer is not one of the standard.
    #[error("the answer of the token endpoint has no usable access token")]
    Shape,
    /// The token is of a type that the gateway does not know.
    #[error("the token has the type {found:?} instead of \"Bearer\"")]
    TokenType {
        /// The type.
        found: String,
    },
    /// The client cannot prove who it is.
    #[error(transparent)]
    Assertion(#[from] AssertionFault),
}

impl TokenRequest<'_> {
    /// The headers and the form, at this time.
    pub(super) fn write(&self, now: Duration) -> Result<(HeaderMap, String), TokenRefusal> {
        let mut form = Serializer::new(String::new());
        match &self.grant {
            TokenGrant::Code { code, verifier, redirect } => {
                form.append_pair("grant_type", "authorization_code")
                    .append_pair("code", code)
                    .append_pair("redirect_uri", redirect)
                    .append_pair("code_verifier", verifier.expose());
            }
            TokenGrant::Refresh { token } => {
                form.append_pair("grant_type", "refresh_token")
                    .append_pair("refresh_token", token.expose());
            }
            TokenGrant::Client => {
                form.append_pair("grant_type", "client_credentials");
            }
        }
        form.append_pair("resource", self.resource);
        if matches!(self.grant, TokenGrant::Client) && !self.scopes.is_empty() {
            form.append_pair("scope", &self.scopes.to_string());
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, FORM);
        headers.insert(ACCEPT, MediaType::JSON);
        self.authenticate(&mut headers, &mut form, now)?;
        Ok((headers, form.finish()))
    }

    /// Adds what proves who the client is.
    fn authenticate(
        &self,
        headers: &mut HeaderMap,
        form: &mut Serializer<'_, String>,
        now: Duration,
    ) -> Result<(), TokenRefusal> {
        let OauthClient { id, secret, auth } = self.client;
        let secret = secret.as_ref().map_or("", Secret::expose);
        match auth {
            ClientAuth::Basic => {
                headers.insert(AUTHORIZATION, basic_credential(id, secret)?);
            }
            ClientAuth::Post => {
                form.append_pair("client_id", id).append_pair("client_secret", secret);
            }
            ClientAuth::None => {
                form.append_pair("client_id", id);
            }
            ClientAuth::PrivateKeyJwt => {
                let key = self.key.ok_or(AssertionFault::NoKey)?;
                let assertion = key.sign(id, self.issuer, now)?;
                form.append_pair("client_id", id)
                    .append_pair("client_assertion_type", JWT_BEARER)
                    .append_pair("client_assertion", &assertion);
            }
        }
        Ok(())
    }
}

/// `Basic` with both parts encoded as in a form (RFC 6749, 2.3.1).
fn basic_credential(id: &str, secret: &str) -> Result<HeaderValue, TokenRefusal> {
    let encode = |text| utf8_percent_encode(text, FORM_ENCODED).to_string();
    let pair = STANDARD.encode(format!("{}:{}", encode(id), encode(secret)));
    let mut value =
        HeaderValue::try_from(format!("Basic {pair}")).map_err(|_| TokenRefusal::Shape)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The tokens of an answer.
#[derive(Debug)]
pub(super) struct GivenTokens {
    /// `Bearer` and the access token, marked as sensitive.
    pub(super) authorization: HeaderValue,
    pub(super) refresh: Option<Secret>,
    pub(super) lifetime: Option<Duration>,
    /// The scopes that were given, if they are not those that were asked for.
    pub(super) scopes: Option<ScopeSet>,
}

/// Reads the answer of a token endpoint. An error code is read from any status that is no success.
pub(super) fn read_tokens(
    status: http::StatusCode,
    body: &[u8],
) -> Result<GivenTokens, TokenRefusal> {
    #[derive(Deserialize)]
    struct ErrorDocument {
        error: String,
    }
    #[derive(Deserialize)]
    struct TokenDocument {
        access_token: String,
        token_type: String,
        expires_in: Option<f64>,
        refresh_token: Option<String>,
        scope: Option<String>,
    }
    if !status.is_success() {
        let error = serde_json::from_slice::<ErrorDocument>(body).ok();
        let code = error.map(|document| shown_code(&document.error));
        return Err(TokenRefusal::Refused { code: code.unwrap_or_else(|| status.to_string()) });
    }
    let document: TokenDocument = serde_json::from_slice(body).map_err(|_| TokenRefusal::Shape)?;
    if !document.token_type.eq_ignore_ascii_case("bearer") {
        return Err(TokenRefusal::TokenType { found: shown_code(&document.token_type) });
    }
    let token = document.access_token;
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let value = HeaderValue::try_from(format!("Bearer {token}")).ok().filter(|_| is_token);
    let mut authorization = value.ok_or(TokenRefusal::Shape)?;
    authorization.set_sensitive(true);
    let seconds = document.expires_in.filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    Ok(GivenTokens {
        authorization,
        refresh: document.refresh_token.filter(|token| !token.is_empty()).map(Secret::new),
        lifetime: seconds.map(|seconds| Duration::from_secs_f64(seconds.min(LONGEST_LIFETIME))),
        scopes: document.scope.as_deref().map(ScopeSet::parse),
    })
}

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
/// What a form leaves as it is, but for spaces, which are encoded as any other character.
const FORM_ENCODED: &percent_encoding::AsciiSet =
    &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_');
/// RFC 7523, 2.2.
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// The longest lifetime of a token that is believed, in seconds: ten years.
const LONGEST_LIFETIME: f64 = 315_360_000.0;

#[cfg(test)]
mod tests;
