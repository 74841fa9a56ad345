//! Takes samples from the running gateway.

use std::time::{Duration, Instant};

use serde::Deserialize as _;

use super::sample::ActivitySample;
use crate::cli::running::{GatewayOption, GatewayRequest, RunningGatewayError};
use crate::clock;

/// Takes samples.
pub(super) struct ActivitySampler {
    gateway: GatewayOption,
    interval: Duration,
    /// Time of the last request to count tokens.
    counted_at: Option<Instant>,
}

impl ActivitySampler {
    pub(super) fn new(gateway: GatewayOption, interval: Duration) -> Self {
        Self { gateway, interval, counted_at: None }
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Takes a sample. If tokens were not counted, has the gateway count them for the next one.
    pub(super) fn take(&mut self) -> Result<ActivitySample, RunningGatewayError> {
        let document =
            self.gateway.request_within(&GatewayRequest::get("/activity"), SAMPLE_TIMEOUT)?;
        let sample = ActivitySample::deserialize(&document);
        let sample = sample.map_err(RunningGatewayError::OtherVersion)?;
        if sample.lacks_tokens() && self.may_count() {
            self.counted_at = Some(clock::real_now());
            // The catalog counts them, and answers once it has. Without an answer there are no tokens.
            let _ = self.gateway.request(&GatewayRequest::get("/catalog"));
        }
        Ok(sample)
    }

    fn may_count(&self) -> bool {
        self.counted_at.is_none_or(|at| clock::real_now().duration_since(at) > COUNT_INTERVAL)
    }
}

/// Time limit for a sample.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The least time between two requests to count tokens.
const COUNT_INTERVAL: Duration = Duration::from_mins(1);
