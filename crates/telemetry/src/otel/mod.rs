//! OpenTelemetry: sampled traces and the conventional metrics, pushed as OTLP over HTTP. Off until
//! the configuration names an endpoint.
//!
//! Spans are built with the SDK directly, never through `tracing`. The sampling decision comes
//! first and costs one branch. Only a sampled call pays for ids, attributes and clocks ([`trace`]).
//! Metrics are not recorded a second time: the push reads the handles that `/metrics` reads
//! ([`push`]). Both leave through one client on the gateway's own runtime ([`client`]).
//!
//! A slow or unavailable collector never delays calls: spans wait in a bounded queue and are
//! dropped beyond it; metrics are cumulative, so the next push includes the values of a lost one.

mod client;
mod push;
mod trace;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider,
};
use tokio::runtime::Handle;
use url::Url;

use trunkline_https::TlsSetupError;

use super::metrics::Metrics;
use client::OtlpClient;
use push::MetricsPush;
pub use trace::{CallStart, CallTrace, ClientStart, ClientTrace, Tracing};

/// The settings of the OTLP export.
#[derive(Clone)]
pub struct OtelSettings {
    /// The collector's base URL, `http` or `https`; `/v1/traces` and
    /// `/v1/metrics` are appended to its path.
    pub endpoint: Url,
    /// Headers for the collector, usually its key. Never printed.
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
    /// Fraction of calls without a `traceparent` that are traced, from 0 to 1. A call with a
    /// `traceparent` follows its sampling decision.
    pub sample_ratio: f64,
    /// `service.name`.
    pub service_name: String,
    /// Interval between pushes of metrics.
    pub metrics_every: Duration,
    /// Interval between exports of spans.
    pub traces_every: Duration,
    /// Time limit for one request to the collector.
    pub timeout: Duration,
    /// Roots and client certificate for `https`; `None` means the platform's roots.
    pub tls: Option<rustls::ClientConfig>,
}

impl OtelSettings {
    /// Returns the defaults of the OpenTelemetry specification for an endpoint: every call is
    /// traced, metrics are pushed every minute, spans every five seconds.
    pub fn new(endpoint: Url) -> Self {
        Self {
            endpoint,
            headers: Vec::new(),
            sample_ratio: 1.0,
            service_name: "trunkline".to_owned(),
            metrics_every: Duration::from_mins(1),
            traces_every: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            tls: None,
        }
    }

    fn signal_url(&self, signal: &str) -> String {
        format!("{}/v1/{signal}", self.endpoint.as_str().trim_end_matches('/'))
    }
}

impl fmt::Debug for OtelSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| (name, "***")).collect();
        f.debug_struct("Settings")
            .field("endpoint", &self.endpoint.as_str())
            .field("headers", &names)
            .field("sample_ratio", &self.sample_ratio)
            .field("service_name", &self.service_name)
            .finish_non_exhaustive()
    }
}

/// Error of starting the export.
#[derive(Debug, thiserror::Error)]
pub enum OtelError {
    /// The endpoint is not `http` or `https`, or has a query, fragment, user or password.
    #[error("an OTLP endpoint is an http or https URL without query, fragment or user")]
    Endpoint,
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    /// The SDK rejected the settings.
    #[error("the OTLP exporter could not be built")]
    Exporter(#[from] ExporterBuildError),
}

/// The running export. End it with [`Otel::shutdown`]: otherwise the SDK blocks the thread that
/// drops the last handle.
#[derive(Debug)]
pub struct Otel {
    tracing: Tracing,
    provider: SdkTracerProvider,
    push: MetricsPush,
}

impl Otel {
    /// Starts the export of spans and of `metrics`, on `runtime`.
    ///
    /// # Errors
    /// [`OtelError`] for the endpoint, the root certificates or the exporter.
    pub fn start(
        settings: &OtelSettings,
        metrics: Arc<Metrics>,
        runtime: &Handle,
    ) -> Result<Self, OtelError> {
        check_endpoint(&settings.endpoint)?;
        let client = OtlpClient::new(settings, runtime.clone())?;
        let resource = otel_resource(settings);
        let provider = tracer_provider(settings, client.clone(), resource.clone())?;
        let tracing = Tracing::with_tracer(provider.tracer("trunkline"), settings.sample_ratio);
        let push =
            MetricsPush::start(push::PushSource { metrics, resource, client }, settings, runtime);
        Ok(Self { tracing, provider, push })
    }

    /// The tracer of calls, for `downstream` and `upstream`.
    pub fn tracing(&self) -> Tracing {
        self.tracing.clone()
    }

    /// Sends the remaining telemetry and stops, within `within`. Traces that start later are not
    /// recorded.
    ///
    /// # Cancel safety
    /// If it is dropped early, the export still stops, but may leave telemetry unsent.
    pub async fn shutdown(self, within: Duration) {
        let Self { tracing, provider, push } = self;
        drop(tracing);
        // The SDK blocks the thread that stops it.
        let spans = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(within));
        let both = futures_util::future::join(push.finish(), spans);
        let (all_sent, spans_sent) = match tokio::time::timeout(within, both).await {
            Ok(((), spans)) => (true, matches!(spans, Ok(Ok(())))),
            Err(_) => (false, false),
        };
        if !(all_sent && spans_sent) {
            tracing::warn!(target: "trunkline::telemetry::otel", "some telemetry could not be sent before the end");
        }
    }
}

/// A password in the URL would appear in `Debug` and in the log: use headers for credentials.
fn check_endpoint(endpoint: &Url) -> Result<(), OtelError> {
    let plain = matches!(endpoint.scheme(), "http" | "https")
        && endpoint.query().is_none()
        && endpoint.fragment().is_none()
        && endpoint.username().is_empty()
        && endpoint.password().is_none();
    if plain { Ok(()) } else { Err(OtelError::Endpoint) }
}

/// The resource that sends the telemetry; the SDK adds `OTEL_RESOURCE_ATTRIBUTES`.
fn otel_resource(settings: &OtelSettings) -> Resource {
    Resource::builder()
        .with_service_name(settings.service_name.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

fn tracer_provider(
    settings: &OtelSettings,
    client: OtlpClient,
    resource: Resource,
) -> Result<SdkTracerProvider, ExporterBuildError> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(settings.signal_url("traces"))
        .with_timeout(settings.timeout)
        .build()?;
    let batches = BatchConfigBuilder::default().with_scheduled_delay(settings.traces_every).build();
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
    Ok(SdkTracerProvider::builder()
        .with_span_processor(processor)
        // `Tracing` has already decided before it requests a span.
        .with_sampler(Sampler::AlwaysOn)
        .with_resource(resource)
        .build())
}
