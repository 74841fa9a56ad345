//! The HTTP client of the collector, for spans and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use async_trait::async_trait;
use http::header::USER_AGENT;
use http::{HeaderName, HeaderValue, Request, Response};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use tokio::runtime::Handle;

use trunkline_core::text::error_chain;
use trunkline_https::{OWN_USER_AGENT, https_connector, tls_for};

use super::{OtelError, OtelSettings};

/// Client of the collector for any thread. The SDK exports spans from its own thread, which has no
/// runtime, so the request itself runs on the gateway's runtime.
#[derive(Debug, Clone)]
pub(super) struct OtlpClient(Arc<OtlpClientState>);

#[derive(Debug)]
struct OtlpClientState {
    http: HyperClient<HttpsConnector<HttpConnector>>,
    runtime: Handle,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Scheme, host and port of the collector.
    origin: String,
    /// True if the last request failed: only changes are logged, not each failure.
    failing: AtomicBool,
}

impl OtlpClient {
    pub(super) fn new(settings: &OtelSettings, runtime: Handle) -> Result<Self, OtelError> {
        let tls = match &settings.tls {
            Some(config) => config.clone(),
            None => tls_for(&settings.endpoint)?,
        };
        let connector = https_connector(tls);
        let mut headers = settings.headers.clone();
        for (_, value) in &mut headers {
            value.set_sensitive(true);
        }
        Ok(Self(Arc::new(OtlpClientState {
            http: HyperClient::new(connector, settings.timeout, None),
            runtime,
            headers,
            origin: settings.endpoint.origin().ascii_serialization(),
            failing: AtomicBool::new(false),
        })))
    }

    fn note_outcome(&self, outcome: &Result<Response<Bytes>, HttpError>) {
        let failure = match outcome {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered {}", response.status())),
            Err(error) => Some(error_chain(error.as_ref())),
        };
        match (failure, &self.0.failing) {
            (Some(reason), failing) if !failing.swap(true, Relaxed) => {
                tracing::warn!(
                    target: "trunkline::telemetry::otel::client", %reason,
                    "cannot send telemetry to the OTLP endpoint {}", self.0.origin
                );
            }
            (None, failing) if failing.swap(false, Relaxed) => {
                tracing::info!(target: "trunkline::telemetry::otel::client", "telemetry is sent to the OTLP endpoint again");
            }
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for OtlpClient {
    async fn send_bytes(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        request.headers_mut().insert(USER_AGENT, OWN_USER_AGENT);
        for (name, value) in &self.0.headers {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        let http = self.0.http.clone();
        let sent = self.0.runtime.spawn(async move { http.send_bytes(request).await });
        let outcome = sent.await.unwrap_or_else(|stopped| Err(stopped.into()));
        self.note_outcome(&outcome);
        outcome
    }
}
