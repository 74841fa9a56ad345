//! The addresses of a server that a check asks.

use std::sync::Arc;

use url::Url;

use crate::config::{
    DocumentSource, HttpConfig, HttpTransport, OpenApiConfig, ServerConfig, ServerKind,
};

/// An address of a server, with the settings for requests to it.
pub(super) struct ServerAddress {
    pub(super) server: Arc<ServerConfig>,
    /// The setting of the server that has the address.
    pub(super) key: &'static str,
    pub(super) http: HttpConfig,
    pub(super) refusal: RefusalMeaning,
}

/// The meaning of 401 and 403.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalMeaning {
    /// The gateway sends further credentials with its calls.
    Usual,
    /// The settings are wrong: the gateway sends nothing else.
    WrongSettings,
}

/// Returns the addresses of a server. A server that is a program has none.
pub(super) fn addresses_of(server: &Arc<ServerConfig>) -> Vec<ServerAddress> {
    let address =
        |key, http, refusal| ServerAddress { server: Arc::clone(server), key, http, refusal };
    match &server.target {
        ServerKind::Command(_) => Vec::new(),
        ServerKind::Http(http) => {
            let has_login = http.oauth.is_some();
            let refusal =
                if has_login { RefusalMeaning::Usual } else { RefusalMeaning::WrongSettings };
            vec![address("url", (**http).clone(), refusal)]
        }
        ServerKind::OpenApi(api) => {
            let document = match &api.document {
                DocumentSource::File(_) => None,
                DocumentSource::Url(url) => Some(("openapi", url, RefusalMeaning::WrongSettings)),
                // The document is below it.
                DocumentSource::Search(url) => Some(("url", url, RefusalMeaning::Usual)),
            };
            let is_elsewhere = |base: &&Url| {
                document.is_none_or(|(_, document, _)| document.origin() != base.origin())
            };
            let base = api.base_url.as_ref().filter(is_elsewhere);
            let of_document = document.map(|(key, url, refusal)| {
                let http = http_config(api, url);
                // Credentials are for the API alone.
                let without_credentials =
                    |http| HttpConfig { headers: Vec::new(), aws: None, ..http };
                address(key, if base.is_some() { without_credentials(http) } else { http }, refusal)
            });
            let of_base =
                base.map(|url| address("base_url", http_config(api, url), RefusalMeaning::Usual));
            of_document.into_iter().chain(of_base).collect()
        }
    }
}

/// Returns the settings for requests to an API.
fn http_config(api: &OpenApiConfig, url: &Url) -> HttpConfig {
    HttpConfig {
        url: url.clone(),
        headers: api.headers.clone(),
        ca: api.ca.clone(),
        transport: HttpTransport::Streamable,
        oauth: None,
        aws: api.aws.clone(),
    }
}
