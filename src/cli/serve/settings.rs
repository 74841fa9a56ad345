//! Translates the configuration into the settings of the listeners and the telemetry. Detects
//! faults that only appear when a setting is used.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;
use tokio::runtime::Handle;
use url::Url;

use crate::config::{Config, TlsConfig};
use crate::listener::{Certificates, ConnectionLimits, Guard, LocalPages, Settings, TlsFiles};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otel::{self, Otel};
use crate::text::error_chain;

use super::ServeError;

/// The settings of both listeners.
pub struct Listeners {
    /// The listener for clients.
    pub clients: Settings,
    /// The admin listener.
    pub operators: Settings,
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
/// All faults, one sentence each.
pub fn of(config: &Config) -> Result<Listeners, Vec<String>> {
    let mut faults = Vec::new();
    let gateway = &config.gateway;
    let mut guard = |key: &str, hosts: &[String], origins: &[String]| {
        Guard::new(hosts, origins).unwrap_or_else(|errors| {
            faults.extend(errors.iter().map(|error| format!("{key}: {error}")));
            Guard::default()
        })
    };
    let clients = guard("gateway", &gateway.allowed_hosts, &gateway.allowed_origins);
    let operators = guard("admin", &config.admin.allowed_hosts, &config.admin.allowed_origins);
    // Its pages reveal much. Probes and people read them, other pages do not.
    let operators = operators.with_local_pages(LocalPages::Foreign);
    let tls = gateway.tls.as_ref().and_then(|tls| match load_certificates(tls) {
        Ok(certificates) => Some(certificates),
        Err(fault) => {
            faults.push(fault);
            None
        }
    });
    if !faults.is_empty() {
        return Err(faults);
    }
    let limits = limits(config);
    Ok(Listeners {
        clients: Settings { limits: limits.clone(), guard: clients, tls },
        operators: Settings { limits, guard: operators, tls: None },
    })
}

fn load_certificates(tls: &TlsConfig) -> Result<Certificates, String> {
    let files = TlsFiles {
        cert: tls.cert.clone(),
        key: tls.key.clone(),
        client_ca: tls.client_ca.clone(),
        client_certificates: tls.client_certificates,
    };
    Certificates::load(&files).map_err(|error| format!("gateway.tls: {}", error_chain(&error)))
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
