//! Translates the configuration into the settings of the listeners and the telemetry. Detects
//! faults that only appear when a setting is used.

mod certificates;

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;
use rustls::ClientConfig;
use tokio::runtime::Handle;
use url::Url;

use crate::admin::Expiry;
use crate::cluster::MAX_FORWARDED;
use crate::config::{Config, LateFault};
use crate::listener::{ConnectionLimits, Guard, GuardError, LocalPages, Settings};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otel::{self, Otel};

use super::ServeError;
pub(super) use certificates::judge_own;
pub use certificates::{CertificateRemark, CertificateReport, judge_authorities, judge_peer};
use certificates::{PeerCertificates, load_certificates, load_peer_certificates};

/// The settings of both listeners.
pub struct Listeners {
    /// The listener for clients.
    pub clients: Settings,
    /// The admin listener.
    pub operators: Settings,
    /// The connections with other replicas, if there are any.
    pub replicas: Option<ReplicaSettings>,
    /// The judgement of the certificates for clients.
    pub certificates: CertificateReport,
}

/// The settings of the connections with other replicas.
pub struct ReplicaSettings {
    /// The listener for them.
    pub listener: Settings,
    /// TLS for connections to them; `None` if all are on this machine.
    pub outgoing: Option<ClientConfig>,
    /// The judgement of the certificates.
    pub certificates: CertificateReport,
}

impl Listeners {
    /// Returns the expiries of all certificates of the listeners.
    pub fn expiries(&self) -> Vec<Expiry> {
        let replicas = self.replicas.iter().flat_map(|it| &it.certificates.expiries);
        self.certificates.expiries.iter().chain(replicas).cloned().collect()
    }

    /// Returns the judgement of all certificates of the listeners.
    pub fn into_report(self) -> CertificateReport {
        let mut report = self.certificates;
        if let Some(replicas) = self.replicas {
            let CertificateReport { faults, remarks, expiries, .. } = replicas.certificates;
            report.faults.extend(faults);
            report.remarks.extend(remarks);
            report.expiries.extend(expiries);
        }
        report
    }
}

/// Returns the URL for browsers of a gateway that listens at this address; `None` if browsers
/// cannot reach it.
pub fn browser_url(config: &Config, address: Option<SocketAddr>) -> Option<Url> {
    let address = address?;
    if let Some(url) = &config.gateway.public_url {
        return Some(url.clone());
    }
    let scheme = if config.gateway.tls.is_some() { "https" } else { "http" };
    let is_own = address.ip().to_canonical().is_loopback();
    Url::parse(&format!("{scheme}://{address}")).ok().filter(|_| is_own)
}

/// Builds the settings of both listeners. Blocks while it reads the certificates.
///
/// # Errors
/// All faults that keep the gateway from starting.
pub fn of(config: &Config) -> Result<Listeners, Vec<LateFault>> {
    let mut faults = Vec::new();
    let gateway = &config.gateway;
    let mut accept = |key: &str, made: Result<Guard, Vec<GuardError>>| {
        made.unwrap_or_else(|errors| {
            faults.extend(errors.iter().map(|error| guard_fault(key, error)));
            Guard::default()
        })
    };
    let clients = accept("gateway", Guard::new(&gateway.allowed_hosts, &gateway.allowed_origins));
    let clients = match gateway.public_url.as_ref().and_then(host_with_port) {
        Some(host) => clients.allowing(&host),
        None => clients,
    };
    let admin = &config.admin;
    let operators =
        accept("admin", Guard::for_operators(&admin.allowed_hosts, &admin.allowed_origins));
    // Its pages reveal much. Probes and people read them, other pages do not.
    let operators = operators.with_local_pages(LocalPages::Foreign);
    let tls = gateway.tls.as_ref().and_then(|tls| match load_certificates(tls) {
        Ok(certificates) => Some(certificates),
        Err(fault) => {
            faults.push(fault);
            None
        }
    });
    let replicas = replica_settings(config).map_err(|fault| faults.push(fault));
    if !faults.is_empty() {
        return Err(faults);
    }
    let limits = limits(config);
    let own = tls.as_ref().zip(gateway.tls.as_ref());
    let certificates = own.map(|(loaded, tls)| judge_own(loaded, tls)).unwrap_or_default();
    Ok(Listeners {
        certificates,
        replicas: replicas.ok().flatten(),
        operators: Settings {
            limits: limits.clone(),
            guard: operators,
            tls: tls.clone().filter(|_| admin.tls),
        },
        clients: Settings { limits, guard: clients, tls },
    })
}

/// Returns the host of a URL, with its port if that is not the scheme's.
fn host_with_port(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

fn guard_fault(section: &str, error: &GuardError) -> LateFault {
    let (list, help) = match error {
        GuardError::Host(_) => ("allowed_hosts", "write a host, without scheme and path"),
        GuardError::Origin(_) => ("allowed_origins", "write scheme, host and port only"),
    };
    LateFault { key: format!("{section}.{list}"), text: error.to_string(), help: help.to_owned() }
}

fn limits(config: &Config) -> ConnectionLimits {
    let limits = &config.gateway.limits;
    ConnectionLimits {
        connections: limits.connections,
        connections_each: config.connections_each(),
        header: limits.header,
        idle: limits.idle,
        handshake: limits.handshake,
        unread: limits.unread,
        unread_each: limits.unread_each,
        ..ConnectionLimits::default()
    }
}

/// Builds the settings of the listener for other replicas. All clients of a replica share its
/// connection.
fn replica_settings(config: &Config) -> Result<Option<ReplicaSettings>, LateFault> {
    let Some(cluster) = &config.cluster else { return Ok(None) };
    let own = limits(config);
    let limits = ConnectionLimits {
        connections: MAX_REPLICA_CONNECTIONS,
        connections_each: MAX_REPLICA_CONNECTIONS / 2,
        header: own.header.saturating_mul(3).saturating_add(ENVELOPE_BYTES),
        header_lines: own.header_lines + 1,
        unread_each: own.unread,
        h2_streams: MAX_FORWARDED,
        h2_window: REPLICA_WINDOW,
        h2_resets: Some(MAX_FORWARDED as usize),
        ..own
    };
    let Some(PeerCertificates { server, client }) = load_peer_certificates(cluster)? else {
        let listener = Settings { limits, guard: Guard::default(), tls: None };
        let certificates = CertificateReport::default();
        return Ok(Some(ReplicaSettings { listener, outgoing: None, certificates }));
    };
    let certificates = judge_peer(&server, cluster);
    let listener = Settings { limits, guard: Guard::default(), tls: Some(server) };
    Ok(Some(ReplicaSettings { listener, outgoing: Some(client), certificates }))
}

/// Connections of other replicas, each of which has one for each of its worker threads: 256 replicas
/// with 32 threads, and as many again while certificates are replaced. Half of them may have one address:
/// replicas may share one, and a stranger cannot keep those of other addresses out.
const MAX_REPLICA_CONNECTIONS: usize = 16_384;
/// Bytes of the bodies on one connection that arrive before they are read: those of 64 requests, each
/// of which has a window of its own.
const REPLICA_WINDOW: u32 = 16 << 20;
/// Bytes of an envelope, besides the credentials and the certificate of the client.
const ENVELOPE_BYTES: usize = 64 << 10;

/// Starts the telemetry export, if the configuration has an endpoint.
///
/// # Errors
/// [`ServeError::Telemetry`], and [`ServeError::Settings`] for a header that
/// cannot be sent.
pub fn otel(config: &Config, metrics: &Arc<Metrics>) -> Result<Option<Otel>, ServeError> {
    let telemetry = &config.telemetry;
    let Some(endpoint) = &telemetry.endpoint else { return Ok(None) };
    let mut settings = otel::OtelSettings::new(endpoint.clone());
    for (name, secret) in &telemetry.headers {
        let value = HeaderValue::from_str(secret.expose()).map_err(|_| {
            ServeError::Settings(format!("telemetry.headers.{name}: the value cannot be sent"))
        })?;
        settings.headers.push((name.clone(), value));
    }
    settings.sample_ratio = telemetry.sample;
    settings.service_name.clone_from(&telemetry.service_name);
    settings.metrics_every = telemetry.interval;
    Ok(Some(Otel::start(&settings, Arc::clone(metrics), &Handle::current())?))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::config::{ConfigSource, SystemEnvironment};

    fn settings(text: &str) -> Listeners {
        let (name, bytes) = ("gateway.toml".into(), text.as_bytes().to_vec());
        let source = ConfigSource { name, folder: ".".into(), bytes };
        let config = Config::read(&source, &SystemEnvironment).map_err(|it| it.to_string());
        of(&config.unwrap()).unwrap_or_else(|faults| panic!("{faults:?}"))
    }

    /// Returns the hosts that a guard admits on the address 10.0.0.7.
    fn admitted<'a>(guard: &Guard, hosts: &[&'a str]) -> Vec<&'a str> {
        let admits = |host: &&&str| {
            let request = Request::get("/").header("host", **host).body(()).unwrap();
            guard.admit(&request, ([10, 0, 0, 7], 8080).into()).is_ok()
        };
        hosts.iter().filter(admits).copied().collect()
    }

    #[test]
    fn the_host_of_public_url_is_allowed() {
        let hosts = ["gw.example.com", "gw.example.com:8443", "gw.example.com:1", "a.example.com"];
        let open = "[gateway]\nlisten = \"0.0.0.0:8080\"\nanonymous = \"anyone\"\n";
        for (url, expected) in [
            ("https://gw.example.com", &hosts[..3]),
            ("https://gw.example.com:443/x", &hosts[..3]),
            ("https://gw.example.com:8443", &hosts[1..2]),
        ] {
            let listeners = settings(&format!("{open}public_url = \"{url}\"\n"));
            assert_eq!(admitted(&listeners.clients.guard, &hosts), expected, "{url}");
            assert!(admitted(&listeners.operators.guard, &hosts).is_empty(), "{url}");
        }
    }

    #[test]
    fn operators_have_the_certificates_of_the_gateway_if_they_want_tls() {
        let folder = tempfile::tempdir().unwrap();
        let own = rcgen::generate_simple_self_signed(["gw.example.com".to_owned()]).unwrap();
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        std::fs::write(&cert, own.cert.pem()).unwrap();
        std::fs::write(&key, own.signing_key.serialize_pem()).unwrap();
        let tls = format!("[gateway.tls]\ncert = {cert:?}\nkey = {key:?}\n");
        let plain = settings(&tls);
        assert!(plain.clients.tls.is_some() && plain.operators.tls.is_none());
        assert!(settings(&format!("[admin]\ntls = true\n{tls}")).operators.tls.is_some());
    }

    #[test]
    fn one_address_has_half_of_the_connections_of_replicas() {
        let text = "[gateway]\nstate_keys = [\"0123456789abcdef0123456789abcdef\"]\n[cluster]\n\
                    store = \"redis://127.0.0.1\"\nlisten = \"127.0.0.1:7070\"\n\
                    advertise = \"127.0.0.1:7070\"\n";
        let limits = settings(text).replicas.expect("a listener for replicas").listener.limits;
        assert_eq!(limits.connections_each, limits.connections / 2);
    }

    #[test]
    fn operators_may_name_any_allowed_block_or_host() {
        let hosts = ["10.1.2.3:8081", "10.2.0.1", "[fd00::1]:80", "admin.example.com", "localhost"];
        for (allowed, expected) in [
            ("", vec!["localhost"]),
            ("\"10.1.0.0/16\"", vec!["10.1.2.3:8081", "localhost"]),
            ("\"10.2.0.1\", \"fd00::/8\"", vec!["10.2.0.1", "[fd00::1]:80", "localhost"]),
            ("\"*\"", hosts.to_vec()),
        ] {
            let listeners = settings(&format!("[admin]\nallowed_hosts = [{allowed}]\n"));
            assert_eq!(admitted(&listeners.operators.guard, &hosts), expected, "{allowed}");
            assert_eq!(admitted(&listeners.clients.guard, &hosts), ["localhost"], "{allowed}");
        }
    }
}
