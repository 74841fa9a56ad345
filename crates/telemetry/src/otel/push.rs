//! The push of metrics: reads the histograms that `/metrics` shows, and encodes them as OTLP.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{Method, Request, header};
use opentelemetry_http::{Bytes, HttpClient as _};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, InstrumentationScope, KeyValue, any_value::Value,
};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Histogram, HistogramDataPoint, Metric, ResourceMetrics, ScopeMetrics,
    metric::Data,
};
use opentelemetry_proto::tonic::resource;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use prost::Message as _;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use trunkline_core::clock;

use super::OtelSettings;
use super::client::OtlpClient;
use crate::CallOutcome;
use crate::metrics::{self, BUCKET_BOUNDS, Labels, Metrics};

/// Metrics to push, with their resource and client.
pub(super) struct PushSource {
    pub(super) metrics: Arc<Metrics>,
    pub(super) resource: Resource,
    pub(super) client: OtlpClient,
}

/// The running push. Dropping it stops it without a last push.
#[derive(Debug)]
pub(super) struct MetricsPush {
    finish: oneshot::Sender<LastPush>,
    task: JoinHandle<()>,
}

/// Requests the last push.
#[derive(Debug)]
struct LastPush;

impl MetricsPush {
    pub(super) fn start(source: PushSource, settings: &OtelSettings, runtime: &Handle) -> Self {
        let (finish, finished) = oneshot::channel();
        let url = settings.signal_url("metrics");
        let every = settings.metrics_every.max(Duration::from_millis(1));
        Self { finish, task: runtime.spawn(source.run(url, every, finished)) }
    }

    /// Pushes once more and stops.
    pub(super) async fn finish(self) {
        // Either fails only if the push has already ended with its runtime.
        let _ = self.finish.send(LastPush);
        let _ = self.task.await;
    }
}

impl PushSource {
    async fn run(self, url: String, every: Duration, finished: oneshot::Receiver<LastPush>) {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick completes immediately, when there is nothing to push.
        ticks.tick().await;
        let mut finished = std::pin::pin!(finished);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.push(&url).await,
                last = &mut finished => {
                    if last.is_ok() {
                        self.push(&url).await;
                    }
                    return;
                }
            }
        }
    }

    /// Pushes once. A failed push is not retried: the next one includes its counts.
    async fn push(&self, url: &str) {
        let body = Bytes::from(self.export(clock::wall_now()).encode_to_vec());
        let request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .body(body);
        // The client logs failures; the URL was checked before.
        if let Ok(request) = request {
            let _ = self.client.send_bytes(request).await;
        }
    }

    fn export(&self, now: SystemTime) -> ExportMetricsServiceRequest {
        let ResourceAttributesWithSchema { attributes, schema_url } = (&self.resource).into();
        let scope = InstrumentationScope {
            name: "trunkline".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let metrics = collect_metrics(&self.metrics, now);
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(resource::v1::Resource {
                    attributes: attributes.0,
                    ..resource::v1::Resource::default()
                }),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope),
                    metrics,
                    ..ScopeMetrics::default()
                }],
                schema_url: schema_url.unwrap_or_default(),
            }],
        }
    }
}

/// The histograms as OTLP, one metric per name.
fn collect_metrics(metrics: &Metrics, now: SystemTime) -> Vec<Metric> {
    let mut collected: Vec<(&'static str, Vec<HistogramDataPoint>)> = Vec::new();
    metrics.visit_histograms(&mut |name, labels, histogram| {
        let point = data_point(labels, histogram, now);
        if point.count == 0 {
            return;
        }
        match collected.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => collected.push((name, vec![point])),
        }
    });
    collected.into_iter().map(|(name, points)| histogram_metric(name, points)).collect()
}

fn histogram_metric(name: &str, data_points: Vec<HistogramDataPoint>) -> Metric {
    Metric {
        name: name.to_owned(),
        unit: "s".to_owned(),
        data: Some(Data::Histogram(Histogram {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
        })),
        ..Metric::default()
    }
}

fn data_point(
    labels: &Labels<'_>,
    histogram: &metrics::Histogram,
    now: SystemTime,
) -> HistogramDataPoint {
    let snapshot = histogram.snapshot();
    HistogramDataPoint {
        attributes: labels
            .iter()
            .filter_map(|(name, value)| label_attribute(name, value))
            .collect(),
        start_time_unix_nano: unix_nanoseconds(histogram.since()),
        time_unix_nano: unix_nanoseconds(now),
        count: snapshot.count,
        sum: Some(snapshot.sum),
        bucket_counts: snapshot.buckets.to_vec(),
        explicit_bounds: BUCKET_BOUNDS.to_vec(),
        ..HistogramDataPoint::default()
    }
}

/// A label as an attribute of the semantic conventions. `error.type` is set only for errors.
fn label_attribute(label: &str, value: &str) -> Option<KeyValue> {
    let key = match label {
        "method" => "mcp.method.name",
        "server" => "trunkline.server",
        "outcome"
            if value == CallOutcome::Ok.label() || value == CallOutcome::InputRequired.label() =>
        {
            return None;
        }
        "outcome" => "error.type",
        other => other,
    };
    let value = AnyValue { value: Some(Value::StringValue(value.to_owned())) };
    Some(KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() })
}

fn unix_nanoseconds(at: SystemTime) -> u64 {
    let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}
