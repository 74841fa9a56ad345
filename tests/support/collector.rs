//! An OTLP collector on a loopback port, for tests of the gateway's exports.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test that cannot go on fails; not every test uses all of it"
)]

use std::convert::Infallible;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use trunkline::telemetry::otel::{Otel, OtelSettings};

pub const ENOUGH: Duration = Duration::from_secs(10);

pub type Received = (http::request::Parts, Bytes);

/// A collector on a loopback port that keeps the received telemetry.
pub struct Collector {
    pub url: String,
    pub received: mpsc::Receiver<Received>,
}

impl Collector {
    pub async fn start() -> Self {
        Self::listen("http", None).await
    }

    pub async fn listen(scheme: &str, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, received) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, tls) = (sender.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => serve(tls.accept(stream).await.unwrap(), sender).await,
                        None => serve(stream, sender).await,
                    }
                });
            }
        });
        Self { url: format!("{scheme}://localhost:{port}/base/"), received }
    }

    pub fn settings(&self) -> OtelSettings {
        let mut settings = OtelSettings::new(self.url.parse().unwrap());
        settings.headers = vec![(
            http::HeaderName::from_static("x-key"),
            http::HeaderValue::from_static("secret"),
        )];
        settings
    }

    /// Stops the sender, and returns all received telemetry.
    pub async fn all(self, otel: Otel) -> (Vec<Span>, Vec<Metric>) {
        otel.shutdown(ENOUGH).await;
        self.rest().await
    }

    /// Returns all received telemetry, after the sender has stopped.
    pub async fn rest(mut self) -> (Vec<Span>, Vec<Metric>) {
        self.received.close();
        let (mut spans, mut metrics) = (Vec::new(), Vec::new());
        while let Some((head, body)) = self.received.recv().await {
            assert_eq!(head.headers["x-key"], "secret");
            assert_eq!(head.headers["content-type"], "application/x-protobuf");
            match head.uri.path() {
                "/base/v1/traces" => spans.extend(spans_of(body)),
                "/base/v1/metrics" => metrics.extend(metrics_of(body)),
                other => panic!("sent to {other}"),
            }
        }
        (spans, metrics)
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, sender: mpsc::Sender<Received>) {
    let service = service_fn(move |request: http::Request<Incoming>| {
        let sender = sender.clone();
        async move {
            let (head, mut body) = request.into_parts();
            let mut bytes = BytesMut::new();
            while let Some(frame) = body.frame().await {
                bytes.extend_from_slice(&frame.unwrap().into_data().unwrap());
            }
            sender.send((head, bytes.freeze())).await.unwrap();
            Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::default()))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new();
    // The gateway may close the connection in any way.
    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
}

pub fn spans_of(body: Bytes) -> Vec<Span> {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let [resource] = &request.resource_spans[..] else { panic!("one resource") };
    let attributes = &resource.resource.as_ref().unwrap().attributes;
    assert_eq!(text(attributes, "service.name"), "trunkline");
    resource.scope_spans.iter().flat_map(|scope| scope.spans.clone()).collect()
}

pub fn metrics_of(body: Bytes) -> Vec<Metric> {
    let request = ExportMetricsServiceRequest::decode(body).unwrap();
    let [resource] = &request.resource_metrics[..] else { panic!("one resource") };
    let attributes = &resource.resource.as_ref().unwrap().attributes;
    assert_eq!(text(attributes, "service.name"), "trunkline");
    resource.scope_metrics.iter().flat_map(|scope| scope.metrics.clone()).collect()
}

/// Returns an attribute as text; empty if it is missing.
pub fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|found| found.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(other) => panic!("{key} is {other:?}"),
        None => String::new(),
    }
}
