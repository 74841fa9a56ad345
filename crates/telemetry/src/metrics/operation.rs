//! Durations by method and outcome.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

use super::entries::{MetricVisit, encode_with};
use super::{CallOutcome, Histogram};

/// Durations of one method's requests, by outcome.
#[derive(Debug, Default)]
pub struct Operation {
    durations: [Histogram; CallOutcome::COUNT],
}

impl Operation {
    /// Records a completed request.
    #[inline]
    pub fn record_duration(&self, outcome: &CallOutcome, duration: Duration) {
        if let Some(histogram) = self.durations.get(outcome.index()) {
            histogram.observe_duration(duration);
        }
    }
}

/// The operations of one side, by method. Methods are `&'static str`, so the
/// code bounds their number.
#[derive(Debug, Clone, Default)]
pub(super) struct OperationTable(Arc<RwLock<BTreeMap<&'static str, Arc<Operation>>>>);

impl OperationTable {
    pub(super) fn operation_handle(&self, method: &'static str) -> Arc<Operation> {
        let known = self.0.read().get(method).cloned();
        known.unwrap_or_else(|| {
            let mut methods = self.0.write();
            Arc::clone(methods.entry(method).or_default())
        })
    }

    /// Passes every histogram to `visit`, with its method and outcome.
    pub(super) fn visit_operations(&self, visit: MetricVisit<'_, Histogram>) {
        let methods = self.0.read();
        for (method, operation) in &*methods {
            for (outcome, histogram) in CallOutcome::LABELS.iter().zip(&operation.durations) {
                if !histogram.is_empty() {
                    visit(&[("method", method), ("outcome", outcome)], histogram);
                }
            }
        }
    }
}

impl TypedMetric for OperationTable {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for OperationTable {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        let mut result = Ok(());
        self.visit_operations(&mut |labels, histogram| {
            if result.is_ok() {
                result = encode_with(&mut encoder, labels, histogram);
            }
        });
        result
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
