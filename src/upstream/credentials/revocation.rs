//! Revocation at the authorization server (RFC 7009).

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use url::form_urlencoded::Serializer;

use crate::clock;
use crate::mcp::MediaType;

use super::fault::LoginFault;
use super::form_post::FormPost;
use super::grant::{OauthGrant, TokenSource};
use super::token::{ClientProof, FORM, TokenRefusal, read_refusal};

impl OauthGrant {
    /// Revokes its tokens: the refresh token first, which ends the grant where it can be ended.
    /// Returns whether the authorization server has an endpoint for that.
    ///
    /// # Errors
    /// [`LoginFault`] if a token is not revoked.
    pub(super) async fn revoke_tokens(&self) -> Result<bool, LoginFault> {
        if self.source.revocation_endpoint.is_none() {
            return Ok(false);
        }
        if let Some(refresh) = &self.refresh {
            self.source.revoke(refresh.expose(), "refresh_token").await?;
        }
        let access = self.authorization.to_str().ok().and_then(|it| it.split_once(' '));
        let Some((_, token)) = access else { return Ok(true) };
        match self.source.revoke(token, "access_token").await {
            // The grant has ended with its refresh token, and the access token ends soon: many
            // authorization servers cannot revoke those that servers verify by themselves.
            Err(LoginFault::Token(TokenRefusal::Refused { error }))
                if error.code == UNSUPPORTED && self.refresh.is_some() =>
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

    /// The headers and the form of a request.
    fn write_revocation(
        &self,
        token: &str,
        hint: &str,
    ) -> Result<(HeaderMap, String), TokenRefusal> {
        let mut form = Serializer::new(String::new());
        form.append_pair("token", token).append_pair("token_type_hint", hint);
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, FORM), (ACCEPT, MediaType::JSON)]);
        let proof =
            ClientProof { client: &self.client, key: self.key.as_ref(), issuer: &self.issuer };
        proof.add_to(&mut headers, &mut form, clock::unix_now())?;
        Ok((headers, form.finish()))
    }
}

/// Reads the answer. A token that is unknown there is answered with 200, too (RFC 7009, 2.2).
fn read_revocation(status: StatusCode, body: &[u8]) -> Result<(), TokenRefusal> {
    if status.is_success() { Ok(()) } else { Err(read_refusal(status, body)) }
}

/// The error code for tokens that cannot be revoked (RFC 7009, 2.2.1).
const UNSUPPORTED: &str = "unsupported_token_type";
