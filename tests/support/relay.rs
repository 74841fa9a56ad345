//! A gateway that relays logins to an authorization server without MCP support.

use serde_json::Value;

use super::api::Page;
use super::gateway::Builder;
use super::{Gateway, Issuer, Upstream};

/// The media type of forms.
pub const FORM: &str = "application/x-www-form-urlencoded";
/// Lines of an issuer with one client for all programs.
pub const FIXED: &str = "client_id = \"fixed-1\"\ndrop_resource = true\n";
/// A client's authorization request, without `resource`.
pub const QUERY: &str = "response_type=code&client_id=fixed-1&state=s\
                         &redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2Fcb\
                         &code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM\
                         &code_challenge_method=S256";

/// The gateway and the authorization server.
pub struct Relay {
    pub issuer: Issuer,
    pub gateway: Gateway,
}

impl Relay {
    /// Starts with lines of `[issuers.idp]`, the metadata of the issuer, and other changes of the
    /// configuration.
    pub async fn start(
        lines: &str,
        metadata: impl FnOnce(&Issuer) -> Value,
        change: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
        issuer.api.sets(METADATA, Page::json(&metadata(&issuer)));
        let gateway = Gateway::with("s", upstream.http()).toml(&issuer.table("idp", lines));
        let gateway = change(gateway).start().await;
        Self { issuer, gateway }
    }
}

const METADATA: &str = "/.well-known/oauth-authorization-server";
