//! Fetches the keys of issuers, with which `identity` verifies tokens.
//!
//! Each source of keys has one task. It fetches at the start, every `jwks_refresh`, and when a
//! token names an unknown key. Fetched keys stay until newer ones have been fetched.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use tokio::time::{sleep, timeout};
use url::Url;

use crate::backoff::Backoff;
use crate::clock;
use crate::codec::file::{FileError, FileReader, ReadError, read_file};
use crate::config::is_safe_url;
use crate::identity::{Identity, IssuerKeys, KeyPlace, KeySet, KeySetFault, KeySource};
use crate::mcp::MediaType;
use crate::text::{clip, error_chain};

use super::supervisor::shared::ServerContext;
use crate::http_client::outbound::{
    OutboundClient, OutboundFault, OutboundRequest, Remedy, json_object,
};
use crate::oauth::{NO_DOCUMENT, metadata_places};
use crate::telemetry::log::FaultLog;

/// Error while fetching the keys of an issuer.
#[derive(Debug, thiserror::Error)]
enum KeyFetchFault {
    #[error(transparent)]
    Outbound(#[from] OutboundFault),
    #[error("{url} answered {status}")]
    Status { url: Url, status: StatusCode },
    #[error("no metadata was found below {issuer}")]
    NoMetadata { issuer: String },
    #[error("the metadata at {url} is not JSON with `issuer` and `jwks_uri`")]
    Metadata { url: Url },
    #[error("the metadata at {url} names another issuer: {found}")]
    OtherIssuer { url: Url, found: String },
    #[error("the metadata names keys at {found}, which is neither HTTPS nor on this machine")]
    UnsafeKeys { found: String },
    #[error("the issuer is not a URL")]
    Issuer,
    #[error(transparent)]
    Files(#[from] ReadError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the keys")]
    Keys(#[from] KeySetFault),
    #[error("no answer within {}s", FETCH_TIME.as_secs())]
    Timeout,
}

/// The metadata of an authorization server (RFC 8414, 2; OpenID Connect Discovery, 3).
#[derive(Deserialize)]
struct IssuerMetadata {
    issuer: String,
    jwks_uri: String,
}

/// Starts to fetch the keys of those issuers that have no fetching task yet.
pub fn follow_issuers(identity: &Identity, context: &ServerContext) {
    for issuer in identity.issuers() {
        if issuer.keys.begin_following() {
            let name = issuer.config.name.to_string();
            let following = follow_keys(name, Arc::downgrade(&issuer.keys));
            let stop = context.stop.clone();
            context.alive.spawn(async move { stop.run_until_cancelled(following).await });
        }
    }
}

/// Fetches keys until no configuration names them.
async fn follow_keys(issuer: String, keys: Weak<IssuerKeys>) {
    let files = FileReader::default();
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    let mut faults = FaultLog::default();
    loop {
        let Some(known) = keys.upgrade() else { return };
        known.fetch_begins();
        let fetched = timeout(FETCH_TIME, fetch(&known.source, &files)).await;
        let fetched = fetched.unwrap_or(Err(KeyFetchFault::Timeout));
        let wait = match &fetched {
            Ok(found) => {
                tracing::debug!(issuer, keys = found.key_count(), "the issuer's keys were fetched");
                backoff.reset();
                faults.clear();
                known.source.refresh
            }
            Err(fault) => {
                let text = format!("the issuer's keys cannot be fetched: {}", error_chain(fault));
                if let Some(line) = faults.note(&text, clock::now()) {
                    tracing::warn!(issuer, "{line}");
                }
                backoff.next_wait().min(known.source.refresh)
            }
        };
        let fetched =
            fetched.map_err(|fault| clip(&error_chain(&fault), MAX_SHOWN_FAULT_BYTES).into());
        known.fetch_ended(fetched, clock::unix_now());
        let wanted = known.wanted();
        drop(known);
        tokio::select! {
            () = sleep(wait) => {}
            () = wanted.notified() => {}
        }
    }
}

/// Fetches the keys of an issuer once, and returns their number.
///
/// # Errors
/// The reason, as a sentence.
pub async fn try_issuer_keys(source: &KeySource) -> Result<usize, String> {
    let fetched = fetch(source, &FileReader::default()).await;
    let keys =
        fetched.map_err(|fault| clip(&error_chain(&fault), MAX_SHOWN_FAULT_BYTES).to_owned());
    keys.map(|keys| keys.key_count())
}

async fn fetch(source: &KeySource, files: &FileReader) -> Result<KeySet, KeyFetchFault> {
    let document = match &source.place {
        KeyPlace::File(path) => {
            let path = path.clone();
            Bytes::from(files.run(move || read_file(&path, MAX_KEYS)).await??)
        }
        KeyPlace::Url(url) => get(url, &client_beside(source, url)).await?,
        KeyPlace::Discovered => {
            let issuer = source.issuers.first().and_then(|issuer| Url::parse(issuer).ok());
            let issuer = issuer.ok_or(KeyFetchFault::Issuer)?;
            let outbound = client_beside(source, &issuer);
            let url = discover(source, &issuer, &outbound).await?;
            get(&url, &outbound).await?
        }
    };
    Ok(KeySet::parse(&document)?)
}

/// Finds the URL of the keys in the issuer's metadata.
async fn discover(
    source: &KeySource,
    issuer: &Url,
    outbound: &OutboundClient,
) -> Result<Url, KeyFetchFault> {
    for url in metadata_places(issuer) {
        let document = match get(&url, outbound).await {
            Err(KeyFetchFault::Status { status, .. }) if status.is_client_error() => continue,
            document => json_object(&document?),
        };
        let Some(document) = document else {
            tracing::warn!(%url, "{NO_DOCUMENT}");
            continue;
        };
        let metadata = serde_json::from_slice(&document);
        let metadata: IssuerMetadata =
            metadata.map_err(|_| KeyFetchFault::Metadata { url: url.clone() })?;
        // RFC 8414, 3.3: identical, or nothing in the document may be used.
        if !source.issuers.contains(&metadata.issuer) {
            let found = clip(&metadata.issuer, MAX_SHOWN_NAME_BYTES).to_owned();
            return Err(KeyFetchFault::OtherIssuer { url, found });
        }
        let keys = Url::parse(&metadata.jwks_uri).ok().filter(is_safe_url);
        let found = || clip(&metadata.jwks_uri, MAX_SHOWN_NAME_BYTES).to_owned();
        return keys.ok_or_else(|| KeyFetchFault::UnsafeKeys { found: found() });
    }
    Err(KeyFetchFault::NoMetadata { issuer: issuer.to_string() })
}

/// Returns the client for the URLs to which a configured URL leads.
fn client_beside(source: &KeySource, configured: &Url) -> OutboundClient {
    OutboundClient::new(source.ca.clone(), [configured], &[], Remedy::SetJwksUrl)
}

async fn get(url: &Url, outbound: &OutboundClient) -> Result<Bytes, KeyFetchFault> {
    let headers = HeaderMap::from_iter([(ACCEPT, MediaType::JSON)]);
    let request = OutboundRequest { method: Method::GET, url, headers, body: Bytes::new() };
    let answer = outbound.send(request).await?;
    match answer.status {
        status if status.is_success() => Ok(answer.body),
        status => Err(KeyFetchFault::Status { url: url.clone(), status }),
    }
}

/// Maximum size of a document, in bytes.
const MAX_KEYS: usize = 256 << 10;
/// Time limit for a complete fetch.
const FETCH_TIME: Duration = Duration::from_secs(20);
/// First wait after a failed fetch, and the maximum.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_mins(1);
/// Maximum number of bytes of a reason in the status, and of a name in a reason.
const MAX_SHOWN_FAULT_BYTES: usize = 500;
const MAX_SHOWN_NAME_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_fetched_from_https_or_this_machine_only() {
        for (url, safe) in [
            ("https://a.test/keys", true),
            ("http://127.0.0.1:1/keys", true),
            ("http://[::1]/keys", true),
            ("http://localhost/keys", true),
            ("http://a.test/keys", false),
            ("http://10.0.0.1/keys", false),
            ("file:///etc/passwd", false),
            ("ftp://127.0.0.1/keys", false),
        ] {
            assert_eq!(is_safe_url(&Url::parse(url).unwrap()), safe, "{url}");
        }
    }
}
