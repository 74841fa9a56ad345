//! Revocation at the authorization server (RFC 7009).

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use url::form_urlencoded::Serializer;

use trunkline_core::clock;
use trunkline_protocol::mcp::MediaType;

use super::grant::{OauthGrant, TokenSource};
use crate::fault::LoginFault;
use crate::proofs::form_post::FormPost;
use crate::proofs::token::{ClientProof, FORM_MEDIA_TYPE, TokenEndpointError, read_refusal};

impl OauthGrant {
    /// Revokes the grant's tokens. The refresh token is first, because its revocation ends the
    /// grant at most servers. Returns true if the authorization server has a revocation endpoint.
    ///
    /// # Errors
    /// [`LoginFault`] if a token is not revoked.
    pub(crate) async fn revoke_tokens(&self) -> Result<bool, LoginFault> {
        if self.source.revocation_endpoint.is_none() {
            return Ok(false);
        }
        if let Some(refresh) = &self.refresh {
            self.source.revoke(refresh.expose(), "refresh_token").await?;
        }
        let access = self.authorization.to_str().ok().and_then(|it| it.split_once(' '));
        let Some((_, token)) = access else { return Ok(true) };
        match self.source.revoke(token, "access_token").await {
            // The grant has ended with its refresh token, and the access token expires soon. Many
            // authorization servers cannot revoke tokens that servers verify by themselves.
            Err(LoginFault::Token(TokenEndpointError::Refused { error }))
                if error.code == UNSUPPORTED_TOKEN_TYPE && self.refresh.is_some() =>
            {
                Ok(true)
            }
            revoked => revoked.map(|()| true),
        }
    }
}

impl TokenSource {
    async fn revoke(&self, token: &str, hint: &str) -> Result<(), LoginFault> {
        let Some(url) = &self.revocation_endpoint else { return Ok(()) };
        let (headers, form) = self.write_revocation(token, hint)?;
        let post = FormPost { url, headers, form, client: &self.client };
        let answer = post.send(&self.outbound).await?;
        Ok(answer.read(read_revocation)?)
    }

    /// Returns the headers and the form of a request.
    fn write_revocation(
        &self,
        token: &str,
        hint: &str,
    ) -> Result<(HeaderMap, String), TokenEndpointError> {
        let mut form = Serializer::new(String::new());
        form.append_pair("token", token).append_pair("token_type_hint", hint);
        let mut headers =
            HeaderMap::from_iter([(CONTENT_TYPE, FORM_MEDIA_TYPE), (ACCEPT, MediaType::JSON)]);
        let proof =
            ClientProof { client: &self.client, key: self.key.as_ref(), issuer: &self.issuer };
        proof.add_to(&mut headers, &mut form, clock::unix_now())?;
        Ok((headers, form.finish()))
    }
}

/// Reads the response. An unknown token also gets status 200 (RFC 7009, 2.2).
fn read_revocation(status: StatusCode, body: &[u8]) -> Result<(), TokenEndpointError> {
    if status.is_success() { Ok(()) } else { Err(read_refusal(status, body)) }
}

/// Error code for tokens that cannot be revoked (RFC 7009, 2.2.1).
const UNSUPPORTED_TOKEN_TYPE: &str = "unsupported_token_type";
