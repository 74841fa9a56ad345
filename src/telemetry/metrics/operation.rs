//! Durations by method and outcome.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

use super::entries::{Visit, encode_with};
use super::{Histogram, Outcome};

/// How long requests of one method took, by outcome.
#[derive(Debug, Default)]
pub struct Operation {
    durations: [Histogram; Outcome::COUNT],
}

impl Operation {
    /// Notes a request that ended.
    pub fn record(&self, outcome: &Outcome, duration: Duration) {
        if let Some(histogram) = self.durations.get(outcome.index()) {
            histogram.observe(duration);
        }
    }
}

/// The operations of one side, one for each method. Methods are `&'static
/// str`, so there are never more than the code names.
#[derive(Debug, Clone, Default)]
pub(super) struct Operations(Arc<RwLock<BTreeMap<&'static str, Arc<Operation>>>>);

impl Operations {
    pub(super) fn handle(&self, method: &'static str) -> Arc<Operation> {
        let known = self.0.read().get(method).cloned();
        known.unwrap_or_else(|| {
            let mut methods = self.0.write();
            Arc::clone(methods.entry(method).or_default())
        })
    }

    /// Shows every duration that was ever noted, with its method and outcome.
    pub(super) fn each(&self, visit: Visit<'_, Histogram>) {
        let methods = self.0.read();
        for (method, operation) in &*methods {
            for (outcome, histogram) in Outcome::LABELS.iter().zip(&operation.durations) {
                if !histogram.is_empty() {
                    visit(&[("method", method), ("outcome", outcome)], histogram);
                }
            }
        }
    }
}

impl TypedMetric for Operations {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Operations {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        let mut result = Ok(());
        self.each(&mut |labels, histogram| {
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
