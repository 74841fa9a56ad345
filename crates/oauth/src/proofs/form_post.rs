//! Forms that are posted to an authorization server: token requests, exchanges and revocations.
//!
//! An authorization server may repeat the request's values, in an error code as well as in a text.
//! No fault may quote a secret of the form. The secrets are known here, and are hidden in the
//! response before a fault is built from it.

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Map, Value};
use url::{Url, form_urlencoded};

use trunkline_config::{Secret, ServerSecrets};
use trunkline_http_client::outbound::{
    OutboundAnswer, OutboundClient, OutboundFault, OutboundRequest,
};

use super::dpop::DPOP_HEADER;
use super::token::TokenEndpointError;
use crate::metadata::registration::OauthClient;

/// A form for an authorization server.
pub(crate) struct FormPost<'a> {
    pub(crate) url: &'a Url,
    pub(crate) headers: HeaderMap,
    pub(crate) form: String,
    pub(crate) client: &'a OauthClient,
}

/// The response to a form.
pub(crate) struct FormAnswer {
    pub(crate) answer: OutboundAnswer,
    sent: SentForm,
}

/// The form that was sent, for hiding its secrets.
struct SentForm {
    headers: HeaderMap,
    form: Bytes,
    client_secret: Option<Secret>,
}

impl FormPost<'_> {
    /// Posts the form.
    ///
    /// # Errors
    /// [`OutboundFault`] if there is no response.
    pub(crate) async fn send(self, outbound: &OutboundClient) -> Result<FormAnswer, OutboundFault> {
        let Self { url, headers, form, client } = self;
        let body = Bytes::from(form);
        let (form, client_secret) = (body.clone(), client.secret.clone());
        let sent = SentForm { headers: headers.clone(), form, client_secret };
        let request = OutboundRequest { method: Method::POST, url, headers, body };
        match outbound.send(request).await {
            Ok(answer) => Ok(FormAnswer { answer, sent }),
            Err(fault) => Err(fault.without(&sent.secrets())),
        }
    }
}

impl FormAnswer {
    /// Reads the response. A refusal quotes no secret of the form.
    pub(crate) fn read<T>(
        &self,
        read: impl Fn(StatusCode, &[u8]) -> Result<T, TokenEndpointError>,
    ) -> Result<T, TokenEndpointError> {
        let OutboundAnswer { status, body, .. } = &self.answer;
        read(*status, body).map_err(|_| {
            let shown = hide_secrets(body, &self.sent.secrets());
            read(*status, shown.as_bytes()).err().unwrap_or(TokenEndpointError::Shape)
        })
    }
}

impl SentForm {
    fn secrets(&self) -> ServerSecrets {
        let form = form_urlencoded::parse(&self.form);
        let form = form
            .filter(|(name, _)| !PUBLIC_FORM_MEMBERS.contains(&&**name))
            .map(|(_, value)| value);
        let form: Vec<_> = form.collect();
        let headers = [AUTHORIZATION, DPOP_HEADER];
        let headers = headers.iter().filter_map(|name| self.headers.get(name)?.to_str().ok());
        let client_secret = self.client_secret.as_ref().map(Secret::expose);
        ServerSecrets::new(form.iter().map(|value| &**value).chain(headers).chain(client_secret))
    }
}

/// Returns the body without these secrets, even where JSON escapes some of their characters.
fn hide_secrets(body: &[u8], secrets: &ServerSecrets) -> String {
    let text = match serde_json::from_slice::<Map<String, Value>>(body) {
        Ok(mut members) => {
            for member in members.values_mut() {
                if let Value::String(text) = member {
                    *text = secrets.hide_in(text).into_owned();
                }
            }
            Value::Object(members).to_string()
        }
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    secrets.hide_in(&text).into_owned()
}

/// Members of forms that are not secret.
const PUBLIC_FORM_MEMBERS: [&str; 12] = [
    "grant_type",
    "resource",
    "scope",
    "client_id",
    "redirect_uri",
    "audience",
    "client_assertion_type",
    "subject_token_type",
    "actor_token_type",
    "requested_token_type",
    "token_type_hint",
    "token_type",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::token_use::TokenUse;
    use crate::proofs::token::read_tokens;

    #[test]
    fn a_refusal_quotes_nothing_of_the_request() {
        let secrets = ["refresh/secret+1=", "client secret 1", "proof.of.possession"];
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "refresh_token")
            .append_pair("refresh_token", secrets[0])
            .finish();
        let headers = HeaderMap::from_iter([(DPOP_HEADER, secrets[2].parse().unwrap())]);
        let long = |secret: &str| format!("{}{secret}", "x".repeat(190));
        for secret in secrets {
            for (status, body) in [
                (400, serde_json::json!({ "error": secret })),
                (400, serde_json::json!({ "error": format!("no.{secret}.token") })),
                (
                    400,
                    serde_json::json!({ "error": "e", "error_description": format!("a {secret} b") }),
                ),
                (400, serde_json::json!({ "error": "e", "error_description": long(secret) })),
                (200, serde_json::json!({ "access_token": "a", "token_type": secret })),
            ] {
                let body = body.to_string().replace('/', "\\/").replace("po", "p\\u006f");
                let sent = SentForm {
                    headers: headers.clone(),
                    form: form.clone().into(),
                    client_secret: Some(Secret::new(secrets[1].to_owned())),
                };
                let answer = OutboundAnswer {
                    status: StatusCode::from_u16(status).unwrap(),
                    headers: HeaderMap::new(),
                    body: body.clone().into(),
                };
                let read = |status, body: &[u8]| read_tokens(status, body, TokenUse::Bearer);
                let refusal = FormAnswer { answer, sent }.read(read).unwrap_err().to_string();
                for part in ["secret", "possession"] {
                    assert!(!refusal.contains(part), "{body} becomes {refusal}");
                }
            }
        }
    }
}
