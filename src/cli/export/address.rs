//! The gateway's address for a client: URL, profile and key.

use std::path::Path;

use url::Url;

use trunkline_import::{CompleteEnvironment, GatewayFile, PendingFiles};

use crate::codec::file::read_file;
use crate::config::{Config, Secret};

use super::entry::{ExportedKey, GatewayAddress};
use super::{ExportArgs, ExportError};

/// Returns the gateway's address for the client, and its key if the gateway requires one.
pub(super) fn gateway_address(
    args: &ExportArgs,
    gateway: &GatewayFile,
) -> Result<GatewayAddress, ExportError> {
    let pending = PendingFiles::default();
    let environment = CompleteEnvironment(&pending);
    let config = gateway.read_piece(gateway.text(), &environment).ok();
    let name = gateway.label();
    if args.url.as_ref().is_some_and(|url| !matches!(url.scheme(), "http" | "https")) {
        return Err(ExportError::NotHttp);
    }
    let url = args.url.clone().or_else(|| listener_url(config.as_ref()?));
    let Some(mut url) = url else {
        return Err(ExportError::InvalidConfig { config: name });
    };
    let mut found = None;
    if let Some(profile) = &args.profile {
        let profiles = config.as_ref().map(|config| &config.profiles);
        let known = profiles.and_then(|all| all.iter().find(|it| it.name.as_str() == profile));
        if profiles.is_some() && known.is_none() {
            return Err(ExportError::UnknownProfile { name: profile.clone(), config: name });
        }
        found = known.cloned();
        let path = format!("{}/{profile}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    let needs_key = config.is_none_or(|config| !config.clients.is_empty());
    let key = match &args.key_file {
        Some(file) => ExportedKey::Literal(read_key(file)?),
        None if needs_key => ExportedKey::Variable,
        None => ExportedKey::None,
    };
    Ok(GatewayAddress { url, profile: found, key })
}

/// Returns the URL of the listener: for a client on this machine or, if the listener is open to
/// others, with its first known name.
fn listener_url(config: &Config) -> Option<Url> {
    let gateway = &config.gateway;
    let scheme = if gateway.tls.is_some() { "https" } else { "http" };
    let address = gateway.listen;
    let authority = match gateway.allowed_hosts.first() {
        Some(host) if !address.ip().is_loopback() && host.contains(':') => host.clone(),
        Some(host) if !address.ip().is_loopback() => format!("{host}:{}", address.port()),
        _ if address.ip().is_unspecified() => format!("127.0.0.1:{}", address.port()),
        _ => address.to_string(),
    };
    Url::parse(&format!("{scheme}://{authority}/mcp")).ok()
}

/// Reads the key of a client.
fn read_key(file: &Path) -> Result<Secret, ExportError> {
    let bytes = read_file(file, 1024)
        .map_err(|error| ExportError::KeyFile { path: file.to_owned(), error })?;
    let text = String::from_utf8(bytes).map_err(|_| ExportError::NoKey)?;
    let key = text.trim_end_matches(['\r', '\n']);
    let valid = (1..=512).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    if valid { Ok(Secret::new(key.to_owned())) } else { Err(ExportError::NoKey) }
}
