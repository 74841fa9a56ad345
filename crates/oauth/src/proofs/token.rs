//! Token requests and their responses (RFC 6749, 4.1.3, 4.4, 5 and 6; RFC 7523, 2.1; RFC 8693, 2;
//! RFC 8707, 2.2).

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use url::form_urlencoded::Serializer;

use trunkline_config::{ExchangedType, Secret};
use trunkline_core::text::clip;
use trunkline_protocol::mcp::MediaType;

use super::assertion::{AssertionFault, AssertionKey};
use super::pkce::CodeVerifier;
use crate::metadata::members::{optional_words, seconds};
use crate::metadata::parameters::RESOURCE_PARAMETER;
use crate::metadata::provider_error::{ProviderError, shown_code};
use crate::metadata::registration::{ClientAuth, OauthClient};
use crate::metadata::scopes::ScopeSet;
use crate::metadata::token_use::TokenUse;

/// Credential that is presented for a token.
pub(crate) enum TokenGrant<'a> {
    /// A code, delivered by the user's browser.
    Code { code: &'a str, verifier: &'a CodeVerifier, redirect: &'a str },
    /// A refresh token.
    Refresh { token: &'a Secret },
    /// The client itself.
    Client,
    /// Another token.
    Exchange(TokenExchange<'a>),
    /// A JWT of an issuer that the authorization server trusts.
    Assertion { jwt: &'a Secret },
}

/// A token that is exchanged for another (RFC 8693, 2.1).
pub(crate) struct TokenExchange<'a> {
    /// The token of its subject.
    pub(crate) subject: (&'a Secret, ExchangedType),
    /// The token of the party that acts for the subject.
    pub(crate) actor: Option<(&'a Secret, ExchangedType)>,
    pub(crate) wanted: WantedToken,
    pub(crate) audience: Option<&'a str>,
}

/// Type of token to receive in an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WantedToken {
    AccessToken,
    /// A grant at the authorization server in `audience` (ID-JAG, 4.3).
    IdJag,
}

/// A token request.
pub(crate) struct TokenRequest<'a> {
    pub(crate) grant: TokenGrant<'a>,
    pub(crate) client: &'a OauthClient,
    pub(crate) key: Option<&'a AssertionKey>,
    /// Audience of assertions.
    pub(crate) issuer: &'a str,
    /// Identifier of the server. `None` if its authorization server rejects the parameter.
    pub(crate) resource: Option<&'a str>,
    /// Scopes to request. Empty for the scopes that were requested before.
    pub(crate) scopes: &'a ScopeSet,
}

/// Reason that a token request cannot be made, or that its response has no token. The texts never
/// contain a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenEndpointError {
    /// The authorization server refused.
    #[error("the authorization server refused: {error}")]
    Refused {
        /// Its error, or the HTTP status.
        error: ProviderError,
    },
    /// The response does not follow the standard.
    #[error("the answer of the token endpoint has no usable access token")]
    Shape,
    /// The token has another type than the requested one.
    #[error("the token has the type {found:?} instead of {expected:?}")]
    TokenType {
        /// The type.
        found: String,
        /// The requested type.
        expected: &'static str,
    },
    /// The response to an ID token is not a grant at another authorization server.
    #[error(
        "the identity provider has not answered with an ID-JAG: `issued_token_type` is {found:?}"
    )]
    IssuedType {
        /// The type in the response.
        found: String,
    },
    /// The client cannot prove its identity.
    #[error(transparent)]
    Assertion(#[from] AssertionFault),
}

impl TokenEndpointError {
    /// Returns true if the authorization server requires its nonce in the proof (RFC 9449, 8).
    pub(crate) fn needs_nonce(&self) -> bool {
        matches!(self, Self::Refused { error } if error.code == "use_dpop_nonce")
    }

    /// Returns true if the authorization server refuses the client itself (RFC 6749, 5.2).
    pub(crate) fn is_refused_client(&self) -> bool {
        let Self::Refused { error } = self else { return false };
        let is_of_client = matches!(&*error.code, "invalid_client" | "unauthorized_client");
        is_of_client || error.code.starts_with("401") || error.code.starts_with("403")
    }

    /// Returns true if the authorization server has judged the credential, so that the same one
    /// would be refused again. A status such as `503` is not a judgement.
    pub(crate) fn is_verdict(&self) -> bool {
        matches!(self, Self::Refused { error } if !error.code.starts_with('5'))
    }
}

impl TokenRequest<'_> {
    /// Returns the headers and the form, at this time.
    pub(crate) fn write(&self, now: Duration) -> Result<(HeaderMap, String), TokenEndpointError> {
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
            TokenGrant::Exchange(exchange) => exchange.write(&mut form),
            TokenGrant::Assertion { jwt } => {
                form.append_pair("grant_type", JWT_BEARER_GRANT)
                    .append_pair("assertion", jwt.expose());
            }
        }
        if let Some(resource) = self.resource {
            form.append_pair(RESOURCE_PARAMETER, resource);
        }
        // A code has the scopes of its authorization request, and a refresh token its own.
        let asks = !matches!(self.grant, TokenGrant::Code { .. } | TokenGrant::Refresh { .. });
        if asks && !self.scopes.is_empty() {
            form.append_pair("scope", &self.scopes.to_string());
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, FORM_MEDIA_TYPE);
        headers.insert(ACCEPT, MediaType::JSON);
        let proof = ClientProof { client: self.client, key: self.key, issuer: self.issuer };
        proof.add_to(&mut headers, &mut form, now)?;
        Ok((headers, form.finish()))
    }
}

/// A client of an authorization server, with the proof of its identity.
pub(crate) struct ClientProof<'a> {
    pub(crate) client: &'a OauthClient,
    pub(crate) key: Option<&'a AssertionKey>,
    /// Audience of assertions.
    pub(crate) issuer: &'a str,
}

impl ClientProof<'_> {
    /// Adds the proof of the client's identity.
    pub(crate) fn add_to(
        &self,
        headers: &mut HeaderMap,
        form: &mut Serializer<'_, String>,
        now: Duration,
    ) -> Result<(), TokenEndpointError> {
        let OauthClient { id, secret, auth, .. } = self.client;
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
            ClientAuth::Unregistered => {}
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

impl TokenExchange<'_> {
    fn write(&self, form: &mut Serializer<'_, String>) {
        let (subject, kind) = self.subject;
        form.append_pair("grant_type", EXCHANGE_GRANT)
            .append_pair("subject_token", subject.expose())
            .append_pair("subject_token_type", kind.urn());
        if let Some((actor, kind)) = self.actor {
            form.append_pair("actor_token", actor.expose())
                .append_pair("actor_token_type", kind.urn());
        }
        let wanted = match self.wanted {
            WantedToken::AccessToken => ExchangedType::AccessToken.urn(),
            WantedToken::IdJag => ID_JAG,
        };
        form.append_pair("requested_token_type", wanted);
        if let Some(audience) = self.audience {
            form.append_pair("audience", audience);
        }
    }
}

/// Returns a `Basic` credential with both parts encoded as in a form (RFC 6749, 2.3.1).
fn basic_credential(id: &str, secret: &str) -> Result<HeaderValue, TokenEndpointError> {
    let encode = |text| utf8_percent_encode(text, FORM_ENCODED).to_string();
    let pair = STANDARD.encode(format!("{}:{}", encode(id), encode(secret)));
    let mut value =
        HeaderValue::try_from(format!("Basic {pair}")).map_err(|_| TokenEndpointError::Shape)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The tokens of a response.
#[derive(Debug)]
pub(crate) struct GivenTokens {
    /// The scheme and the access token, marked as sensitive.
    pub(crate) authorization: HeaderValue,
    pub(crate) refresh: Option<Secret>,
    pub(crate) lifetime: Option<Duration>,
    /// Lifetime of the refresh token, if it is announced.
    pub(crate) refresh_lifetime: Option<Duration>,
    /// Granted scopes, if they differ from the requested ones.
    pub(crate) scopes: Option<ScopeSet>,
}

/// Reads an error of an authorization server (RFC 6749, 5.2).
pub(crate) fn read_refusal(status: http::StatusCode, body: &[u8]) -> TokenEndpointError {
    TokenEndpointError::Refused { error: ProviderError::read(status, body) }
}

/// Reads the response of a token endpoint. An error code is read from any unsuccessful status.
pub(crate) fn read_tokens(
    status: http::StatusCode,
    body: &[u8],
    wanted: TokenUse,
) -> Result<GivenTokens, TokenEndpointError> {
    #[derive(Deserialize)]
    struct TokenDocument {
        access_token: String,
        token_type: Option<String>,
        #[serde(default, deserialize_with = "seconds")]
        expires_in: Option<f64>,
        refresh_token: Option<String>,
        /// Not in RFC 6749, but sent by many providers; Keycloak has the other name.
        #[serde(default, alias = "refresh_expires_in", deserialize_with = "seconds")]
        refresh_token_expires_in: Option<f64>,
        #[serde(default, deserialize_with = "optional_words")]
        scope: Option<Vec<String>>,
    }
    if !status.is_success() {
        return Err(read_refusal(status, body));
    }
    let document: TokenDocument =
        serde_json::from_slice(body).map_err(|_| TokenEndpointError::Shape)?;
    let expected = wanted.scheme();
    // RFC 9449, 5: a token without the type `DPoP` is not bound to the key, and not accepted.
    let found = document.token_type.as_deref().filter(|kind| !kind.is_empty());
    let found = found.unwrap_or(TokenUse::Bearer.scheme());
    if !found.eq_ignore_ascii_case(expected) {
        return Err(TokenEndpointError::TokenType { found: shown_code(found), expected });
    }
    let lifetime = |seconds: f64| Duration::from_secs_f64(seconds.min(MAX_TOKEN_LIFETIME_SECS));
    let token = document.access_token;
    let value = HeaderValue::try_from(format!("{expected} {token}"));
    let value = value.ok().filter(|_| is_token(&token));
    let mut authorization = value.ok_or(TokenEndpointError::Shape)?;
    authorization.set_sensitive(true);
    Ok(GivenTokens {
        authorization,
        refresh: document.refresh_token.filter(|token| !token.is_empty()).map(Secret::new),
        lifetime: document.expires_in.map(lifetime),
        // Zero means that it does not end.
        refresh_lifetime: document
            .refresh_token_expires_in
            .filter(|seconds| *seconds > 0.0)
            .map(lifetime),
        scopes: document.scope.map(|scope| scope.iter().map(String::as_str).collect()),
    })
}

/// Reads the response of an identity provider to the exchange of an ID token (ID-JAG, 4.3).
pub(crate) fn read_id_jag(
    status: http::StatusCode,
    body: &[u8],
) -> Result<Secret, TokenEndpointError> {
    #[derive(Deserialize)]
    struct IdJagDocument {
        access_token: String,
        issued_token_type: String,
    }
    if !status.is_success() {
        return Err(read_refusal(status, body));
    }
    let document: IdJagDocument =
        serde_json::from_slice(body).map_err(|_| TokenEndpointError::Shape)?;
    if document.issued_token_type != ID_JAG {
        let found = clip(&document.issued_token_type, MAX_SHOWN_NAME_BYTES).to_owned();
        return Err(TokenEndpointError::IssuedType { found });
    }
    let token = document.access_token;
    if is_token(&token) { Ok(Secret::new(token)) } else { Err(TokenEndpointError::Shape) }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

pub(crate) const FORM_MEDIA_TYPE: HeaderValue =
    HeaderValue::from_static("application/x-www-form-urlencoded");
/// Characters that a form leaves unencoded. Spaces are encoded like any other character.
const FORM_ENCODED: &percent_encoding::AsciiSet =
    &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_');
/// RFC 7523, 2.2.
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// RFC 7523, 2.1.
const JWT_BEARER_GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// RFC 8693, 2.1.
const EXCHANGE_GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
/// Identity Assertion JWT Authorization Grant, 4.3.
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
/// Maximum number of bytes of a name in a reason.
const MAX_SHOWN_NAME_BYTES: usize = 200;
/// Maximum lifetime of a token that is accepted, in seconds: ten years.
const MAX_TOKEN_LIFETIME_SECS: f64 = 315_360_000.0;

#[cfg(test)]
mod tests;
