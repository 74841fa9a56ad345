//! The guard of one connection, which caches its last verdict.
//!
//! Nearly all requests of a connection name the same host and come from no page. Such a request is
//! judged once: the verdict holds for the same bytes under the same settings.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderValue, Request, header};
use parking_lot::Mutex;

use super::AdmissionError;
use crate::listener::Settings;
use crate::mcp::header::single_value;

/// Judges the requests of one connection.
#[derive(Clone)]
pub(crate) struct ConnectionGuard {
    /// The address that the client connected to.
    local: SocketAddr,
    admitted: Arc<Mutex<Option<AdmittedHost>>>,
}

/// The Host header of an admitted request, and the settings that admitted it.
struct AdmittedHost {
    host: HeaderValue,
    settings: Arc<Settings>,
}

impl ConnectionGuard {
    /// Creates the guard of a connection to this address.
    pub(crate) fn new(local: SocketAddr) -> Self {
        Self { local, admitted: Arc::default() }
    }

    /// Judges one request, as [`super::Guard::admit`] does.
    ///
    /// # Errors
    /// The first [`AdmissionError`] that applies.
    pub(crate) fn admit<B>(
        &self,
        settings: &Arc<Settings>,
        request: &Request<B>,
    ) -> Result<(), AdmissionError> {
        let host = only_host(request);
        if host.is_some_and(|host| self.has_admitted(settings, host)) {
            return Ok(());
        }
        settings.guard.admit(request, self.local)?;
        // Copied: the header is a slice of the whole head.
        let host = host.and_then(|host| HeaderValue::from_bytes(host.as_bytes()).ok());
        if let Some(host) = host {
            *self.admitted.lock() = Some(AdmittedHost { host, settings: Arc::clone(settings) });
        }
        Ok(())
    }

    fn has_admitted(&self, settings: &Arc<Settings>, host: &HeaderValue) -> bool {
        let admitted = self.admitted.lock();
        admitted.as_ref().is_some_and(|it| it.host == host && Arc::ptr_eq(&it.settings, settings))
    }
}

/// Returns the Host header of a request, if the guard's verdict depends on nothing else: neither a
/// page nor the target names another host.
fn only_host<B>(request: &Request<B>) -> Option<&HeaderValue> {
    let headers = request.headers();
    if request.uri().authority().is_some() || headers.contains_key(header::ORIGIN) {
        return None;
    }
    single_value(headers, &header::HOST).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::Guard;

    const LOCAL: ([u8; 4], u16) = ([127, 0, 0, 1], 8080);

    fn settings(hosts: &[&str]) -> Arc<Settings> {
        let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
        Arc::new(Settings { guard: Guard::new(&hosts, &[]).unwrap(), ..Settings::default() })
    }

    fn request(uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let request = Request::builder().uri(uri);
        let add = |request: http::request::Builder, (name, value): &(&str, &str)| {
            request.header(*name, *value)
        };
        headers.iter().fold(request, add).body(()).unwrap()
    }

    #[test]
    fn a_remembered_host_admits_no_other_request() {
        let (guard, settings) = (ConnectionGuard::new(LOCAL.into()), settings(&["a.test"]));
        let host = ("host", "a.test");
        assert_eq!(guard.admit(&settings, &request("/mcp", &[host])), Ok(()));
        for (uri, headers) in [
            ("/mcp", vec![("host", "b.test")]),
            ("/mcp", vec![("host", "a.test"), ("host", "b.test")]),
            ("/mcp", vec![host, ("origin", "https://evil.test")]),
            ("http://b.test/mcp", vec![host]),
            ("/mcp", vec![]),
        ] {
            let refused = guard.admit(&settings, &request(uri, &headers));
            assert!(refused.is_err(), "{uri} {headers:?}");
        }
        assert_eq!(guard.admit(&settings, &request("/mcp", &[host])), Ok(()));
    }

    #[test]
    fn a_remembered_host_is_judged_again_under_other_settings() {
        let guard = ConnectionGuard::new(LOCAL.into());
        let request = request("/mcp", &[("host", "a.test")]);
        assert_eq!(guard.admit(&settings(&["a.test"]), &request), Ok(()));
        let refused = guard.admit(&settings(&["b.test"]), &request);
        assert!(matches!(refused, Err(AdmissionError::ForeignHost(_))), "{refused:?}");
    }

    #[test]
    fn a_refused_host_is_not_remembered() {
        let (guard, settings) = (ConnectionGuard::new(LOCAL.into()), settings(&[]));
        let request = request("/mcp", &[("host", "a.test")]);
        for _ in 0..2 {
            assert!(guard.admit(&settings, &request).is_err());
        }
    }
}
