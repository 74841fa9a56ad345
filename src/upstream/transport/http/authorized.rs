//! Requests with an access token. If the server refuses one, the request is repeated with another.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Response, StatusCode};

use crate::http_client::{
    HttpClient, OutgoingRequest, RequestHeaders, RequestSigner, ResponseBody, SignableRequest,
};
use crate::oauth::{
    AfterRefusal, DPOP_HEADER, GrantOwner, MAX_REFUSED_TRIES, OauthGrant, RequestRefusal,
    ServerAuthorizer, find_challenge,
};
use crate::upstream::UpstreamError;

use super::headers::ServerHeaders;

/// Source of the tokens for a client's requests.
#[derive(Clone)]
pub(crate) struct RequestCredentials {
    pub(crate) authorizer: Arc<ServerAuthorizer>,
    /// Owner of the tokens for requests that have no principal of their own.
    pub(crate) owner: GrantOwner,
}

/// The headers of a request, together with its token.
struct AuthorizedHeaders<'a, H> {
    headers: &'a H,
    grant: Option<&'a OauthGrant>,
}

impl<H: RequestHeaders> RequestHeaders for AuthorizedHeaders<'_, H> {
    fn add_to(&self, headers: &mut HeaderMap) {
        self.headers.add_to(headers);
        // A client's own `Authorization` header is not meant for the server.
        match self.grant {
            Some(grant) => headers.insert(AUTHORIZATION, grant.authorization.clone()),
            None => headers.remove(AUTHORIZATION),
        };
    }
}

/// Proves the possession of a token's key, if the token has one.
struct PossessionProver<'a> {
    grant: Option<&'a OauthGrant>,
    authorizer: &'a ServerAuthorizer,
}

impl RequestSigner for PossessionProver<'_> {
    type Error = UpstreamError;

    fn sign(
        &self,
        request: &SignableRequest<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(), UpstreamError> {
        let Some(grant) = self.grant else { return Ok(()) };
        self.authorizer.note_sent(&grant.authorization);
        let proof = grant.prove_possession(request.method, request.uri, request.body);
        if let Some(proof) = proof.map_err(|fault| UpstreamError::Login(Box::new(fault)))? {
            self.authorizer.note_sent(&proof);
            headers.insert(DPOP_HEADER, proof);
        }
        Ok(())
    }
}

/// Sends a request with its owner's token.
pub(super) async fn send_authorized(
    http: &HttpClient,
    credentials: &RequestCredentials,
    request: OutgoingRequest<'_, impl ServerHeaders>,
) -> Result<Response<ResponseBody>, UpstreamError> {
    let OutgoingRequest { target, method, headers, body } = request;
    let authorizer = &credentials.authorizer;
    let (owner, caller) = match headers.caller() {
        Some(context) => {
            let grants = context.grants.as_deref();
            let token = grants.and_then(|grants| grants.token.as_ref());
            (authorizer.owner_of(Some(&context.principal)), token)
        }
        None => (credentials.owner.clone(), None),
    };
    let (mut before, mut nonces) = (0, 0);
    let mut given = None;
    loop {
        let grant = match given.take() {
            Some(grant) => Some(grant),
            None => authorizer.grant_for(&owner, caller).await,
        };
        let grant_used = grant.as_deref();
        let headers = &AuthorizedHeaders { headers, grant: grant_used };
        let request = OutgoingRequest { target, method, headers, body: body.clone() };
        let prover = PossessionProver { grant: grant_used, authorizer };
        let response = http.send_signed(request, &prover).await?;
        let status = response.status();
        let kept = |grant: &Arc<OauthGrant>| grant.keep_nonce(response.headers());
        let has_new_nonce = grant.as_ref().is_some_and(kept);
        if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            || before > MAX_REFUSED_TRIES
        {
            return Ok(response);
        }
        let challenge = find_challenge(response.headers()).unwrap_or_default();
        if challenge.needs_nonce() && has_new_nonce && nonces < MAX_NONCE_REPEATS {
            // The server refused only the proof (RFC 9449, 9). The token is still valid.
            nonces += 1;
            given = grant;
            continue;
        }
        let refusal = RequestRefusal { status, challenge, used: grant, before };
        let after = authorizer.answer_refusal(&owner, caller, refusal);
        let after = Box::pin(after).await;
        match after.map_err(|fault| UpstreamError::Login(Box::new(fault)))? {
            AfterRefusal::Again => before += 1,
            AfterRefusal::With(grant) => {
                before += 1;
                given = Some(grant);
            }
            AfterRefusal::Final => return Ok(response),
            AfterRefusal::Login(demand) => {
                return Err(UpstreamError::LoginNeeded(Box::new(demand)));
            }
        }
    }
}

/// Maximum number of repetitions because the server requires a newer nonce.
const MAX_NONCE_REPEATS: usize = 2;
