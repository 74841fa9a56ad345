//! What asks one interceptor.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use crate::call::{Context, InterceptorFault};
use crate::clock;
use crate::config::{InterceptedPhase, InterceptorConfig, sensitive_headers};
use crate::mcp::Method;
use crate::telemetry::https::{JsonService, JsonServiceFault};

use super::super::breaker::{Breaker, BreakerSubject, CallVerdict};
use super::message::{Intercepted, Verdict, read_verdict};

/// One interceptor.
#[derive(Debug)]
pub(super) struct InterceptorService {
    pub(super) config: InterceptorConfig,
    service: JsonService,
    breaker: Option<Arc<Breaker>>,
}

impl InterceptorService {
    pub(super) fn new(config: InterceptorConfig) -> Self {
        let subject = || BreakerSubject::Interceptor(config.name.clone());
        let breaker =
            config.breaker.map(|settings| Arc::new(Breaker::new(subject(), settings, None)));
        let headers = sensitive_headers(&config.headers);
        let service = JsonService::new(config.url.clone(), headers, MOST_IDLE);
        Self { config, service, breaker }
    }

    /// Whether it sees this part of calls of this method.
    pub(super) fn sees(&self, method: &Method, phase: InterceptedPhase) -> bool {
        self.config.on.contains(&phase)
            && self.config.methods.iter().any(|pattern| pattern.matches(method.as_str()))
    }

    /// Asks about a call, or about its result.
    pub(super) async fn ask(
        &self,
        seen: &Intercepted,
        result: Option<&[u8]>,
        context: &Context,
        now: Instant,
    ) -> Result<Verdict, InterceptorFault> {
        let pass = self.breaker.as_ref().map(|breaker| breaker.enter(now)).transpose();
        let pass = pass.map_err(|_| InterceptorFault::BreakerOpen)?;
        let limit = self.config.max_size;
        if result.is_some_and(|raw| raw.len() > limit) {
            return Err(InterceptorFault::TooLarge { limit });
        }
        let time = Timestamp::try_from(clock::wall_now()).unwrap_or_default().to_string();
        let body = seen.request(self.config.name.as_str(), result, (context, &time));
        if body.len() > limit {
            return Err(InterceptorFault::TooLarge { limit });
        }
        let after = self.config.timeout;
        let asked = timeout(after, self.post(body)).await;
        let verdict = asked.unwrap_or(Err(InterceptorFault::Timeout { after }));
        if let Some(pass) = pass {
            let ended = if verdict.is_ok() { CallVerdict::Answered } else { CallVerdict::Failed };
            pass.record_verdict(ended, clock::now());
        }
        verdict
    }

    async fn post(&self, body: Vec<u8>) -> Result<Verdict, InterceptorFault> {
        let body = self.service.post(body, self.config.max_size).await;
        let body = body.map_err(|fault| match fault {
            JsonServiceFault::Unreachable { cause: error } => {
                let name = &self.config.name;
                tracing::debug!(interceptor = %name, error, "an interceptor cannot be reached");
                InterceptorFault::Unreachable
            }
            JsonServiceFault::Status { status } => InterceptorFault::Status { status },
            JsonServiceFault::TooLarge { limit } => InterceptorFault::TooLarge { limit },
        })?;
        read_verdict(&body)
    }
}

/// How many idle connections are kept.
const MOST_IDLE: usize = 16;
