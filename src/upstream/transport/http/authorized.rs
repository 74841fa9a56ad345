//! Requests with a token: sent, and sent again with another one if the server refuses it.

use std::sync::Arc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::upstream::UpstreamError;
use crate::upstream::credentials::{
    AfterRefusal, GrantOwner, MOST_TRIES, RequestRefusal, ServerAuthorizer, find_challenge,
};

use super::body::ResponseBody;
use super::client::HttpClient;
use super::headers::RequestHeaders;
use super::pool::RequestTarget;

/// Which tokens go with the requests of a client.
#[derive(Clone)]
pub(in crate::upstream) struct RequestCredentials {
    pub(in crate::upstream) authorizer: Arc<ServerAuthorizer>,
    /// Whose they are, where a request is made for no principal of its own.
    pub(in crate::upstream) owner: GrantOwner,
}

/// The headers of a request, and its token.
struct AuthorizedHeaders<'a, H> {
    headers: &'a H,
    token: Option<&'a HeaderValue>,
}

impl<H: RequestHeaders> RequestHeaders for AuthorizedHeaders<'_, H> {
    fn add_to(&self, headers: &mut HeaderMap) {
        self.headers.add_to(headers);
        // What a client has sent under this name is not meant for the server.
        headers.remove(AUTHORIZATION);
        if let Some(token) = self.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
    }
}

impl HttpClient {
    /// Sends a request with the token of its owner.
    pub(super) async fn send_authorized(
        &self,
        credentials: &RequestCredentials,
        target: &RequestTarget,
        (method, headers, body): (&Method, &impl RequestHeaders, Bytes),
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        let authorizer = &credentials.authorizer;
        let owner = match headers.principal() {
            Some(principal) => authorizer.owner_of(Some(principal)),
            None => credentials.owner.clone(),
        };
        let mut before = 0;
        loop {
            let token = authorizer.authorization(&owner).await;
            let with_token = AuthorizedHeaders { headers, token: token.as_ref() };
            let response = self.send_once(target, method, &with_token, body.clone()).await?;
            let status = response.status();
            if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
                || before > MOST_TRIES
            {
                return Ok(response);
            }
            let challenge = find_challenge(response.headers()).unwrap_or_default();
            let refusal = RequestRefusal { status, challenge, used: token, before };
            let after = authorizer.answer_refusal(&owner, refusal).await;
            match after.map_err(|fault| UpstreamError::Login(Box::new(fault)))? {
                AfterRefusal::Again => before += 1,
                AfterRefusal::Final => return Ok(response),
                AfterRefusal::Login(demand) => {
                    return Err(UpstreamError::LoginNeeded(Box::new(demand)));
                }
            }
        }
    }
}
