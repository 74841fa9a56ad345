//! The server that the requests of an API go to.

use url::Url;

use crate::config::OpenApiConfig;
use crate::text::clip;

use super::document::{DocumentFault, LONGEST_TITLE};
use super::operation::{OperationFault, OperationPlace};
use super::references::{DocumentSet, Node};

/// The server that requests go to: the configured one, or the document's first that it may choose.
pub(super) fn find_base(set: &DocumentSet, config: &OpenApiConfig) -> Result<Url, DocumentFault> {
    if let Some(base) = &config.base_url {
        return Ok(base.clone());
    }
    let unusable = |url: &str| DocumentFault::Server { url: clip(url, LONGEST_TITLE).to_owned() };
    let address = set.address().ok_or_else(|| unusable(""))?;
    let servers = set.root().find("servers").into_iter().flat_map(Node::items);
    let mut servers = servers.take(MOST_SERVERS).peekable();
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

/// Whether requests may go to a server that the document names, if the configuration does not: its
/// credentials and the arguments of calls go there.
fn judge_server(url: &str, address: &Url, config: &OpenApiConfig) -> Result<Url, DocumentFault> {
    let shown = || clip(url, LONGEST_TITLE).to_owned();
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

/// A server's URL with the configured values of its variables, or their defaults; `None` if one has
/// neither, or the URL becomes too long.
fn fill_variables(server: Node<'_>, config: &OpenApiConfig) -> Option<String> {
    let variables = server.find("variables");
    let value_of = |name: &str| {
        let configured = config.server_variables.iter().find(|(known, _)| known == name);
        let value = configured.map(|(_, value)| value.as_str());
        value.or_else(|| variables?.find(name)?.text("default"))
    };
    let mut url = String::new();
    let mut rest = server.text("url").unwrap_or("/");
    // In one pass: a value is not a template, however it looks.
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}')?;
        url.push_str(before);
        url.push_str(value_of(name)?);
        rest = after;
        if url.len() > LONGEST_URL {
            return None;
        }
    }
    url.push_str(rest);
    (url.len() <= LONGEST_URL).then_some(url)
}

/// Servers of an operation, or of its path, must be the one of all others.
pub(super) fn check_servers(
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
    let urls = servers.items().take(MOST_SERVERS);
    let mut urls = urls.filter_map(|server| fill_variables(server, config));
    if urls.any(|url| base.join(&url).is_ok_and(|url| is_base(&url))) {
        return Ok(());
    }
    let first = servers.items().next();
    let url = first.and_then(|server| server.text("url")).unwrap_or_default();
    Err(OperationFault::OtherServer { url: clip(url, LONGEST_TITLE).to_owned() })
}

/// The most bytes of a server's URL.
const LONGEST_URL: usize = 2048;
/// How many servers of a document, or of an operation, are looked at.
const MOST_SERVERS: usize = 20;
