//! The OAuth providers of servers.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use tokio::time::timeout;

use super::network::{MAX_FAULT, REQUEST_TIME, no_answer};
use super::report::{CheckArea, DoctorReport};
use crate::call::ServerName;
use crate::config::{Config, quote_segment};
use crate::oauth::{GrantBook, ServerAuthorizer, find_challenge};
use crate::text::{clip, error_chain};

/// The headers of the answers of servers.
pub(super) type ServerAnswers = HashMap<ServerName, HeaderMap>;

/// Reads the metadata of the authorization server of each server with `oauth`, as before a login.
/// Registers no client, and requests no token.
pub(super) async fn check_server_providers(
    config: &Config,
    answers: &ServerAnswers,
    report: &mut DoctorReport,
) {
    let book = Arc::new(GrantBook::default());
    for server in &config.servers {
        let Some(authorizer) = ServerAuthorizer::of(server, &book, None) else { continue };
        let challenge = answers.get(&server.name).and_then(find_challenge).unwrap_or_default();
        let found = timeout(REQUEST_TIME, authorizer.find_provider(&challenge)).await;
        let found = found.map_err(|_| no_answer());
        let found = found.and_then(|found| found.map_err(|fault| error_chain(&fault)));
        let area = CheckArea::Providers;
        let setting = format!("servers.{}.oauth", quote_segment(server.name.as_str()));
        match found {
            Ok(issuer) => report.pass(area, format!("{setting}: {issuer}")),
            Err(fault) => {
                let fault = clip(&server.secrets.hide_in(&fault), MAX_FAULT).to_owned();
                let cure = "start the provider, or correct `issuer`, `resource` or `ca` of `oauth`";
                report.find_at(area, &setting, fault, cure);
            }
        }
    }
}
