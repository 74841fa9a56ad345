//! The server under test: its address, and the headers of every request to it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http::header::{HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use rustls_pki_types::ServerName;
use url::Url;

use trunkline_core::text::{hide_password, names_secret};

use super::connection::{Dialer, tls_settings};
use crate::BenchFault;

/// An endpoint to test.
#[derive(Clone)]
pub struct BenchTarget {
    /// The URL as given, without credentials.
    pub url: Url,
    /// The URL for people, with its secrets masked.
    pub shown: String,
    /// Opens connections to it.
    pub dialer: Dialer,
    /// The path and query of the request line.
    pub path: Uri,
    /// `Host`, `User-Agent` and the headers from the command line.
    pub headers: HeaderMap,
}

impl BenchTarget {
    /// Resolves the host, and loads the root certificates for TLS.
    ///
    /// # Errors
    /// [`BenchFault`] names the unusable part.
    pub async fn new(
        url: &Url,
        headers: &[(HeaderName, HeaderValue)],
        ca: Option<&Path>,
    ) -> Result<Self, BenchFault> {
        let unusable = || BenchFault::Url { url: url.to_string() };
        let host = url.host_str().ok_or_else(unusable)?;
        let port = url.port_or_known_default().ok_or_else(unusable)?;
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match url.scheme() {
            "http" => None,
            "https" => {
                let tls = tls_settings(ca)?;
                let name = ServerName::try_from(name.clone()).map_err(|_| unusable())?;
                Some((Arc::new(tls), name))
            }
            _ => return Err(unusable()),
        };
        let dialer = Dialer { address: resolve(&name, port).await?, tls };
        let shown = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let mut all = HeaderMap::new();
        all.insert(HOST, HeaderValue::try_from(shown).map_err(|_| unusable())?);
        all.insert(USER_AGENT, HeaderValue::from_static(BENCH_AGENT));
        all.extend(given_headers(headers));
        let path = path_of(url).ok_or_else(unusable)?;
        Ok(Self { url: url.clone(), shown: mask_url(url.as_str()), dialer, path, headers: all })
    }

    /// Returns the target of a redirect; `None` if it is on another server.
    pub fn redirected(&self, location: &str) -> Option<Self> {
        let url = self.url.join(location).ok()?;
        let same = url.origin() == self.url.origin() && url != self.url;
        let path = path_of(&url).filter(|_| same)?;
        let shown = mask_url(url.as_str());
        Some(Self { url, shown, path, ..self.clone() })
    }
}

/// Returns a URL with `***` for its user, its password, and parameters with names that mark their
/// values as secrets. Other texts are unchanged.
pub fn mask_url(url: &str) -> String {
    let hidden = hide_password(url);
    let Some((address, query)) = hidden.split_once('?').filter(|_| Url::parse(url).is_ok()) else {
        return hidden.into_owned();
    };
    let masked = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if names_secret(name) => format!("{name}=***"),
        _ => pair.to_owned(),
    });
    format!("{address}?{}", masked.collect::<Vec<_>>().join("&"))
}

/// Returns the given headers as a map. Its entries replace those of another map.
fn given_headers(headers: &[(HeaderName, HeaderValue)]) -> HeaderMap {
    let mut given = HeaderMap::new();
    for (name, value) in headers {
        given.append(name, value.clone());
    }
    given
}

fn path_of(url: &Url) -> Option<Uri> {
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    Uri::try_from(format!("{}{query}", url.path())).ok()
}

async fn resolve(host: &str, port: u16) -> Result<SocketAddr, BenchFault> {
    let unknown = |source| BenchFault::Host { host: host.to_owned(), source };
    let mut found = tokio::net::lookup_host((host, port)).await.map_err(unknown)?;
    // `localhost` has two addresses, and most servers listen on the IPv4 one only.
    let first = found.next();
    let v4 = first.into_iter().chain(found).find(SocketAddr::is_ipv4);
    v4.or(first).ok_or_else(|| unknown(std::io::ErrorKind::NotFound.into()))
}

const BENCH_AGENT: &str = concat!("trunkline-bench/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_target_has_path_host_and_given_headers() {
        let url = Url::parse("http://127.0.0.1:8080/mcp?x=1").unwrap();
        let given = (HeaderName::from_static("x-api-key"), HeaderValue::from_static("k"));
        let target = BenchTarget::new(&url, &[given], None).await.unwrap();
        assert_eq!(target.path, "/mcp?x=1");
        assert_eq!(target.headers["host"], "127.0.0.1:8080");
        assert_eq!(target.headers["x-api-key"], "k");
        let there = target.redirected("/mcp/").unwrap();
        assert_eq!(there.path, "/mcp/");
        assert!(target.redirected("http://127.0.0.1:9/mcp").is_none());
    }

    #[tokio::test]
    async fn a_given_header_replaces_the_benchs_own() {
        let url = Url::parse("http://127.0.0.1:8080/mcp").unwrap();
        let given = [("host", "a"), ("cookie", "b"), ("cookie", "c")];
        let given = given
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let target = BenchTarget::new(&url, &given, None).await.unwrap();
        assert_eq!(target.headers.get_all("host").iter().collect::<Vec<_>>(), ["a"]);
        assert_eq!(target.headers.get_all("cookie").iter().count(), 2);
    }
}
