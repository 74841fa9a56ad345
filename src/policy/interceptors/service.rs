//! One interceptor: the methods and messages that it sees, and the requests to it.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use crate::call::{Context, InterceptorFault};
use crate::clock;
use crate::config::{
    InterceptedPhase, InterceptorConfig, InterceptorFailure, InterceptorMode, sensitive_headers,
};
use crate::http_client::{JsonService, JsonServiceFault};
use crate::mcp::Method;
use crate::policy::limits::breaker::{Breaker, BreakerSubject};
use crate::policy::limits::failure_window::CallVerdict;
use crate::telemetry::log::SharedFaultLog;

use super::message::{Intercepted, SeenMessage, Verdict, read_verdict};

/// One interceptor.
#[derive(Debug)]
pub(super) struct InterceptorService {
    pub(super) config: InterceptorConfig,
    service: JsonService,
    breaker: Option<Arc<Breaker>>,
    /// Its faults in the log.
    pub(super) faults: SharedFaultLog,
}

impl InterceptorService {
    pub(super) fn new(config: InterceptorConfig) -> Self {
        let subject = || BreakerSubject::Interceptor(config.name.clone());
        let breaker =
            config.breaker.map(|settings| Arc::new(Breaker::new(subject(), settings, None)));
        let headers = sensitive_headers(&config.headers);
        let service = JsonService::new(config.url.clone(), headers, MAX_IDLE_CONNECTIONS);
        Self { config, service, breaker, faults: SharedFaultLog::new() }
    }

    /// Returns true if it sees this part of calls of this method. A server may return a tool's
    /// result as that of a task, so an interceptor of tool results also sees those of tasks.
    pub(super) fn sees(&self, method: &Method, phase: InterceptedPhase) -> bool {
        let is_outcome = phase == InterceptedPhase::Result && method.is_task_request();
        self.sees_any(phase)
            && (self.matches(method) || (is_outcome && self.matches(&Method::ToolsCall)))
    }

    /// Returns true if it sees this part of any call.
    pub(super) fn sees_any(&self, phase: InterceptedPhase) -> bool {
        self.config.on.contains(&phase)
    }

    fn matches(&self, method: &Method) -> bool {
        self.config.methods.iter().any(|pattern| pattern.matches(method.as_str()))
    }

    /// Returns true if nothing passes without its approval.
    pub(super) fn is_strict(&self) -> bool {
        self.config.mode == InterceptorMode::Enforce
            && self.config.fail == InterceptorFailure::Closed
    }

    /// Asks about a call, or about a message of the server.
    pub(super) async fn ask(
        &self,
        seen: &Intercepted,
        message: Option<&SeenMessage>,
        context: &Context,
        now: Instant,
    ) -> Result<Verdict, InterceptorFault> {
        if message.is_none() && seen.is_ambiguous() {
            return Err(InterceptorFault::Ambiguous);
        }
        let pass = self.breaker.as_ref().map(|breaker| breaker.enter(now)).transpose();
        let pass = pass.map_err(|_| InterceptorFault::BreakerOpen)?;
        let limit = self.config.max_size;
        if message.is_some_and(|message| message.size() > limit) {
            return Err(InterceptorFault::TooLarge { limit });
        }
        let time = Timestamp::try_from(clock::wall_now()).unwrap_or_default().to_string();
        let body = seen.request(self.config.name.as_str(), message, context, &time);
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

/// Limit of idle connections.
const MAX_IDLE_CONNECTIONS: usize = 16;
