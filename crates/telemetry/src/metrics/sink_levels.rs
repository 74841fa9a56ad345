//! The state of the destinations of records and events.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::SinkReport;

/// The series of all configured sinks.
#[derive(Debug, Clone, Default)]
pub struct SinkLevels(Family<[(&'static str, &'static str); 1], Gauge>);

impl SinkLevels {
    /// Replaces the series. A sink that is no longer configured has none.
    pub fn replace(&self, reports: &[SinkReport]) {
        self.0.clear();
        for report in reports {
            let labels = [("sink", report.sink)];
            self.0.get_or_create(&labels).set(i64::from(report.fault.is_none()));
        }
    }

    pub(super) fn family(&self) -> Family<[(&'static str, &'static str); 1], Gauge> {
        self.0.clone()
    }
}
