//! The authorization request and the check of its response, both of which travel through the user's
//! browser.

use url::Url;

use crate::metadata::documents::IssAdvertised;
use crate::metadata::parameters::RESOURCE_PARAMETER;
use crate::metadata::provider_error::ProviderError;
use crate::metadata::scopes::ScopeSet;

/// Parameters of an authorization request.
pub(crate) struct AuthorizationRequest<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) redirect: &'a Url,
    pub(crate) challenge: &'a str,
    pub(crate) state: &'a str,
    /// Identifier of the server. `None` if its authorization server rejects the parameter.
    pub(crate) resource: Option<&'a str>,
    pub(crate) scopes: &'a ScopeSet,
    /// Thumbprint of the key to which the tokens will be bound, if they will be (RFC 9449, 10).
    pub(crate) key: Option<&'a str>,
}

impl AuthorizationRequest<'_> {
    /// Returns the link for the user. Keeps the query of the endpoint.
    pub(crate) fn link(&self, endpoint: &Url) -> Url {
        let mut link = endpoint.clone();
        link.set_fragment(None);
        let scope = self.scopes.to_string();
        let has_prompt = link.query_pairs().any(|(name, _)| name == "prompt");
        let asks_again = self.scopes.has("offline_access") && !has_prompt;
        let mut query = link.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", self.client_id)
            .append_pair("redirect_uri", self.redirect.as_str())
            .append_pair("code_challenge", self.challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("state", self.state);
        if let Some(resource) = self.resource {
            query.append_pair(RESOURCE_PARAMETER, resource);
        }
        if !scope.is_empty() {
            query.append_pair("scope", &scope);
        }
        if let Some(key) = self.key {
            query.append_pair("dpop_jkt", key);
        }
        if asks_again {
            // OpenID Connect Core, 11: refresh tokens are issued only with this prompt.
            query.append_pair("prompt", "consent");
        }
        drop(query);
        link
    }
}

/// The authorization server's response, received through the user's browser.
// No `Debug`, because it contains a code.
#[derive(Default)]
pub(crate) struct AuthorizationAnswer {
    pub(crate) code: Option<String>,
    pub(crate) state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

/// Reason that a response to an authorization request is not used. The response's texts are not
/// repeated if they may come from another authorization server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorizationAnswerError {
    /// A parameter occurs more than once.
    #[error("the answer has a parameter more than once")]
    Duplicate,
    /// No login waits for this response.
    #[error("no login waits for this answer: it was used before, or it came too late")]
    UnknownState,
    /// The response is from another authorization server.
    #[error("the answer is from another authorization server than expected")]
    OtherIssuer,
    /// The authorization server announced that its responses name it, but this one does not.
    #[error(
        "the answer lacks `iss`, which the authorization server's metadata or `require_iss` \
         requires"
    )]
    IssMissing,
    /// The response arrived at the callback of another server.
    #[error("the answer arrived at another callback than that of its login")]
    OtherCallback,
    /// The user or the authorization server refused.
    #[error("the authorization server refused: {error}")]
    Refused {
        /// Its error.
        error: ProviderError,
    },
    /// The response has no code.
    #[error("the answer has no code")]
    NoCode,
}

impl AuthorizationAnswerError {
    /// Returns the reason for the audit log.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate_parameter",
            Self::UnknownState => "unknown_state",
            Self::OtherIssuer => "other_issuer",
            Self::IssMissing => "issuer_missing",
            Self::OtherCallback => "other_callback",
            Self::Refused { .. } => "refused_by_issuer",
            Self::NoCode => "no_code",
        }
    }
}

impl AuthorizationAnswer {
    /// Reads the query of the callback.
    pub(crate) fn parse(query: &str) -> Result<Self, AuthorizationAnswerError> {
        let mut answer = Self::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let member = match &*name {
                "code" => &mut answer.code,
                "state" => &mut answer.state,
                "iss" => &mut answer.iss,
                "error" => &mut answer.error,
                "error_description" => &mut answer.error_description,
                _ => continue,
            };
            if member.replace(value.into_owned()).is_some() {
                return Err(AuthorizationAnswerError::Duplicate);
            }
        }
        Ok(answer)
    }

    /// Returns the code if the response is from this issuer. Issuers are compared as plain strings,
    /// with or without the issuer's announcement (RFC 9207, 2.4).
    pub(crate) fn into_code(
        self,
        issuer: &str,
        advertised: IssAdvertised,
    ) -> Result<String, AuthorizationAnswerError> {
        match (&self.iss, advertised) {
            (Some(iss), _) if iss != issuer => return Err(AuthorizationAnswerError::OtherIssuer),
            (None, IssAdvertised::Yes) => return Err(AuthorizationAnswerError::IssMissing),
            _ => {}
        }
        if let Some(error) = &self.error {
            let error = ProviderError::new(error, self.error_description.as_deref());
            return Err(AuthorizationAnswerError::Refused { error });
        }
        self.code.filter(|code| !code.is_empty()).ok_or(AuthorizationAnswerError::NoCode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_has_every_parameter_and_keeps_the_endpoints_own() {
        let redirect = "http://127.0.0.1:8080/oauth/callback".parse().unwrap();
        let request = |scopes| AuthorizationRequest {
            client_id: "a client",
            redirect: &redirect,
            challenge: "ch",
            state: "st",
            resource: Some("https://a.test/mcp"),
            scopes,
            key: None,
        };
        let endpoint: Url = "https://i.test/authorize?tenant=x".parse().unwrap();
        let scopes = ScopeSet::parse("a b");
        let link = request(&scopes).link(&endpoint);
        assert_eq!(
            link.as_str(),
            "https://i.test/authorize?tenant=x&response_type=code&client_id=a+client\
             &redirect_uri=http%3A%2F%2F127.0.0.1%3A8080%2Foauth%2Fcallback&code_challenge=ch\
             &code_challenge_method=S256&state=st&resource=https%3A%2F%2Fa.test%2Fmcp&scope=a+b"
        );
        let none = ScopeSet::default();
        let link = request(&none).link(&endpoint);
        assert!(!link.as_str().contains("scope=") && !link.as_str().contains("dpop"), "{link}");
        let dropped = AuthorizationRequest { resource: None, ..request(&scopes) };
        assert!(!dropped.link(&endpoint).as_str().contains("resource"));
        let link = AuthorizationRequest { key: Some("k"), ..request(&none) }.link(&endpoint);
        assert!(link.as_str().ends_with("&dpop_jkt=k"), "{link}");
    }

    #[test]
    fn an_answer_is_used_only_if_it_is_of_the_issuer_that_was_asked() {
        use AuthorizationAnswerError::{Duplicate, IssMissing, NoCode, OtherIssuer};
        use IssAdvertised::{No, Yes};
        let refused = |description| {
            let error = ProviderError::new("access_denied", description);
            AuthorizationAnswerError::Refused { error }
        };
        for (query, advertised, expected) in [
            ("code=c&state=s&iss=https://i.test", Yes, Ok("c")),
            ("code=c&state=s&iss=https%3A%2F%2Fi.test", No, Ok("c")),
            ("code=c&state=s", No, Ok("c")),
            ("code=c&state=s", Yes, Err(IssMissing)),
            ("code=c&state=s&iss=https://i.test/", Yes, Err(OtherIssuer)),
            ("code=c&state=s&iss=https://I.test", No, Err(OtherIssuer)),
            ("code=c&state=s&iss=https://evil.test", No, Err(OtherIssuer)),
            ("code=c&state=s&iss=", No, Err(OtherIssuer)),
            ("error=access_denied&state=s&iss=https://evil.test", No, Err(OtherIssuer)),
            ("error=access_denied&state=s", No, Err(refused(None))),
            (
                "error=access_denied&error_description=Not+you&state=s",
                No,
                Err(refused(Some("Not you"))),
            ),
            (
                "error=access_denied&error_description=a&error_description=b&state=s",
                No,
                Err(Duplicate),
            ),
            ("error=access_denied&code=c&state=s", No, Err(refused(None))),
            ("state=s", No, Err(NoCode)),
            ("code=&state=s", No, Err(NoCode)),
            ("code=c&code=d&state=s", No, Err(Duplicate)),
            ("code=c&state=s&iss=https://i.test&iss=x", No, Err(Duplicate)),
        ] {
            let answer = AuthorizationAnswer::parse(query);
            let code = answer.and_then(|answer| answer.into_code("https://i.test", advertised));
            assert_eq!(code, expected.map(str::to_owned), "{query}");
        }
    }
}
