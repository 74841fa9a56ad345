//! What is tested, as bytes that every request has in common.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use rustls_pki_types::ServerName;
use url::Url;

use super::BenchFault;
use super::wire::Dial;
use crate::upstream::client_tls;

/// An endpoint that may be tested.
#[derive(Clone)]
pub struct Target {
    /// Its address as it was given, without credentials.
    pub url: Url,
    /// How it is reached.
    pub dial: Dial,
    /// `host: …` and the headers that were given, each with its line end.
    lines: Arc<str>,
}

impl Target {
    /// Resolves the host, and reads the roots for TLS.
    ///
    /// # Errors
    /// [`BenchFault`] says which part cannot be used.
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
                let mut tls = client_tls(ca).map_err(|fault| BenchFault::Tls(fault.to_string()))?;
                tls.alpn_protocols = vec![b"http/1.1".to_vec()];
                let name = ServerName::try_from(name.clone()).map_err(|_| unusable())?;
                Some((Arc::new(tls), name))
            }
            _ => return Err(unusable()),
        };
        let dial = Dial { address: resolve(&name, port).await?, tls };
        let shown = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let mut lines = format!("host: {shown}\r\nuser-agent: {AGENT}\r\n");
        for (name, value) in headers {
            let value = value
                .to_str()
                .map_err(|_| BenchFault::Header(format!("the value of {name} cannot be sent")))?;
            lines.extend([name.as_str(), ": ", value, "\r\n"]);
        }
        Ok(Self { url: url.clone(), dial, lines: lines.into() })
    }

    /// The same elsewhere on the same server, where a redirect leads there.
    pub fn redirected(&self, location: &str) -> Option<Self> {
        let url = self.url.join(location).ok()?;
        let same = url.origin() == self.url.origin() && url != self.url;
        same.then(|| Self { url, ..self.clone() })
    }

    /// The first line of a request and the lines that all have.
    pub fn head(&self, method: &str) -> String {
        let path = self.url.path();
        let query = self.url.query().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{method} {path}{query} HTTP/1.1\r\n{}", self.lines)
    }
}

async fn resolve(host: &str, port: u16) -> Result<SocketAddr, BenchFault> {
    let unknown = |source| BenchFault::Host { host: host.to_owned(), source };
    let mut found = tokio::net::lookup_host((host, port)).await.map_err(unknown)?;
    // `localhost` has two addresses, and most servers listen on the older one alone.
    let first = found.next();
    let v4 = first.into_iter().chain(found).find(SocketAddr::is_ipv4);
    v4.or(first).ok_or_else(|| unknown(std::io::ErrorKind::NotFound.into()))
}

const AGENT: &str = concat!("trunkline-bench/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_begins_with_path_host_and_given_headers() {
        let url = Url::parse("http://127.0.0.1:8080/mcp?x=1").unwrap();
        let given = (HeaderName::from_static("x-api-key"), HeaderValue::from_static("k"));
        let target = Target::new(&url, &[given], None).await.unwrap();
        let head = target.head("POST");
        assert!(head.starts_with("POST /mcp?x=1 HTTP/1.1\r\nhost: 127.0.0.1:8080\r\n"), "{head}");
        assert!(head.ends_with("x-api-key: k\r\n"), "{head}");
        let there = target.redirected("/mcp/").unwrap();
        assert!(there.head("POST").starts_with("POST /mcp/ HTTP/1.1"));
        assert!(target.redirected("http://127.0.0.1:9/mcp").is_none());
    }
}
