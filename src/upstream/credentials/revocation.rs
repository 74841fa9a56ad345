//! Revocation at the authorization server (RFC 7009).

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method};
use url::form_urlencoded::Serializer;

use crate::clock;
use crate::mcp::MediaType;
use crate::upstream::outbound::{OutboundRequest, shown_url};

use super::fault::LoginFault;
use super::grant::{OauthGrant, TokenSource};
use super::token::{ClientProof, FORM, TokenRefusal};

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
        if let Some((_, token)) = access {
            self.source.revoke(token, "access_token").await?;
        }
        Ok(true)
    }
}

impl TokenSource {
    async fn revoke(&self, token: &str, hint: &str) -> Result<(), LoginFault> {
        let Some(url) = &self.revocation_endpoint else { return Ok(()) };
        let (headers, form) = self.write_revocation(token, hint)?;
        let body = form.into();
        let request = OutboundRequest { method: Method::POST, url, headers, body };
        let answer = self.outbound.send(request).await?;
        // RFC 7009, 2.2: a token that is unknown there is answered with 200, too.
        if answer.status.is_success() {
            return Ok(());
        }
        Err(LoginFault::Status { url: shown_url(url), status: answer.status })
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
