//! The server that receives an API's requests.

use url::Url;

use trunkline_config::OpenApiConfig;
use trunkline_core::text::clip;

use super::fault::DocumentFault;
use crate::operations::operation::{OperationFault, OperationPlace};
use crate::operations::text_limits::MAX_TITLE_BYTES;
use crate::schemas::references::{DocumentSet, Node};

/// Returns the URL of the server for requests: the configured one, or the first in the document if
/// the document may choose.
pub(crate) fn find_base(set: &DocumentSet, config: &OpenApiConfig) -> Result<Url, DocumentFault> {
    if let Some(base) = &config.base_url {
        return Ok(base.clone());
    }
    let unusable = |url: &str| DocumentFault::Server { url: clip(url, MAX_TITLE_BYTES).to_owned() };
    let address = set.address().ok_or_else(|| unusable(""))?;
    let servers = set.root().find("servers").into_iter().flat_map(Node::items);
    let mut servers = servers.take(MAX_SERVERS).peekable();
    if servers.peek().is_none() {
        return judge_server("/", address, config);
    }
    let mut first_fault = None;
    for server in servers {
        let judged = match fill_variables(server, config) {
            Some(url) => judge_server(&url, address, config),
            None => Err(unusable(server.text("url").unwrap_or_default())),
        };
        match judged {
            Ok(base) => return Ok(base),
            Err(fault) => first_fault = first_fault.or(Some(fault)),
        }
    }
    Err(first_fault.unwrap_or_else(|| unusable("")))
}

/// Decides if requests may go to a server that only the document names. The configured credentials
/// and the calls' arguments go there.
fn judge_server(url: &str, address: &Url, config: &OpenApiConfig) -> Result<Url, DocumentFault> {
    let shown = || clip(url, MAX_TITLE_BYTES).to_owned();
    let base = address.join(url).map_err(|_| DocumentFault::Server { url: shown() })?;
    if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
        return Err(DocumentFault::Server { url: shown() });
    }
    if config.document.is_local() && config.has_credentials() {
        return Err(DocumentFault::Credentials { url: shown() });
    }
    if !config.document.is_local() && base.origin() != address.origin() {
        return Err(DocumentFault::OtherOrigin { url: shown() });
    }
    Ok(base)
}

/// Returns a server's URL with the configured values of its variables, or their defaults. Returns
/// `None` if a variable has neither, or if the URL is too long.
fn fill_variables(server: Node<'_>, config: &OpenApiConfig) -> Option<String> {
    let variables = server.find("variables");
    let value_of = |name: &str| {
        let configured = config.server_variables.iter().find(|(known, _)| known == name);
        let value = configured.map(|(_, value)| value.as_str());
        value.or_else(|| variables?.find(name)?.text("default"))
    };
    let mut url = String::new();
    let mut rest = server.text("url").unwrap_or("/");
    // In one pass: a value is not a template, even if it looks like one.
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}')?;
        url.push_str(before);
        url.push_str(value_of(name)?);
        rest = after;
        if url.len() > MAX_SERVER_URL_BYTES {
            return None;
        }
    }
    url.push_str(rest);
    (url.len() <= MAX_SERVER_URL_BYTES).then_some(url)
}

/// Refuses an operation if it, or its path, names a server other than the API's.
pub(crate) fn check_servers(
    place: OperationPlace<'_>,
    base: &Url,
    config: &OpenApiConfig,
) -> Result<(), OperationFault> {
    let own = place.operation.find("servers").or_else(|| place.item.find("servers"));
    let Some(servers) = own.filter(|servers| servers.items().next().is_some()) else {
        return Ok(());
    };
    if config.base_url.is_some() {
        return Ok(());
    }
    let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
    let is_base = |url: &Url| url.origin() == base.origin() && path(url) == path(base);
    let urls = servers.items().take(MAX_SERVERS);
    let mut urls = urls.filter_map(|server| fill_variables(server, config));
    if urls.any(|url| base.join(&url).is_ok_and(|url| is_base(&url))) {
        return Ok(());
    }
    let first = servers.items().next();
    let url = first.and_then(|server| server.text("url")).unwrap_or_default();
    Err(OperationFault::OtherServer { url: clip(url, MAX_TITLE_BYTES).to_owned() })
}

/// Maximum length in bytes of a server's URL.
const MAX_SERVER_URL_BYTES: usize = 2048;
/// Maximum number of servers that are considered, of a document or of an operation.
const MAX_SERVERS: usize = 20;
