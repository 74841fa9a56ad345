//! A server that requires OAuth, and its scripted authorization server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use url::Url;

use super::api::{Page, PlainApi};
use super::upstream::Upstream;

/// Tokens that the server accepts, each with its scopes.
type Tokens = Arc<Mutex<HashMap<String, Vec<String>>>>;

/// A server behind OAuth.
pub struct OauthServer {
    pub upstream: Upstream,
    /// The authorization server, and the server's own metadata.
    pub api: PlainApi,
    tokens: Tokens,
    bound: Arc<Mutex<BoundTokens>>,
}

/// Requirement of tokens that are bound to a key, and the nonce for proofs.
#[derive(Default)]
struct BoundTokens {
    wanted: bool,
    nonce: Option<String>,
}

impl OauthServer {
    /// Starts in front of a server with its usual tools. Every request needs the scope `list`, and
    /// a call `call` as well.
    pub async fn before(upstream: Upstream) -> Self {
        let api = PlainApi::start().await;
        let server = Self { upstream, api, tokens: Tokens::default(), bound: Arc::default() };
        server.api.sets(
            "/prm",
            Page::json(&json!({
                "resource": server.resource(), "authorization_servers": [server.issuer()],
                "scopes_supported": ["list", "call"],
            })),
        );
        server.publishes(json!({}));
        let client = json!({
            "client_id": "registered",
            "client_secret": "client-secret-1",
            "client_secret_expires_at": 4_000_000_000_u64,
        });
        server.api.sets("/register", Page::new(201, "application/json", client.to_string()));
        server.guards();
        server
    }

    fn guards(&self) {
        let (tokens, metadata) = (Arc::clone(&self.tokens), self.api.url("/prm"));
        let bound = Arc::clone(&self.bound);
        self.upstream.guards(move |received| {
            let sent = received.header("authorization").unwrap_or_default();
            let bound = bound.lock().unwrap();
            let scheme = if bound.wanted { "DPoP" } else { "Bearer" };
            let token = sent.strip_prefix(scheme).unwrap_or_default().trim_start();
            let scopes = tokens.lock().unwrap().get(token).cloned();
            let needed = if received.method == "tools/call" { "call" } else { "list" };
            if let (Some(_), Some(nonce)) = (&scopes, &bound.nonce) {
                let proof = received.header("dpop").map(proof_claims).unwrap_or_default();
                if proof["nonce"] != nonce.as_str() {
                    let challenge = "DPoP error=\"use_dpop_nonce\"".to_owned();
                    let headers = vec![
                        ("WWW-Authenticate".to_owned(), challenge),
                        ("DPoP-Nonce".to_owned(), nonce.replace('*', &received.number.to_string())),
                    ];
                    return Some((401, headers, "no".to_owned()));
                }
            }
            let (status, error) = match scopes {
                Some(scopes) if scopes.iter().any(|scope| scope == needed) => return None,
                Some(_) => (403, ", error=\"insufficient_scope\""),
                None => (401, ""),
            };
            let challenge =
                format!("{scheme} resource_metadata=\"{metadata}\", scope=\"{needed}\"{error}");
            let headers = vec![("WWW-Authenticate".to_owned(), challenge)];
            Some((status, headers, "no".to_owned()))
        });
    }

    /// Requires tokens that are bound to a key, which the authorization server can issue from now
    /// on.
    pub fn binds(&self) {
        self.bound.lock().unwrap().wanted = true;
        self.publishes(json!({ "dpop_signing_alg_values_supported": ["ES256"] }));
    }

    /// Requires this nonce in proofs from now on; with `*` another one each time.
    pub fn wants_nonce(&self, nonce: &str) {
        self.bound.lock().unwrap().nonce = Some(nonce.into());
    }

    /// Returns the identifier of the server.
    pub fn resource(&self) -> String {
        format!("http://{}/mcp", self.upstream.http_address())
    }

    pub fn issuer(&self) -> String {
        self.api.url("")
    }

    /// Publishes the authorization server's metadata with other members; `null` removes one.
    pub fn publishes(&self, more: Value) {
        let metadata = json!({
            "issuer": self.issuer(),
            "authorization_endpoint": self.api.url("/authorize"),
            "token_endpoint": self.api.url("/token"),
            "registration_endpoint": self.api.url("/register"),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "authorization_response_iss_parameter_supported": true,
        });
        let metadata = super::issuer::with(metadata, more);
        self.api.sets("/.well-known/oauth-authorization-server", Page::json(&metadata));
    }

    /// Accepts this token from now on.
    pub fn takes(&self, token: &str, scopes: &[&str]) {
        let scopes = scopes.iter().map(ToString::to_string).collect();
        self.tokens.lock().unwrap().insert(token.into(), scopes);
    }

    /// Refuses this token from now on.
    pub fn refuses(&self, token: &str) {
        self.tokens.lock().unwrap().remove(token);
    }

    /// Makes the authorization server issue this token from now on, with more members in its
    /// answer.
    pub fn gives(&self, token: &str, more: Value) {
        let answer = json!({ "access_token": token, "token_type": "Bearer" });
        self.api.sets("/token", Page::json(&super::issuer::with(answer, more)));
    }

    /// Makes the authorization server refuse to issue tokens.
    pub fn gives_none(&self, error: &str) {
        let answer = json!({ "error": error }).to_string();
        self.api.sets("/token", Page::new(400, "application/json", answer));
    }

    /// Returns the forms that the token endpoint has received.
    pub fn token_requests(&self) -> Vec<HashMap<String, String>> {
        let calls = self.api.calls("/token");
        calls
            .iter()
            .map(|call| url::form_urlencoded::parse(&call.body).into_owned().collect())
            .collect()
    }

    /// Returns the configuration lines for it.
    pub fn lines(&self, server: &str, settings: &str) -> String {
        format!("{}[servers.{server}.oauth]\n{settings}\n", self.upstream.http())
    }

    /// Returns the path at the gateway to which the browser returns after the user's consent.
    pub fn agrees(&self, link: &str) -> String {
        let iss = self.issuer();
        self.answers(link, &[("code", "the-code-1"), ("iss", &iss)])
    }

    /// Returns the path at the gateway to which the browser returns with these parameters.
    pub fn answers(&self, link: &str, parameters: &[(&str, &str)]) -> String {
        let link = Url::parse(link).unwrap();
        let asked: HashMap<_, _> = link.query_pairs().into_owned().collect();
        let mut back = Url::parse(&asked["redirect_uri"]).unwrap();
        back.query_pairs_mut().extend_pairs(parameters).append_pair("state", &asked["state"]);
        format!("{}?{}", back.path(), back.query().unwrap())
    }
}

/// Returns the claims of a proof, unverified.
pub fn proof_claims(proof: &str) -> Value {
    let claims = proof.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

/// Returns the parameters of a link.
pub fn parameters(link: &str) -> HashMap<String, String> {
    Url::parse(link).unwrap().query_pairs().into_owned().collect()
}
